"""Analyses of finished runs: their numbers by hand or by scipy, their files, and what they refuse."""

from __future__ import annotations

import csv
import io
import json
import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from scipy import optimize, stats
from sklearn.metrics import average_precision_score, f1_score, recall_score
from statsmodels.stats.power import TTestPower
from typer.testing import CliRunner

from ssmlbench.boards.analyses.budget import rows_needed
from ssmlbench.boards.analyses.differences import detectable, seeds_needed
from ssmlbench.boards.analyses.drawing import finish, panels, save
from ssmlbench.boards.analyses.labels import (
    class_accuracies,
    frequency_groups,
    label_f1,
    neighbours,
    two_class_vca,
    vca,
)
from ssmlbench.boards.analyses.output import findings_csv, write_findings
from ssmlbench.boards.analyses.pseudo_labels import calibration_error, quality
from ssmlbench.boards.analyses.scores import (
    distances,
    gradient_histograms,
    mean_gradients,
)
from ssmlbench.boards.analyses.table import analyses_by_name
from ssmlbench.boards.analyses.theory import TheorySetting, minimised, prior_term, theorem
from ssmlbench.boards.analyses.vdfd import chosen_labels, summary_curve, variance_difference
from ssmlbench.boards.query import Query
from ssmlbench.boards.report.style import settings
from ssmlbench.cli import app
from ssmlbench.core.errors import UserError
from ssmlbench.protocol.diagnostics import (
    PAIRED_LABELS,
    Records,
    Sample,
    label_counts,
    pseudo_label_counts,
)
from ssmlbench.runs.diagnostics import Diagnostics
from ssmlbench.runs.scores import StoredScores
from tests.support.analysed_runs import LABELS, NAMES, TRUTH, cells, scores_of, write_run

RANDOM = np.random.default_rng(2)


def diagnostics_arrays(epochs: int = 3) -> dict[str, Any]:
    angles = RANDOM.random((epochs, 6, LABELS)).astype(np.float32)
    counts = np.tile([[50.0], [20.0], [15.0], [30.0], [40.0]], (epochs, 1, LABELS))
    return {
        "sample_epochs": np.arange(1, epochs + 1),
        "supervised": angles,
        "trained_on": angles[::-1].copy(),
        "pseudo_epochs": np.arange(1, epochs + 1),
        "pseudo_counts": counts.astype(np.float32),
        "calibration": RANDOM.random((epochs, 3, 10, LABELS)).astype(np.float32),
        "scores": RANDOM.random((epochs, 3, 50)).astype(np.float32),
        "label_counts": np.array([30.0, 60.0, 10.0], np.float32),
        "pair_counts": np.array([[30, 5, 1], [5, 60, 8], [1, 8, 10]], np.float32),
        "head_weights": RANDOM.normal(size=(1, LABELS, 4)).astype(np.float32),
    }


@pytest.fixture
def results(tmp_path: Path) -> Path:
    root = tmp_path / "results"
    for pi in (0.1, 0.25, 0.5):
        for method, better in (("bce", 0.0), ("cap", 0.15)):
            for seed in (0, 1, 2):
                side = diagnostics_arrays() if method == "cap" else None
                write_run(root, 0.3 + pi + better, side, method=method, seed=seed, pi=pi)
    return root


def command(*words: object) -> Any:
    return CliRunner().invoke(app, ["analyse", *map(str, words)], env={"COLUMNS": "200"})


# ------------------------------------------------------------------------------------- numbers


def test_labels_are_judged_as_by_sklearn() -> None:
    predicted = scores_of(0.5, 0) > 0.5
    positives, negatives = class_accuracies(predicted, TRUTH)
    for k in range(LABELS):
        assert positives[k] == pytest.approx(recall_score(TRUTH[:, k], predicted[:, k]))
        expected = recall_score(~TRUTH[:, k], ~predicted[:, k])
        assert negatives[k] == pytest.approx(expected)
        assert label_f1(predicted, TRUTH)[k] == pytest.approx(
            f1_score(TRUTH[:, k], predicted[:, k])
        )
    assert vca(positives) == pytest.approx(np.var(positives))
    assert two_class_vca(np.array([1.0, 0.5]), np.array([0.0, 0.5])) == pytest.approx(0.125)
    assert vca(np.array([0.8, np.nan, 0.8])) == 0
    assert np.isnan(vca(np.array([0.8, np.nan])))  # one class is equal to no other


