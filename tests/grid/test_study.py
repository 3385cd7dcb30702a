"""Tuning: equal budgets, drawn by a seed, judged on held-out labelled rows and on nothing else."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file as load_scores
from sklearn.metrics import average_precision_score
from typer.testing import CliRunner

from ssmlbench.boards.build import build_boards
from ssmlbench.boards.query import Query
from ssmlbench.boards.render import as_markdown, boards_document
from ssmlbench.cli import app
from ssmlbench.core.errors import DamageWarning, UserError
from ssmlbench.core.events import AlreadyDone, Done
from ssmlbench.core.files import write_json
from ssmlbench.core.spec import FIELDS, RunSpec
from ssmlbench.data import Task
from ssmlbench.grid.status import read_states
from ssmlbench.grid.study import (
    Record,
    Study,
    centre_of,
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
from ssmlbench.runs.finished import Finished, read_finished
from ssmlbench.runs.folder import RunFolder
from ssmlbench.runs.recipes import RECIPES
from ssmlbench.runs.resolve import resolve
from tests.support.board_runs import BASE, finished

TINY = '''
import numpy as np
from ssmlbench.api import DatasetAdapter, Row

class Tiny(DatasetAdapter):
    """Vectors that say their labels."""
    name, kind, backbone = "tune-toy", "vector", "vector"

    def label_names(self):
        return ["a", "b", "c"]

    def rows(self, split):
        random = np.random.default_rng(len(split))
        for i in range({"train": 120, "test": 40}[split]):
            labels = [k for k in range(3) if random.random() < 0.4]
            vector = np.isin(np.arange(6) // 2, labels) + 0.8 * random.normal(size=6)
            yield Row(vector.astype(np.float32), tuple(labels))

class Bare(Tiny):
    """Only the first row has a label."""
    name = "tune-bare"

    def rows(self, split):
        for i, row in enumerate(super().rows(split)):
            yield Row(row.input, (0,) if i == 0 else ())
'''

EXPLODES = '''
from dataclasses import dataclass
from ssmlbench.api import bce
from ssmlbench.api import Method, option
from ssmlbench.api import choice

class Explodes(Method):
    """BCE that is not finite where it is told so."""
    name = "explodes"
    unlabelled_views = ()

    @dataclass(frozen=True)
    class Config(Method.Config):
        fuse: str = option("wet", "dry: it goes off", search=choice("wet", "dry"))

    def loss(self, labelled, unlabelled):
        factor = float("nan") if self.config.fuse == "dry" else 1.0
        return {"labelled": factor * bce(labelled.logits("strong"), labelled.observed).mean()}
'''


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("plugins")
    texts = {"tiny.py": TINY, "explodes.py": EXPLODES}
    for name, text in texts.items():
        (folder / name).write_text(text)
    return [folder / name for name in texts]


@pytest.fixture(scope="module")
def plugins(files: list[Path], cache: Path) -> Plugins:
    return Plugins(files)


Ask = Callable[..., RunSpec]


@pytest.fixture(scope="module")
def ask(plugins: Plugins) -> Ask:
    """A run as it would be typed: 3 epochs of bce on 36 of 120 rows, 7 of them held out in a trial."""

    def call(**fields: Any) -> RunSpec:
        wanted = {"method": "bce", "dataset": "tune-toy", "pi": 0.3, "epochs": 3, **fields}
        return resolve(plugins, wanted.pop("settings", {}), **wanted)

    return call


def make(study: Study, plugins: Plugins, results: Path) -> tuple[list[type], list[Record]]:
    """How each trial ended, made in this process, and the closed study."""
    context = RunContext(trials_root(results), "cpu", 1)
    ended = [type(execute(spec, plugins, context)) for spec in study.specs()]
    records = close(study, results)
    assert records is not None
    return ended, records


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


# ------------------------------------------------------------------------------- run --tuned


def record_study(study: Study, results: Path, maps: list[float]) -> None:
    """A study as `close` leaves it, with these scores and no training."""
    for spec, score in zip(study.specs(), maps, strict=True):
        folder = RunFolder.of(trials_root(results), spec)
        folder.path.mkdir(parents=True, exist_ok=True)
        metrics = {"threshold": {"default": {"map": score}}}
        result = {"spec": spec.as_dict(), "metrics": metrics}
        folder.result_file.write_text(json.dumps(result))
    assert close(study, results)


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
    study.file(tmp_path).write_text("{}")
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
        (("--trials", "0"), "--trials 0: must be at least 1"),
        (("--trials", "2", "--selection", "oracle"), "tune never looks at the test set"),
        (("--trials", "2", "--pi", "0.01"), "need at least 2, there are 1"),
        (("--trials", "2", "--jobs", "0"), "--jobs 0: must be at least 1"),
    ],
)
def test_what_cannot_be_tuned_is_told(
    files: list[Path], tmp_path: Path, words: tuple[str, ...], said: str
) -> None:
    cell = ("--method", "bce", "--dataset", "tune-toy", "--pi", "0.3", "--plugin", str(files[0]))
    typed = ("tune", *cell, "--results", str(tmp_path), *words)
    error = CliRunner().invoke(app, typed).exception
    assert isinstance(error, UserError)
    assert said in str(error)
