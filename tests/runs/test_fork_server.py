"""The server that runs are forked from: what it does before the first one."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from ssmlbench.runs import fork_server


def test_a_forked_process_knows_the_cores_without_another_program(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The seal would report `lscpu`, which joblib starts once in a process, as a method's doing."""
    import joblib
    from joblib.externals.loky.backend import context

    # Where a process may use fewer cores than there are, joblib has no need to ask.
    monkeypatch.setattr(context, "_cpu_count_user", lambda cores: cores)
    monkeypatch.setattr(context, "physical_cores_cache", None)
    monkeypatch.setattr(fork_server, "PRELOADED", ())
    monkeypatch.setattr("ssmlbench.core.paths.builtin_root", lambda: tmp_path)
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