def test_groups_are_thirds_by_frequency() -> None:
    assert frequency_groups(np.array([5, 50, 1, 9, 9, 2])) == [
        *("medium", "head", "tail", "head", "medium", "tail"),
    ]


def test_vdfd_is_the_difference_of_the_variances_and_its_summary_the_mean_size() -> None:
    statistics = np.zeros((2, 6, 3))
    statistics[0, 0], statistics[0, 1] = [0.3, 0.1, np.nan], [0.1, 0.4, 0.2]
    assert np.allclose(variance_difference(statistics)[0], [0.2, -0.3, np.nan], equal_nan=True)
    assert summary_curve(statistics).tolist() == pytest.approx([0.25, 0.0])


@pytest.mark.parametrize("labels", [1, 6, 200, 201, 3000])
def test_a_figure_has_a_point_for_each_label_or_for_neighbours_of_many(labels: int) -> None:
    order = np.random.default_rng(0).permutation(labels)
    at, groups = neighbours(order)
    assert len(at) == len(groups) == min(labels, 200)
    assert np.concatenate(groups).tolist() == order.tolist()  # every label in one point
    place = np.argsort(order)
    assert at == [place[group].mean() for group in groups]
    if labels <= 200:
        assert at == list(range(labels))


def test_labels_are_chosen_by_name_or_number_or_from_frequent_to_rare() -> None:
    assert chosen_labels("sand,0", NAMES, np.ones(3)) == [2, 0]
    assert chosen_labels("", NAMES, np.array([1, 9, 5])) == [1, 2, 0]
    with pytest.raises(UserError, match=r"--labels sun_: no such label.*Did you mean"):
        chosen_labels("sun_", NAMES, np.ones(3))


def test_pseudo_labels_and_their_calibration_by_hand() -> None:
    counts = np.array([[[50.0], [20.0], [15.0], [30.0], [40.0]]])
    found = {key: float(value[0, 0]) for key, value in quality(counts, 100).items()}
    assert found == {"precision": 0.75, "recall": 0.5, "coverage": 0.5, "accuracy": 0.8}
    # two bins: 10 scores of mean 0.2 with 4 true, 30 of mean 0.9 with 24 true
    bins = np.array([[10.0, 30.0], [2.0, 27.0], [4.0, 24.0]])
    assert calibration_error(bins) == pytest.approx(10 / 40 * 0.2 + 30 / 40 * 0.1)


def test_the_distance_of_scores_is_the_area_between_their_distribution_functions() -> None:
    scores = RANDOM.random((30, 2))
    truth = np.stack([np.arange(30) % 3 == 0, np.zeros(30, bool)], axis=1)
    found = distances(scores, truth)
    positive, negative = scores[truth[:, 0], 0], scores[~truth[:, 0], 0]
    grid = np.linspace(0, 1, 200_001)
    cdfs = [
        np.searchsorted(np.sort(part), grid, "right") / len(part) for part in (positive, negative)
    ]
    assert found[0] == pytest.approx(np.abs(cdfs[0] - cdfs[1]).mean(), abs=1e-4)
    assert np.isnan(found[1])


def test_mean_gradients_are_exact_where_sums_of_scores_were_recorded() -> None:
    # p of two observed positives .81 and .89, a hidden positive .3, and no negative
    histograms = np.zeros((3, 50))
    histograms[0, [40, 44]] = 1
    histograms[1, 15] = 1
    sums = np.array([0.81 + 0.89, 0.3, 0.0])
    assert mean_gradients(histograms, sums) == pytest.approx([0.15, 0.3, np.nan], nan_ok=True)
    rough = mean_gradients(histograms, None)  # middles of bins: .81, .89 and .31
    assert rough == pytest.approx([0.15, 0.31, np.nan], nan_ok=True)


def test_gradients_of_observed_positives_are_one_less_the_score() -> None:
    histograms = np.zeros((3, 50))
    histograms[:, 49] = 1  # all scores near 1
    magnitudes = gradient_histograms(histograms)
    assert magnitudes[0, 0] == 1
    assert magnitudes[1, 49] == magnitudes[2, 49] == 1


