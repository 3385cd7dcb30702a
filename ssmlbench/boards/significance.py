"""Statistics over boards: ranks, tests, critical differences.

Pure functions over arrays; scipy, scikit-posthocs and statsmodels do the mathematics and are imported
when a test is run. A test with too few methods or blocks raises `TooFew` with the reason.
"""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ssmlbench.boards.board import Board
from ssmlbench.boards.columns import Column
from ssmlbench.core.errors import UserError

ALPHA = 0.05
MIN_METHODS = 3
"""Friedman's test of two methods is a sign test; Wilcoxon's is the better one there."""
MIN_BLOCKS = 5
"""Below this the χ² distribution does not approximate Friedman's statistic."""
MIN_RESAMPLED_BLOCKS = 3
"""Below this resampled blocks say nothing about the spread of a rank."""
ROUGH_BLOCKS = 10
"""Below this Friedman's p is only rough (Demšar, 2006)."""


class TooFew(UserError):
    """A test needs more methods or blocks than there are."""


# ------------------------------------------------------------------------------ compared values


@dataclass(frozen=True)
class Blocks:
    """One metric of methods that were all measured in the same blocks.

    A block is a cell (data set and π or share; the mean over its seeds) or, `over` "seeds", one seed
    of one cell. Regimes never mix: each hides other labels.
    """

    metric: Column
    regime: str
    over: str  # "cells" or "seeds"
    blocks: tuple[str, ...]
    names: tuple[str, ...]
    values: NDArray[np.float64]  # blocks × methods
    left_out: tuple[str, ...]  # methods that are missing in a block
    skipped: tuple[str, ...]  # blocks with fewer than two methods: nothing to compare

    @property
    def about(self) -> str:
        """The blocks of the test in words, for the line below it."""
        if self.over == "seeds":
            return f"{len(self.blocks)} seeds of one cell, not over data sets"
        return f"{len(self.blocks)} cells (data set × level)"


def blocks_over_cells(boards: Sequence[Board], metric: Column) -> list[Blocks]:
    """Return one `Blocks` for each regime, from the main boards."""
    regimes: dict[str, list[Board]] = defaultdict(list)
    for board in boards:
        if not board.separate_reason:
            regimes[board.regime].append(board)
    tables = []
    for regime, members in regimes.items():
        table: dict[str, dict[str, float]] = {}
        for board in members:
            for level in board.levels:
                table[f"{board.dataset} {level}".strip()] = {
                    row.name: row.cells[metric.key, level].mean
                    for row in board.rows
                    if (metric.key, level) in row.cells
                }
        tables.append(_blocks(table, metric, regime, "cells"))
    return tables


def blocks_over_seeds(boards: Sequence[Board], metric: Column) -> list[Blocks]:
    """Return one `Blocks` a cell, its seeds as blocks: a test of that cell alone."""
    tables = []
    for board in boards:
        for level in board.levels if not board.separate_reason else ():
            table: dict[str, dict[str, float]] = defaultdict(dict)
            for row in board.rows:
                cell = row.cells.get((metric.key, level))
                for seed, value in zip(cell.seeds, cell.values, strict=True) if cell else ():
                    table[f"{board.dataset} {level} seed {seed}".replace("  ", " ")][row.name] = (
                        value
                    )
            tables.append(_blocks(dict(sorted(table.items())), metric, board.regime, "seeds"))
    return tables


def _blocks(table: dict[str, dict[str, float]], metric: Column, regime: str, over: str) -> Blocks:
    table = {
        block: {name: value for name, value in row.items() if not math.isnan(value)}
        for block, row in table.items()
    }
    kept = {block: row for block, row in table.items() if len(row) > 1}
    everyone = sorted({name for row in kept.values() for name in row})
    names = tuple(name for name in everyone if all(name in row for row in kept.values()))
    values = np.array([[row[name] for name in names] for row in kept.values()], dtype=np.float64)
    return Blocks(
        metric=metric,
        regime=regime,
        over=over,
        blocks=tuple(kept),
        names=names,
        values=values.reshape(len(kept), len(names)),
        left_out=tuple(name for name in everyone if name not in names),
        skipped=tuple(block for block in table if block not in kept),
    )


# ------------------------------------------------------------------------------------------ tests


@dataclass(frozen=True)
class Friedman:
    """Do the methods differ at all? `f` is Iman and Davenport's less conservative form."""

    statistic: float  # χ²_F, corrected for ties
    p: float
    f: float
    f_p: float
    average_ranks: NDArray[np.float64]  # 1 is best


@dataclass(frozen=True)
class Nemenyi:
    """Nemenyi's test: methods differ if their average ranks are further apart than the difference."""

    average_ranks: NDArray[np.float64]
    critical_difference: float
    p: NDArray[np.float64]  # methods × methods
    cliques: list[tuple[int, ...]]  # methods that do not differ, best rank first
    alpha: float


@dataclass(frozen=True)
class Pair:
    """Two methods over the same blocks, by Wilcoxon's signed-rank test."""

    first: str
    second: str
    difference: float  # median of first - second
    p: float
    holm: float  # p after Holm's correction for all pairs


def average_ranks(values: NDArray[np.float64], higher_is_better: bool) -> NDArray[np.float64]:
    """Return the methods' ranks, 1 the best and ties averaged, as means over the blocks."""
    from scipy.stats import rankdata

    ranks = rankdata(-values if higher_is_better else values, axis=1)
    return np.asarray(ranks.mean(axis=0), dtype=np.float64)


