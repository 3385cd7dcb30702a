"""Make one run, the same way on every engine, and count how the runs of a grid ended."""

from __future__ import annotations

import traceback
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ssmlbench.core.errors import RunFailed, UserError
from ssmlbench.core.events import (
    AlreadyDone,
    Closing,
    Done,
    Event,
    Failed,
    Listener,
    Notify,
)
from ssmlbench.core.spec import RunSpec
from ssmlbench.runs.folder import RunFolder

if TYPE_CHECKING:
    from ssmlbench.plugins.loader import Plugins
    from ssmlbench.runs.context import RunContext


@dataclass
class Summary:
    """How a grid ended."""

    done: int = 0
    already: int = 0
    failed: list[tuple[RunSpec, str]] = field(default_factory=list)

    def count(self, spec: RunSpec, event: Event) -> None:
        """Count the event if it is a run's last one."""
        match event:
            case Done():
                self.done += 1
            case AlreadyDone():
                self.already += 1
            case Failed(text):
                self.failed.append((spec, text))

    def counting(self, listener: Listener) -> Listener:
        """The same listener, with every closing event counted here."""

        def note(spec: RunSpec, event: Event) -> None:
            self.count(spec, event)
            listener(spec, event)

        return note


def not_made(specs: Sequence[RunSpec], context: RunContext, listener: Listener) -> list[RunSpec]:
    """The runs that are not finished; the listener gets AlreadyDone for the others."""
    waiting = []
    for spec in specs:
        if RunFolder.of(context.results, spec).finished:
            listener(spec, AlreadyDone())
        else:
            waiting.append(spec)
    return waiting


def run_one(spec: RunSpec, plugins: Plugins, context: RunContext, notify: Notify) -> Closing:
    """Make a run and return its last event; the folder of a failed run keeps the reason."""
    from ssmlbench.runs.execute import execute

    folder = RunFolder.of(context.results, spec)
    try:
        return execute(spec, plugins, context, notify)
    except Exception as error:
        expected = isinstance(error, UserError | RunFailed)
        text = str(error) if expected else f"{type(error).__name__}: {error}"
        folder.record_failure(spec, text, traceback.format_exc())
        return Failed(text)
