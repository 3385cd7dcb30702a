"""Significance tests as a document: ranks, Friedman, Nemenyi, Wilcoxon, or the reason for no test."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ssmlbench.boards import significance
from ssmlbench.boards.render.document import Document, Panel, TableSection, texts
from ssmlbench.boards.significance import ALPHA, ROUGH_BLOCKS, Blocks, Nemenyi, Pair, TooFew

SHOWN_PAIRS = 20


def statistics_document(all_blocks: Sequence[Blocks]) -> Document:
    """Return the tests of each metric: ranks, then pairs; or the reason why there is no test."""
    document = Document(records_name="statistics")
    for blocks in all_blocks:
        if len(blocks.names) < 2:
            document.sections.append(_nothing(blocks))
            continue
        ranks_section, ranks_record = _ranks(blocks)
        pairs_section, pairs_records = _pairs(blocks)
        document.sections += [ranks_section, pairs_section]
        document.records.append({**ranks_record, "pairs": pairs_records})
    return document


def _title(blocks: Blocks) -> str:
    where = blocks.regime if blocks.over == "cells" else f"{_cell(blocks)} · {blocks.regime}"
    return f"{blocks.metric.title} · {where} · over {blocks.over}"


def _cell(blocks: Blocks) -> str:
    names = blocks.blocks or blocks.skipped
    return names[0].partition(" seed ")[0] if names else ""


def _left_out(blocks: Blocks) -> list[str]:
    notes = []
    if blocks.left_out:
        notes.append(f"Left out, not measured in every block: {', '.join(blocks.left_out)}.")
    if blocks.skipped:
        notes.append(f"Left out, fewer than two methods there: {', '.join(blocks.skipped)}.")
    return notes


def _nothing(blocks: Blocks) -> TableSection:
    reason = f"No test: fewer than two methods were measured in all {len(blocks.blocks)} blocks."
    return TableSection(_title(blocks), [], _left_out(blocks), reason)


def _ranks(blocks: Blocks) -> tuple[TableSection, Mapping[str, Any]]:
    better = blocks.metric.higher_is_better
    ranks = significance.average_ranks(blocks.values, better)
    means = blocks.values.mean(axis=0)
    stds = blocks.values.std(axis=0, ddof=1 if len(blocks.values) > 1 else 0)
    order = sorted(range(len(ranks)), key=lambda i: (ranks[i], blocks.names[i]))
    intervals = significance.rank_intervals(blocks.values, better)

    def rank(i: int) -> str:
        if intervals is None:
            return f"{ranks[i]:.2f}"
        return f"{ranks[i]:.2f} [{intervals[i, 0]:.2f}, {intervals[i, 1]:.2f}]"

    rows = [texts(blocks.names[i], rank(i), f"{means[i]:.4f} ± {stds[i]:.4f}") for i in order]
    record: dict[str, Any] = {
        "metric": blocks.metric.key,
        "regime": blocks.regime,
        "over": blocks.over,
        "blocks": list(blocks.blocks),
        "methods": list(blocks.names),
        "average_ranks": ranks.tolist(),
        "rank_intervals": None if intervals is None else intervals.tolist(),
        "left_out": list(blocks.left_out),
        "skipped": list(blocks.skipped),
    }
    notes, warning = [f"Average ranks and mean ± std over {blocks.about}."], ""
    if intervals is not None:
        notes[0] += " In brackets: 95 % of the average ranks over resampled blocks."
    try:
        test = significance.friedman(blocks.values, better)
        after = significance.nemenyi(blocks.values, better)
    except TooFew as refusal:
        warning = f"No Friedman test: {refusal}."
        record["friedman_refused"] = str(refusal)
    else:
        notes += [_friedman_text(blocks, test), _nemenyi_text(blocks, test, after)]
        record |= {
            "friedman": {"chi2": test.statistic, "p": test.p, "f": test.f, "f_p": test.f_p},
            "critical_difference": after.critical_difference,
            "nemenyi_p": after.p.tolist(),
            "cliques": [[blocks.names[i] for i in group] for group in after.cliques],
        }
    panel = Panel(["method", "average rank", f"{blocks.metric.title} mean ± std"], rows)
    return TableSection(_title(blocks), [panel], [*notes, *cautions(blocks)], warning), record


def _friedman_text(blocks: Blocks, test: significance.Friedman) -> str:
    k, n = len(blocks.names), len(blocks.blocks)
    return (
        f"Friedman: χ² = {test.statistic:.3f} (df {k - 1}), p = {_p(test.p)}; Iman-Davenport "
        f"F = {test.f:.3f} (df {k - 1}, {(k - 1) * (n - 1)}), p = {_p(test.f_p)}."
    )


def _nemenyi_text(blocks: Blocks, test: significance.Friedman, after: Nemenyi) -> str:
    groups = "; ".join(", ".join(blocks.names[i] for i in group) for group in after.cliques)
    text = (
        f"Nemenyi: critical difference {after.critical_difference:.3f} at {after.alpha}; "
        f"not distinguished: {groups or 'none'}."
    )
    return (
        text if test.p <= ALPHA else f"{text} Friedman finds no difference: read no more into it."
    )


def cautions(blocks: Blocks) -> list[str]:
    """Cautions for a reader of a test over these blocks."""
    notes = _left_out(blocks)
    if blocks.over == "cells" and len({name.split()[0] for name in blocks.blocks}) < len(
        blocks.blocks
    ):
        notes.append(
            "Cells of one data set share rows and are not independent: p values are on the low side."
        )
    if blocks.over == "seeds":
        notes.append(
            "Seeds of one cell share its test rows: nothing here speaks of other data sets."
        )
    if significance.MIN_BLOCKS <= len(blocks.blocks) < ROUGH_BLOCKS:
        notes.append(f"Below {ROUGH_BLOCKS} blocks Friedman's p is rough.")
    return notes


def _pairs(blocks: Blocks) -> tuple[TableSection, Any]:
    title = f"{_title(blocks)} · Wilcoxon signed-rank, Holm"
    try:
        pairs = significance.wilcoxon_holm(blocks.values, blocks.names)
    except TooFew as refusal:
        return TableSection(title, [], (), f"No Wilcoxon test: {refusal}."), {
            "refused": str(refusal)
        }
    pairs.sort(key=lambda pair: (pair.holm, pair.p, pair.first, pair.second))
    rows = [
        texts(pair.first, pair.second, f"{pair.difference:+.4f}", _p(pair.p), _p(pair.holm))
        for pair in pairs[:SHOWN_PAIRS]
    ]
    headers = ["first", "second", "median first - second", "p", "p (Holm)"]
    return TableSection(title, [Panel(headers, rows, left=2)], _pair_notes(blocks, pairs)), [
        dict(vars(pair)) for pair in pairs
    ]


def _pair_notes(blocks: Blocks, pairs: Sequence[Pair]) -> list[str]:
    notes = [f"Over {blocks.about}."]
    differing = sum(pair.holm <= ALPHA for pair in pairs)
    notes.append(f"{differing} of {len(pairs)} pairs differ at {ALPHA} after Holm's correction.")
    least = len(pairs) * significance.smallest_wilcoxon_p(len(blocks.blocks))
    if least > ALPHA:
        notes.append(
            f"With {len(pairs)} pairs on {len(blocks.blocks)} blocks none can: the least there can be "
            f"is {min(least, 1.0):.3g}. Compare fewer methods (--method a,b,c)."
        )
    if len(pairs) > SHOWN_PAIRS:
        notes.append(f"The {SHOWN_PAIRS} smallest are shown; --format json has all.")
    return notes


def _p(value: float) -> str:
    return f"{value:.2e}" if value < 0.001 else f"{value:.4f}"
