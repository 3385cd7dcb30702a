"""`analyse vdfd`: variance difference between feature distributions over epochs (BBAM, Figures 1, 2)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ssmlbench.boards.analyses.contract import (
    MOST_LINES,
    Analysis,
    Findings,
    Option,
    RunCell,
    RunsWithDiagnostics,
    cells_with,
    label_names,
    left_out,
    mean_text,
    nothing_recorded,
    table,
    with_diagnostics,
)
from ssmlbench.boards.analyses.drawing import (
    EPOCHS,
    common_x,
    empty_panel,
    finish,
    legend,
    line,
    panels,
    remark,
    whole_epochs,
)
from ssmlbench.boards.query import Query
from ssmlbench.boards.render.document import TableSection
from ssmlbench.boards.report.style import MUTED, styles_for
from ssmlbench.core.errors import UserError
from ssmlbench.core.suggestions import did_you_mean
from ssmlbench.core.whole_numbers import whole_number
from ssmlbench.protocol.diagnostics import ANGLE_COLUMNS
from ssmlbench.runs.diagnostics import Diagnostics
from ssmlbench.runs.finished import Finished

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MANNERS = {"supervised": "by the true labels", "trained_on": "by labels and pseudo-labels"}
"""The two manners, and which labels they read."""
MANNER_NAMES = {"supervised": "supervised", "trained_on": "semi-supervised"}
"""The manners as the files name them."""
FEW_LABELS = 4
MOST_CHOSEN = 12
"""Labels of the second figure: by default, and at most."""


class VdfdAnalysis(Analysis):
    """var_pos − var_neg of the angles to a label's prototype, in both manners."""

    name = "vdfd"
    summary = "Variance difference between feature distributions per label over epochs."
    options = (
        Option("labels", "", "Labels of the second figure, by name or number from 0: 6,7,14,17."),
        Option(
            "of",
            "",
            "The method of the second figure; by default the best-ranked with pseudo-labels.",
        ),
    )

    def find(
        self, cells: Sequence[RunCell], query: Query, options: Mapping[str, Any]
    ) -> list[Findings]:
        """Two findings for each cell: methods side by side, and a few labels of one method."""
        findings: list[Findings] = []
        of = str(options.get("of", ""))
        for cell in cells_with(cells, [of], f"--of {of}") if of else cells:
            findings += _of_cell(cell, str(options.get("labels", "")), of)
        if not findings:
            raise nothing_recorded(
                self.name,
                cells,
                "no run here has recorded angles (runs made before they were recorded have none, nor have "
                "estimators)",
                "bbam",
                "cap",
            )
        return findings


def variance_difference(statistics: NDArray[Any]) -> NDArray[np.float64]:
    """VDFD of each epoch and label: var_pos − var_neg; statistics: E × 6 × K."""
    columns = {name: statistics[:, i] for i, name in enumerate(ANGLE_COLUMNS)}
    vdfd: NDArray[np.float64] = columns["var_pos"].astype(np.float64) - columns["var_neg"]
    return vdfd


def summary_curve(statistics: NDArray[Any]) -> NDArray[np.float64]:
    """The mean over labels of |VDFD| at each epoch; labels where it is not defined are left out."""
    sizes = np.abs(variance_difference(statistics))
    counts = np.isfinite(sizes).sum(axis=1)
    return np.where(counts > 0, np.nansum(sizes, axis=1) / np.maximum(counts, 1), np.nan)


Curve = tuple[NDArray[Any], NDArray[np.float64]]
"""Epochs and the values after each."""
MethodCurves = Mapping[str, Mapping[str, Sequence[Curve]]]
"""Row → manner → mean |VDFD| over epochs of each run."""


