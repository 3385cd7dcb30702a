"""Shows the progress of runs: as one live table on a terminal, as plain lines in a log."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Self

from rich.live import Live
from rich.table import Table

from ssmlbench.core.console import Console
from ssmlbench.core.eta import duration, grid_eta, run_eta
from ssmlbench.core.events import (
    AlreadyDone,
    Closing,
    Decoding,
    Done,
    Encoding,
    EpochEnded,
    Event,
    Failed,
    Resumed,
    Retried,
    TrainingStarted,
    Waiting,
    Warned,
)
from ssmlbench.core.paths import near
from ssmlbench.core.plain_text import printable
from ssmlbench.core.spec import RunSpec
from ssmlbench.grid.terminal import OwnTerminal, owns_terminal
from ssmlbench.inputs.cache_folders import decoded_root

LOG_SECONDS = 10.0
"""The least time between two lines about the same run in a log."""
TOTALS_SECONDS = 60.0
"""The least time between two lines about the whole grid."""


@dataclass
class RunRow:
    """The row of a running run in the live table."""

    spec: RunSpec
    epoch: int = 0
    first: int = 0  # the epoch from which it was resumed
    loss: float | None = None
    seconds_per_epoch: float | None = None
    epoch_ended: float = 0.0  # when, by the display's clock
    doing: str = "starting"

    def eta(self, now: float) -> float | None:
        """Seconds left; `now` is by the display's clock."""
        since = now - self.epoch_ended
        return run_eta(self.epoch, self.spec.epochs, self.seconds_per_epoch, since)


