"""Inside the Python process: objects in memory, frames, and functions of the watch that are replaced."""

import builtins
import fcntl
import gc
import json
import os
import subprocess
import sys
import threading
import types
from contextlib import suppress
from pathlib import Path

import numpy as np
import torch

from tests.faults.attacks.file_functions import from_file
from tests.faults.attacks.judge_messages import desk
from tests.faults.attacks.places import (
    LABELS,
    TEST_ROWS,
    label_bytes,
    labels,
    read_in_libc,
    stolen,
)


def _looks_like_truth(value) -> bool:
    shape = tuple(getattr(value, "shape", ()))
    if shape not in ((TEST_ROWS, LABELS), (80, LABELS)):
        return False
    values = np.asarray(value).astype(float)
    return set(np.unique(values)) == {0.0, 1.0}


def from_memory():
    """Walk everything that the garbage collector and the frames know."""
    frame, seen = sys._getframe(), []
    while frame is not None:
        seen += frame.f_locals.values()
        frame = frame.f_back
    todo = [*seen, *gc.get_objects()]
    for value in todo:
        for part in (value, *gc.get_referents(value)):
            if isinstance(part, np.ndarray | torch.Tensor) and _looks_like_truth(part):
                return np.asarray(part)[:TEST_ROWS]
    raise LookupError


def from_changed_builtins():
    """Blinds the tripwire: everything is a number."""
    honest, path = builtins.isinstance, str(labels())
    builtins.isinstance = lambda *rest: True
    try:
        file = os.open(path, os.O_RDONLY)
    finally:
        builtins.isinstance = honest
    return label_bytes(os.read(file, 1 << 20))


def from_changed_seal():
    """Takes the tripwire's own constants and functions away."""
    import ssmlbench.core.sealed_files as names
    from ssmlbench.runs import seal

    seal.PATHS.clear()
    seal.HOLDS_LABELS = names.HOLDS_LABELS = ()
    seal.in_tasks = names.in_tasks = lambda path: False
    os.path.realpath = os.fsdecode = lambda path, **more: "/"
    return from_file()


def by_trace_function():
    """Looks into the frames of the watch itself, and changes what it compares with."""
    seen = []

    def trace(frame, event, argument):
        if frame.f_code.co_name in ("sealed", "hook", "is_sealed", "sealed_place"):
            seen.append(frame.f_code.co_name)
            frame.f_locals.clear()
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        return labels().read_bytes()
    finally:
        sys.settrace(before)


def by_another_interpreter():
    """In the same process; what watches the first one hears nothing of it."""
    try:
        import _xxsubinterpreters as interpreters
    except ImportError:
        import _interpreters as interpreters
    other = interpreters.create()
    copy = f"open({str(stolen() / 'copied')!r}, 'wb').write(open({str(labels())!r}, 'rb').read())"
    interpreters.run_string(other, copy)


def by_closure_of_the_watch():
    """Empties the cells of every function that tells whether a path is sealed."""
    for function in gc.get_objects():
        if type(function) is types.FunctionType and function.__name__ in (
            *("sealed", "sealed_place", "same_file", "hook", "is_above"),
        ):
            function.__code__ = (lambda *rest: False).__code__.replace(
                co_freevars=function.__code__.co_freevars
            )
    return labels().read_bytes()


def from_a_thread_that_was_there_before():
    """The kernel's lock holds for a thread and what it starts: is there one that is older?"""
    found, ended = [], threading.Event()

    def wait(*rest):
        try:
            found.append(read_in_libc(labels()))
        except OSError as error:
            found.append(error)
        ended.set()
        return False

    for thread in threading.enumerate():
        if type(thread).__name__ == "EndsWithParent":
            thread._done.wait = wait
            assert ended.wait(60)
            del thread._done.wait
    content = found[0]
    if isinstance(content, OSError):
        raise LookupError(content)
    return label_bytes(content)


def starts_a_program_past_the_report():
    """The pipe of reports leads nowhere."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for name in os.listdir("/proc/self/fd"):  # noqa: PTH208
        with suppress(OSError):
            is_pipe = str(Path(f"/proc/self/fd/{name}").readlink()).startswith("pipe:")
            if (
                is_pipe
                and int(name) > 2
                and not fcntl.fcntl(int(name), fcntl.F_GETFL) ^ os.O_WRONLY
            ):
                os.dup2(nowhere, int(name))
    subprocess.run(["true"], check=True)


def by_replaced_functions():
    """Nothing that the watch could ask for is true."""
    return _opened_without("any", "all", "tuple", "bool", "len")


def by_a_replaced_function_of_the_library():
    """`os.path.join` uses it: Python's own code mistakes the path, and the kernel does not."""
    return _opened_without("map")


def _opened_without(*names):
    path = str(labels())
    honest = {name: getattr(builtins, name) for name in names}
    for name in names:
        setattr(builtins, name, lambda *rest: ())
    try:
        return os.open(path, os.O_RDONLY)
    finally:
        for name, function in honest.items():
            setattr(builtins, name, function)


def reads_labels_and_silences_the_report():
    from ssmlbench.runs.messages import JudgePipe
    from ssmlbench.runs.seal_reports import SealReports

    JudgePipe._send = SealReports.alarm = os.write = lambda *rest, **more: None
    labels().read_bytes()


def reads_labels_and_breaks_json():
    json.dumps = None
    labels().read_bytes()


def reads_labels_and_empties_the_desk():
    one, pipe = desk(), desk()._pipe
    one._pipe = types.SimpleNamespace(send_bytes=lambda content: None)
    try:
        labels().read_bytes()
    finally:
        one._pipe = pipe
