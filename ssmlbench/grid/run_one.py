"""One attempt at one run, the same on every engine, and the count of how a grid's runs ended."""

from __future__ import annotations

import json
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


def not_made(specs: Sequence[RunSpec], context: RunContext, note: Listener) -> list[RunSpec]:
    """The runs an engine has to make; of those that are made, `note` is told."""
    waiting = []
    for spec in specs:
        if RunFolder.of(context.results, spec).finished:
            note(spec, AlreadyDone())
        else:
            waiting.append(spec)
    return waiting


def run_one(spec: RunSpec, plugins: Plugins, context: RunContext, notify: Notify) -> Closing:
    """The closing event of a run: done, already, or failed with the reason, which its folder keeps."""
    from ssmlbench.runs.execute import execute

    folder = RunFolder.of(context.results, spec)
    try:
        made = execute(spec, plugins, context, notify) == "done"
        return _done(folder) if made else AlreadyDone()
    except Exception as error:
        # execute lets nothing else through but what its own bugs raise
        told = isinstance(error, UserError | RunFailed)
        text = str(error) if told else f"{type(error).__name__}: {error}"
        folder.record_failure(spec, text, traceback.format_exc())
        return Failed(text)


def _done(folder: RunFolder) -> Done:
    result = json.loads(folder.result_file.read_text(encoding="utf-8"))
    return Done(result["metrics"]["threshold"]["default"]["map"], result["cost"]["seconds"])
