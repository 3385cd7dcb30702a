"""What a user sees while runs are made: one live table on a terminal, plain lines in a log."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from rich.console import Console
from rich.live import Live
from rich.table import Table

from ssmlbench.core.eta import duration
from ssmlbench.core.spec import RunSpec

LOG_SECONDS = 10.0
"""A log gets a line of a running run this often at the most."""
TOTALS_SECONDS = 60.0
"""And a line of the whole grid this often."""


@dataclass
class Row:
    """A run that is being made, as the table shows it."""

    spec: RunSpec
    epoch: int = 0
    first: int = 0  # the epochs an earlier life of it had made
    loss: float | None = None
    seconds_per_epoch: float | None = None
    heard: float = 0.0  # when its last epoch ended
    doing: str = "starting"

    def eta(self, now: float) -> float | None:
        if self.seconds_per_epoch is None:
            return None
        since = min(now - self.heard, self.seconds_per_epoch)
        return (self.spec.epochs - self.epoch) * self.seconds_per_epoch - since


class Display:
    """Use as a context manager; `report` is the grid's callback."""

    def __init__(
        self,
        console: Console,
        total: int,
        quiet: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ):
        self.console = console
        self.total = total
        self.quiet = quiet
        self.closed = 0
        self.failed = 0
        self.rows: dict[str, Row] = {}
        self._clock = clock
        self._told = clock()
        self._began: float | None = None  # when the first run was heard of
        self._made = 0.0  # runs made since, of resumed ones the part that was left
        self._last: dict[str, float] = {}
        self._live: Live | None = None
        if console.is_terminal and not quiet:
            self._live = Live(
                get_renderable=self.table, console=console, refresh_per_second=2, transient=True
            )

    def __enter__(self) -> Display:
        if self._live:
            self._live.start()
        return self

    def __exit__(self, *exception: object) -> None:
        if self._live:
            self._live.stop()

    def report(self, spec: RunSpec, event: Mapping[str, Any]) -> None:
        kind = event["kind"]
        if kind in ("done", "already", "failed"):
            self._close(spec, event)
        elif kind == "warning":
            self._say(f"warning: {spec}: {event['text']}", always=True)
        elif kind == "retried":
            self._say(f"{spec}: {event['text']}", always=True)
            self.rows.pop(spec.hash, None)
        else:
            self._hear(spec, event)
        self._tell_totals()

    def _hear(self, spec: RunSpec, event: Mapping[str, Any]) -> None:
        """Something of a run that is under way."""
        if self._began is None:
            self._began = self._clock()
        row = self.rows.setdefault(spec.hash, Row(spec, heard=self._clock()))
        kind = event["kind"]
        if kind == "resumed":
            self._say(f"{spec}: goes on after epoch {event['epoch']}")
            row.epoch = row.first = event["epoch"]
            row.doing = "training"
        elif kind == "training":
            row.doing = "training"
        elif kind == "waits":
            row.doing = event["text"]
            self._say(f"{spec}: {event['text']}")
        elif kind == "features":
            self._features(row, event)
        elif kind == "epoch":
            self._epoch(row, event)

    def _features(self, row: Row, event: Mapping[str, Any]) -> None:
        """Rows of a frozen encoder's features, split by split and view by view."""
        rows = f"{event['done']}/{event['total']} rows"
        row.doing = f"encoding {event['what']}: {rows}"
        name = f"{row.spec.dataset}: features, {event['what']}"
        if event["done"] == event["total"] or self._due(name):
            self._log(f"{name}: {rows}")

    def _epoch(self, row: Row, event: Mapping[str, Any]) -> None:
        losses = {k.removeprefix("loss_"): v for k, v in event.items() if k.startswith("loss_")}
        row.epoch, row.doing, row.heard = event["epoch"], "training", self._clock()
        row.loss = sum(losses.values()) if losses else None
        row.seconds_per_epoch = event.get("seconds_per_epoch")
        if self._due(row.spec.hash):
            terms = " ".join(f"{name} {value:.4f}" for name, value in losses.items())
            left = f", {duration(row.eta(self._clock()))} left" if row.seconds_per_epoch else ""
            self._log(f"{row.spec}: epoch {event['epoch']}/{event['epochs']} {terms}{left}")

    def _close(self, spec: RunSpec, event: Mapping[str, Any]) -> None:
        self.closed += 1
        row = self.rows.pop(spec.hash, Row(spec))
        count = f"[{self.closed}/{self.total}] "
        if event["kind"] == "done":
            self._made += 1 - row.first / spec.epochs
            self._say(f"{count}{spec}: mAP {event['map']:.4f} in {event['seconds']:.0f} s")
        elif event["kind"] == "already":
            self._say(f"{count}{spec}: already done, nothing to do")
        else:
            self.failed += 1
            self._say(f"{count}{spec}: failed: {event['text']}", always=True)

    # ------------------------------------------------------------------ the whole grid

    def eta(self) -> float | None:
        """Seconds until all runs are made, at the pace so far; None before there is one."""
        begun = self.rows.values()
        made = self._made + sum((row.epoch - row.first) / row.spec.epochs for row in begun)
        left = self.total - self.closed - sum(row.epoch / row.spec.epochs for row in begun)
        if self._began is None or made <= 0:
            return None
        return (self._clock() - self._began) * left / made

    def totals(self) -> str:
        failed = f", {self.failed} failed" if self.failed else ""
        eta = self.eta()
        left = f", about {duration(eta)} left" if eta is not None else ""
        return f"{self.closed} of {self.total} runs{failed}, {len(self.rows)} running{left}"

    def table(self) -> Table:
        """What a terminal shows: the runs that are under way, and the totals below."""
        table = Table(caption=self.totals(), caption_justify="left")
        for column in ("method", "data set", "regime", "seed"):
            table.add_column(column, overflow="fold")
        for column in ("epoch", "loss", "ETA"):
            table.add_column(column, justify="right")
        now = self._clock()
        for row in self.rows.values():
            spec = row.spec
            table.add_row(
                spec.variant,
                spec.dataset,
                spec.regime_label,
                str(spec.seed),
                f"{row.epoch}/{spec.epochs}" if row.doing == "training" else row.doing,
                "-" if row.loss is None else f"{row.loss:.4f}",
                duration(row.eta(now)),
            )
        return table

    def _tell_totals(self) -> None:
        now = self._clock()
        if self.total > 1 and self.closed < self.total and now - self._told >= TOTALS_SECONDS:
            self._told = now
            self._log(self.totals())

    # ------------------------------------------------------------------ lines

    def _due(self, name: str) -> bool:
        """Is it time for another line of this in a log?"""
        now = self._clock()
        if now - self._last.setdefault(name, now) < LOG_SECONDS:
            return False
        self._last[name] = now
        return True

    def _log(self, line: str) -> None:
        """A line of progress: the live table shows it anyway."""
        if self._live is None:
            self._say(line)

    def _say(self, line: str, always: bool = False) -> None:
        if always or not self.quiet:
            self.console.print(line, highlight=False, markup=False, soft_wrap=True)
