"""The local engine: every run in fresh processes of its own on this machine.

A run whose processes are killed is tried once more from its checkpoint. They never outlive the process
that started them.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import count
from multiprocessing.connection import wait
from typing import TYPE_CHECKING

from ssmlbench.core.counts import counted
from ssmlbench.core.errors import UserError
from ssmlbench.core.events import Closing, Listener
from ssmlbench.core.spec import RunSpec
from ssmlbench.core.whole_numbers import whole_number
from ssmlbench.grid.engines.base import EngineOption, GridPlan, WaitingEngine
from ssmlbench.grid.resources import MOST_GAIN, Lane, Machine, lanes, threads_wanted
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
    options = (
        EngineOption(
            "jobs-per-gpu",
            "Runs made at the same time on each GPU (one; heads on fixed features go to the cores, if "
            f"there are {MOST_GAIN} or more to a GPU).",
        ),
    )

    @property
    def _jobs_per_gpu(self) -> int | None:
        typed = self.given.get("jobs-per-gpu")
        if typed is None:
            return None
        if self.jobs is not None:
            raise UserError("--jobs and --jobs-per-gpu are both given; keep one")
        number = whole_number(str(typed))
        if not number:
            raise UserError(f"--jobs-per-gpu {typed}: must be a number of at least 1")
        return number

    def check(self, context: RunContext) -> None:
        """Raise a UserError if no run can be made in this context."""
        super().check(context)
        machine = Machine.here(context.device)
        if self._jobs_per_gpu is not None and not machine.gpus:
            raise UserError(
                f"--jobs-per-gpu {self._jobs_per_gpu}: the runs are not made on GPUs here; leave it out"
            )
        if context.gpus == 1:
            return
        if self._jobs_per_gpu is not None:
            raise UserError("--gpus and --jobs-per-gpu are both given; keep one")
        if machine.device == "mps":
            raise UserError(f"--gpus {context.gpus}: is for CUDA; leave it out on Apple's GPUs")
        if ":" in context.device:
            raise UserError(
                f"--gpus {context.gpus}: --device {context.device} is one GPU; keep one of the two"
            )
        if machine.device != "cpu" and machine.gpus < context.gpus:
            raise UserError(
                f"--gpus {context.gpus}: this machine has {counted(machine.gpus, 'GPU')}"
            )
        if self.jobs is not None and self.jobs > 1:
            raise UserError(
                f"--gpus {context.gpus} makes one run at a time; leave --jobs {self.jobs} out"
            )

    def plan(self, specs: Sequence[RunSpec], plugins: Plugins, context: RunContext) -> GridPlan:
        """Share the cores and GPUs of this machine among the runs made at the same time."""
        machine = Machine.here(context.device)
        left = [spec for spec in specs if not RunFolder.of(context.results, spec).finished]
        shared = lanes(machine, left, plugins, context, self._jobs_per_gpu)
        jobs = self.jobs or sum(lane.jobs for lane in shared)
        if context.gpus > 1:
            jobs = 1
        workers = max(1, machine.cores // jobs) if self.workers is None else self.workers
        notes = []
        # Independent of --jobs: the number of threads changes the last bits of a run.
        context = replace(
            context, workers=workers, cores=max(1, machine.cores // max(1, machine.gpus))
        )
        threads = max((t or 1 for t in threads_wanted(specs, plugins, context)), default=1)
        cores = counted(machine.cores, "core")
        if self.jobs and jobs * threads > machine.cores:
            each = f" with {threads} threads each" if threads > 1 else ""
            notes.append(f"--jobs {jobs}{each} on {cores}: the runs will share them")
        elif self._jobs_per_gpu and jobs > machine.cores:
            notes.append(f"{jobs} runs at a time on {cores}: the runs will share them")
        return GridPlan(specs, plugins, context, jobs, tuple(notes))

    def make(self, plan: GridPlan, listener: Listener) -> None:
        """Make each run in fresh processes, `jobs` at a time, each on one GPU or on cores.

        A run that several GPUs share is made alone.
        """
        if plan.context.gpus > 1:
            for spec in plan.specs:
                notify = partial(listener, spec)
                listener(spec, run_one(spec, plan.plugins, plan.context, notify))
            return
        machine = Machine.here(plan.context.device)
        shared = lanes(machine, plan.specs, plan.plugins, plan.context, self._jobs_per_gpu)
        if not can_be_sealed(plan.plugins):
            contexts = {spec.hash: lane.context for lane in shared for spec in lane.specs}
            for spec in plan.specs:
                notify = partial(listener, spec)
                listener(spec, run_here(spec, plan.plugins, contexts[spec.hash], notify))
            return
        if self.jobs:  # typed: for all kinds of runs together
            shared = [replace(lane, jobs=self.jobs) for lane in shared]
        jobs = min(plan.jobs or 1, len(plan.specs))
        RunPool(plan.plugins, machine, shared, jobs).make(listener)


@dataclass
class Running:
    """A run that is being made, and its slot in its lane, which decides the GPU."""

    run: SealedRun
    lane: int
    slot: int


class RunPool:
    """The runs of one grid that are made at the same time."""

    def __init__(self, plugins: Plugins, machine: Machine, lanes: Sequence[Lane], jobs: int):
        """jobs: at a time, of all lanes together."""
        self.plugins = plugins
        self.machine = machine
        self.lanes = lanes
        self.jobs = jobs
        self.waiting = [list(lane.specs)[::-1] for lane in lanes]
        self.running: list[Running] = []

    def make(self, listener: Listener) -> None:
        """Make the runs of all lanes."""
        try:
            while self._start_more() or self.running:
                for ended in self._ready():
                    event = ended.run.next_event()
                    if isinstance(event, Closing):
                        ended.run.stop()
                        self.running.remove(ended)
                    listener(ended.run.spec, event)
        finally:
            for left in self.running:
                left.run.ask_to_stop()
            for left in self.running:
                left.run.stop()

    def _start_more(self) -> bool:
        """Start as many runs as the machine has room for. Returns whether any run is being made."""
        for number, (lane, waiting) in enumerate(zip(self.lanes, self.waiting, strict=True)):
            while waiting and len(self.running) < self.jobs:
                taken = {one.slot for one in self.running if one.lane == number}
                if len(taken) >= lane.jobs:
                    break
                # --jobs may be any number: no set of all slots
                slot = next(free for free in count() if free not in taken)
                gpu = self.machine.gpu(slot, os.environ.get("CUDA_VISIBLE_DEVICES"))
                context = in_its_process(lane.context)
                run = SealedRun(waiting.pop(), self.plugins, context, gpu)
                self.running.append(Running(run, number, slot))
        return bool(self.running)

    def _ready(self) -> list[Running]:
        """The runs that have an event."""
        failed = [one for one in self.running if one.run.pipe is None]
        if failed:
            return failed
        pipes = {one.run.pipe: one for one in self.running}
        return [pipes[pipe] for pipe in wait([pipe for pipe in pipes if pipe is not None])]  # type: ignore[index]


def in_its_process(context: RunContext) -> RunContext:
    """The context for a process that sees one GPU, as its first."""
    return replace(context, device=context.device.partition(":")[0])