def _of_cell(cell: RunCell, labels: str, of: str) -> list[Findings]:
    rows, missing = with_diagnostics(cell, "supervised")
    if not rows:
        return []
    first = next(iter(rows.values()))[0][1]
    names = label_names(cell, first["supervised"].shape[2])
    curves = {
        row: {
            manner: [
                (diagnostics["sample_epochs"], summary_curve(diagnostics[manner]))
                for _, diagnostics in runs
            ]
            for manner in MANNERS
        }
        for row, runs in rows.items()
    }
    whole = Findings(
        "vdfd",
        cell.where,
        _summary_table(cell.where, curves, missing.text),
        [
            record
            for row, runs in rows.items()
            for run, diagnostics in runs
            for manner in MANNERS
            for record in _label_records(row, run.spec.seed, manner, diagnostics, names)
        ],
        lambda: _summary_figure(cell.where, curves),
        "Mean |VDFD| over epochs.",
    )
    return [whole, _few_labels(cell, rows, names, labels, of)]


def _summary_table(where: str, curves: MethodCurves, lost: str) -> TableSection:
    body = []
    for row, by_manner in curves.items():
        last = [mean_text([float(ys[-1]) for _, ys in by_manner[m]], 5) for m in MANNERS]
        epochs = by_manner["supervised"][0][0]
        body.append([row, len(by_manner["supervised"]), len(epochs), *last])
    return table(
        f"{where} · VDFD",
        [
            "method",
            "seeds",
            "recorded epochs",
            "mean |VDFD|, true labels",
            "mean |VDFD|, trained on",
        ],
        body,
        "VDFD = var_pos − var_neg of the angles (radians) between features and the label's prototype, the "
        "mean feature of its positives; unbiased variances; averaged network, weak view, at most 2,048 "
        "training rows. After the last epoch, mean over labels and seeds.",
        "True labels: the supervised manner, which only the judge can compute. Trained on: labels and "
        "trusted pseudo-labels; for a method that decides them in each batch, labelled rows only.",
        lost,
        left_out(curves),
    )


def _summary_figure(where: str, curves: MethodCurves) -> Figure:
    """A panel for each manner, with a line for each method."""
    shown = list(curves)[:MOST_LINES]
    styles = styles_for(shown)
    figure, axes = panels(2, height=205)
    for axis, (manner, about) in zip(axes, MANNERS.items(), strict=True):
        for row in shown:
            at, values = common_x(curves[row][manner])
            line(axis, at, values, styles[row], row)
        place = f", {where}" if axis is axes[0] else ""
        finish(axis, f"|VDFD| {about}{place}", EPOCHS, "mean |VDFD| (rad²)")
        axis.set_ylim(bottom=0)
    legend(axes[1])
    return figure


def _label_records(
    row: str, seed: int, manner: str, diagnostics: Diagnostics, names: Sequence[str]
) -> list[dict[str, Any]]:
    """The angles' statistics of one run, of each epoch and label."""
    statistics = diagnostics[manner]
    vdfd = variance_difference(statistics)
    return [
        {
            "method": row,
            "seed": seed,
            "epoch": int(epoch),
            "label": name,
            "manner": MANNER_NAMES[manner],
            "vdfd": vdfd[e, k],
            **dict(zip(ANGLE_COLUMNS, map(float, statistics[e, :, k]), strict=True)),
        }
        for e, epoch in enumerate(diagnostics["sample_epochs"])
        for k, name in enumerate(names)
    ]


def _few_labels(
    cell: RunCell, rows: RunsWithDiagnostics, names: Sequence[str], labels: str, of: str
) -> Findings:
    """VDFD of a few labels of one method, in both manners."""
    if of and of not in rows:
        raise UserError(
            f"--of {of}: its runs in {cell.where} have recorded no angles; {', '.join(rows)} have"
        )
    giving = [name for name, runs in rows.items() if "pseudo_counts" in runs[0][1]]
    row = of or next(iter([*giving, *rows]))
    chosen = chosen_labels(labels, names, rows[row][0][1]["supervised"][-1, 4])
    by_label = [(names[k], _label_curves(rows[row], k)) for k in chosen]
    return Findings(
        "vdfd-labels",
        cell.where,
        _few_labels_table(cell.where, row, by_label),
        [
            {
                "method": row,
                "seed": seed,
                "epoch": int(epoch),
                "label": label,
                "manner": MANNER_NAMES[manner],
                "vdfd": float(value),
            }
            for label, by_manner in by_label
            for manner, by_seed in by_manner.items()
            for seed, curve in by_seed
            for epoch, value in zip(*curve, strict=True)
        ],
        lambda: _few_labels_figure(cell.where, row, by_label),
        f"VDFD of single labels of {row}.",
    )


