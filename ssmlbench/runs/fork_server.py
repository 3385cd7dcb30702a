"""A process that has imported what runs need, and run nothing: every run forks two fresh processes from it.

It is started anew (never forked from a process that has threads, a GPU or plugins), it loads no plugin
of the user, and it forks in milliseconds. It ends with the process that started it. On macOS nothing is
imported before the fork: its system libraries do not survive one.
"""

from __future__ import annotations

import atexit
import dataclasses
import importlib
import io
import os
import pickle
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path, PurePath
from typing import Any, BinaryIO, TextIO

from ssmlbench.core.process_environment import environment_without_plugins
from ssmlbench.core.stopping import EndsWithParent

PRELOADED = (
    "ssmlbench.runs.sealed_run",
    "datasets",
    "pandas",
    "sympy",  # torch's optimisers import it, with the compiler, when the first one is built
    "torch._dynamo",
    "torchvision.transforms.v2",
)
PRELOADS = sys.platform != "darwin"
IDLE_SECONDS = 0.1
"""After so long without a request, the server imports the next of PRELOADED."""
_START = (
    "import sys; sys.path[:] = {path!r}; from ssmlbench.runs.fork_server import serve; "
    "serve({fd}, {owner})"
)

_server: ForkServer | None = None
_lock = threading.Lock()


def fork_server() -> ForkServer:
    """The fork server of this process, started if need be."""
    global _server  # noqa: PLW0603
    with _lock:
        if _server is None or not _server.alive:
            _server = ForkServer()
        return _server


class ForkServer:
    """The process that forks, and the socket to it."""

    def __init__(self) -> None:
        ours, theirs = socket.socketpair()
        environment, folder, path = environment_without_plugins()
        self._owner = os.getpid()
        start = _START.format(path=path, fd=theirs.fileno(), owner=self._owner)
        self._used = False
        self._socket = ours
        with _standard_output() as out, _standard_error() as errors:
            self._process = subprocess.Popen(
                [sys.executable, "-c", start],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=errors,
                env=environment,
                cwd=folder,
            )
        theirs.close()
        atexit.register(self.stop)

    @property
    def alive(self) -> bool:
        """Whether the server runs and belongs to this process."""
        return self._owner == os.getpid() and self._process.poll() is None

    def fork(self, parent: str, child: str, request: Any) -> Connection:
        """Call two functions, each "module:function", in two fresh processes.

        Both get the request, a pipe to each other, and a second one from child to parent. The parent also
        gets the child's process id and a pipe to this process, whose other end is returned. Both have the
        environment, folder and import path of this process without the changes of plugins. They write to
        the present standard output and error of this process, which a display may have replaced.

        An UnpicklingError if the request holds anything but plain values.
        """
        content = pickle.dumps(
            (parent, child, pickle.dumps(request), environment_without_plugins())
        )
        read_request(read_request(content)[2])  # here an error is one of this run
        ours, theirs = socket.socketpair()
        with _lock, theirs, _standard_output() as out, _standard_error() as errors:
            self._used = True
            header = len(content).to_bytes(8, "big")
            socket.send_fds(
                self._socket, [header], [theirs.fileno(), out.fileno(), errors.fileno()]
            )
            self._socket.sendall(content)
        return Connection(ours.detach())

    def stop(self) -> None:
        """End the server; processes that it forked end when their pipes are closed."""
        if self._owner == os.getpid():
            self._socket.close()
            if not self._used:  # after a mistake in the command, nobody waits for its imports
                self._process.terminate()
            with suppress(OSError, subprocess.TimeoutExpired):
                self._process.wait(timeout=5)