@pytest.mark.parametrize("ratio", [0.4, 0.8, 1.0, 1.3, 2.5])
@pytest.mark.parametrize("alpha", [0.3, 0.5, 0.6])
def test_the_theorem_is_the_minimum_of_the_error_over_b(ratio: float, alpha: float) -> None:
    mu, sigma = 1.0, 0.9

    def error(b: float) -> float:
        above, below = stats.norm.cdf(-(b + mu) / sigma), stats.norm.cdf((b - mu) / (ratio * sigma))
        return float(alpha * above + (1 - alpha) * below)

    b = optimize.minimize_scalar(
        error, bounds=(-1.5, 1.5), method="bounded", options={"xatol": 1e-9}
    ).x
    found = theorem(ratio, mu, sigma, prior_term(alpha, 0, 0))
    assert found.positive == pytest.approx(stats.norm.cdf(-(b + mu) / sigma), abs=1e-5)
    assert found.negative == pytest.approx(stats.norm.cdf((b - mu) / (ratio * sigma)), abs=1e-5)


def test_the_theorem_at_m_1_is_the_limit_and_vca_is_least_there() -> None:
    at, near = theorem(1.0, 1.0, 1.0, 0.3), theorem(1.0001, 1.0, 1.0, 0.3)
    assert at.positive == pytest.approx(near.positive, abs=1e-3)
    assert theorem(1.0, 1.0, 1.0, 0.0).vca == 0
    for ratios in ((1.0, 1.2, 1.6, 2.0), (1.0, 0.9, 0.8, 0.7)):  # Theorem 2.3, C = 0
        values = [theorem(m, 1.0, 1.0, 0.0).vca for m in ratios]
        assert values == sorted(values)
        assert values[0] < values[-1]


def test_where_no_boundary_exists_one_class_is_predicted_and_it_is_said() -> None:
    never = theorem(2.0, 0.05, 1.0, -3.0)
    assert (never.one_class, never.positive, never.negative) == (True, 1.0, 0.0)
    always = theorem(0.5, 0.05, 1.0, 3.0)
    assert (always.one_class, always.positive, always.negative) == (True, 0.0, 1.0)


def test_the_direct_minimisation_finds_the_closed_form_without_noise() -> None:
    setting = TheorySetting(0.4, 0, 0, 1.0, 1.0, 3)
    random = np.random.default_rng(0)
    draws = [minimised(setting, 1.5, 4000, random).positive for _ in range(30)]
    closed = theorem(1.5, 1.0, 1.0, setting.c).positive
    low, high = np.quantile(draws, [0.025, 0.975])
    assert low <= closed <= high


def test_the_printed_constant_of_noise_is_the_papers() -> None:
    # log[0.3 (2 − 0.1 − 0.4) / (0.7 (2 − 0.2 − 0.2))] = log(0.45 / 1.12)
    assert prior_term(0.3, 0.1, 0.2) == pytest.approx(math.log(0.45 / 1.12))


def test_the_seeds_needed_are_those_of_the_power_analysis() -> None:
    for difference_, deviation in ((0.01, 0.01), (0.02, 0.05)):
        exact = TTestPower().solve_power(difference_ / deviation, power=0.8, alpha=0.05)
        found = seeds_needed(difference_, deviation)
        assert found is not None
        assert abs(found - exact) <= 1.5  # ours is the usual approximation of the noncentral t
        assert detectable(found, deviation) <= difference_ < detectable(found - 1, deviation)
    assert seeds_needed(0.0, 0.01) is None


def test_the_rows_a_curve_needs_are_read_between_its_points() -> None:
    rows, curve = [10, 100, 1000], [0.2, 0.4, 0.6]
    assert rows_needed(rows, curve, 0.3) == pytest.approx(10**1.5)
    assert rows_needed(rows, curve, 0.6) == 1000  # a measured point, to the bit
    assert rows_needed(rows, curve, 0.2) == 10
    assert np.isnan(rows_needed(rows, curve, 0.1))  # its first point is better already
    assert np.isnan(rows_needed(rows, curve, 0.61))


# ---------------------------------------------------------------------------- findings and files


