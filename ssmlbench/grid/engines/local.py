"""The local engine: every run in fresh processes of its own on this machine.

A run whose processes are killed is tried once more from its checkpoint. They never outlive the process
that started them.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from multiprocessing.connection import wait
from typing import TYPE_CHECKING

from ssmlbench.core.errors import UserError
from ssmlbench.core.events import Closing, Listener
from ssmlbench.core.spec import RunSpec
from ssmlbench.grid.engines.base import GridPlan, WaitingEngine
from ssmlbench.grid.resources import Machine, threads_wanted
from ssmlbench.grid.run_one import SealedRun, can_be_sealed, run_here, run_one
from ssmlbench.runs.folder import RunFolder

if TYPE_CHECKING:
    from ssmlbench.plugins.loader import Plugins
    from ssmlbench.runs.context import RunContext


class LocalEngine(WaitingEngine):
    """Processes on this machine."""

    name = "local"
    help = "this machine"
    runs_here = True

    def check(self, context: RunContext) -> None:
        """Raise a UserError if no run can be made in this context."""
        super().check(context)
        if context.gpus == 1:
            return
        machine = Machine.here(context.device)
        if machine.device != "cpu" and machine.gpus < context.gpus:
            raise UserError(f"--gpus {context.gpus}: there are {machine.gpus} here")
        if self.jobs is not None and self.jobs > 1:
            raise UserError(
                f"--gpus {context.gpus} makes one run at a time; leave --jobs {self.jobs} out"
            )

    def plan(self, specs: Sequence[RunSpec], plugins: Plugins, context: RunContext) -> GridPlan:
        """Share the cores and GPUs of this machine among the runs made at the same time."""
        machine = Machine.here(context.device)
        jobs = self.jobs if context.gpus == 1 else 1
        if jobs is None:
            left = [spec for spec in specs if not RunFolder.of(context.results, spec).finished]
            jobs = machine.jobs(threads_wanted(left, plugins, context))
        workers = max(1, machine.cores // jobs) if self.workers is None else self.workers
        notes = []
        # The same whatever --jobs is: the number of threads changes the last bits of a run.
        context = replace(
            context, workers=workers, cores=max(1, machine.cores // max(1, machine.gpus))
        )
        threads = max((t or 1 for t in threads_wanted(specs, plugins, context)), default=1)
        if jobs * threads > machine.cores:
            each = f" with {threads} threads each" if threads > 1 else ""
            notes.append(f"--jobs {jobs}{each} on {machine.cores} cores: the runs will share them")
        return GridPlan(specs, plugins, context, jobs, tuple(notes))

    def make(self, plan: GridPlan, listener: Listener) -> None:
        """Make each run in fresh processes, `jobs` at a time, each on one GPU unless several share it."""
        if plan.context.gpus > 1:
            for spec in plan.specs:
                notify = partial(listener, spec)
                listener(spec, run_one(spec, plan.plugins, plan.context, notify))
            return
        if not can_be_sealed(plan.plugins):
            for spec in plan.specs:
                notify = partial(listener, spec)
                listener(spec, run_here(spec, plan.plugins, plan.context, notify))
            return
        jobs = min(plan.jobs or 1, len(plan.specs))
        gpus = Machine.here(plan.context.device).gpus
        RunPool(plan.plugins, plan.context, jobs, gpus).make(plan.specs, listener)


def own_gpu(slot: int, gpus: int, visible: str | None) -> str | None:
    """The CUDA_VISIBLE_DEVICES with which a run sees one GPU only; None: leave it as it is."""
    if not gpus:
        return None
    names = visible.split(",") if visible else [str(i) for i in range(gpus)]
    return names[slot % gpus]


class RunPool:
    """The runs of one grid that are made at the same time."""

    def __init__(self, plugins: Plugins, context: RunContext, jobs: int, gpus: int):
        self.plugins = plugins
        self.context = context
        self.jobs = jobs
        self.gpus = gpus
        self.running: dict[int, SealedRun] = {}  # by slot, which decides the GPU

    def make(self, specs: Sequence[RunSpec], listener: Listener) -> None:
        """Make the runs, `jobs` at a time."""
        waiting = list(specs)[::-1]
        try:
            while waiting or self.running:
                while waiting and len(self.running) < self.jobs:
                    self._start(waiting.pop())
                for slot in self._ready():
                    run = self.running[slot]
                    event = run.next_event()
                    if isinstance(event, Closing):
                        run.stop()
                        del self.running[slot]
                    listener(run.spec, event)
        finally:
            for run in self.running.values():
                run.stop()

    def _start(self, spec: RunSpec) -> None:
        slot = next(i for i in range(self.jobs) if i not in self.running)
        gpu = own_gpu(slot, self.gpus, os.environ.get("CUDA_VISIBLE_DEVICES"))
        self.running[slot] = SealedRun(spec, self.plugins, self.context, gpu)

    def _ready(self) -> list[int]:
        """The slots whose run has an event."""
        failed = [slot for slot, run in self.running.items() if run.pipe is None]
        if failed:
            return failed
        pipes = {run.pipe: slot for slot, run in self.running.items()}
        return [pipes[pipe] for pipe in wait([pipe for pipe in pipes if pipe is not None])]  # type: ignore[index]
