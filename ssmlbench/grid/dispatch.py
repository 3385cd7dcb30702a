"""Hands a list of run specs to an engine. It prints nothing: events go to a listener."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from ssmlbench.core.errors import UserError
from ssmlbench.core.events import Event, Listener
from ssmlbench.core.files import check_folder
from ssmlbench.core.spec import RunSpec
from ssmlbench.core.stopping import sigterm_raises
from ssmlbench.core.suggestions import one_of
from ssmlbench.grid.engines import engines
from ssmlbench.grid.engines.base import Engine, GridPlan, Submission
from ssmlbench.grid.run_one import Summary

if TYPE_CHECKING:
    from ssmlbench.plugins.loader import Plugins
    from ssmlbench.runs.context import RunContext


MOST_THREADS = 1024
"""The most threads of a run: with more, torch does not return."""


def ignore(spec: RunSpec, event: Event) -> None:
    """The listener that ignores every event."""


@dataclass(frozen=True)
class Dispatch:
    """Where and how runs are made; nothing here changes their numbers.

    `plan` decides how the machine is shared, `run` makes the planned runs:

        dispatch = Dispatch(RunContext(Path("results")), jobs=2)
        summary = dispatch.run(dispatch.plan(specs, plugins), listener)
    """

    context: RunContext
    engine: str = "local"
    jobs: int | None = None  # runs at a time; None: the engine decides
    workers: int | None = None  # threads of a run that read inputs; None: the engine decides
    options: Mapping[str, Any] = field(default_factory=dict)  # the engine's own, by name

    def check(self) -> None:
        """Raise a UserError if no run can be made with these options."""
        least = (("jobs", self.jobs, 1), ("threads", self.context.threads, 1))
        for name, value, lowest in (*least, ("workers", self.workers, 0)):
            if value is not None and value < lowest:
                raise UserError(f"--{name} {value}: must be at least {lowest}")
            if value is not None and name != "jobs" and value > MOST_THREADS:
                raise UserError(f"--{name} {value}: at most {MOST_THREADS:,}")
        self._engine.check(self.context)

    def typed(self, words: Sequence[str]) -> Dispatch:
        """The same for runs of a command with these options, which results store."""
        return replace(self, context=replace(self.context, typed=tuple(words)))

    @property
    def runs_here(self) -> bool:
        """Whether the runs are made on this machine, with its devices."""
        return self._engine.runs_here

    @cached_property
    def _engine(self) -> Engine:
        known = engines()
        one_of(self.engine, known, "--engine")
        given = {name: value for name, value in self.options.items() if value}
        own = {option.name for option in known[self.engine].options}
        for name, value in given.items():
            if name not in own:
                raise UserError(_not_its_option(name, value, self.engine))
        return known[self.engine](self.jobs, self.workers, given)

    def plan(self, specs: Sequence[RunSpec], plugins: Plugins) -> GridPlan:
        """Decide how many runs are made at a time, and the share of the machine that each gets."""
        self.check()
        names = {spec.dataset for spec in specs}
        sources = {name: plugins.sources(name, self.context.typed) for name in names}
        return self._engine.plan(specs, plugins, replace(self.context, sources=sources))

    def run(self, plan: GridPlan, listener: Listener = ignore) -> Summary | Submission:
        """Make the planned runs that are not finished, or submit them.

        Ctrl-C and SIGTERM end the runs under way, which save their state first.
        """
        check_folder(plan.context.results, "--results", make=True)
        with sigterm_raises():
            return self._engine.run(plan, listener)


def _not_its_option(name: str, value: Any, engine: str) -> str:
    """The error for an option that another engine has, or no engine."""
    known = engines()
    typed = next((f"{k}={v}" for k, v in value.items()), "") if isinstance(value, dict) else value
    for other in known:
        if any(option.name == name for option in known[other].options):
            return f"--{name} {typed} is for --engine {other}"
    return f"--{name} {typed}: --engine {engine} has no such option"
