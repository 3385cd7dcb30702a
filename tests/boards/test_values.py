"""Metrics and decision rules that were added after runs were made: computed from scores, and kept."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from ssmlbench.boards.build import build_boards
from ssmlbench.boards.csv_files import export, read_exported
from ssmlbench.boards.query import Query
from ssmlbench.boards.render import as_markdown, boards_document
from ssmlbench.boards.report import write_report
from ssmlbench.cli import app
from ssmlbench.protocol.decisions import RULES, DecisionRule, decide, fit_rules
from ssmlbench.protocol.metrics import METRICS, Metric, Predictions, Values, evaluate
from ssmlbench.runs import metric_values as values_module
from ssmlbench.runs.finished import Finished, read_finished
from ssmlbench.runs.run_result import RunResult
from ssmlbench.runs.scores import StoredScores
from tests.support.board_runs import grid, one_board


def stored_runs(root: Path, methods: tuple[str, ...] = ("bce", "cap")) -> list[Finished]:
    """Finished runs of two seeds with scores, as today's ssmlbench makes them."""
    runs = grid(root, {method: [0.5, 0.6] for method in methods})
    rng = np.random.default_rng(0)
    truth = rng.random((60, 4)) < 0.4
    for run in runs:
        scores = np.clip(truth * 0.3 + rng.random((60, 4)) * 0.7, 0, 1).astype(np.float32)
        stored = StoredScores(scores, truth, fit_rules(scores, truth.mean(axis=0)))
        stored.write(run.folder / "scores.safetensors")
    return runs


def coverage(p: Predictions, convention: str) -> Values:
    """The share of true labels with a score above 0.3."""
    above = p.truth & (p.scores > 0.3)
    return p.sum_over_entries(above) / p.sum_over_entries(p.truth)


def exact_match(p: Predictions, convention: str) -> Values:
    """The share of rows whose label set is right."""
    return p.sum_over_rows((p.truth == p.predicted).all(axis=1)) / p.rows


@pytest.fixture
def old_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A results folder from before two metrics and a rule were added to their tables."""
    stored_runs(tmp_path / "results")
    monkeypatch.setitem(METRICS, "coverage", Metric("coverage", "Coverage", True, False, coverage))
    monkeypatch.setitem(METRICS, "exact", Metric("exact", "Exact match", True, True, exact_match))
    low = DecisionRule("low", "label sets by score > 0.2 (low)", lambda s, t, p: s > 0.2, mark="§")
    monkeypatch.setitem(RULES, "low", low)
    return tmp_path / "results"


def board_of(root: Path, **query: Any) -> Any:
    runs, complaints = read_finished([root])
    assert not complaints
    return one_board(runs, **query)


def mean_of(root: Path, metric: str, rule: str, convention: str = "default") -> float:
    """The mean over bce's seeds, computed here from the stored scores."""
    values = []
    for file in sorted(root.glob("toy/*/bce/*/scores.safetensors")):
        stored = StoredScores.read(file.parent)
        sets = decide(stored.scores, rule, truth=stored.truth, parameters=stored.parameters)
        values.append(evaluate(stored.scores, stored.truth, sets, convention=convention)[metric])
    return float(np.mean(values))


@pytest.mark.parametrize("rule", ["calibrated", "threshold", "top-k", "low"])
@pytest.mark.parametrize("convention", ["default", "released"])
def test_boards_compute_what_stored_runs_lack(old_runs: Path, rule: str, convention: str) -> None:
    board = board_of(old_runs, decision=rule, convention=convention)
    assert board.unavailable == []
    for metric in ("coverage", "exact"):
        (row,) = [row for row in board.rows if row.name == "bce"]
        expected = mean_of(old_runs, metric, rule, convention)
        assert row.cells[metric, "0.1"].mean == pytest.approx(expected, abs=1e-12)


def test_computed_values_are_kept_beside_an_untouched_result(old_runs: Path) -> None:
    before = {file: file.read_bytes() for file in old_runs.rglob("result.json")}
    board = board_of(old_runs, decision="low")
    assert {file: file.read_bytes() for file in old_runs.rglob("result.json")} == before
    for file in old_runs.rglob("scores.safetensors"):
        file.unlink()
    assert board_of(old_runs, decision="low") == board


