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
    cells_with,
    label_names,
    left_out,
    mean_text,
    nothing_noted,
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
from ssmlbench.boards.report.style import MUTED, styles_for
from ssmlbench.core.errors import UserError
from ssmlbench.core.suggestions import did_you_mean
from ssmlbench.protocol.diagnostics import ANGLE_COLUMNS

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MANNERS = {"supervised": "by the true labels", "trained_on": "by labels and pseudo-labels"}
"""The two manners, and which labels they read."""
MANNER_NAMES = {"supervised": "supervised", "trained_on": "semi-supervised"}
"""The manners as the files name them."""
FEW_LABELS = 4
MOST_CHOSEN = 12
"""Labels of the second figure: by default, and at most."""


class Vdfd(Analysis):
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
        found: list[Findings] = []
        of = str(options.get("of", ""))
        for cell in cells_with(cells, [of], f"--of {of}") if of else cells:
            found += _of_cell(cell, str(options.get("labels", "")), of)
        if not found:
            raise nothing_noted(
                self.name,
                cells,
                "no run here has noted angles (runs made before they were noted have none, nor have "
                "estimators)",
                "bbam",
                "cap",
            )
        return found


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


def _of_cell(cell: RunCell, labels: str, of: str) -> list[Findings]:
    found, missing = with_diagnostics(cell, "supervised")
    if not found:
        return []
    first = next(iter(found.values()))[0][1]
    names = label_names(cell, first["supervised"].shape[2])
    records: list[dict[str, Any]] = []
    curves: dict[str, dict[str, list[tuple[Any, Any]]]] = {}
    for row, members in found.items():
        for run, noted in members:
            for manner in MANNERS:
                records += _records(row, run.spec.seed, manner, noted.arrays, names)
                curve = (noted["sample_epochs"], summary_curve(noted[manner]))
                curves.setdefault(row, {}).setdefault(manner, []).append(curve)
    body = []
    for row, by_manner in curves.items():
        last = [mean_text([float(ys[-1]) for _, ys in by_manner[m]], 5) for m in MANNERS]
        epochs = by_manner["supervised"][0][0]
        body.append([row, len(by_manner["supervised"]), len(epochs), *last])
    section = table(
        f"{cell.where} · VDFD",
        ["method", "seeds", "noted epochs", "mean |VDFD|, true labels", "mean |VDFD|, trained on"],
        body,
        "VDFD = var_pos − var_neg of the angles (radians) between features and the label's prototype, the "
        "mean feature of its positives; unbiased variances; averaged network, weak view, at most 2,048 "
        "training rows. After the last epoch, mean over labels and seeds.",
        "True labels: the supervised manner, which only the judge can compute. Trained on: labels and "
        "trusted pseudo-labels; for a method that decides them in each batch, labelled rows only.",
        missing.text,
        left_out(curves),
    )

    def draw() -> Figure:
        shown = list(curves)[:MOST_LINES]
        styles = styles_for(shown)
        figure, axes = panels(2, height=205)
        for axis, (manner, about) in zip(axes, MANNERS.items(), strict=True):
            for row in shown:
                at, values = common_x(curves[row][manner])
                line(axis, at, values, styles[row], row)
            place = f", {cell.where}" if axis is axes[0] else ""
            finish(axis, f"|VDFD| {about}{place}", EPOCHS, "mean |VDFD| (rad²)")
            axis.set_ylim(bottom=0)
        legend(axes[1])
        return figure

    whole = Findings("vdfd", cell.where, section, records, draw, "Mean |VDFD| over epochs.")
    return [whole, _few_labels(cell, found, names, labels, of)]