def test_every_analysis_writes_a_figure_in_three_formats_and_its_numbers_twice(
    results: Path, tmp_path: Path
) -> None:
    for name, words in {
        "labels": [],
        "pseudo-labels": [],
        "vdfd": ["--labels", "sea"],
        "scores": [],
        "budget": [],
        "pair": ["bce", "cap", "--bootstrap", "100"],
    }.items():
        out = tmp_path / name
        levels = "0.1,0.25" if name == "budget" else "0.25"
        said = command(name, *words, "--results", results, "--pi", levels, "--out", out)
        assert said.exit_code == 0, (name, said.output)
        stems = {file.stem for file in out.glob("*.csv")}
        for stem in stems:
            kinds = {file.suffix for file in out.iterdir() if file.name.startswith(f"{stem}.")}
            assert kinds == {".pdf", ".png", ".svg", ".csv", ".json"}
            records = json.loads((out / f"{stem}.json").read_text())["records"]
            rows = list(csv.DictReader(io.StringIO((out / f"{stem}.csv").read_text())))
            assert len(rows) == len(records) > 0
            assert "<svg" in (out / f"{stem}.svg").read_text()[:500]
            assert (out / f"{stem}.png").read_bytes()[:4] == b"\x89PNG"


def test_the_findings_of_labels_are_the_numbers_of_the_runs(results: Path) -> None:
    (cell,) = cells(results, numbers={"pi": (0.25,)})
    (found,) = analyses_by_name()["labels"].find([cell], Query(), {})
    first = next(
        r for r in found.records if (r["method"], r["seed"], r["label"]) == ("cap", 1, "sea")
    )
    expected = average_precision_score(TRUTH[:, 1], scores_of(0.7, 1)[:, 1])
    assert first["average_precision"] == pytest.approx(expected)
    assert (first["group"], first["frequency"]) == ("head", 60)  # of the training rows


def test_the_findings_of_vdfd_hold_every_label_epoch_and_manner(results: Path) -> None:
    (cell,) = cells(results, numbers={"pi": (0.25,)})
    whole, few = analyses_by_name()["vdfd"].find([cell], Query(), {})
    assert len(whole.records) == 3 * 3 * LABELS * 2  # seeds, epochs, labels, manners
    one = whole.records[0]
    assert one["vdfd"] == pytest.approx(one["var_pos"] - one["var_neg"])
    assert "bce" in whole.table.notes[-1]  # it has no diagnostics
    assert {record["label"] for record in few.records} == set(NAMES)


def test_labels_are_saved_where_the_baselines_curve_says_how_many(tmp_path: Path) -> None:
    for method, qualities in (("bce", (0.02, 0.2, 0.32)), ("cap", (0.2, 0.32, 0.46))):
        for pi, quality_ in zip((0.1, 0.25, 0.5), qualities, strict=True):
            # another number of steps at one level gives a board of its own, and the same curve
            more = {"batch_size": 32} if pi == 0.5 else {}
            write_run(tmp_path, quality_, method=method, pi=pi, **more)
    (found,) = analyses_by_name()["budget"].find(cells(tmp_path), Query(), {"baseline": "bce"})
    saved = {r["labelled_rows"]: r for r in found.records if r["method"] == "cap"}
    assert list(saved) == [10, 25, 50]
    assert saved[10]["baseline_rows"] > 10
    assert saved[10]["labels_saved"] == pytest.approx(1 - 10 / saved[10]["baseline_rows"])
    assert "more than 50" in [entry.text for row in found.table.panels[0].rows for entry in row]
    assert any("batch" in note for note in found.table.notes)


def test_the_same_findings_give_the_same_bytes(results: Path, tmp_path: Path) -> None:
    (cell,) = cells(results, numbers={"pi": (0.25,)})
    found = analyses_by_name()["labels"].find([cell], Query(), {})
    first = [file.read_bytes() for file in write_findings(found, tmp_path / "a")]
    assert first == [file.read_bytes() for file in write_findings(found, tmp_path / "b")]


def test_runs_without_diagnostics_still_give_what_their_scores_allow(tmp_path: Path) -> None:
    write_run(tmp_path, 0.5)
    for name in ("labels", "scores"):
        assert analyses_by_name()[name].find(cells(tmp_path), Query(), {})


