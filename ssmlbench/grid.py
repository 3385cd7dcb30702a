"""Many runs: expands the axes of a grid, and hands the specs to worker processes.

One failing run never stops the others; a worker that dies is replaced and its run counted as failed.
"""

from __future__ import annotations

import itertools
import json
import multiprocessing
import os
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from multiprocessing.connection import Connection, wait
from typing import TYPE_CHECKING, Any

from ssmlbench.errors import RunFailed, UserError
from ssmlbench.spec import RunSpec
from ssmlbench.store import RunFolder

if TYPE_CHECKING:
    from ssmlbench.registry import Plugins
    from ssmlbench.runner import Place

Report = Callable[[RunSpec, Mapping[str, Any]], None]


@dataclass
class Summary:
    """How a grid ended."""

    done: int = 0
    already: int = 0
    failed: list[tuple[RunSpec, str]] = field(default_factory=list)

    def count(self, spec: RunSpec, event: Mapping[str, Any]) -> None:
        if event["kind"] == "done":
            self.done += 1
        elif event["kind"] == "already":
            self.already += 1
        elif event["kind"] == "failed":
            self.failed.append((spec, event["text"]))


def expand(
    plugins: Plugins, axes: Mapping[str, Sequence[Any]], settings: Mapping[str, str], **fixed: Any
) -> list[RunSpec]:
    """Every combination of the axes as a full spec, in the order typed, each once."""
    from ssmlbench.runner import resolve

    names = list(axes)
    specs = (
        resolve(plugins, settings, **fixed, **dict(zip(names, values, strict=True)))
        for values in itertools.product(*axes.values())
    )
    return list({spec.hash: spec for spec in specs}.values())


def run_all(
    specs: Sequence[RunSpec], plugins: Plugins, place: Place, jobs: int, report: Report
) -> Summary:
    """Make every run that is not made, `jobs` at a time."""
    summary = Summary()

    def note(spec: RunSpec, event: Mapping[str, Any]) -> None:
        summary.count(spec, event)
        report(spec, event)

    waiting = []
    for spec in specs:
        if RunFolder.of(place.results, spec).finished:
            note(spec, {"kind": "already"})
        else:
            waiting.append(spec)
    if jobs == 1 or len(waiting) <= 1:
        for spec in waiting:
            note(spec, run_one(spec, plugins, place, partial(report, spec)))
    else:
        _run_in_processes(waiting, plugins, place, min(jobs, len(waiting)), note)
    return summary


def run_one(
    spec: RunSpec, plugins: Plugins, place: Place, notify: Callable[[Mapping[str, Any]], None]
) -> dict[str, Any]:
    """The closing event of a run: done, already, or failed with the reason."""
    from ssmlbench.runner import execute

    try:
        kind = execute(spec, plugins, place, notify)
        result = json.loads(RunFolder.of(place.results, spec).result_file.read_text())
        return {
            "kind": kind,
            "map": result["metrics"]["threshold"]["default"]["map"],
            "seconds": result["cost"]["seconds"],
        }
    except (UserError, RunFailed) as error:
        return {"kind": "failed", "text": str(error)}
    except Exception as error:
        where = traceback.format_exc(limit=-3)
        return {"kind": "failed", "text": f"{type(error).__name__}: {error}\n{where}"}


class _Worker:
    """A process that makes one run after another, and the pipe to it."""

    def __init__(self, plugin_files: Sequence[str], place: Place):
        context = multiprocessing.get_context("spawn")
        self.pipe, theirs = context.Pipe()
        self.process = context.Process(
            target=_work, args=(theirs, plugin_files, place), daemon=True
        )
        self.process.start()
        theirs.close()
        self.spec: RunSpec | None = None

    def give(self, spec: RunSpec) -> None:
        self.spec = spec
        self.pipe.send(spec.as_dict())

    def stop(self) -> None:
        """An idle worker ends when its pipe closes; one in a run is ended, its checkpoint stays."""
        self.pipe.close()
        if self.spec is not None:
            self.process.terminate()
        self.process.join()


def _work(pipe: Connection, plugin_files: Sequence[str], place: Place) -> None:
    from ssmlbench.registry import Plugins
    from ssmlbench.runner import quieten

    def send(event: Mapping[str, Any]) -> None:
        try:
            pipe.send(dict(event))
        except OSError:  # the parent was killed: stop as if killed too, the checkpoint stays
            os._exit(1)

    quieten()
    plugins = Plugins(plugin_files)
    while True:
        try:
            spec = RunSpec.from_dict(pipe.recv())
        except (EOFError, KeyboardInterrupt):
            return
        try:
            send(run_one(spec, plugins, place, send))
        except KeyboardInterrupt:
            return


def _run_in_processes(
    specs: Sequence[RunSpec], plugins: Plugins, place: Place, jobs: int, note: Report
) -> None:
    waiting = list(specs)[::-1]
    workers: list[_Worker] = []
    try:
        while waiting or any(worker.spec for worker in workers):
            while waiting and len(workers) < jobs:
                workers.append(_Worker(plugins.files, place))
            for worker in workers:
                if worker.spec is None and waiting:
                    worker.give(waiting.pop())
            ready = wait([worker.pipe for worker in workers if worker.spec])
            for worker in [w for w in workers if w.pipe in ready]:
                assert worker.spec is not None
                try:
                    event = worker.pipe.recv()
                except (EOFError, ConnectionResetError):
                    worker.process.join()
                    code = worker.process.exitcode
                    event = {"kind": "failed", "text": f"its worker process died (exit {code})"}
                    workers.remove(worker)
                spec = worker.spec
                if event["kind"] in ("done", "already", "failed"):
                    worker.spec = None
                note(spec, event)
    finally:
        for worker in workers:
            worker.stop()
