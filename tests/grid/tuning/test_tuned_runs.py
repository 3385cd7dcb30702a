"""`run --tuned`: which study a run takes its values from, and how boards and the command line show it."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from ssmlbench.boards.build import build_boards
from ssmlbench.boards.query import Query
from ssmlbench.boards.render import as_markdown, boards_document
from ssmlbench.cli import app
from ssmlbench.core.errors import DamageWarning, UserError
from ssmlbench.core.files import write_json
from ssmlbench.core.spec import RunSpec
from ssmlbench.grid.study import (
    Study,
    centre_of,
    close,
    trials_root,
    tuned_specs,
)
from ssmlbench.plugins.loader import Plugins
from ssmlbench.runs.finished import Finished, read_finished
from ssmlbench.runs.folder import RunFolder
from tests.grid.tuning.conftest import Ask, make, record_study
from tests.support.board_runs import BASE, finished


def test_one_study_serves_all_seeds_of_a_cell(plugins: Plugins, ask: Ask, tmp_path: Path) -> None:
    study = Study.of(ask(method="cap"), plugins, 3)
    record_study(study, tmp_path, [0.5, 0.6, 0.9])
    for seed in (0, 4):
        asked = ask(method="cap", seed=seed)
        (spec,) = tuned_specs([asked], plugins, tmp_path)
        assert (spec.lr, spec.config) == (study.spec(2).lr, study.spec(2).config)
        assert spec.tuned == {
            "trial": 2,
            "trials": 3,
            "seed": 0,
            "centre": centre_of(asked, study.space),
        }
        assert (spec.seed, spec.judged_on, spec.variant) == (seed, "test", "cap (tuned, 3 trials)")
        assert spec.hash != asked.hash
        assert RunSpec.from_dict(spec.as_dict()) == spec


def test_a_study_is_found_wherever_its_model_lies(
    plugins: Plugins, ask: Ask, tmp_path: Path
) -> None:
    made = dataclasses.replace(ask(), backbone="/home/ann/minilm", weights="w@1")
    record_study(Study.of(made, plugins, 2), tmp_path, [0.5, 0.6])
    elsewhere = dataclasses.replace(made, backbone="/scratch/bob/minilm")
    (spec,) = tuned_specs([elsewhere], plugins, tmp_path)
    assert spec.tuned["trials"] == 2
    assert spec.backbone == "/scratch/bob/minilm"
    with pytest.raises(UserError, match="there is one with other weights"):
        tuned_specs([dataclasses.replace(elsewhere, weights="w@2")], plugins, tmp_path)


def test_the_study_with_most_trials_is_taken(plugins: Plugins, ask: Ask, tmp_path: Path) -> None:
    record_study(Study.of(ask(), plugins, 4), tmp_path, [0.5, 0.6, 0.4, 0.7])
    record_study(Study.of(ask(), plugins, 3), tmp_path, [0.5, 0.6, 0.4])
    record_study(Study.of(ask(seed=1), plugins, 3), tmp_path, [0.9, 0.6, 0.4])
    (spec,) = tuned_specs([ask()], plugins, tmp_path)
    assert (spec.tuned["trials"], spec.tuned["trial"], spec.tuned["seed"]) == (4, 3, 0)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"pi": 0.2}, r"`ssmlbench tune --dataset tune-toy --pi 0.2 --method bce --trials 20"),
        ({"epochs": 4, "warmup_epochs": 1}, r"one with other epochs\)"),
        ({"regime": "full"}, r"--regime full --method bce --trials 20"),
        ({"selection": "val"}, r"one with other selection\)"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_without_its_study_a_run_is_told_what_to_type(
    plugins: Plugins, ask: Ask, tmp_path: Path, change: dict[str, Any], said: str
) -> None:
    record_study(Study.of(ask(), plugins, 2), tmp_path, [0.5, 0.6])
    with pytest.raises(UserError, match="--tuned: no study of bce on tune-toy") as error:
        tuned_specs([ask(**change)], plugins, tmp_path)
    assert error.match(said)


def test_a_study_over_other_ranges_does_not_count(
    plugins: Plugins, ask: Ask, tmp_path: Path
) -> None:
    study = Study.of(ask(), plugins, 2)
    record_study(study, tmp_path, [0.5, 0.6])
    stored = json.loads(study.file(tmp_path).read_text())
    stored["space"]["lr"] = "1e-05 to 1, log"
    write_json(study.file(tmp_path), stored)
    with pytest.raises(UserError, match=r"one with other search ranges"):
        tuned_specs([ask()], plugins, tmp_path)


def test_unequal_budgets_are_refused(plugins: Plugins, ask: Ask, tmp_path: Path) -> None:
    record_study(Study.of(ask(method="bce"), plugins, 2), tmp_path, [0.5, 0.6])
    record_study(Study.of(ask(method="cap"), plugins, 3), tmp_path, [0.5, 0.6, 0.4])
    with pytest.raises(
        UserError, match=r"budgets are not equal: bce .* has 2 trials, others have 3"
    ):
        tuned_specs([ask(method="bce"), ask(method="cap")], plugins, tmp_path)


def test_a_file_that_is_no_study_is_named(plugins: Plugins, ask: Ask, tmp_path: Path) -> None:
    study = Study.of(ask(), plugins, 1)
    study.file(tmp_path).parent.mkdir(parents=True)
    write_json(study.file(tmp_path), {})
    with (
        pytest.warns(DamageWarning, match="not a study of ssmlbench"),
        pytest.raises(UserError, match="--tuned: no study of"),
    ):
        tuned_specs([ask()], plugins, tmp_path)


def test_a_study_or_trial_of_a_newer_version_is_named_with_the_reason(
    plugins: Plugins, ask: Ask, tmp_path: Path
) -> None:
    study = Study.of(ask(), plugins, 2)
    record_study(study, tmp_path, [0.5, 0.6])
    stored = json.loads(study.file(tmp_path).read_text())
    stored["base"]["curriculum"] = "easy-first"
    write_json(study.file(tmp_path), stored)
    with pytest.raises(UserError, match=r"cannot read the study: .* unknown here: curriculum"):
        tuned_specs([ask()], plugins, tmp_path)
    for spec in study.specs():
        folder = RunFolder.of(trials_root(tmp_path), spec)
        folder.path.mkdir(parents=True, exist_ok=True)
        folder.result_file.write_text(json.dumps({"spec": stored["base"], "metrics": {}}))
    with pytest.raises(UserError, match=r"result.json: .* unknown here: curriculum"):
        close(study, tmp_path)


# ------------------------------------------------------------------------------- on a board


def tuned_runs(root: Path, **rows: tuple[int, float]) -> list[Finished]:
    """A run for each method, tuned with so many trials, at the learning rate that won."""
    runs = []
    for method, (trials, lr) in rows.items():
        centre = {"centre": {"lr": BASE.lr}}
        tuned = {"trial": 1, "trials": trials, "seed": 0, **centre} if trials else {}
        runs.append(finished(root, replace(BASE, method=method, lr=lr, tuned=tuned), 0.5))
    return runs


def test_tuned_rows_share_a_board_whatever_learning_rate_won(tmp_path: Path) -> None:
    runs = tuned_runs(tmp_path, bce=(20, 0.002), cap=(20, 0.0003))
    (board,) = build_boards(runs, Query())
    assert [row.name for row in board.rows] == ["bce (tuned, 20 trials)", "cap (tuned, 20 trials)"]
    assert "20 trials each on held-out labelled rows" in as_markdown(boards_document([board]))
    assert "Warning" not in as_markdown(boards_document([board]))


@pytest.mark.parametrize(
    ("trials", "said"),
    [(0, "not tuned: bce"), (10, "10 trials: bce (tuned, 10 trials)")],
)
def test_unequal_budgets_are_warned_of(tmp_path: Path, trials: int, said: str) -> None:
    runs = tuned_runs(tmp_path, bce=(trials, BASE.lr), cap=(20, 0.0003))
    (board,) = build_boards(runs, Query())
    warning = "Warning: the tuning budgets are not equal (20 trials: cap (tuned, 20 trials); "
    assert warning + said in as_markdown(boards_document([board]))


def test_untuned_boards_say_nothing_of_tuning(tmp_path: Path) -> None:
    (board,) = build_boards(tuned_runs(tmp_path, bce=(0, BASE.lr)), Query())
    assert "uned" not in as_markdown(boards_document([board]))


def test_trials_are_not_among_the_results(plugins: Plugins, ask: Ask, tmp_path: Path) -> None:
    make(Study.of(ask(), plugins, 1), plugins, tmp_path)
    assert read_finished([tmp_path]) == ([], [])
    (trial,), _ = read_finished([trials_root(tmp_path)])
    (board,) = build_boards([trial], Query())
    assert "not on the test set" in as_markdown(boards_document([board]))


# ------------------------------------------------------------------------------- the command line


def test_tune_then_run_tuned(files: list[Path], tmp_path: Path) -> None:
    def type_(*words: object) -> str:
        plugs = [word for file in files for word in ("--plugin", file)]
        where = ("--device", "cpu", "--jobs", 1, "--results", tmp_path / "results")
        answer = CliRunner().invoke(app, list(map(str, (*words, *plugs, *where))))
        if answer.exception and not isinstance(answer.exception, SystemExit):
            raise answer.exception
        assert answer.exit_code == 0, answer.output
        return answer.output

    cell = ("--method", "bce,cap", "--dataset", "tune-toy", "--pi", 0.3, "--epochs", 3)
    said = type_("tune", *cell, "--trials", 2)
    assert said.count("judged on 7 held-out labelled rows") == 1
    assert "[4/4] cap (trial 1)" in said
    assert "ssmlbench run --tuned" in said
    type_("run", *cell, "--tuned")
    runs, complaints = read_finished([tmp_path / "results"])
    assert not complaints
    assert {run.spec.variant for run in runs} == {"bce (tuned, 2 trials)", "cap (tuned, 2 trials)"}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--trials", "0"), "--trials 0: must be 1 to 10,000"),
        (("--trials", "2", "--selection", "oracle"), "tune never looks at the test set"),
        (("--trials", "2", "--pi", "0.01"), "need at least 2, there are 1"),
        (("--trials", "2", "--jobs", "0"), "--jobs 0: must be at least 1"),
    ],
)
def test_what_cannot_be_tuned_is_told(
    files: list[Path], tmp_path: Path, words: tuple[str, ...], said: str
) -> None:
    cell = ("--method", "bce", "--dataset", "tune-toy", "--plugin", str(files[0]))
    pi = () if "--pi" in words else ("--pi", "0.3")
    typed = ("tune", *cell, *pi, "--results", str(tmp_path), *words)
    error = CliRunner().invoke(app, typed).exception
    assert isinstance(error, UserError)
    assert said in str(error)
