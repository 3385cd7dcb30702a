"""`analyse gallery`: test rows with their input, their true labels and each method's labels."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ssmlbench.boards.analyses.contract import (
    Analysis,
    Findings,
    Option,
    RunCell,
    cells_with,
    label_names,
    left_out,
    no_scores,
    scored_runs,
    table,
    without_scores,
)
from ssmlbench.boards.analyses.drawing import panels
from ssmlbench.boards.query import Query
from ssmlbench.boards.report.style import HUES, INK
from ssmlbench.boards.report.text import clean, short_names
from ssmlbench.core.errors import UserError
from ssmlbench.data.prepared import NotPrepared, prepared_task
from ssmlbench.runs.scores import StoredScores

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST_METHODS, MOST_ROWS = 4, 60
RIGHT, WRONG = "✓", "✗"
LEAST_LETTERS = 8
"""The least letters of a label's name in a figure; without room for them, fewer labels are written."""
ScoredLabel = tuple[str, float, bool]
"""A label's name, its score and whether it is true."""


class GalleryAnalysis(Analysis):
    """Rows drawn by a seed, or those on which two methods differ most."""

    name = "gallery"
    summary = "Test rows with input, truth and each method's labels; where two methods differ most."
    options = (
        Option("rows", 6, "Test rows that are shown."),
        Option("seed", 0, "Seed that draws the rows.", least=0),
        Option(
            "differ", "", "Two rows of the board, A,B: the test rows on which they differ most."
        ),
        Option("top", 3, "Labels that are shown of each method."),
    )
    in_report = False

    def find(
        self, cells: Sequence[RunCell], query: Query, options: Mapping[str, Any]
    ) -> list[Findings]:
        """One finding for each cell with scores; inputs from the prepared data set, if it is here."""
        for name in ("rows", "top"):
            if options[name] < 1:
                raise UserError(f"--{name} {options[name]}: must be at least 1")
        if options["rows"] > MOST_ROWS:
            raise UserError(f"--rows {options['rows']}: a figure shows at most {MOST_ROWS}")
        pair = [part.strip() for part in str(options["differ"]).split(",") if part.strip()]
        if pair:
            if len(set(pair)) != 2:
                raise UserError(f"--differ {options['differ']}: two rows of the board: bce,cap")
            cells = cells_with(cells, pair, f"--differ {options['differ']}")
        findings = []
        for cell in cells:
            missing = without_scores()
            stored: dict[str, StoredScores] = {}  # of each method's first seed
            for row, _, one in scored_runs(cell, missing):
                stored.setdefault(row, one)
            if stored:
                findings.append(_of_cell(cell, stored, pair, options, missing.text))
        if not findings:
            raise no_scores(self.name, cells)
        return findings


def most_different(a: NDArray[Any], b: NDArray[Any], count: int) -> list[int]:
    """The rows with the largest mean |score difference| over labels, largest first."""
    apart = np.abs(np.asarray(a, dtype=np.float64) - b).mean(axis=1)
    return [int(row) for row in np.argsort(-apart, kind="stable")[:count]]


@dataclass(frozen=True)
class ShownRow:
    """A test row: its input, its true labels and each method's best labels, best first."""

    row: int
    input: Any  # an image, a text, or None
    true: Sequence[str]
    best: Mapping[str, Sequence[ScoredLabel]]


def _of_cell(
    cell: RunCell,
    stored: Mapping[str, StoredScores],
    pair: Sequence[str],
    options: Mapping[str, Any],
    lost: str,
) -> Findings:
    firsts = _first_scores(cell, stored, pair)
    methods = list(pair) or list(firsts)[:MOST_METHODS]
    rows, how = _chosen_rows(firsts, pair, options)
    truth = firsts[methods[0]].truth
    inputs, note = _inputs(cell, rows, len(truth))
    names = label_names(cell, truth.shape[1])
    gallery = [
        ShownRow(
            row,
            inputs.get(row),
            [names[k] for k in np.flatnonzero(truth[row])],
            {m: _best_labels(firsts[m], row, names, options["top"]) for m in methods},
        )
        for row in rows
    ]
    section = table(
        f"{cell.where} · gallery",
        ["test row", "true labels", "method", f"its {options['top']} best labels"],
        [line for shown in gallery for line in _table_rows(shown)],
        f"{how[0].upper()}{how[1:]}; the first seed of each method. {RIGHT}: a true label; {WRONG}: not.",
        note,
        lost,
        left_out(firsts, MOST_METHODS),
        left=4,
    )
    return Findings(
        "gallery",
        cell.where,
        section,
        [record for shown in gallery for record in _records(shown)],
        lambda: _figure(gallery, cell.where),
        f"Test rows: {how}.",
    )


def _first_scores(
    cell: RunCell, stored: Mapping[str, StoredScores], pair: Sequence[str]
) -> dict[str, StoredScores]:
    """The scores of each method's first seed, of the methods with the same test rows as the first.

    pair: the only methods that count, if any.
    """
    firsts = {row: one for row, one in stored.items() if not pair or row in pair}
    truth = next(iter(firsts.values())).truth
    # Each fold of --regime given has its own test rows.
    firsts = {row: one for row, one in firsts.items() if np.array_equal(one.truth, truth)}
    if pair and len(firsts) < 2:
        raise UserError(
            f"--differ {','.join(pair)}: their first runs in {cell.where} have no scores of the same "
            f"test rows; `{cell.command(pair, lacking=True)}` makes them"
        )
    return firsts


