"""One attempt at one run, the same on every engine, and the count of how a grid's runs ended."""

from __future__ import annotations

import json
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ssmlbench.core.errors import RunFailed, UserError
from ssmlbench.core.events import Notify
from ssmlbench.core.spec import RunSpec
from ssmlbench.runs.folder import RunFolder

if TYPE_CHECKING:
    from ssmlbench.plugins.loader import Plugins
    from ssmlbench.runs.context import RunContext

Report = Callable[[RunSpec, Mapping[str, Any]], None]
CLOSING = ("done", "already", "failed")
"""The kinds of event after which nothing more is heard of a run."""


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

    def counting(self, report: Report) -> Report:
        """The same callback, with every closing event counted here."""

        def note(spec: RunSpec, event: Mapping[str, Any]) -> None:
            self.count(spec, event)
            report(spec, event)

        return note


def not_made(specs: Sequence[RunSpec], place: RunContext, note: Report) -> list[RunSpec]:
    """The runs an engine has to make; of those that are made, `note` is told."""
    waiting = []
    for spec in specs:
        if RunFolder.of(place.results, spec).finished:
            note(spec, {"kind": "already"})
        else:
            waiting.append(spec)
    return waiting


def run_one(spec: RunSpec, plugins: Plugins, place: RunContext, notify: Notify) -> dict[str, Any]:
    """The closing event of a run: done, already, or failed with the reason, which its folder keeps."""
    from ssmlbench.runs.execute import execute

    folder = RunFolder.of(place.results, spec)
    try:
        kind = execute(spec, plugins, place, notify)
        return closing_event(kind, folder)
    except Exception as error:
        # execute lets nothing else through but what its own bugs raise
        told = isinstance(error, UserError | RunFailed)
        text = str(error) if told else f"{type(error).__name__}: {error}"
        folder.record_failure(spec, text, traceback.format_exc())
        return {"kind": "failed", "text": text}


def closing_event(kind: str, folder: RunFolder) -> dict[str, Any]:
    result = json.loads(folder.result_file.read_text(encoding="utf-8"))
    return {
        "kind": kind,
        "map": result["metrics"]["threshold"]["default"]["map"],
        "seconds": result["cost"]["seconds"],
    }