def serve(descriptor: int, owner: int) -> None:
    """Import what runs need, then fork a process for every request. Called in the server.

    owner: the process that started it, which may have ended meanwhile.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the process that asks handles Ctrl-C
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for the forked processes
    control = socket.socket(fileno=descriptor)
    if PRELOADS:
        watch = EndsWithParent(owner)  # its end is seen below only after seconds of imports
        preload()
        watch.stop()
    more = preload_more() if PRELOADS else iter(())
    while True:
        while not _is_asked(control) and next(more, "all") != "all":
            pass
        header, given, _, _ = socket.recv_fds(control, 8, 3)
        if not header:
            os._exit(0)  # taking down what was imported takes a second, and the command waits
        content = _read(control, int.from_bytes(header, "big"))
        if _fork() == 0:
            control.close()
            pipe, *output = given
            for stream, target in enumerate(output, start=1):
                os.dup2(target, stream)
                os.close(target)
            _run(content, Connection(pipe))
        for received in given:
            os.close(received)


def _fork() -> int | None:
    """As `os.fork`; None if the machine has no room for a process: the run is then tried once more."""
    try:
        return os.fork()
    except OSError:
        return None


def preload() -> None:
    """Import what every run imports."""
    from ssmlbench.inputs.torchvision_compat import declare_missing_operators

    declare_missing_operators()
    for name in PRELOADED:
        with suppress(ImportError):  # a run that needs it reports the error
            importlib.import_module(name)
    with suppress(ImportError):
        # scikit-learn counts the cores once by starting a program, which the seal would report.
        importlib.import_module("joblib").cpu_count(only_physical_cores=True)


def preload_more() -> Iterator[None]:
    """Load the built-in methods and data sets, and with them scikit-learn, one file at a time.

    Most runs need one of them: the first run does not wait for the others.
    """
    from ssmlbench.core.paths import builtin_root
    from ssmlbench.plugins.loader import load_file

    for folder in ("methods", "datasets"):
        for file in sorted((builtin_root() / folder).glob("*.py")):
            with suppress(Exception):  # the process that asks has reported it already
                load_file(file)
            yield


def _is_asked(control: socket.socket) -> bool:
    return bool(select.select([control], [], [], IDLE_SECONDS)[0])


def _standard_output() -> BinaryIO:
    return _copy_of(sys.__stdout__, 1)


def _standard_error() -> BinaryIO:
    return _copy_of(sys.__stderr__, 2)


def _copy_of(stream: TextIO | None, descriptor: int) -> BinaryIO:
    """A copy of standard output or error; the null device if it was closed when this process began."""
    if stream is not None:  # else the descriptor is that of another file
        with suppress(OSError):
            return os.fdopen(os.dup(descriptor), "wb")
    return Path(os.devnull).open("wb")


def _read(control: socket.socket, size: int) -> bytes:
    parts = []
    while size:
        parts.append(control.recv(min(size, 1 << 20)))
        if not parts[-1]:
            os._exit(0)
        size -= len(parts[-1])
    return b"".join(parts)


def _run(content: bytes, pipe: Connection) -> None:
    """Become the two requested processes. Neither returns to the server's loop."""
    try:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        parent, child, request, environment = read_request(content)
        _go_to(*environment)
        ours, theirs = Pipe()
        heard, reports = Pipe(duplex=False)
        pid = _fork()  # now, while this process knows no label and has no thread
        if pid is None:
            return  # which closes the pipe to the process that asked
        if pid == 0:
            pipe.close()
            ours.close()
            heard.close()
            _function(child)(read_request(request), theirs, reports)
        else:
            theirs.close()
            reports.close()
            _function(parent)(read_request(request), pipe, pid, ours, heard)
    except BaseException:
        sys.excepthook(*sys.exc_info())
        os._exit(1)
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)


class _Requests(pickle.Unpickler):
    """Makes plain values, paths and data classes of this tool only.

    Whatever else a plugin has put into a request would run its code beside the labels, or before the seal.
    """

    def find_class(self, module: str, name: str) -> Any:
        """The class of that name."""
        room = module.partition(".")[0]
        if room in ("ssmlbench", "pathlib") and "." not in name:
            found = super().find_class(module, name)
            its_own = isinstance(found, type) and found.__module__ == module
            if its_own and (dataclasses.is_dataclass(found) or issubclass(found, PurePath)):
                return found
        raise pickle.UnpicklingError(
            f"its request holds a value of {module}.{name}, neither a number nor a text: does a Config "
            "put it there?"
        )


def read_request(content: bytes) -> Any:
    """What `ForkServer.fork` was given; an UnpicklingError if there is more in it than plain values."""
    return _Requests(io.BytesIO(content)).load()


def _go_to(environment: dict[str, str], folder: str, path: list[str]) -> None:
    os.environ.clear()
    os.environ.update(environment)
    sys.path[:] = path
    with suppress(OSError):
        os.chdir(folder)


def _function(name: str) -> Callable[..., None]:
    module, _, function = name.partition(":")
    found: Callable[..., None] = getattr(importlib.import_module(module), function)
    return found