def already_done(run: str, number: int, total: int) -> str:
    """The line of a run that was finished before."""
    return f"[{number}/{total}] {run}: already done, nothing to do"


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
        self.rows: dict[str, RunRow] = {}
        self._clock = clock
        self._totals_printed = clock()
        self._run_seconds: list[float] = []  # of the runs made so far
        self._last: dict[str, float] = {}
        self._warned_of: set[tuple[str, str]] = set()  # (data set, warning about it)
        self._live: Live | None = None
        self._terminal: OwnTerminal | None = None
        if console.is_terminal and not quiet:
            own = owns_terminal(console)
            self._terminal = OwnTerminal(console, self._say) if own else None
            self._live = Live(
                get_renderable=self.table,
                console=console,
                refresh_per_second=2,
                transient=True,
                redirect_stdout=not own,
                redirect_stderr=not own,
            )

    def __enter__(self) -> Self:
        if self._terminal:
            self._terminal.__enter__()
        if self._live:
            self._live.start()
        return self

    def __exit__(self, *exception: object) -> None:
        if self._live:
            self._live.stop()
        if self._terminal:
            self._terminal.__exit__(*exception)

    def report(self, spec: RunSpec, event: Event) -> None:
        """Show an event of a run: the grid's listener."""
        match event:
            case Done() | AlreadyDone() | Failed():
                self._close(spec, event)
            case Warned(text, of_data):
                self._warn(spec, text, of_data)
            case Retried(text):
                self._say(f"{spec}: {text}", always=True)
                self.rows.pop(spec.hash, None)
            case _:
                self._show_progress(spec, event)
        self._print_totals()

    def drop(self, spec: RunSpec) -> None:
        """Remove a run that was stopped, and is neither done nor failed, from the display and the total."""
        self.rows.pop(spec.hash, None)
        self.total -= 1

    def expect(self, runs: int) -> None:
        """Set the number of runs that are still to come."""
        self.total = self.closed + runs

    def _warn(self, spec: RunSpec, text: str, of_data: bool) -> None:
        """Print a warning; one about the data only once, not for every method."""
        if not of_data:
            self._say(f"warning: {spec}: {text}", always=True)
        elif (spec.dataset, text) not in self._warned_of:
            self._warned_of.add((spec.dataset, text))
            where = f"{spec.dataset} {spec.regime_label} seed {spec.seed}"
            self._say(f"warning: {where}: {text}", always=True)

    def _show_progress(self, spec: RunSpec, event: Event) -> None:
        row = self.rows.setdefault(spec.hash, RunRow(spec, epoch_ended=self._clock()))
        match event:
            case Resumed(epoch):
                self._say(f"{spec}: continues after epoch {epoch}")
                row.epoch = row.first = epoch
                row.doing = "training"
            case TrainingStarted():
                row.doing = "training"
            case Waiting(text):
                row.doing = text
                self._say(f"{spec}: {text}")
            case Encoding():
                self._show_encoding(row, event)
            case Decoding():
                self._show_decoding(row, event)
            case EpochEnded():
                self._show_epoch(row, event)

    def _show_encoding(self, row: RunRow, event: Encoding) -> None:
        row.doing = event.text
        name = f"{row.spec.dataset}: features, {event.part}"
        if event.done == event.total or self._due(name):
            self._log(f"{name}: {event.rows}")

    def _show_decoding(self, row: RunRow, event: Decoding) -> None:
        row.doing = event.text
        name = f"{row.spec.dataset}: decoded images, {event.part}"
        if name not in self._last:
            kept = f"kept in {near(decoded_root())}, {event.size}; --no-decoded-cache does not"
            self._say(f"{name}: decoded once for all runs, {kept}")
        if self._due(name) or event.done == event.total:
            self._log(f"{name}: {event.rows}")

    def _show_epoch(self, row: RunRow, event: EpochEnded) -> None:
        row.epoch, row.doing, row.epoch_ended = event.epoch, "training", self._clock()
        row.loss = sum(event.losses.values()) if event.losses else None
        row.seconds_per_epoch = event.seconds_per_epoch
        if self._due(row.spec.hash):
            terms = " ".join(f"{name} {value:.4f}" for name, value in event.losses.items())
            left = f", {duration(self.etas()[row.spec.hash])} left" if row.seconds_per_epoch else ""
            self._log(f"{row.spec}: epoch {event.epoch}/{event.epochs} {terms}{left}")

    def _close(self, spec: RunSpec, event: Closing) -> None:
        self.closed += 1
        row = self.rows.pop(spec.hash, RunRow(spec))
        count = f"[{self.closed}/{self.total}] "
        match event:
            case Done(mean_average_precision, seconds):
                if not row.first:
                    self._run_seconds.append(seconds)
                value = mean_average_precision
                outcome = "trained" if value is None else f"mAP {value:.4f}"
                self._say(f"{count}{spec}: {outcome} in {seconds:.0f} s")
            case AlreadyDone():
                self._say(already_done(str(spec), self.closed, self.total))
            case Failed(text):
                self.failed += 1
                self._say(f"{count}{spec}: failed: {text}", always=True)

    # ------------------------------------------------------------------ the whole grid

    def etas(self) -> dict[str, float | None]:
        """Seconds left of each run that is being made, by its hash."""
        now = self._clock()
        return {name: row.eta(now) for name, row in self.rows.items()}

    def eta(self, etas: dict[str, float | None]) -> float | None:
        """Seconds until all runs are made, from the runs' own estimates; None before there is one."""
        waiting = self.total - self.closed - len(self.rows)
        running = [
            row.seconds_per_epoch * row.spec.epochs
            for row in self.rows.values()
            if row.seconds_per_epoch is not None
        ]
        whole = [*self._run_seconds, *running]
        return grid_eta(list(etas.values()), waiting, statistics.mean(whole) if whole else None)

    def totals(self, etas: dict[str, float | None] | None = None) -> str:
        """The state of the grid in one line. etas: of the running runs, if already computed."""
        failed = f", {self.failed} failed" if self.failed else ""
        eta = self.eta(self.etas() if etas is None else etas)
        left = f", about {duration(eta)} left" if eta is not None else ""
        return f"{self.closed} of {self.total} runs{failed}, {len(self.rows)} running{left}"

    def table(self) -> Table:
        """The live table of a terminal: the runs being made, and the totals below."""
        etas = self.etas()
        table = Table(caption=self.totals(etas), caption_justify="left")
        for column in ("method", "data set", "regime", "seed"):
            table.add_column(column, overflow="fold")
        for column in ("epoch", "loss", "ETA"):
            table.add_column(column, justify="right")
        for name, row in self.rows.items():
            spec = row.spec
            table.add_row(
                spec.variant,
                spec.dataset,
                spec.regime_label,
                str(spec.seed),
                f"{row.epoch}/{spec.epochs}" if row.doing == "training" else row.doing,
                "-" if row.loss is None else f"{row.loss:.4f}",
                duration(etas[name]),
            )
        return table

    def _print_totals(self) -> None:
        now = self._clock()
        if (
            self.total > 1
            and self.closed < self.total
            and now - self._totals_printed >= TOTALS_SECONDS
        ):
            self._totals_printed = now
            self._log(self.totals())

    # ------------------------------------------------------------------ lines

    def _due(self, name: str) -> bool:
        """Whether it is time for another line of this name in a log."""
        now = self._clock()
        if now - self._last.setdefault(name, now) < LOG_SECONDS:
            return False
        self._last[name] = now
        return True

    def _log(self, line: str) -> None:
        """Print a line of progress, unless a live table shows it anyway."""
        if self._live is None:
            self._say(line)

    def _say(self, line: str, always: bool = False) -> None:
        if always or not self.quiet:
            self.console.print_line(printable(line))