def _chosen_rows(
    firsts: Mapping[str, StoredScores], pair: Sequence[str], options: Mapping[str, Any]
) -> tuple[list[int], str]:
    """The test rows that are shown, and how they were chosen."""
    rows = len(next(iter(firsts.values())).truth)
    count = min(options["rows"], rows)
    if pair:
        chosen = most_different(firsts[pair[0]].scores, firsts[pair[1]].scores, count)
        return chosen, f"the rows on which {pair[0]} and {pair[1]} differ most"
    drawn = np.random.default_rng(options["seed"]).choice(rows, count, replace=False)
    return sorted(int(row) for row in drawn), f"rows drawn with seed {options['seed']}"


def _inputs(cell: RunCell, rows: Sequence[int], count: int) -> tuple[dict[int, Any], str]:
    """Row → its input, as an image (H × W or H × W × 3) or a text; and why there is none.

    count: test rows of the runs.
    """
    try:
        task = prepared_task(cell.spec.dataset, cell.spec.data)
    except NotPrepared as missing:
        return {}, f"No inputs are shown: {missing}."
    if task.card.kind == "vector" or task.card.rows.get("test") != count:
        return {}, "Inputs that are vectors, or rows of a fold, are not shown."
    inputs = task.inputs("test")
    return {row: inputs[row] for row in rows}, ""


def _best_labels(
    stored: StoredScores, row: int, names: Sequence[str], count: int
) -> list[ScoredLabel]:
    scores = stored.scores[row]
    best = np.argsort(-scores, kind="stable")[:count]
    return [(names[k], float(scores[k]), bool(stored.truth[row, k])) for k in best]


def _table_rows(shown: ShownRow) -> list[list[object]]:
    true = ", ".join(shown.true) or "none"
    return [
        [
            shown.row,
            true,
            method,
            ", ".join(f"{RIGHT if ok else WRONG} {label} {score:.2f}" for label, score, ok in best),
        ]
        for method, best in shown.best.items()
    ]


def _records(shown: ShownRow) -> list[dict[str, Any]]:
    return [
        {
            "row": shown.row,
            "method": method,
            "place": place,
            "label": label,
            "score": score,
            "right": right,
            "true": ", ".join(shown.true),
        }
        for method, best in shown.best.items()
        for place, (label, score, right) in enumerate(best, start=1)
    ]


def _figure(gallery: Sequence[ShownRow], where: str) -> Figure:
    """A panel for each test row, below each other."""
    height = 46 + 15 * len(gallery[0].best)
    figure, axes = panels(len(gallery), height=max(height, 96))
    for axis, shown in zip(axes, gallery, strict=True):
        title = f"Test row {shown.row}" + (f", {where}" if shown is gallery[0] else "")
        axis.set_title(title, loc="left", fontsize=9.5, fontweight="bold")
        axis.set_axis_off()
        _draw_row(axis, shown)
    return figure


def _draw_row(axis: Axes, shown: ShownRow) -> None:
    """The image on the left or the text above, then the true labels, then a line for each method."""
    left = 0.0
    if isinstance(shown.input, np.ndarray) and shown.input.ndim >= 2:
        image = axis.inset_axes((0.0, 0.0, 0.3, 0.98))
        image.imshow(_as_image(shown.input), cmap="gray")
        image.set_axis_off()
        left = 0.33
    y = 0.97
    if isinstance(shown.input, str):
        for part in textwrap.wrap(clean(shown.input), 62)[:2]:
            axis.text(0, y, part, fontsize=7.5, va="top", transform=axis.transAxes)
            y -= 0.13
    true = textwrap.shorten(
        clean(f"true: {', '.join(shown.true) or 'none'}"),
        60 if not left else 40,
        placeholder=" …",
        break_on_hyphens=False,
    )
    axis.text(left, y, true, fontsize=8.5, va="top", fontweight="bold", transform=axis.transAxes)
    for method, best in shown.best.items():
        y -= 0.19
        axis.text(
            left,
            y,
            fitted_line(method, best, 66 if not left else 46),
            fontsize=8,
            va="top",
            color=HUES[2] if all(right for _, _, right in best) else INK,
            transform=axis.transAxes,
        )


def fitted_line(method: str, top: Sequence[ScoredLabel], width: int) -> str:
    """A method's best labels with scores in `width` characters; long names are cut, each alike.

    Labels for which too few characters would be left are not written.
    """
    name = short_names([method], 20)[method]
    for count in range(len(top), 0, -1):
        more = ", …" if count < len(top) else ""
        free = width - len(f"{name}: {more}") + len(", ") - count * len(f"{RIGHT}  0.00, ")
        lengths = [len(label) for label, _, _ in top[:count]]
        letters = max(lengths)  # short names leave room for longer ones
        while letters > 1 and sum(min(length, letters) for length in lengths) > free:
            letters -= 1
        if letters >= min(LEAST_LETTERS, max(lengths)):
            break
    shown = short_names([label for label, _, _ in top[:count]], letters)
    parts = [
        f"{RIGHT if ok else WRONG} {shown[label]} {score:.2f}" for label, score, ok in top[:count]
    ]
    return f"{name}: {', '.join(parts)}{more}"


def _as_image(values: NDArray[Any]) -> NDArray[Any]:
    """H × W or H × W × 3, with values that matplotlib takes."""
    image = np.asarray(values)
    if image.ndim == 3 and image.shape[0] in (1, 3) and image.shape[2] not in (1, 3):
        image = np.moveaxis(image, 0, 2)
    if image.ndim == 3 and image.shape[2] == 1:
        image = image[:, :, 0]
    if image.dtype.kind == "f" and image.max() > 1:
        image = image / image.max()
    return image
