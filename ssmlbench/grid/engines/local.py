"""The local engine: worker processes that make one run after another.

A worker that dies is replaced, and its run tried once more from its checkpoint. Workers never
outlive the process that started them.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from typing import TYPE_CHECKING

from ssmlbench.core.events import Closing, Event, Failed, Listener, Retried
from ssmlbench.core.spec import RunSpec
from ssmlbench.grid.engines.base import GridPlan, WaitingEngine
from ssmlbench.grid.resources import Machine, threads_wanted
from ssmlbench.grid.run_one import run_one
from ssmlbench.runs.folder import RunFolder

if TYPE_CHECKING:
    from ssmlbench.plugins.loader import Plugins
    from ssmlbench.runs.context import RunContext

MAX_DEATHS = 2
"""Workers a run may lose before it counts as failed."""


class LocalEngine(WaitingEngine):
    """Worker processes on this machine."""

    name = "local"
    help = "this machine"
    runs_here = True

    def plan(self, specs: Sequence[RunSpec], plugins: Plugins, context: RunContext) -> GridPlan:
        """Share the cores and GPUs of this machine among the runs made at the same time."""
        machine = Machine.here(context.device)
        jobs = self.jobs
        if jobs is None:
            left = [spec for spec in specs if not RunFolder.of(context.results, spec).finished]
            jobs = machine.jobs(threads_wanted(left, plugins, context))
        cores = max(1, machine.cores // jobs)
        workers = cores if self.workers is None else self.workers
        notes = []
        if jobs * (context.threads or 1) > machine.cores:
            each = f" with --threads {context.threads}" if context.threads else ""
            notes.append(f"--jobs {jobs}{each} on {machine.cores} cores: the runs will share them")
        context = replace(context, workers=workers, cores=cores)
        return GridPlan(specs, plugins, context, jobs, tuple(notes))

    def make(self, plan: GridPlan, listener: Listener) -> None:
        """Make a single run in this process, several in a pool of workers, each on one GPU."""
        if len(plan.specs) == 1:
            (spec,) = plan.specs
            listener(spec, run_one(spec, plan.plugins, plan.context, partial(listener, spec)))
            return
        jobs = min(plan.jobs or 1, len(plan.specs))
        gpus = Machine.here(plan.context.device).gpus
        WorkerPool(plan.plugins.files, plan.context, jobs, gpus).make(plan.specs, listener)


class Worker:
    """A process that makes one run after another, and the pipe to it."""

    def __init__(self, plugin_files: Sequence[str], context: RunContext, slot: int, gpus: int):
        """slot: its number among the workers of the pool; decides which GPU it uses."""
        spawn = multiprocessing.get_context("spawn")
        self.slot = slot
        self.pipe, theirs = spawn.Pipe()
        gpu = own_gpu(slot, gpus, os.environ.get("CUDA_VISIBLE_DEVICES"))
        self.process = spawn.Process(
            target=_work, args=(theirs, plugin_files, context, gpu), daemon=True
        )
        with _no_interrupts():
            self.process.start()
        theirs.close()
        self.spec: RunSpec | None = None

    def give(self, spec: RunSpec) -> None:
        """Start a run; its events come through the pipe."""
        self.spec = spec
        with suppress(OSError):  # it died while idle: reading from the pipe will fail
            self.pipe.send(spec.as_dict())

    def stop(self) -> None:
        """Close the pipe, which ends an idle worker; terminate a busy one, whose checkpoint stays."""
        self.pipe.close()
        if self.spec is not None:
            self.process.terminate()
        self.process.join()


def own_gpu(slot: int, gpus: int, visible: str | None) -> str | None:
    """The CUDA_VISIBLE_DEVICES with which a worker sees one GPU only; None: leave it as it is."""
    if not gpus:
        return None
    names = visible.split(",") if visible else [str(i) for i in range(gpus)]
    return names[slot % gpus]


@contextmanager
def _no_interrupts() -> Iterator[None]:
    """Children inherit the blocked SIGINT; only the parent handles Ctrl-C."""
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])


def _start_tracker_quietly() -> None:
    """Start the resource tracker without its warning about what a terminated worker left."""
    before = os.environ.get("PYTHONWARNINGS")
    os.environ["PYTHONWARNINGS"] = "ignore::UserWarning:multiprocessing.resource_tracker"
    try:
        resource_tracker.ensure_running()
    finally:
        if before is None:
            del os.environ["PYTHONWARNINGS"]
        else:
            os.environ["PYTHONWARNINGS"] = before


def _work(
    pipe: Connection, plugin_files: Sequence[str], context: RunContext, gpu: str | None
) -> None:
    if gpu is not None:  # CUDA reads it when it is first used
        os.environ["CUDA_VISIBLE_DEVICES"] = gpu
    threading.Thread(target=_end_with_parent, daemon=True).start()
    from ssmlbench.plugins.loader import Plugins
    from ssmlbench.runs.execute import quieten

    def send(event: Event) -> None:
        try:
            pipe.send(event)
        except OSError:  # the parent was killed: end at once, the checkpoint stays
            os._exit(1)

    quieten()
    plugins = Plugins(plugin_files)
    while True:
        try:
            spec = RunSpec.from_dict(pipe.recv())
        except EOFError:
            return
        send(run_one(spec, plugins, context, send))


def _end_with_parent() -> None:
    """End this worker when its parent dies, or a restarted grid would wait for its locks."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    wait([parent.sentinel])
    os._exit(1)


