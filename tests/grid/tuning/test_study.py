"""Tuning: equal budgets, drawn by a seed, judged on held-out labelled rows and on nothing else."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file as load_scores
from sklearn.metrics import average_precision_score

from ssmlbench.boards.build import build_boards
from ssmlbench.boards.query import Query
from ssmlbench.boards.render import as_markdown, boards_document
from ssmlbench.core.errors import UserError
from ssmlbench.core.events import AlreadyDone, Done
from ssmlbench.core.spec import FIELDS
from ssmlbench.data import Task
from ssmlbench.grid.status import read_states
from ssmlbench.grid.study import (
    Record,
    Study,
    close,
    held_out_note,
    trials_root,
    tuned_specs,
    winner,
)
from ssmlbench.plugins.loader import Plugins
from ssmlbench.protocol.observation import observe
from ssmlbench.runs.context import RunContext
from ssmlbench.runs.execute import execute
from ssmlbench.runs.finished import read_finished
from ssmlbench.runs.folder import RunFolder
from ssmlbench.runs.recipes import RECIPES
from tests.grid.tuning.conftest import Ask, make

# ------------------------------------------------------------------------------- what is drawn


def test_trial_0_is_the_default_and_every_trial_lies_in_its_ranges(
    plugins: Plugins, ask: Ask
) -> None:
    base = ask(method="cap")
    study = Study.of(base, plugins, 12)
    first, *others = study.specs()
    assert (first.lr, first.config) == (base.lr, base.config)
    assert {spec.config["loss"] for spec in others} == {"asl", "bce"}
    for spec in others:
        assert base.lr / 10 <= spec.lr <= base.lr * 3
        drawn = {n: getattr(spec, n) if n in FIELDS else spec.config[n] for n in study.space}
        assert all(drawn[name] in search for name, search in study.space.items())
        assert spec.config["clip"] == base.config["clip"]  # declares no range
    assert len({spec.hash for spec in study.specs()}) == 12
    assert all(spec.judged_on == "held-out" for spec in study.specs())


def test_more_trials_keep_the_first_and_another_seed_draws_others(
    plugins: Plugins, ask: Ask
) -> None:
    base = ask(method="cap")
    few, many = (Study.of(base, plugins, n).specs() for n in (3, 6))
    assert [spec.hash for spec in many[:3]] == [spec.hash for spec in few]
    other = Study.of(ask(method="cap", seed=1), plugins, 3).specs()
    assert other[0].config == few[0].config
    assert other[1].lr != few[1].lr


def test_all_methods_try_the_same_learning_rates(plugins: Plugins, ask: Ask) -> None:
    bce, cap = (Study.of(ask(method=name), plugins, 5).specs() for name in ("bce", "cap"))
    assert [spec.lr for spec in bce] == [spec.lr for spec in cap]
    assert len({spec.lr for spec in bce}) == 5


@pytest.mark.parametrize("recipe", ["paper", "features"])
def test_a_recipe_s_own_fields_are_drawn_equally_for_every_method(
    plugins: Plugins, ask: Ask, recipe: str
) -> None:
    bce, cap = (Study.of(ask(method=name, recipe=recipe), plugins, 6) for name in ("bce", "cap"))
    fields = sorted(FIELDS.keys() & bce.space.keys())
    assert (
        fields
        == {
            "paper": ["lr", "weight_decay"],
            "features": ["hidden_dropout", "input_dropout", "lr", "projection", "relative_decay"],
        }[recipe]
    )
    for one, other in zip(bce.specs(), cap.specs(), strict=True):
        assert [getattr(one, name) for name in fields] == [getattr(other, name) for name in fields]
    assert all(len({getattr(s, name) for s in bce.specs()}) > 1 for name in fields)


def test_what_was_set_is_not_drawn(plugins: Plugins, ask: Ask) -> None:
    study = Study.of(ask(method="cap", settings={"loss": "bce"}), plugins, 8)
    assert "loss" not in study.space
    assert {spec.config["loss"] for spec in study.specs()} == {"bce"}


# ------------------------------------------------------------------------------- a study


def test_a_study_records_every_trial_with_the_map_of_its_held_out_rows(
    plugins: Plugins, ask: Ask, tmp_path: Path
) -> None:
    study = Study.of(ask(), plugins, 3)
    _, records = make(study, plugins, tmp_path)
    stored = json.loads(study.file(tmp_path).read_text())
    assert [trial["trial"] for trial in stored["trials"]] == [0, 1, 2]
    for spec, record in zip(study.specs(), records, strict=True):
        scores = load_scores(RunFolder.of(trials_root(tmp_path), spec).scores_file)
        assert len(scores["truth"]) == 7  # ⌊0.3 · 120⌋ = 36 labelled rows, round(0.2 · 36) = 7
        expected = average_precision_score(scores["truth"], scores["scores"], average="macro")
        assert record.map == pytest.approx(expected)
        assert record.drawn == {
            name: getattr(spec, name) for name in RECIPES["features"].searched(spec)
        }


def test_a_trial_trains_on_labelled_rows_it_is_not_judged_on(ask: Ask, plugins: Plugins) -> None:
    truth = np.eye(3, dtype=np.int8)[np.arange(120) % 3]
    base = ask()
    whole, trial = observe(truth, base), observe(truth, Study.of(base, plugins, 1).spec(0))
    assert set(trial.labelled) | set(trial.validation) == set(whole.labelled)
    assert not set(trial.labelled) & set(trial.validation)
    assert set(trial.unlabelled) == set(whole.unlabelled)


@pytest.mark.parametrize("selection", ["last", "val"])
def test_scrambled_test_and_hidden_labels_change_nothing(
    plugins: Plugins, ask: Ask, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, selection: str
) -> None:
    study = Study.of(ask(method="cap", selection=selection), plugins, 2)
    make(study, plugins, tmp_path / "honest")
    honest = Task.truth

    def scrambled(self: Task, split: str) -> np.ndarray:
        truth = honest(self, split)
        if split == "test":
            return 1 - truth
        seen = observe(truth, study.base).labels
        return np.where(seen >= 0, truth, 1 - truth).astype(np.int8)

    monkeypatch.setattr(Task, "truth", scrambled)
    make(study, plugins, tmp_path / "scrambled")
    for spec in study.specs():
        folders = [RunFolder.of(trials_root(tmp_path / k), spec) for k in ("honest", "scrambled")]
        one, two = (folder.scores_file.read_bytes() for folder in folders)
        assert one == two
    files = [study.file(tmp_path / kind).read_bytes() for kind in ("honest", "scrambled")]
    assert files[0] == files[1]


def test_the_test_set_is_not_opened(
    plugins: Plugins, ask: Ask, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("truth", "inputs"):
        honest = getattr(Task, name)

        def only_training_rows(self: Task, split: str, honest: Any = honest) -> Any:
            assert split == "train"
            return honest(self, split)

        monkeypatch.setattr(Task, name, only_training_rows)
    for fields in ({}, {"freeze": True}):
        make(Study.of(ask(**fields), plugins, 1), plugins, tmp_path)


def test_a_killed_study_goes_on_and_a_longer_one_adds_to_it(
    plugins: Plugins, ask: Ask, tmp_path: Path
) -> None:
    study = Study.of(ask(), plugins, 3)
    context = RunContext(trials_root(tmp_path), "cpu", 1)
    execute(study.spec(0), plugins, context)
    assert close(study, tmp_path) is None  # nothing is won while trials are missing
    assert not study.file(tmp_path).exists()
    ended, records = make(study, plugins, tmp_path)
    assert ended == [AlreadyDone, Done, Done]
    assert make(study, plugins, tmp_path) == ([AlreadyDone] * 3, records)
    ended, more = make(Study.of(ask(), plugins, 4), plugins, tmp_path)
    assert ended == [AlreadyDone, AlreadyDone, AlreadyDone, Done]
    assert more[:3] == records


def test_a_diverged_trial_is_recorded_loses_and_is_not_tried_again(
    plugins: Plugins, ask: Ask, tmp_path: Path
) -> None:
    study = Study.of(ask(method="explodes"), plugins, 4)
    _, records = make(study, plugins, tmp_path)
    dry = [r.trial for r in records if r.drawn["fuse"] == "dry"]
    assert dry  # the seed draws some of both
    assert len(dry) < 4
    assert [r.trial for r in records if r.diverged] == dry
    assert all("not finite in epoch 1" in records[trial].diverged for trial in dry)
    best = winner(records)
    assert best is not None
    assert best.trial not in dry
    assert make(study, plugins, tmp_path)[0] == [AlreadyDone] * 4


def test_a_board_of_trials_names_the_diverged_ones(
    plugins: Plugins, ask: Ask, tmp_path: Path
) -> None:
    study = Study.of(ask(method="explodes"), plugins, 4)
    _, records = make(study, plugins, tmp_path)
    trials, complaints = read_finished([trials_root(tmp_path)])
    assert (len(trials), complaints) == (4, [])
    assert {state.state for state in read_states([trials_root(tmp_path)])} == {"done"}
    (board,) = build_boards(trials, Query())
    text = as_markdown(boards_document([board]))
    for record in records:
        (row,) = [row for row in board.rows if row.name == f"explodes (trial {record.trial})"]
        said = f"explodes (trial {record.trial}) seed 0 ({record.diverged})"
        if record.diverged:
            assert not row.cells
            assert said in text
        else:
            assert row.cells["map", "0.3"].mean == record.map
            assert said not in text


def test_where_everything_diverges_there_is_no_winner(
    plugins: Plugins, ask: Ask, tmp_path: Path
) -> None:
    base = ask(method="explodes", settings={"fuse": "dry"})
    make(Study.of(base, plugins, 2), plugins, tmp_path)
    with pytest.raises(UserError, match=r"all 2 trials of explodes on tune-toy semi-0.3 diverged"):
        tuned_specs([base], plugins, tmp_path)


def test_of_equal_trials_the_earlier_wins() -> None:
    records = [Record(i, {}, score) for i, score in enumerate((0.5, 0.7, 0.6, 0.7))]
    assert winner(records) == records[1]


def test_held_out_rows_without_a_positive_judge_nothing(plugins: Plugins, ask: Ask) -> None:
    assert "7 held-out labelled rows, by the mAP of 3 of 3 labels" in held_out_note(ask(), plugins)
    with pytest.raises(UserError, match="none of the 7 held-out labelled rows has a positive"):
        held_out_note(ask(dataset="tune-bare"), plugins)
    with pytest.raises(UserError, match="need at least 2, there are 1"):
        held_out_note(ask(pi=0.01), plugins)


def test_tuning_on_the_test_set_is_refused(plugins: Plugins, ask: Ask) -> None:
    with pytest.raises(UserError, match="tune never looks at the test set"):
        Study.of(ask(selection="oracle"), plugins, 2)
