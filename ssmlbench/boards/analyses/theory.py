"""`analyse theory`: BBAM's Theorem 2.1, VCA and Theorem 2.3, beside a direct minimisation.

y = +1 with probability α; x | +1 ~ N(μ, diag σ₊²), x | −1 ~ N(−μ, diag σ₋²), Σσ₊² : Σσ₋² = 1 : M².
f(x) = sign(⟨w, x⟩ + b). ε₋, ε₊: the shares of wrong pseudo-labels.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ssmlbench.boards.analyses.contract import Analysis, Findings, Option, RunCell, table
from ssmlbench.boards.analyses.drawing import finish, legend, panels
from ssmlbench.boards.query import Query
from ssmlbench.boards.report.style import numbered_style
from ssmlbench.core.arguments import several
from ssmlbench.core.errors import UserError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

RATIOS = (0.25, 0.4, 0.6, 0.8, 1.0, 1.25, 1.6, 2.5, 4.0)
"""M, the ratio of the standard deviations, where the direct minimisation is made."""
ERRORS = ("positive", "negative", "vca")
"""The fields of Errors that are shown."""


@dataclass(frozen=True)
class Errors:
    """The class-wise errors of a linear classifier, R(+1) and R(−1)."""

    positive: float
    negative: float
    one_class: bool = False  # A² + q < 0: one class is never predicted, these are the limits

    @property
    def vca(self) -> float:
        """Variance of the two class-wise accuracies."""
        return ((self.positive - self.negative) / 2) ** 2


def prior_term(alpha: float, wrong_negatives: float, wrong_positives: float) -> float:
    """C of Theorem 2.1, as printed: log[α(2 − ε₋ − 2ε₊) / ((1 − α)(2 − 2ε₋ − ε₊))]."""
    above = alpha * (2 - wrong_negatives - 2 * wrong_positives)
    below = (1 - alpha) * (2 - 2 * wrong_negatives - wrong_positives)
    return math.log(above / below)


def theorem(ratio: float, mu: float, sigma: float, c: float) -> Errors:
    """R(+1) and R(−1) of Theorem 2.1. ratio: M; mu: Σμ_i; sigma: √(Σσ₊²); c: C.

    M = 1 is the limit: the two densities have one boundary, at b = C Σ² / 2μ.
    """
    from scipy.stats import norm

    if abs(ratio - 1) < 1e-9:
        shift = c * sigma / (2 * mu)
        distance = mu / sigma
        return Errors(float(norm.cdf(-distance - shift)), float(norm.cdf(-distance + shift)))
    a = 2 * mu / ((ratio**2 - 1) * sigma)
    q = (2 * math.log(ratio) + 2 * c) / (ratio**2 - 1)
    inside = a * a + q
    if inside < 0:
        # The class with the larger deviation is denser everywhere: it alone is predicted.
        positive_only = ratio < 1
        return Errors(0.0 if positive_only else 1.0, 1.0 if positive_only else 0.0, one_class=True)
    root = math.sqrt(inside)
    sign = 1 if ratio > 1 else -1
    positive = norm.cdf(a - sign * ratio * root)
    negative = norm.cdf(-ratio * a + sign * root)
    return Errors(float(positive), float(negative))


@dataclass(frozen=True)
class TheorySetting:
    """The distribution and the noise of one curve."""

    alpha: float
    wrong_negatives: float  # ε₋: negatives that are pseudo-labelled positive
    wrong_positives: float  # ε₊: positives that are pseudo-labelled negative
    mu: float
    sigma: float
    dimensions: int

    @property
    def c(self) -> float:
        """C as the theorem prints it."""
        return prior_term(self.alpha, self.wrong_negatives, self.wrong_positives)

    @property
    def direct_c(self) -> float:
        """C that minimises the error on rows with flipped labels: log[α(1−2ε₊) / ((1−α)(1−2ε₋))]."""
        above = self.alpha * (1 - 2 * self.wrong_positives)
        return math.log(above / ((1 - self.alpha) * (1 - 2 * self.wrong_negatives)))


def minimised(
    setting: TheorySetting, ratio: float, rows: int, random: np.random.Generator
) -> Errors:
    """The class-wise errors of the b that makes the fewest mistakes on drawn pseudo-labelled rows.

    Means and deviations are equal in all dimensions, so that w ∝ 1 is optimal. The errors of the
    chosen b are exact.
    """
    from scipy.stats import norm

    positive = random.random(rows) < setting.alpha
    deviation = setting.sigma * np.where(positive, 1.0, ratio) / math.sqrt(setting.dimensions)
    centre = np.where(positive, 1.0, -1.0) * setting.mu / setting.dimensions
    noise = random.standard_normal((rows, setting.dimensions))
    x = centre[:, None] + deviation[:, None] * noise
    flip = np.where(positive, setting.wrong_positives, setting.wrong_negatives)
    labelled = positive ^ (random.random(rows) < flip)
    projected = x.sum(axis=1)
    order = np.argsort(projected)
    # Mistakes if everything above the i-th projection is predicted positive, i = 0 … n.
    missed = np.concatenate([[0], np.cumsum(labelled[order])])
    false_alarms = (~labelled).sum() - np.concatenate([[0], np.cumsum(~labelled[order])])
    best = int(np.argmin(missed + false_alarms))
    edges = np.concatenate([[-np.inf], projected[order], [np.inf]])
    low, high = edges[best], edges[best + 1]
    cut = low if np.isinf(high) else high if np.isinf(low) else (low + high) / 2
    if best in (0, rows):  # one class only
        cut = -np.inf if best == 0 else np.inf
    above = float(norm.cdf((cut - setting.mu) / setting.sigma))
    below = float(norm.sf((cut + setting.mu) / (ratio * setting.sigma)))
    return Errors(above, below, one_class=bool(np.isinf(cut)))


class TheoryAnalysis(Analysis):
    """Closed forms over M and α, and a Monte-Carlo minimisation with intervals beside them."""

    name = "theory"
    summary = "Theorem 2.1, VCA and Theorem 2.3 of BBAM: closed forms and a direct minimisation."
    needs_runs = False
    in_report = False
    options = (
        Option("alpha", "0.5", "α, the share of positives; or several: 0.2,0.5."),
        Option("eps_negative", 0.0, "ε₋: negatives taken as positive within the pseudo-labels."),
        Option("eps_positive", 0.0, "ε₊: positives taken as negative within the pseudo-labels."),
        Option("mu", 1.0, "μ, the sum of the means."),
        Option("sigma", 1.0, "Σ, the root of the summed variances of positives."),
        Option("dimensions", 5, "Dimensions of the drawn rows."),
        Option("rows", 4000, "Rows of one direct minimisation."),
        Option("repeats", 40, "Direct minimisations at each M."),
        Option("seed", 0, "Seed of the draws.", least=0),
    )

    def find(
        self, cells: Sequence[RunCell], query: Query, options: Mapping[str, Any]
    ) -> list[Findings]:
        """One finding for each α."""
        return [_of_setting(setting, options) for setting in _settings(options)]


def _settings(options: Mapping[str, Any]) -> list[TheorySetting]:
    try:
        alphas = several(str(options["alpha"]), float, "alpha")
    except UserError:
        raise UserError(
            f"--alpha {options['alpha']}: must be numbers, e.g. --alpha 0.2,0.5"
        ) from None
    for flag, value, low, high in (
        *(("--alpha", alpha, 0.0, 1.0) for alpha in alphas),
        ("--eps-negative", options["eps_negative"], -1e-9, 0.5),
        ("--eps-positive", options["eps_positive"], -1e-9, 0.5),
    ):
        if not low < value < high:
            raise UserError(f"{flag} {value:g}: must lie between {max(low, 0):g} and {high:g}")
    for name, least in (("mu", 0), ("sigma", 0), ("dimensions", 0), ("rows", 99), ("repeats", 9)):
        if not options[name] > least:
            raise UserError(f"--{name} {options[name]:g}: must be above {least}")
    noise = (options["eps_negative"], options["eps_positive"])
    shape = (options["mu"], options["sigma"], options["dimensions"])
    return [TheorySetting(alpha, *noise, *shape) for alpha in alphas]


def _of_setting(setting: TheorySetting, options: Mapping[str, Any]) -> Findings:
    random = np.random.default_rng(options["seed"])
    records = [_record(setting, ratio, options, random) for ratio in RATIOS]
    noise = f"ε₋ = {setting.wrong_negatives:g} · ε₊ = {setting.wrong_positives:g}"
    where = f"α = {setting.alpha:g} · {noise}"
    notes = _notes(setting, records, options)
    section = table(
        f"Theorem 2.1, {where}",
        ["M", "R(+1)", "R(−1)", "VCA", "theorem and direct"],
        [_table_row(record) for record in records],
        *notes,
    )
    name = f"theory alpha {setting.alpha:g} eps {setting.wrong_negatives:g} {setting.wrong_positives:g}"
    return Findings(name, "", section, records, lambda: _figure(setting, records, where), notes[1])


def _record(
    setting: TheorySetting, ratio: float, options: Mapping[str, Any], random: np.random.Generator
) -> dict[str, Any]:
    """The closed forms at one M, and the median and interval of the direct minimisations."""
    closed = theorem(ratio, setting.mu, setting.sigma, setting.c)
    draws = [minimised(setting, ratio, options["rows"], random) for _ in range(options["repeats"])]
    record: dict[str, Any] = {"M": ratio, "C": setting.c, "one_class": closed.one_class}
    disagree = False
    for key in ERRORS:
        values = np.asarray([getattr(draw, key) for draw in draws])
        low, high = np.quantile(values, [0.025, 0.975])
        form = getattr(closed, key)
        record |= {f"theorem_{key}": form, f"direct_{key}": float(np.median(values))}
        record |= {f"direct_{key}_low": float(low), f"direct_{key}_high": float(high)}
        # VCA is a function of the two errors, with a bound at 0 that no interval of it contains.
        disagree |= key != "vca" and not low - 1e-12 <= form <= high + 1e-12
    return {**record, "disagree": disagree}


def _table_row(record: Mapping[str, Any]) -> list[object]:
    errors = [
        f"{record[f'theorem_{key}']:.4f} | {record[f'direct_{key}']:.4f} "
        f"[{record[f'direct_{key}_low']:.4f}, {record[f'direct_{key}_high']:.4f}]"
        for key in ERRORS
    ]
    remarks = (("differ", record["disagree"]), ("one class", record["one_class"]))
    return [f"{record['M']:g}", *errors, ", ".join(word for word, on in remarks if on) or "agree"]


def _notes(
    setting: TheorySetting, records: Sequence[Mapping[str, Any]], options: Mapping[str, Any]
) -> list[str]:
    differing = [f"{record['M']:g}" for record in records if record["disagree"]]
    notes = [
        f"theorem | direct [95 % of {options['repeats']} minimisations of {options['rows']:,} rows in "
        f"{setting.dimensions} dimensions]; μ = {setting.mu:g}, Σ = {setting.sigma:g}; C as printed = "
        f"{setting.c:.4f}.",
        "R(±1): share of a class that is predicted wrong; VCA = ((R(+1) − R(−1)) / 2)².",
    ]
    if setting.wrong_negatives or setting.wrong_positives:
        notes.append(
            f"Rows whose labels are flipped with ε₋ and ε₊ need C = {setting.direct_c:.4f}, not "
            "the printed C: a row flipped either way counts against its own class alone."
        )
    if differing:
        notes.append(
            f"They differ at M = {', '.join(differing)}: the theorem's form is a stationary point under "
            "the printed C; the direct minimum may lie elsewhere, or predict one class only."
        )
    return notes


def _figure(setting: TheorySetting, records: Sequence[Mapping[str, Any]], where: str) -> Figure:
    fine = np.geomspace(RATIOS[0], RATIOS[-1], 201)
    closed = [theorem(float(m), setting.mu, setting.sigma, setting.c) for m in fine]
    figure, axes = panels(2, height=215)
    ratios = np.asarray([record["M"] for record in records])
    curves = (
        ("positive", "R(+1)", axes[0], 0),
        ("negative", "R(−1)", axes[0], 1),
        ("vca", "VCA", axes[1], 2),
    )
    for key, name, axis, i in curves:
        values = [getattr(errors, key) for errors in closed]
        style = numbered_style(i)
        axis.plot(
            fine,
            values,
            color=style.colour,
            linestyle=style.dash,
            linewidth=1.4,
            label=f"{name}, theorem",
        )
        middle, low, high = (
            np.asarray([record[f"direct_{key}{end}"] for record in records])
            for end in ("", "_low", "_high")
        )
        axis.errorbar(
            ratios,
            middle,
            [middle - low, high - middle],
            fmt=style.marker,
            color=style.colour,
            mfc="white",
            ms=4.5,
            capsize=2.5,
            linewidth=0.9,
            label=f"{name}, direct",
        )
    for axis, title, y in (
        (axes[0], f"Class-wise errors, bars 95 %, {where}", "error of the class"),
        (axes[1], "Variance of class-wise accuracy", "VCA"),
    ):
        axis.set_xscale("log")
        axis.set_xticks(ratios, [f"{m:g}" for m in ratios])
        axis.minorticks_off()
        finish(axis, title, "M, ratio of the deviations of negatives and positives (log)", y)
    legend(*axes)
    return figure
