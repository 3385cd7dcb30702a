"""Analyses of finished runs: their numbers by hand or by scipy, their files, and what they refuse."""

from __future__ import annotations

import csv
import io
import json
import weakref
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from scipy import stats
from sklearn.metrics import average_precision_score
from typer.testing import CliRunner

from ssmlbench.boards.analyses import analyses_by_name
from ssmlbench.boards.analyses.drawing import finish, panels, save
from ssmlbench.boards.analyses.output import findings_csv, write_findings
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


@pytest.mark.parametrize("name", ["labels", "scores"])
def test_scores_of_one_run_at_a_time_are_in_memory(
    results: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Those of all runs of a cell do not fit: 20,000 rows × 3,000 labels are 240 MB a run."""
    read, known, most = StoredScores.read, list[weakref.ref[StoredScores]](), 0

    def counted(folder: Path) -> StoredScores:
        nonlocal most
        scores = read(folder)
        known.append(weakref.ref(scores))
        most = max(most, sum(one() is not None for one in known))
        return scores

    monkeypatch.setattr(StoredScores, "read", counted)
    assert analyses_by_name()[name].find(cells(results), Query(), {})
    assert most <= 2, most  # one that is read while the last one is still named


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
        (("theory", "--alpha", "x"), "--alpha x: must be numbers"),
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
