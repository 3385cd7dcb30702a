"""The engine contract: an engine makes the runs of a grid, or submits them to a queue."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from ssmlbench.core.errors import UserError
from ssmlbench.core.events import Listener
from ssmlbench.core.spec import RunSpec
from ssmlbench.grid.queue_file import queued
from ssmlbench.grid.run_one import Summary, unfinished
from ssmlbench.grid.torchrun import Copies

if TYPE_CHECKING:
    from ssmlbench.plugins.loader import Plugins
    from ssmlbench.runs.context import RunContext


@dataclass(frozen=True)
class EngineOption:
    """An option of `ssmlbench run` that only one engine reads."""

    name: str  # as typed, without the dashes
    help: str
    example: str = ""  # key=value, for an option that may be repeated; its value is a mapping


@dataclass(frozen=True)
class GridPlan:
    """The runs for an engine, and how it will make them."""

    specs: Sequence[RunSpec]
    plugins: Plugins
    context: RunContext
    jobs: int | None = None  # runs at a time; None: as many as the engine's machines can take
    notes: tuple[str, ...] = ()  # warnings for the user before it starts


@dataclass
class Submission:
    """The runs that were submitted to a queue that outlives this process, and those that were not."""

    jobs: list[str] = field(default_factory=list)  # the queue's name for each run's job
    already: int = 0
    underway: int = 0
    logs: Path = Path()

    def lines(self) -> Iterator[str]:
        """The submission in words."""
        arrays = sorted({job.partition("_")[0] for job in self.jobs})
        skipped = f"{self.already} already there, {self.underway} queued or running already"
        if self.jobs:
            yield f"submitted {len(self.jobs)} runs as job {', '.join(arrays)}; {skipped}"
            yield f"their logs are in {self.logs}"
        else:
            yield f"nothing to submit: {skipped}"


class Engine(ABC):
    """Makes the runs of a grid. To add one: a subclass with a `name`, in a file of this folder.

    One that waits for its runs is a `WaitingEngine`; one that submits and exits defines `run`.
    """

    name: ClassVar[str]
    help: ClassVar[str]  # a few words, shown by `ssmlbench run --help`
    options: ClassVar[tuple[EngineOption, ...]] = ()
    runs_here: ClassVar[bool] = False  # on this machine, with its devices

    def __init__(
        self,
        jobs: int | None = None,
        workers: int | None = None,
        options: Mapping[str, Any] | None = None,
    ):
        """Take --jobs, --workers and this engine's own options, by name; None: not given."""
        self.jobs = jobs
        self.workers = workers
        self.given = dict(options or {})

    def check(self, context: RunContext) -> None:
        """Raise a UserError if no run can be made in this context.

        Of a device on another machine only the name can be checked.
        """
        from ssmlbench.training.device import check_device_name, pick_device
        from ssmlbench.training.saving import seconds_between_checkpoints

        check_device_name(context.device)
        seconds_between_checkpoints()
        Copies.of_environment().check(context.gpus)
        if self.runs_here:
            pick_device(context.device)
        elif ":" in context.device:
            raise UserError(
                f"--device {context.device}: --engine {self.name} gives each run its GPU; type --device "
                "cuda"
            )

    def plan(self, specs: Sequence[RunSpec], plugins: Plugins, context: RunContext) -> GridPlan:
        """Decide how many runs are made at a time, and the share of its machine that each gets.

        The machine that makes a run decides on the threads for decoding.
        """
        return GridPlan(specs, plugins, replace(context, workers=self.workers), self.jobs)

    @abstractmethod
    def run(self, plan: GridPlan, listener: Listener) -> Summary | Submission:
        """Make every run of the plan that is not finished, or hand it to a queue."""


class WaitingEngine(Engine):
    """An engine that waits until its runs have ended."""

    def run(self, plan: GridPlan, listener: Listener) -> Summary:
        """Make every run that is not finished, and count how they ended."""
        summary = Summary()
        count = summary.counting(listener)
        waiting = unfinished(plan.specs, plan.context, count)
        if waiting:
            with queued(plan.context.results, waiting, self.name):
                self.make(replace(plan, specs=waiting), count)
        return summary

    @abstractmethod
    def make(self, plan: GridPlan, listener: Listener) -> None:
        """Make the plan's runs, none of which is finished; the listener gets every event.

        `ssmlbench.grid.run_one.run_one` makes one run and returns its last event; `RunPayload.run` does
        the same on a machine that has neither the plugins nor the settings.
        """