def test_runs_without_scores_are_left_out_and_named(tmp_path: Path) -> None:
    write_run(tmp_path, 0.5, seed=0)
    folder = write_run(tmp_path, 0.9, seed=1, method="bbam")
    (folder / "scores.safetensors").unlink()
    for name in ("labels", "scores"):
        (found,) = analyses_by_name()[name].find(cells(tmp_path), Query(), {})
        assert {record["method"] for record in found.records} == {"cap"}
        assert "without scores.safetensors: bbam" in found.table.notes[-1]


def test_numbers_stand_under_their_own_seed_where_another_run_has_no_scores(tmp_path: Path) -> None:
    lost, _, _ = (write_run(tmp_path, 0.5, seed=seed) for seed in (0, 1, 2))
    (lost / "scores.safetensors").unlink()
    for name in ("labels", "scores"):
        (found,) = analyses_by_name()[name].find(cells(tmp_path), Query(), {})
        assert {record["seed"] for record in found.records if "label" in record} == {1, 2}
        seed = next(r for r in found.records if r.get("seed") == 2 and r["label"] == "1")
        one = scores_of(0.5, 2)[:, 1]
        key, value = {
            "labels": ("average_precision", average_precision_score(TRUTH[:, 1], one)),
            "scores": (
                "wasserstein",
                stats.wasserstein_distance(one[TRUTH[:, 1]], one[~TRUTH[:, 1]]),
            ),
        }[name]
        assert seed[key] == pytest.approx(value)


