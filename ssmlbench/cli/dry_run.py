"""`ssmlbench run --dry-run`: the runs of a grid, their states, and an estimate of the time left."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.table import Table

from ssmlbench.core.console import Console
from ssmlbench.core.counts import counted
from ssmlbench.core.eta import duration
from ssmlbench.core.spec import RunSpec

if TYPE_CHECKING:
    from ssmlbench.grid.status import RunState
    from ssmlbench.plugins.loader import Plugins
    from ssmlbench.runs.context import RunContext

NAMES = {"done": "done", "running": "running", "stopped": "begun", "failed": "failed"}
"""The states of runs and their names in the table; any other run is to do."""


def show_plan(
    specs: Sequence[RunSpec], plugins: Plugins, context: RunContext, jobs: int, console: Console
) -> None:
    """Print the runs, their states and an estimate of the time left."""
    from ssmlbench.grid.status import state_of

    states = {spec.hash: state_of(context.results, spec) for spec in specs}
    table = Table(title=counted(len(specs), "run"), caption_justify="left")
    for column in ("method", "data set", "regime", "seed", "hash", "state"):
        table.add_column(column)
    counts: Counter[str] = Counter()
    for spec in specs:
        state = states[spec.hash]
        name = NAMES.get(state.state, "to do") if state else "to do"
        counts[name] += 1
        at = f" ({state.epoch}/{spec.epochs})" if state and state.epoch else ""
        table.add_row(
            spec.variant, spec.dataset, spec.regime_label, str(spec.seed), spec.hash, name + at
        )
    done = counts.pop("done", 0)
    of_them = ", ".join(
        f"{counts[name]} {name}" for name in ("running", "begun", "failed") if counts[name]
    )
    table.caption = f"{done} done, {len(specs) - done} to make" + (
        f" ({of_them})" if of_them else ""
    )
    console.print(table)
    if done < len(specs):
        waiting = [spec for spec in specs if not is_done(states[spec.hash])]
        console.print_line(time_left(waiting, states, plugins, context, jobs))


def is_done(state: RunState | None) -> bool:
    """Whether the run is finished."""
    return state is not None and state.state == "done"


def time_left(
    specs: Sequence[RunSpec],
    states: dict[str, RunState | None],
    plugins: Plugins,
    context: RunContext,
    jobs: int,
) -> str:
    """The estimate in words."""
    from ssmlbench.data import prepare
    from ssmlbench.grid.estimate import Remaining, estimate
    from ssmlbench.runs.finished import read_finished

    rows = {
        name: prepare(plugins.datasets[name]()).card.rows["train"]
        for name in {spec.dataset for spec in specs}
    }
    runs = [
        Remaining(spec, rows[spec.dataset], state.epoch if (state := states[spec.hash]) else 0)
        for spec in specs
    ]
    finished = read_finished([context.results])[0] if context.results.is_dir() else []
    left = estimate(runs, finished)
    if left.seconds is None:
        return "time left: no finished run to estimate from"
    at_once = min(jobs, len(specs))
    together = f", {at_once} at a time" if at_once > 1 else ""
    unknown = (
        f"; {left.unknown} of them have no finished run to estimate from" if left.unknown else ""
    )
    return f"time left: about {duration(left.seconds / at_once)}{together}{unknown}"