def _records(
    row: str, seed: int, manner: str, arrays: Mapping[str, NDArray[Any]], names: Sequence[str]
) -> list[dict[str, Any]]:
    found = []
    statistics = arrays[manner]
    vdfd = variance_difference(statistics)
    for e, epoch in enumerate(arrays["sample_epochs"]):
        for k, name in enumerate(names):
            facts = {"method": row, "seed": seed, "epoch": int(epoch), "label": name}
            values = dict(zip(ANGLE_COLUMNS, map(float, statistics[e, :, k]), strict=True))
            facts["manner"] = MANNER_NAMES[manner]
            found.append({**facts, "vdfd": vdfd[e, k], **values})
    return found


def _few_labels(
    cell: RunCell, found: Mapping[str, Any], names: Sequence[str], labels: str, of: str
) -> Findings:
    if of and of not in found:
        raise UserError(
            f"--of {of}: its runs in {cell.where} have noted no angles; {', '.join(found)} have"
        )
    giving = [name for name, runs in found.items() if "pseudo_counts" in runs[0][1]]
    row = of or next(iter([*giving, *found]))
    members = found[row]
    chosen = chosen_labels(labels, names, members[0][1]["supervised"][-1, 4])
    body, records = [], []
    for k in chosen:
        for manner, about in MANNERS.items():
            ends = [variance_difference(noted[manner])[-1, k] for _, noted in members]
            end = float(np.mean(ends))
            body.append([names[k], about, f"{end:+.5f}" if np.isfinite(end) else "–"])
            records += [
                {
                    "method": row,
                    "seed": run.spec.seed,
                    "epoch": int(epoch),
                    "label": names[k],
                    "manner": MANNER_NAMES[manner],
                    "vdfd": float(value),
                }
                for run, noted in members
                for epoch, value in zip(
                    noted["sample_epochs"], variance_difference(noted[manner])[:, k], strict=True
                )
            ]
    section = table(
        f"{cell.where} · VDFD of single labels, {row}",
        ["label", "manner", "VDFD after the last epoch"],
        body,
        left=2,
    )

    def draw() -> Figure:
        styles = styles_for(list(MANNERS))
        figure, axes = panels(len(chosen), height=130)
        for axis, k in zip(axes, chosen, strict=True):
            undefined = []
            for manner, about in MANNERS.items():
                noted_curves = [
                    (n["sample_epochs"], variance_difference(n[manner])[:, k]) for _, n in members
                ]
                at, values = common_x(noted_curves)
                line(axis, at, values, styles[manner], about)
                if not np.isfinite(np.mean(values, axis=0)).any():
                    undefined.append(about)
            if len(undefined) == len(MANNERS):
                empty_panel(axis, "not defined: too few positives or negatives")
            elif undefined:
                remark(axis, f"{undefined[0]}: too few positives")
            place = f" of {row}, {cell.where}" if axis is axes[0] else ""
            axis.axhline(0, color=MUTED, linewidth=0.8, zorder=0)
            finish(axis, f"Label {names[k]}{place}", "", "VDFD (rad²)")
            whole_epochs(axis)
        axes[-1].set_xlabel(EPOCHS)
        legend(axes[-1])
        return figure

    title = f"VDFD of single labels of {row}."
    return Findings("vdfd-labels", cell.where, section, records, draw, title)


def chosen_labels(text: str, names: Sequence[str], counts: NDArray[Any]) -> list[int]:
    """The labels that were typed, by name or number; else a few from the most frequent to the rarest."""
    if not text:
        order = np.argsort(-np.asarray(counts), kind="stable")
        places = np.linspace(0, len(order) - 1, min(FEW_LABELS, len(order))).round().astype(int)
        return [int(order[place]) for place in places]
    found = []
    for part in (piece.strip() for piece in text.split(",")):
        if part in names:
            found.append(list(names).index(part))
        elif part.isdigit() and int(part) < len(names):
            found.append(int(part))
        else:
            raise UserError(
                f"--labels {part}: no such label; a name or a number from 0 to {len(names) - 1}."
                f"{did_you_mean(part, names)}"
            )
    if len(found) > MOST_CHOSEN:
        raise UserError(f"--labels: {len(found)} labels, and a figure shows at most {MOST_CHOSEN}")
    return list(dict.fromkeys(found))
