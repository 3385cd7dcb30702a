"""The server that runs are forked from: what it does before the first one."""

from __future__ import annotations

import errno
import os
import pickle
import signal
import subprocess
import sys
from collections.abc import Iterator
from multiprocessing import Pipe
from pathlib import Path

import pytest

from ssmlbench.runs import fork_server


def test_a_forked_process_knows_the_cores_without_another_program(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The seal would report `lscpu`, which joblib starts once in a process, as a method's doing."""
    import joblib
    from joblib.externals.loky.backend import context

    # Where a process may use fewer cores than there are, joblib has no need to ask.
    monkeypatch.setattr(context, "_cpu_count_user", lambda cores: cores)
    monkeypatch.setattr(context, "physical_cores_cache", None)
    monkeypatch.setattr(fork_server, "PRELOADED", ())
    fork_server.preload()

    def run(*arguments: object, **options: object) -> None:
        raise AssertionError(f"started {arguments}")

    monkeypatch.setattr(context.subprocess, "run", run)
    assert joblib.cpu_count(only_physical_cores=True) >= 1
    assert context.physical_cores_cache is not None


def test_a_server_that_forked_nothing_is_ended_while_it_imports() -> None:
    """A command with a mistake in it ends at once, and nothing of it holds its output open."""
    server = fork_server.ForkServer()
    server.stop()
    assert server._process.poll() == -signal.SIGTERM


@pytest.mark.parametrize("value", [exec, os.system, fork_server.ForkServer, subprocess.Popen])
def test_a_request_holds_nothing_that_runs_when_it_is_read(value: object) -> None:
    """It is read beside the labels, and before a training process is sealed."""

    class Hidden:
        def __reduce__(self) -> tuple[object, tuple[str]]:
            return value, ("raise SystemExit",)

    with pytest.raises(pickle.UnpicklingError, match="its request holds a value of "):
        fork_server.read_request(pickle.dumps([Hidden()]))


def test_a_request_names_no_function_of_a_library_by_a_module_of_this_tool() -> None:
    content = b"cssmlbench.core.files\nos.system\n(S'true'\ntR."
    with pytest.raises(pickle.UnpicklingError, match="its request holds a value of "):
        fork_server.read_request(content)


LOADED: list[int] = []
IMPATIENT = """
import sys
from ssmlbench.runs import fork_server
patch = f"import serve; from tests.runs import test_fork_server as test; test.load_slowly({sys.argv[1]});"
fork_server._START = fork_server._START.replace("import serve;", patch)
server = fork_server.ForkServer()
if sys.argv[1] == "0":
    sys.stdin.readline()
pipe = server.fork("tests.runs.test_fork_server:count", "tests.runs.test_fork_server:quiet", None)
try:
    pipe.recv_bytes()
except EOFError:
    pass
"""


def load_slowly(idle_seconds: float) -> None:
    """In the server: count what is loaded, and say when it is all."""

    def steps() -> Iterator[None]:
        for number in range(3):
            LOADED.append(number)
            yield
        os.write(1, b"all\n")

    fork_server.preload = lambda: None
    fork_server.preload_more = steps
    fork_server.IDLE_SECONDS = idle_seconds


def count(request: object, *pipes: object) -> None:
    """In a process that was forked."""
    os.write(1, b"%d\n" % len(LOADED))


@pytest.mark.parametrize(("idle_seconds", "loaded"), [("6000", "0\n"), ("0", "3\n")])
def test_a_run_that_is_asked_for_does_not_wait_for_what_other_runs_need(
    idle_seconds: str, loaded: str
) -> None:
    command = subprocess.Popen(
        [sys.executable, "-c", IMPATIENT, idle_seconds],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[2],
    )
    assert command.stdin
    assert command.stdout
    if idle_seconds == "0":
        assert command.stdout.readline() == "all\n"
        command.stdin.write("go on\n")
        command.stdin.flush()
    assert command.stdout.readline() == loaded
    command.communicate()


SPEAK = """
import os, sys
from ssmlbench.runs import fork_server
quick = "import serve; from ssmlbench.runs import fork_server; fork_server.PRELOADS = False;"
fork_server._START = fork_server._START.replace("import serve;", quick)
server = fork_server.ForkServer()
for number in range(2):
    if number == 1 and sys.stdout:
        os.dup2(os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT), 1)
    pipe = server.fork("tests.runs.test_fork_server:speak", "tests.runs.test_fork_server:quiet", number)
    try:
        pipe.recv_bytes()
    except EOFError:
        pass
"""


def speak(request: object, *pipes: object) -> None:
    """In a process that was forked."""
    os.write(1, b"run %d\n" % request)
    os.write(2, b"error %d\n" % request)


def quiet(request: object, *pipes: object) -> None:
    """The second process of a fork, which is not needed here."""


@pytest.mark.parametrize("redirected", ["", ">&-"])
def test_runs_write_where_the_command_writes_at_this_moment(
    tmp_path: Path, redirected: str
) -> None:
    """A display takes over the terminal after the server was started; standard output may be closed."""
    file = tmp_path / "replaced"
    said = subprocess.run(
        ["sh", "-c", f'exec "$@" {redirected}', "sh", sys.executable, "-c", SPEAK, str(file)],
        capture_output=True,
        check=True,
        text=True,
        cwd=Path(__file__).parents[2],
    )
    assert said.stderr == "error 0\nerror 1\n"
    assert said.stdout == ("" if redirected else "run 0\n")
    assert redirected or file.read_text() == "run 1\n"


ORPHAN = """
import os, socket, time
from ssmlbench.runs import fork_server
fork_server.preload = lambda: (os.write(imports, b"x"), time.sleep(6000))
ours, theirs = socket.socketpair()
seen, imports = os.pipe()
owner = os.getpid()
if os.fork() == 0:
    WAIT
    fork_server.serve(theirs.fileno(), owner)
END
os._exit(0)
"""
MOMENTS = {
    "while it imports": ("pass", "os.read(seen, 1)"),
    "before it imports": ("while os.getppid() == owner: time.sleep(0.01)", "pass"),
}


@pytest.mark.parametrize("moment", MOMENTS)
def test_a_server_ends_with_the_process_that_started_it(moment: str) -> None:
    """A killed command left a process behind for as long as the imports took."""
    wait, end = MOMENTS[moment]
    code = ORPHAN.replace("WAIT", wait).replace("END", end)
    # The call returns when the last process that has its output has ended.
    subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, timeout=600)


def test_a_machine_without_room_for_a_process_is_no_traceback(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The process that asked sees its pipe closed, and says so in one line."""

    def refuse() -> int:
        raise OSError(errno.EAGAIN, os.strerror(errno.EAGAIN))

    def end(code: int) -> None:
        raise SystemExit(code)

    monkeypatch.setattr(os, "fork", refuse)
    monkeypatch.setattr(os, "_exit", end)
    monkeypatch.setattr(signal, "signal", lambda *given: None)
    monkeypatch.setattr(fork_server, "_go_to", lambda *given: None)
    ours, theirs = Pipe()
    with pytest.raises(SystemExit) as ended:
        fork_server._run(pickle.dumps(("", "", b"", ())), theirs)
    assert ended.value.code == 0
    assert not capsys.readouterr().err
    ours.close()