def test_what_the_run_stored_is_shown_as_it_is(old_runs: Path) -> None:
    board = board_of(old_runs)
    assert board.rows[0].cells["map", "0.1"].mean == pytest.approx(0.55)  # not that of the scores


def test_nothing_is_read_or_written_where_nothing_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored_runs(tmp_path)
    monkeypatch.setattr(StoredScores, "read", lambda folder: pytest.fail("scores were read"))
    monkeypatch.setattr(values_module, "read_json", lambda file: pytest.fail("a file was read"))
    board_of(tmp_path)
    assert not list(tmp_path.rglob("computed.json"))


def test_a_folder_that_cannot_be_written_to_is_no_error(old_runs: Path) -> None:
    for file in old_runs.rglob("result.json"):
        (file.parent / "computed.json").mkdir()  # the rename onto it fails
    assert board_of(old_runs).unavailable == []
    assert not list(old_runs.rglob("*.part"))


@pytest.mark.parametrize("text", ["", "[]", '{"for": 3}', '{"metrics": {"low": 3}}'])
def test_a_damaged_file_of_kept_values_is_computed_anew(old_runs: Path, text: str) -> None:
    whole = board_of(old_runs)
    for file in old_runs.rglob("computed.json"):
        file.write_text(text)
    assert board_of(old_runs) == whole
    for file in old_runs.rglob("computed.json"):
        assert json.loads(file.read_text())["metrics"]