class WorkerPool:
    """The workers of one grid."""

    def __init__(self, plugin_files: Sequence[str], context: RunContext, jobs: int, gpus: int):
        self.plugin_files = plugin_files
        self.context = context
        self.jobs = jobs
        self.gpus = gpus
        self.workers: list[Worker] = []
        _start_tracker_quietly()
        self.deaths: Counter[str] = Counter()

    def make(self, specs: Sequence[RunSpec], listener: Listener) -> None:
        """Make the runs, `jobs` at a time; a run whose worker died is started once more."""
        waiting = list(specs)[::-1]
        try:
            while waiting or any(worker.spec for worker in self.workers):
                self._hand_out(waiting)
                for worker, event in self._next_events():
                    spec = worker.spec
                    assert spec is not None
                    if event is None:
                        event = self._after_death(worker, spec)
                        if isinstance(event, Retried):
                            waiting.append(spec)
                    if isinstance(event, Closing):
                        worker.spec = None
                    listener(spec, event)
        finally:
            for worker in self.workers:
                worker.stop()

    def _hand_out(self, waiting: list[RunSpec]) -> None:
        idle = [worker for worker in self.workers if worker.spec is None]
        while waiting and (idle or len(self.workers) < self.jobs):
            if not idle:
                taken = {worker.slot for worker in self.workers}
                slot = next(i for i in range(self.jobs) if i not in taken)
                idle.append(Worker(self.plugin_files, self.context, slot, self.gpus))
                self.workers.append(idle[-1])
            idle.pop().give(waiting.pop())

    def _next_events(self) -> list[tuple[Worker, Event | None]]:
        """The next event of every worker that has one; None for a worker that died."""
        ready = wait([worker.pipe for worker in self.workers if worker.spec])
        events: list[tuple[Worker, Event | None]] = []
        for worker in [worker for worker in self.workers if worker.pipe in ready]:
            try:
                events.append((worker, worker.pipe.recv()))
            except (EOFError, OSError):
                events.append((worker, None))
        return events

    def _after_death(self, worker: Worker, spec: RunSpec) -> Retried | Failed:
        worker.process.join()
        self.workers.remove(worker)
        self.deaths[spec.hash] += 1
        text = f"its worker process died (exit {worker.process.exitcode})"
        if self.deaths[spec.hash] < MAX_DEATHS:
            return Retried(f"{text}; tried once more")
        RunFolder.of(self.context.results, spec).record_failure(spec, f"{text}, twice")
        return Failed(f"{text}, twice")
