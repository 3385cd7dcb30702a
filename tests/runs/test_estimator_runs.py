"""An estimator's run: the same protocol, spec, store and tuning as a method's."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ssmlbench.core.errors import UserError
from ssmlbench.core.events import AlreadyDone, Done
from ssmlbench.core.spec import FIELDS, RunSpec
from ssmlbench.grid.study import Study, close, trials_root, tuned_specs
from ssmlbench.kit.estimator import Estimator, FeaturePool
from ssmlbench.plugins.catalogue import methods
from ssmlbench.plugins.loader import Plugins
from ssmlbench.protocol.decisions import calibrated_thresholds
from ssmlbench.runs.context import RunContext
from ssmlbench.runs.execute import execute, open_task
from ssmlbench.runs.finished import read_finished
from ssmlbench.runs.folder import RunFolder
from ssmlbench.runs.resolve import resolve
from ssmlbench.runs.scores import StoredScores
from ssmlbench.runs.train import build_learner
from tests.conftest import ROOT
from tests.support.run_options import another_value

DATA = ROOT / "tests" / "golden" / "data_sets.py"


@pytest.fixture(scope="module")
def golden(cache: Path) -> Plugins:
    return Plugins([DATA])


@pytest.fixture
def plan(golden: Plugins) -> Callable[..., RunSpec]:
    def call(settings: dict[str, str] | None = None, **fields: Any) -> RunSpec:
        wanted = {"method": "logistic", "dataset": "golden-vectors", "pi": 0.3, **fields}
        return resolve(golden, settings or {}, **wanted)

    return call


def test_a_run_leaves_what_every_run_leaves(
    golden: Plugins, plan: Callable[..., RunSpec], tmp_path: Path
) -> None:
    spec, context = plan(method="prior"), RunContext(tmp_path)
    assert isinstance(execute(spec, golden, context), Done)
    assert isinstance(execute(spec, golden, context), AlreadyDone)
    folder = RunFolder.of(tmp_path, spec)
    result = json.loads(folder.result_file.read_text())
    assert (result["uses"], result["steps"], result["selected_epoch"]) == ("labelled rows", 0, 1)
    assert result["made_with"]["device"] == "cpu"
    assert len(folder.history_file.read_text().splitlines()) == 2
    (run,) = read_finished([tmp_path])[0]
    assert run.spec == spec
    # All rows have the labelled frequency of the 19 labelled rows as their scores.
    truth = open_task(spec, golden).truth("train")
    labelled = np.random.RandomState(0).permutation(64)[:19]
    prior = truth[labelled].mean(axis=0)
    stored = StoredScores.read(folder.path)
    np.testing.assert_allclose(stored.scores, np.tile(prior, (16, 1)), rtol=1e-6)
    expected = calibrated_thresholds(np.tile(prior.astype(np.float32), (64, 1)), prior)
    np.testing.assert_array_equal(stored.parameters["thresholds"], expected)


def test_options_of_training_change_no_hash_of_an_estimator(plan: Callable[..., RunSpec]) -> None:
    spec = plan()
    trained = [option for option in FIELDS.values() if option.of_training]
    assert {"epochs", "lr", "batch_size", "ema_decay", "selection", "projection"} <= {
        option.name for option in trained
    }
    for option in trained:
        changed = dataclasses.replace(spec, **{option.name: another_value(option)})
        assert changed.hash == spec.hash, option.name
    typed = plan(epochs=7, lr=0.5, selection="val", strong_views=None, precision="bfloat16")
    assert typed == spec
    assert plan(method="bce", epochs=7).hash != plan(method="bce").hash
    assert plan(scaling="none").hash != spec.hash
    for name in ("split", "seed", "pi", "config", "code", "data"):
        changed = dataclasses.replace(spec, **{name: another_value(FIELDS[name])})
        assert changed.hash != spec.hash, name


def test_a_method_keeps_the_hash_that_it_had_before_there_were_estimators() -> None:
    spec = RunSpec("bce", "toy", pi=0.1)
    values = spec.portable()
    assert values["learner"] == "method"
    assert RunSpec.from_dict({k: v for k, v in values.items() if k != "learner"}).hash == spec.hash
    assert "learner" in {option.name for option in FIELDS.values() if option.added_later}


def test_without_fixed_features_the_answer_is_to_freeze(plan: Callable[..., RunSpec]) -> None:
    with pytest.raises(UserError, match=r"logistic is an estimator.*add --freeze"):
        plan(dataset="golden-images")


def test_an_estimator_learns_from_frozen_features_in_the_plain_view_alone(
    golden: Plugins,
    plan: Callable[..., RunSpec],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SSMLBENCH_CACHE", str(tmp_path / "cache"))
    spec = plan(dataset="golden-images", freeze=True, method="label_spreading")
    assert spec.strong_views is None
    execute(spec, golden, RunContext(tmp_path))
    made = (tmp_path / "cache" / "features").glob("golden-images-*")
    assert {"-".join(folder.name.split("-")[2:4]) for folder in made} == {
        "train-plain",
        "test-plain",
    }


def test_an_estimator_may_decline_scaling(
    plan: Callable[..., RunSpec], tmp_path: Path, cache: Path
) -> None:
    seen: dict[bool, Any] = {}

    class Sees(Estimator):
        name = "sees"

        def fit(self, labelled: FeaturePool, unlabelled: FeaturePool) -> None:
            seen[self.scaled] = labelled.features

        def scores(self, features: Any) -> Any:
            return np.zeros((len(features), self.labels))

    class SeesUnscaled(Sees):
        name = "sees-unscaled"
        scaled = False

    own = Plugins([DATA])
    for cls in (Sees, SeesUnscaled):
        own.add(cls)
        spec = resolve(own, {}, method=cls.name, dataset="golden-vectors", pi=0.3)
        execute(spec, own, RunContext(tmp_path))
    lengths = {scaled: np.linalg.norm(rows, axis=1) for scaled, rows in seen.items()}
    np.testing.assert_allclose(lengths[True], np.sqrt(12), rtol=1e-5)
    assert lengths[False].std() > 0.5


def test_tuning_draws_no_learning_rate(
    golden: Plugins, plan: Callable[..., RunSpec], tmp_path: Path
) -> None:
    base = plan(method="knn", pi=0.8)
    study = Study.of(base, golden, 3)
    assert set(study.space) == {"neighbours", "smoothing"}
    for spec in study.specs():
        execute(spec, golden, RunContext(trials_root(tmp_path)))
    records = close(study, tmp_path)
    assert records is not None
    best = max(records, key=lambda record: record.map)
    (tuned,) = tuned_specs([base], golden, tmp_path)
    assert {name: tuned.config[name] for name in study.space} == best.drawn
    assert tuned.variant == "knn (tuned, 3 trials)"
    assert "lr" not in tuned.tuned
    execute(tuned, golden, RunContext(tmp_path))
    assert [run.spec for run in read_finished([tmp_path])[0]] == [tuned]


def test_the_rows_that_a_learner_uses(golden: Plugins, plan: Callable[..., RunSpec]) -> None:
    labels = open_task(plan(), golden).label_count
    uses = {
        (name, *settings.values()): build_learner(plan(settings, method=name), golden, labels).uses
        for name, settings in (
            ("bce", {}),
            ("cap", {}),
            ("hml", {}),
            ("hml", {"pseudo": "cap"}),
            ("forest", {}),
            ("self_training", {}),
        )
    }
    assert uses == {
        ("bce",): "labelled rows",
        ("cap",): "both pools",
        ("hml",): "labelled rows",
        ("hml", "cap"): "both pools",
        ("forest",): "labelled rows",
        ("self_training",): "both pools",
    }


def test_the_catalogue_marks_estimators() -> None:
    found = methods()
    assert (found["logistic"].kind, found["logistic"].uses) == ("estimator", "labelled rows")
    assert (found["cap"].kind, found["cap"].uses) == ("method", "both pools")
    assert not found["logistic"].head