def test_kept_values_of_another_definition_or_result_are_computed_anew(
    old_runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def halved(p: Predictions, convention: str) -> Values:
        return coverage(p, convention) / 2

    first = board_of(old_runs).rows[0].cells["coverage", "0.1"].mean
    for file in old_runs.rglob("computed.json"):
        kept = json.loads(file.read_text())
        kept["metrics"]["calibrated"]["default"]["coverage"] = 9.0
        kept["for"][0] = "2001-01-01T00:00:00.000+00:00"  # a result that was made anew since
        file.write_text(json.dumps(kept))
    assert board_of(old_runs).rows[0].cells["coverage", "0.1"].mean == first
    # another entry under the same key, in another file
    monkeypatch.setattr(values_module, "_source", lambda module: f"edited {module}")
    values_module._definitions.cache_clear()
    monkeypatch.setitem(METRICS, "coverage", Metric("coverage", "Coverage", True, False, halved))
    assert board_of(old_runs).rows[0].cells["coverage", "0.1"].mean == pytest.approx(first / 2)
    values_module._definitions.cache_clear()


def test_a_rule_that_was_not_fitted_is_missing_with_the_reason(
    old_runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fitted = DecisionRule(
        "median",
        "label sets by the median training score (median)",
        lambda scores, truth, p: scores > p["medians"],
        fit=lambda scores, prior: {"medians": np.median(scores, axis=0)},
        parameters=("medians",),
    )
    monkeypatch.setitem(RULES, "median", fitted)
    board = board_of(old_runs, decision="median", draws=100)
    text = as_markdown(boards_document([board]))
    assert "Not available: Micro-F1 of 4 runs: the decision rule median is fitted while" in text
    assert board.missing == []  # no run is missing
    for row in board.rows:
        assert {metric for metric, _ in row.cells} == {"map", "one_loss", "coverage"}
        assert row.cells["map", "0.1"].interval is not None
    # a run that is made now has it
    (file,) = list(old_runs.glob("toy/*/bce/0-*/scores.safetensors"))
    stored = StoredScores.read(file.parent)
    prior = stored.truth.mean(axis=0)
    StoredScores(stored.scores, stored.truth, fit_rules(stored.scores, prior)).write(file)
    (file.parent / "computed.json").unlink()
    board = board_of(old_runs, decision="median")
    (row,) = [row for row in board.rows if row.name == "bce"]
    assert row.cells["micro_f1", "0.1"].seeds == (0,)
    assert any("Micro-F1 of 3 runs" in line for line in board.unavailable)


def test_a_result_from_python_has_what_was_added(old_runs: Path) -> None:
    run = read_finished([old_runs])[0][0]
    metrics = RunResult(run).metrics("low", "released")
    assert list(metrics) == list(METRICS)
    scores = RunResult(run).scores
    sets = decide(scores.scores, "low", truth=scores.truth)
    expected = evaluate(scores.scores, scores.truth, sets, convention="released")
    assert metrics["exact"] == expected["exact"]


def test_without_scores_the_reason_is_that(old_runs: Path) -> None:
    next(old_runs.rglob("scores.safetensors")).unlink()
    next(file for file in old_runs.rglob("scores.safetensors")).write_bytes(b"cut")
    board = board_of(old_runs)
    assert [line for line in board.unavailable if "no scores.safetensors to compute it" in line]
    assert [line for line in board.unavailable if "is not a whole safetensors file" in line]


def test_a_new_metric_reaches_every_reader(old_runs: Path, tmp_path: Path) -> None:
    runs, _ = read_finished([old_runs])
    boards = build_boards(runs, Query(draws=100, decision="low"))
    text = as_markdown(boards_document(boards))
    assert "Coverage ↑" in text
    assert "Exact match§ ↑" in text
    assert "§ label sets by score > 0.2 (low)." in text
    assert boards[0].rows[0].cells["exact", "0.1"].interval is not None
    write_report(boards, Query(decision="low"), tmp_path / "report.html")
    assert "Exact match" in (tmp_path / "report.html").read_text()
    (file,) = export(runs, tmp_path, "c")
    query = Query(decision="low")
    again, complaints = read_exported([file])
    assert not complaints
    assert build_boards(again, query) == build_boards(runs, query)
    words = ["compare", "--results", str(old_runs), "--metric", "exact,map", "--decision", "low"]
    said = CliRunner().invoke(app, [*words, "--format", "csv"], catch_exceptions=False)
    assert said.exit_code == 0
    assert said.stdout.count("exact,") == 2


def test_an_exported_file_from_before_a_metric_still_reads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = stored_runs(tmp_path / "results")
    (file,) = export(runs, tmp_path, "c")
    monkeypatch.setitem(METRICS, "coverage", Metric("coverage", "Coverage", True, False, coverage))
    (board,) = build_boards(read_exported([file])[0], Query())
    assert board.rows[0].cells["map", "0.1"].mean == pytest.approx(0.55)
    assert board.unavailable == [
        "Coverage of 4 runs: the result does not have it, and there is no scores.safetensors to "
        "compute it from"
    ]


def test_a_row_of_a_newer_spec_is_left_out_and_named(tmp_path: Path) -> None:
    (file,) = export(stored_runs(tmp_path / "results"), tmp_path, "c")
    text = file.read_text()
    file.write_text(text.replace('""epochs"":40', '""epochs"":40,""noise"":1', 1))
    runs, (complaint,) = read_exported([file])
    assert len(runs) == 3
    assert "left out, its spec has fields that are unknown here: noise" in complaint


# ------------------------------------------------------------------------- devices and versions


def made_with(run: Finished, device: str, torch: str) -> None:
    run.result["made_with"] = {"device": device, "torch": torch, "finished": "2026-01-01T00:00:00"}


def test_a_board_of_several_devices_or_versions_says_so(tmp_path: Path) -> None:
    first, second, third = grid(tmp_path, {"bce": [0.5, 0.6], "cap": [0.7]})
    made_with(first, "cpu", "2.9.0+cpu")
    made_with(second, "NVIDIA A100", "2.9.0+cu130")
    made_with(third, "cpu", "2.9.0+cpu")
    (board,) = build_boards([first, second, third], Query())
    text = as_markdown(boards_document([board]))
    assert "made with different devices (NVIDIA A100: 1 run, cpu: 2 runs)." in text
    assert "devices differ within one mean: bce π 0.1." in text
    assert "torch versions" not in text
    made_with(second, "cpu", "2.8.1")
    text = as_markdown(boards_document(build_boards([first, second, third], Query())))
    assert "made with different torch versions (2.8.1: 1 run, 2.9.0: 2 runs)." in text
    assert "devices" not in text


def test_runs_without_recorded_versions_are_not_called_mixed(tmp_path: Path) -> None:
    first, second = grid(tmp_path, {"bce": [0.5, 0.6]})
    made_with(first, "cpu", "2.9.0")
    assert one_board([first, second]).mixed == {}
