"""Critical differences between the boards' methods, or the reason why there are none."""

from __future__ import annotations

from collections.abc import Sequence

from ssmlbench.boards.board import Board
from ssmlbench.boards.columns import Column
from ssmlbench.boards.render.statistics import cautions
from ssmlbench.boards.report.series import CriticalDifference, named
from ssmlbench.boards.significance import (
    ALPHA,
    Blocks,
    TooFew,
    blocks_over_cells,
    cliques,
    friedman,
    nemenyi_difference,
)


def critical_differences(
    boards: Sequence[Board], metrics: Sequence[Column]
) -> tuple[dict[str, list[CriticalDifference]], list[str]]:
    """Return the diagrams by regime, one for each metric; and notes, or why there is no diagram."""
    by_regime: dict[str, list[CriticalDifference]] = {}
    notes: list[str] = []
    equal: dict[str, list[str]] = {}  # metrics without a difference, by regime
    for metric in metrics:
        for blocks in blocks_over_cells(boards, metric):
            try:
                by_regime.setdefault(blocks.regime, []).append(rank_diagram(blocks))
            except TooFew as reason:
                notes.append(f"{blocks.regime}: no diagram and no Friedman test: {reason}.")
                continue
            drawn = by_regime[blocks.regime][-1]
            notes += [f"{blocks.regime}: {caution}" for caution in cautions(blocks)]
            if drawn.p > ALPHA:
                text = f"{metric.title} (p = {drawn.p:.2g})"
                equal.setdefault(blocks.regime, []).append(text)
    notes += [
        f"{regime}: Friedman's test finds no difference between the methods in {', '.join(texts)}: read no "
        "more into these diagrams."
        for regime, texts in equal.items()
    ]
    return {regime: each for regime, each in by_regime.items() if each}, list(dict.fromkeys(notes))


def rank_diagram(blocks: Blocks) -> CriticalDifference:
    """Return the diagram of one metric; TooFew if there are too few methods or blocks for a test."""
    test = friedman(blocks.values, blocks.metric.higher_is_better)
    ranks = test.average_ranks
    # Nemenyi's p of each pair is not drawn: what computes it takes half a second to import.
    difference = nemenyi_difference(len(blocks.names), len(blocks.values))
    order = sorted(range(len(blocks.names)), key=lambda i: (ranks[i], i))
    position = {method: i for i, method in enumerate(order)}
    names = tuple(blocks.names[i] for i in order)
    return CriticalDifference(
        where=blocks.regime,
        metric=blocks.metric,
        names=names,
        ranks=tuple(float(ranks[i]) for i in order),
        difference=difference,
        cliques=tuple(
            (position[group[0]], position[group[-1]]) for group in cliques(ranks, difference)
        ),
        about=blocks.about,
        p=test.p,
        named=named(names),
    )