def rank_intervals(
    values: NDArray[np.float64], higher_is_better: bool, draws: int = 2000
) -> NDArray[np.float64] | None:
    """Return the 95 % interval of each method's average rank over resampled blocks, methods × 2.

    None below 3 blocks: two blocks have three different resamples.
    """
    from scipy.stats import rankdata

    if len(values) < MIN_RESAMPLED_BLOCKS:
        return None
    ranks = rankdata(-values if higher_is_better else values, axis=1)
    drawn = np.random.default_rng(0).integers(len(values), size=(draws, len(values)))
    averages = ranks[drawn].mean(axis=1)
    return np.asarray(np.quantile(averages, [0.025, 0.975], axis=0).T, dtype=np.float64)


def friedman(values: NDArray[np.float64], higher_is_better: bool = True) -> Friedman:
    """Run Friedman's test on a table of blocks × methods."""
    from scipy.stats import f as f_distribution
    from scipy.stats import friedmanchisquare

    blocks, methods = _enough_for_friedman(values)
    ranks = average_ranks(values, higher_is_better)
    if np.ptp(values, axis=1).max() == 0:  # all tied in every block: scipy divides by zero
        return Friedman(0.0, 1.0, 0.0, 1.0, ranks)
    statistic, p = map(float, friedmanchisquare(*values.T))
    # 1e-9: a table in which every block agrees has F = ∞, up to rounding
    room = blocks * (methods - 1) - statistic
    f = (blocks - 1) * statistic / room if room > 1e-9 else math.inf
    f_p = float(f_distribution.sf(f, methods - 1, (methods - 1) * (blocks - 1)))
    return Friedman(statistic, p, f, f_p, ranks)


def nemenyi_difference(methods: int, blocks: int, alpha: float = ALPHA) -> float:
    """Return Nemenyi's critical difference: q √(k (k + 1) / 6N), q the studentised range over √2."""
    from scipy.stats import studentized_range

    q = studentized_range.ppf(1 - alpha, methods, np.inf) / math.sqrt(2)
    return float(q * math.sqrt(methods * (methods + 1) / (6 * blocks)))


def nemenyi(
    values: NDArray[np.float64], higher_is_better: bool = True, alpha: float = ALPHA
) -> Nemenyi:
    """Run Nemenyi's test of all pairs, to follow a Friedman test that found a difference."""
    from scikit_posthocs import posthoc_nemenyi_friedman

    blocks, methods = _enough_for_friedman(values)
    ranks = average_ranks(values, higher_is_better)
    difference = nemenyi_difference(methods, blocks, alpha)
    p = posthoc_nemenyi_friedman(values).to_numpy(dtype=np.float64)
    return Nemenyi(ranks, difference, p, cliques(ranks, difference), alpha)


def cliques(ranks: NDArray[np.float64], difference: float) -> list[tuple[int, ...]]:
    """Return the largest groups whose ranks all lie within the difference: a diagram's thick lines."""
    order = np.argsort(ranks, kind="stable")
    groups: list[tuple[int, ...]] = []
    reached = 0
    for start in range(len(order)):
        near = ranks[order] - ranks[order[start]] <= difference
        end = int(np.flatnonzero(near).max()) + 1
        if end - start > 1 and end > reached:
            groups.append(tuple(int(i) for i in order[start:end]))
        reached = max(reached, end)
    return groups


def wilcoxon_holm(values: NDArray[np.float64], names: Sequence[str]) -> list[Pair]:
    """Test every pair of methods (`values`: blocks × methods), with Holm's correction for all."""
    from scipy.stats import wilcoxon
    from statsmodels.stats.multitest import multipletests

    blocks, methods = values.shape
    if methods < 2:
        raise TooFew(f"it compares two methods, here is {methods}")
    if smallest_wilcoxon_p(blocks) > ALPHA:
        raise TooFew(
            f"on {blocks} blocks its p cannot be below {smallest_wilcoxon_p(blocks):.3g}, whatever the "
            f"numbers are; {ALPHA} needs at least 6"
        )
    pairs = list(itertools.combinations(range(methods), 2))
    gaps = [values[:, i] - values[:, j] for i, j in pairs]
    raw = [float(wilcoxon(gap).pvalue) if gap.any() else 1.0 for gap in gaps]
    corrected = multipletests(raw, method="holm")[1]
    return [
        Pair(names[i], names[j], float(np.median(gap)), p, float(holm))
        for (i, j), gap, p, holm in zip(pairs, gaps, raw, corrected, strict=True)
    ]


def smallest_wilcoxon_p(blocks: int) -> float:
    """Return p when one method wins every block: two of 2ⁿ sign patterns."""
    return min(1.0, 2.0 ** (1 - blocks))


def _enough_for_friedman(values: NDArray[np.float64]) -> tuple[int, int]:
    blocks, methods = values.shape
    for count, least, what in (
        (methods, MIN_METHODS, "methods measured in every block"),
        (blocks, MIN_BLOCKS, "blocks"),
    ):
        if count < least:
            verb = "is" if count == 1 else "are"
            raise TooFew(f"it needs at least {least} {what}, here {verb} {count}")
    return blocks, methods
