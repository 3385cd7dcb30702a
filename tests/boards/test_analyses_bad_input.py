"""What cannot be analysed is one line with exit code 2, and no library's warning is shown."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ssmlbench.boards.analyses import analyses_by_name
from ssmlbench.boards.analyses.contract import Analysis
from ssmlbench.boards.analyses.drawing import save
from ssmlbench.boards.bootstrap import bootstrap
from ssmlbench.boards.query import Query
from ssmlbench.boards.report.style import settings
from ssmlbench.core.errors import UserError
from ssmlbench.runs.scores import StoredScores
from tests.support.analysed_runs import LABELS, TRUTH, cells, scores_of, write_run


def defaults(analysis: Analysis, **changes: Any) -> dict[str, Any]:
    return {option.name: option.default for option in analysis.options} | changes


def refusal(name: str, root: Path, query: Query | None = None, **changes: Any) -> str:
    """The one line of an analysis that cannot be made."""
    analysis = analyses_by_name()[name]
    with pytest.raises(UserError) as error:
        analysis.find(cells(root), query or Query(), defaults(analysis, **changes))
    assert "\n" not in str(error.value)
    return str(error.value)


def judged_on(folder: Path, rows: slice) -> None:
    """Make a run one that was judged on some of the test rows, as a fold is."""
    file = folder / "scores.safetensors"
    one = StoredScores.read(folder)
    StoredScores(one.scores[rows], one.truth[rows], one.parameters).write(file)


# ------------------------------------------------------------------- runs before diagnostics were stored


def old_runs(root: Path) -> None:
    for method in ("bce", "cap"):
        for pi in (0.1, 0.25):
            write_run(root, 0.3 + pi, None, method=method, pi=pi)


def test_old_runs_work_with_every_analysis_of_scores_and_the_others_name_the_command(
    tmp_path: Path,
) -> None:
    old_runs(tmp_path)
    outcomes = {}
    for name, analysis in analyses_by_name().items():
        if not analysis.needs_runs:
            continue
        options = defaults(analysis, a="bce", b="cap")
        try:
            found = analysis.find(cells(tmp_path), Query(), options)
        except UserError as error:
            outcomes[name] = str(error)
        else:
            outcomes[name] = ""
            assert all(len(save(each.draw, "svg")) > 1000 for each in found[:1]), name
    refused = {name: text for name, text in outcomes.items() if text}
    assert set(outcomes) - set(refused) == {"labels", "scores", "pair", "budget", "gallery"}
    assert set(refused) == {"vdfd", "pseudo-labels", "correlation"}
    for text in refused.values():
        assert "\n" not in text
        assert "`ssmlbench run --dataset toy" in text


def test_runs_older_than_a_decision_rule_give_what_needs_no_label_sets(tmp_path: Path) -> None:
    for method in ("bce", "cap"):
        folder = write_run(tmp_path, 0.5, method=method)
        one = StoredScores.read(folder)
        StoredScores(one.scores, one.truth).write(folder / "scores.safetensors")
    analysis = analyses_by_name()["pair"]
    (found,) = analysis.find(cells(tmp_path), Query(), defaults(analysis, a="bce", b="cap"))
    assert {r["metric"] for r in found.records if r["kind"] == "metric"} == {"map", "one_loss"}
    query = Query(metrics=("micro_f1",))
    assert "--decision threshold" in refusal("pair", tmp_path, query, a="bce", b="cap")
    assert "--decision threshold" in refusal("labels", tmp_path)


# ------------------------------------------------------------------------------ two rows of a board


def test_rows_that_were_never_run_in_one_place_are_named_with_the_command(tmp_path: Path) -> None:
    write_run(tmp_path, 0.5, method="bce")
    write_run(tmp_path, 0.5, method="cap", pi=0.5)
    for name, words in (("pair", {"a": "bce", "b": "cap"}), ("gallery", {"differ": "bce,cap"})):
        said = refusal(name, tmp_path, **words)
        assert "never run on the same data set, regime and π" in said
        assert f"--method bce,cap --results {tmp_path}` makes such runs" in said


def test_places_without_the_rows_are_skipped(tmp_path: Path) -> None:
    for pi, methods in ((0.1, ("bce",)), (0.25, ("bce", "cap"))):
        for method in methods:
            write_run(tmp_path, 0.5, method=method, pi=pi)
    for name, words in (("pair", {"a": "bce", "b": "cap"}), ("gallery", {"differ": "bce,cap"})):
        analysis = analyses_by_name()[name]
        (found,) = analysis.find(cells(tmp_path), Query(), defaults(analysis, **words))
        assert "0.25" in found.where


@pytest.mark.parametrize(
    ("name", "words", "message"),
    [
        ("pair", {"a": "bce", "b": "bce"}, "two different rows"),
        ("pair", {"a": "bce", "b": "cat"}, "no row 'cat'"),
        ("pair", {"a": "bce", "b": "cap", "bootstrap": 5}, "at least 100"),
        ("gallery", {"differ": "bce"}, "two rows of the board"),
        ("gallery", {"differ": "bce,bce"}, "two rows of the board"),
        ("gallery", {"rows": 0}, "--rows 0"),
        ("vdfd", {"of": "cat"}, "--of cat: no row 'cat'"),
        ("correlation", {"of": "cat"}, "--of cat: no row 'cat'"),
        ("correlation", {"threshold": 2.0}, "--threshold 2"),
        ("budget", {"baseline": "cat"}, "--baseline cat"),
    ],
    ids=str,
)
def test_what_was_typed_wrong_is_said(
    tmp_path: Path, name: str, words: dict[str, Any], message: str
) -> None:
    old_runs(tmp_path)
    assert message in refusal(name, tmp_path, **words)


def test_a_pair_by_costs_alone_is_refused(tmp_path: Path) -> None:
    old_runs(tmp_path)
    query = Query(metrics=("seconds_per_epoch",))
    assert "names costs only" in refusal("pair", tmp_path, query, a="bce", b="cap")


def test_folds_of_given_labels_have_no_pair_but_a_gallery(tmp_path: Path) -> None:
    for method in ("bce", "cap"):
        for seed in (0, 1):
            folder = write_run(tmp_path, 0.5, method=method, seed=seed)
            judged_on(folder, slice(20 * seed, 20 * seed + 20))
    said = refusal("pair", tmp_path, a="bce", b="cap")
    assert "different test rows" in said
    assert "compare --stats" in said
    gallery = analyses_by_name()["gallery"]
    (found,) = gallery.find(cells(tmp_path), Query(), defaults(gallery))
    assert {record["method"] for record in found.records} == {"bce", "cap"}
    for name in ("labels", "scores"):
        assert analyses_by_name()[name].find(cells(tmp_path), Query(), {})


@pytest.mark.parametrize("name", ["pseudo-labels", "vdfd", "correlation", "budget"])
def test_what_given_labels_cannot_show_is_said_without_a_command_that_would_not_help(
    tmp_path: Path, name: str
) -> None:
    for seed in (0, 1):
        write_run(tmp_path, 0.5, method="cap", seed=seed, regime="given", pi=None, folds=2)
    said = refusal(name, tmp_path)
    assert "--regime given" in said
    assert "ssmlbench run" not in said
    assert "labels are all known" in said


def test_one_label_has_no_correlation(tmp_path: Path) -> None:
    folder = write_run(tmp_path, 0.5)
    result = json.loads((folder / "result.json").read_text())
    result["data"]["labels"] = 1
    (folder / "result.json").write_text(json.dumps(result))
    assert "one label" in refusal("correlation", tmp_path)


# ------------------------------------------------------------------------------------ odd numbers


@pytest.mark.parametrize("positives", [0, 1, 3])
def test_a_label_with_few_or_no_positives_has_a_pair_without_warnings(
    tmp_path: Path, positives: int
) -> None:
    truth = TRUTH.copy()
    truth[:, 1:] = False
    truth[:positives, 2] = True
    for method, quality in (("bce", 0.4), ("cap", 0.6)):
        for seed in (0, 1):
            folder = write_run(tmp_path, quality, method=method, seed=seed)
            thresholds = {"thresholds": np.full(LABELS, 0.5, np.float32)}
            stored = StoredScores(scores_of(quality, seed), truth, thresholds)
            stored.write(folder / "scores.safetensors")
    analysis = analyses_by_name()["pair"]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        options = defaults(analysis, a="bce", b="cap", bootstrap=100)
        (found,) = analysis.find(cells(tmp_path), Query(), options)
        assert len(save(found.draw, "png")) > 1000
    of_metrics = [r for r in found.records if r["kind"] == "metric"]
    assert all(r["low"] <= r["high"] for r in of_metrics)
    assert not [
        entry.text for row in found.table.panels[0].rows for entry in row if "nan" in entry.text
    ]


def test_draws_without_any_positive_are_left_out_of_an_interval() -> None:
    # One positive among eight rows: a third of the draws has none, and no mAP.
    truth = np.zeros((8, 1), dtype=bool)
    truth[3] = True
    scores = np.linspace(0, 1, 8)[:, None].astype(np.float32)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        low, high = bootstrap([StoredScores(scores, truth)], ["map"], "threshold", draws=200)["map"]
    assert 0 < low < high <= 1


def test_equal_rows_have_no_number_of_seeds_that_tells_them_apart(tmp_path: Path) -> None:
    for method in ("bce", "cap"):
        for seed in (0, 1):
            write_run(tmp_path, 0.5, method=method, seed=seed)
    analysis = analyses_by_name()["pair"]
    options = defaults(analysis, a="bce", b="cap", bootstrap=100)
    (found,) = analysis.find(cells(tmp_path), Query(), options)
    assert {r["seeds_needed"] for r in found.records if r["kind"] == "metric"} == {None}


# --------------------------------------------------------------------------- numbers behind figures


def test_the_files_of_scores_have_the_densities_that_are_drawn(tmp_path: Path) -> None:
    write_run(tmp_path, 0.5)
    (found,) = analyses_by_name()["scores"].find(cells(tmp_path), Query(), {})
    drawn = [r for r in found.records if r["kind"] == "density"]
    counted = {
        name: sum(r["count"] for r in drawn if r["entries"] == name)
        for name in ("positives", "negatives")
    }
    assert counted == {"positives": TRUTH.sum(), "negatives": (~TRUTH).sum()}


def test_a_figure_that_leaves_methods_out_says_so(tmp_path: Path) -> None:
    names = ["an", "asl", "bce", "bbam", "cap", "em", "epr", "hml", "wan"]
    for name in names:
        write_run(tmp_path, 0.5, method=name)
    for name in ("labels", "scores"):
        (found,) = analyses_by_name()[name].find(cells(tmp_path), Query(), {})
        assert "first 8 of 9 rows" in found.table.notes[-1]
        assert {record["method"] for record in found.records} == set(names)


def test_diagnostics_without_a_result_of_labels_are_not_needed(tmp_path: Path) -> None:
    """A run that did not record its rows still has its place in a budget."""
    for pi, quality in ((0.1, 0.2), (0.5, 0.6)):
        file = write_run(tmp_path, quality, method="bce", pi=pi) / "result.json"
        result = json.loads(file.read_text())
        del result["data"]
        file.write_text(json.dumps(result))
    analysis = analyses_by_name()["budget"]
    (found,) = analysis.find(cells(tmp_path), Query(), defaults(analysis))
    assert [record["labelled_rows"] for record in found.records] == [0.1, 0.5]


def test_the_figure_of_a_pair_fills_the_side_that_is_ahead_in_losses_too(tmp_path: Path) -> None:
    for method, quality in (("bce", 0.2), ("cap", 0.7)):
        write_run(tmp_path, quality, method=method)
    analysis = analyses_by_name()["pair"]
    options = defaults(analysis, a="bce", b="cap", bootstrap=100)
    (found,) = analysis.find(cells(tmp_path), Query(metrics=("map", "hamming")), options)
    values = [r["difference"] for r in found.records if r["kind"] == "metric"]
    assert values[0] < 0 < values[1]  # less mAP, more Hamming loss: cap is ahead in both
    with settings():
        marks = [line for line in found.draw().axes[0].lines if line.get_marker() in ("o", "s")]
    assert [line.get_marker() for line in marks] == ["s", "s"]
