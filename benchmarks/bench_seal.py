"""What a sealed run costs over the same run in one process, in seconds of processor time.

Processor time, as the bars are for a quiet machine: a run has two processes more, which wait for their
turn on a busy one.
"""

from __future__ import annotations

import os
import resource
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ssmlbench.core.events import Done
from ssmlbench.grid import run_one as sealed
from ssmlbench.grid.run_one import run_here, run_one
from ssmlbench.plugins.loader import Plugins
from ssmlbench.runs.context import RunContext
from ssmlbench.runs.fork_server import fork_server
from ssmlbench.runs.resolve import resolve

DATASET, REPEATS = "multidigits", 5
RUN_SECONDS = 120  # the bar is a share of a run of two minutes
NOTES = "BENCH_SEAL_NOTES"


class NotingPipe:
    """The judge's pipe to the process that asked for the run; the last message ends the judge."""

    def __init__(self, pipe: Any):
        self._pipe = pipe
        self.recv_bytes, self.poll = pipe.recv_bytes, pipe.poll

    def send(self, message: object) -> None:
        note_time()
        self._pipe.send(message)


def judge_process(request: Any, pipe: Any, *more: Any) -> None:
    """The judge, which notes its processor time before every message."""
    from ssmlbench.runs.sealed_run import judge_process as judge

    judge(request, NotingPipe(pipe), *more)


def training_process(*arguments: Any) -> None:
    """Training, which notes its processor time before it exits."""
    from ssmlbench.runs.sealed_run import training_process as train

    leave = os._exit

    def exit_with_note(code: int) -> None:
        note_time()
        leave(code)

    os._exit = exit_with_note  # type: ignore[assignment]
    train(*arguments)


def note_time() -> None:
    used = resource.getrusage(resource.RUSAGE_SELF)
    notes = Path(os.environ[NOTES], str(os.getpid()))
    notes.write_text(str(used.ru_utime + used.ru_stime))


def processor_seconds(
    make: Callable[..., Any], plugins: Plugins, folder: Path, epochs: int, seed: int
) -> float:
    spec = resolve(plugins, {}, method="cap", dataset=DATASET, pi=0.05, epochs=epochs, seed=seed)
    notes = Path(os.environ[NOTES])
    for note in notes.iterdir():
        note.unlink()
    began = time.process_time()
    last = make(spec, plugins, RunContext(folder, "cpu", 1), lambda event: None)
    assert isinstance(last, Done), last
    others = sum(float(note.read_text()) for note in notes.iterdir())
    return time.process_time() - began + others


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        os.environ[NOTES] = str(root / "notes")
        (root / "notes").mkdir()
        sealed.JUDGE, sealed.TRAINING = "bench_seal:judge_process", "bench_seal:training_process"
        plugins = Plugins()
        fork_server()
        processor_seconds(run_here, plugins, root / "warm", 1, 0)  # data prepared, server ready
        processor_seconds(run_one, plugins, root / "warm", 1, 1)
        extra = []
        for epochs in (1, 6):
            pairs = [
                (
                    processor_seconds(run_one, plugins, root / "sealed", epochs, seed),
                    processor_seconds(run_here, plugins, root / "here", epochs, seed),
                )
                for seed in range(REPEATS)
            ]
            extra.append(statistics.median(one - other for one, other in pairs))
    start, of_six = extra
    per_epoch = (of_six - start) / 5
    print(f"a run in fresh, sealed processes: {start:.2f} s more than in one process (bar: 0.3 s)")
    share = max(of_six, start) / RUN_SECONDS
    print(f"of a run of two minutes: {100 * share:.2f} % (bar: 2 %); per epoch {per_epoch:+.3f} s")


if __name__ == "__main__":
    main()