LabelCurves = Mapping[str, Sequence[tuple[int, Curve]]]
"""Manner → the seed and the curve of each run, of one label."""


def _label_curves(runs: Sequence[tuple[Finished, Diagnostics]], k: int) -> LabelCurves:
    return {
        manner: [
            (
                run.spec.seed,
                (diagnostics["sample_epochs"], variance_difference(diagnostics[manner])[:, k]),
            )
            for run, diagnostics in runs
        ]
        for manner in MANNERS
    }


def _few_labels_table(
    where: str, row: str, by_label: Sequence[tuple[str, LabelCurves]]
) -> TableSection:
    body = []
    for label, by_manner in by_label:
        for manner, about in MANNERS.items():
            end = float(np.mean([values[-1] for _, (_, values) in by_manner[manner]]))
            body.append([label, about, f"{end:+.5f}" if np.isfinite(end) else "–"])
    return table(
        f"{where} · VDFD of single labels, {row}",
        ["label", "manner", "VDFD after the last epoch"],
        body,
        left=2,
    )


def _few_labels_figure(where: str, row: str, by_label: Sequence[tuple[str, LabelCurves]]) -> Figure:
    """A panel for each label, with a line for each manner."""
    figure, axes = panels(len(by_label), height=130)
    for axis, (label, by_manner) in zip(axes, by_label, strict=True):
        _draw_manners(axis, by_manner)
        place = f" of {row}, {where}" if axis is axes[0] else ""
        axis.axhline(0, color=MUTED, linewidth=0.8, zorder=0)
        finish(axis, f"Label {label}{place}", "", "VDFD (rad²)")
        whole_epochs(axis)
    axes[-1].set_xlabel(EPOCHS)
    legend(axes[-1])
    return figure


def _draw_manners(axis: Axes, by_manner: LabelCurves) -> None:
    """A line for each manner; a remark on one that is defined after no epoch."""
    styles = styles_for(list(MANNERS))
    undefined = []
    for manner, about in MANNERS.items():
        at, values = common_x([curve for _, curve in by_manner[manner]])
        line(axis, at, values, styles[manner], about)
        if not np.isfinite(np.mean(values, axis=0)).any():
            undefined.append(about)
    if len(undefined) == len(MANNERS):
        empty_panel(axis, "not defined: too few positives or negatives")
    elif undefined:
        remark(axis, f"{undefined[0]}: too few positives")


def chosen_labels(text: str, names: Sequence[str], counts: NDArray[Any]) -> list[int]:
    """The labels that were typed, by name or number; else a few from the most frequent to the rarest."""
    if not text:
        order = np.argsort(-np.asarray(counts), kind="stable")
        places = np.linspace(0, len(order) - 1, min(FEW_LABELS, len(order))).round().astype(int)
        return [int(order[place]) for place in places]
    numbers = []
    for part in (piece.strip() for piece in text.split(",")):
        if part in names:
            numbers.append(list(names).index(part))
        elif (number := whole_number(part)) is not None and number < len(names):
            numbers.append(number)
        else:
            raise UserError(
                f"--labels {part}: no such label; a name or a number from 0 to {len(names) - 1}."
                f"{did_you_mean(part, names)}"
            )
    if len(numbers) > MOST_CHOSEN:
        raise UserError(
            f"--labels: {len(numbers)} labels, and a figure shows at most {MOST_CHOSEN}"
        )
    return list(dict.fromkeys(numbers))
