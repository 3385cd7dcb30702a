"""What a user sees while runs are made: live bars on a terminal, plain lines in a log."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.progress import TimeRemainingColumn as Remaining

from ssmlbench.spec import RunSpec

LOG_SECONDS = 10.0
"""A log gets a line of a running run this often at the most."""


class Display:
    """Use as a context manager; `report` is the grid's callback."""

    def __init__(self, console: Console, total: int, quiet: bool = False):
        self.console = console
        self.total = total
        self.quiet = quiet
        self.closed = 0
        self.bars: Progress | None = None
        self._tasks: dict[str, Any] = {}
        self._last: dict[str, float] = {}
        if console.is_terminal and not quiet:
            self.bars = Progress(
                TextColumn("{task.description}"),
                BarColumn(bar_width=24),
                MofNCompleteColumn(),
                TimeElapsedColumn(),
                Remaining(),
                console=console,
                transient=True,
            )

    def __enter__(self) -> Display:
        if self.bars:
            self.bars.start()
            self._tasks["all"] = self.bars.add_task("[bold]all runs", total=self.total)
        return self

    def __exit__(self, *exception: object) -> None:
        if self.bars:
            self.bars.stop()

    def report(self, spec: RunSpec, event: Mapping[str, Any]) -> None:
        kind = event["kind"]
        if kind in ("done", "already", "failed"):
            self._close(spec, event)
        elif kind == "warning":
            self._say(f"warning: {spec}: {event['text']}", always=True)
        elif kind == "resumed":
            self._say(f"{spec}: goes on after epoch {event['epoch']}")
            self._advance(spec, event["epoch"])
        elif kind == "features":
            self._features(spec, event)
        elif kind == "epoch":
            self._epoch(spec, event)

    def _features(self, spec: RunSpec, event: Mapping[str, Any]) -> None:
        """Rows of a frozen encoder's features, one bar or line for each split and view."""
        name = f"{spec.dataset}: features, {event['what']}"
        finished = event["done"] == event["total"]
        if self.bars:
            if name not in self._tasks:
                self._tasks[name] = self.bars.add_task(name, total=event["total"])
            self.bars.update(self._tasks[name], completed=event["done"])
            if finished:
                self.bars.remove_task(self._tasks.pop(name))
            return
        now = time.monotonic()
        if finished or now - self._last.get(name, 0.0) >= LOG_SECONDS:
            self._last[name] = now
            self._say(f"{name}: {event['done']}/{event['total']} rows")

    def _epoch(self, spec: RunSpec, event: Mapping[str, Any]) -> None:
        if self.bars:
            self._advance(spec, event["epoch"])
            return
        now = time.monotonic()
        if now - self._last.setdefault(spec.hash, now) >= LOG_SECONDS:
            self._last[spec.hash] = now
            terms = " ".join(
                f"{name.removeprefix('loss_')} {value:.4f}"
                for name, value in event.items()
                if name.startswith("loss_")
            )
            self._say(f"{spec}: epoch {event['epoch']}/{event['epochs']} {terms}")

    def _advance(self, spec: RunSpec, epoch: int) -> None:
        if not self.bars:
            return
        if spec.hash not in self._tasks:
            self._tasks[spec.hash] = self.bars.add_task(str(spec), total=spec.epochs)
        self.bars.update(self._tasks[spec.hash], completed=epoch)

    def _close(self, spec: RunSpec, event: Mapping[str, Any]) -> None:
        self.closed += 1
        count = f"[{self.closed}/{self.total}] "
        if event["kind"] == "done":
            self._say(f"{count}{spec}: mAP {event['map']:.4f} in {event['seconds']:.0f} s")
        elif event["kind"] == "already":
            self._say(f"{count}{spec}: already done, nothing to do")
        else:
            self._say(f"{count}{spec}: failed: {event['text']}", always=True)
        if self.bars:
            self.bars.advance(self._tasks["all"])
            if spec.hash in self._tasks:
                self.bars.remove_task(self._tasks.pop(spec.hash))

    def _say(self, line: str, always: bool = False) -> None:
        if always or not self.quiet:
            self.console.print(line, highlight=False, markup=False, soft_wrap=True)