def test_a_damaged_diagnostics_file_is_left_out_and_named(tmp_path: Path) -> None:
    write_run(tmp_path, 0.5, diagnostics_arrays(), seed=0)
    folder = write_run(tmp_path, 0.5, diagnostics_arrays(), seed=1, method="bbam")
    file = folder / "diagnostics.safetensors"
    file.write_bytes(file.read_bytes()[:-40])
    whole, _ = analyses_by_name()["vdfd"].find(cells(tmp_path), Query(), {})
    assert {record["method"] for record in whole.records} == {"cap"}
    assert str(file) in whole.table.notes[-1]
    assert analyses_by_name()["labels"].find(cells(tmp_path), Query(), {})


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("vdfd",), "has recorded angles"),
        (("pseudo-labels",), "has recorded pseudo-labels"),
        (("budget",), "two or more"),
        (("pair", "cap", "cat"), "no row 'cat'"),
        (("pair", "cap", "cap"), "two different rows"),
        (("theory", "--alpha", "1.5"), "--alpha 1.5: must lie between 0 and 1"),
        (("theory", "--alpha", "x"), "--alpha x: not a list"),
        (("theory", "--eps-positive", "0.6"), "--eps-positive 0.6"),
        (("theory", "--rows", "5"), "--rows 5"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_what_cannot_be_made_is_one_line(
    tmp_path: Path, words: tuple[str, ...], message: str
) -> None:
    write_run(tmp_path / "results", 0.5)
    where = [] if words[0] == "theory" else ["--results", tmp_path / "results"]
    said = command(*words, *where, "--out", tmp_path / "out")
    assert isinstance(said.exception, UserError)
    text = str(said.exception)
    assert message in text
    assert "\n" not in text
    if words[0] in ("vdfd", "pseudo-labels", "budget"):
        assert "`ssmlbench run --dataset toy" in text


def test_the_table_finds_one_class_in_each_module() -> None:
    names = set(analyses_by_name())
    assert {"labels", "vdfd", "pseudo-labels", "scores", "theory", "pair", "budget"} <= names
    for analysis in analyses_by_name().values():
        assert analysis.summary.endswith(".")


def test_the_csv_file_of_findings_holds_no_formula() -> None:
    record = {"label": "=cmd", "method": "-cap", "=column": 1, "value": -0.5, "none": float("nan")}
    text = findings_csv(SimpleNamespace(records=[record]))  # type: ignore[arg-type]
    first, row = csv.reader(text.splitlines())
    assert first == ["label", "method", "'=column", "value", "none"]
    assert row == ["'=cmd", "'-cap", "1", "-0.5", ""]


def odd_run(root: Path, labels: int, method: str, seed: int) -> None:
    """A finished run with so many labels, the first of which nobody has."""
    random = np.random.default_rng([labels, seed])
    truth = random.random((30, labels)) < 0.3
    truth[:, 0] = False
    observed = np.where(random.random(truth.shape) < 0.3, truth, -1).astype(np.int8)
    scores = random.random(truth.shape).astype(np.float32)
    features = random.normal(size=(30, 4)).astype(np.float32)
    sample = Sample(features, scores, None, observed, truth.astype(np.int8))
    counts = pseudo_label_counts(truth.astype(np.int8), scores > 0.5, scores >= 0)
    records = Records(head_weights=[random.normal(size=(labels, 4)).astype(np.float32)])
    for epoch in (1, 2):
        records.add("sample_epochs", epoch, sample.statistics(truth.astype(np.int8)))
        records.add("pseudo_epochs", epoch, {"pseudo_counts": counts})
    side = {**records.arrays(), **label_counts(truth.astype(np.int8))}
    folder = write_run(root, 0.5, None, method=method, seed=seed)
    names = [f"label {k}" for k in range(labels)]
    Diagnostics(side, names).write(folder)
    thresholds = {"thresholds": np.full(labels, 0.5, np.float32)}
    StoredScores(scores, truth, thresholds, names).write(folder / "scores.safetensors")


@pytest.mark.parametrize("labels", [1, 2, PAIRED_LABELS + 1])
@pytest.mark.filterwarnings("error::RuntimeWarning")
def test_few_and_many_labels_and_one_without_positives_are_analysed(
    tmp_path: Path, labels: int
) -> None:
    for method in ("bce", "cap") if labels == 2 else ("cap",):  # elsewhere one run only
        odd_run(tmp_path, labels, method, 0)
    for name, analysis in analyses_by_name().items():
        if name in ("theory", "pair", "budget") or (name == "correlation" and labels > 2):
            continue
        options = {option.name: option.default for option in analysis.options}
        found = analysis.find(cells(tmp_path), Query(), options)
        assert all(findings.records for findings in found), name
        drawn = save(found[0].draw, "svg")
        assert len(drawn) > 1000
        assert b"<image" not in drawn or not analysis.in_report, name  # a page leaves bitmaps out
        entries = [e.text for f in found for p in f.table.panels for row in p.rows for e in row]
        assert not [text for text in entries if "nan" in text.split()], name


@pytest.mark.parametrize(
    "name", ["labels", "pseudo-labels", "vdfd", "scores", "correlation", "gallery"]
)
def test_every_analysis_says_which_runs_are_damaged(tmp_path: Path, name: str) -> None:
    for method in ("cap", "bbam"):
        for seed in (0, 1):
            odd_run(tmp_path, 3, method, seed)
    for file in tmp_path.glob("*/*/bbam/*/*.safetensors"):
        file.write_bytes(file.read_bytes()[:-40])
    analysis = analyses_by_name()[name]
    options = {option.name: option.default for option in analysis.options}
    found = analysis.find(cells(tmp_path), Query(), options)
    notes = [note for findings in found for note in findings.table.notes]
    said = {note for note in notes if "damaged" in note}
    assert said
    assert all(note.startswith("left out, 2 runs of bbam: ") for note in said)
    assert not [note for note in notes if note.startswith("no pseudo-labels")]


def test_correlation_of_too_many_labels_says_how_many_it_counts(tmp_path: Path) -> None:
    file = write_run(tmp_path, 0.5) / "result.json"
    result = json.loads(file.read_text())
    result["data"]["labels"] = 3000
    file.write_text(json.dumps(result))
    with pytest.raises(UserError, match="3,000 labels, and pairs are counted up to 512"):
        analyses_by_name()["correlation"].find(cells(tmp_path), Query(), {})


def test_a_figure_is_not_asked_for_more_than_it_can_show(tmp_path: Path) -> None:
    odd_run(tmp_path, 20, "cap", 0)
    for name, options, message in (
        ("vdfd", {"labels": ",".join(map(str, range(13)))}, "--labels: 13 labels.*at most 12"),
        ("gallery", {"rows": 61, "top": 3, "seed": 0, "differ": ""}, "--rows 61.*at most 60"),
    ):
        with pytest.raises(UserError, match=message):
            analyses_by_name()[name].find(cells(tmp_path), Query(), options)


def test_titles_keep_a_number_with_its_name() -> None:
    with settings():
        _, (axes,) = panels(1)
        finish(axes, "Precision of pseudo-labels, multidigits · semi π = 0.05", "", "")
    assert "π\u00a0=\u00a00.05" in axes.get_title(loc="left")
