"""Models that runs keep: they score like the run itself, anywhere, and nothing in them is pickled."""

from __future__ import annotations

import dataclasses
import json
import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from safetensors.numpy import load_file

from ssmlbench.core.errors import UserError
from ssmlbench.core.events import Event, Warned
from ssmlbench.core.files import write_json
from ssmlbench.data import prepare
from ssmlbench.kit.estimator import Estimator
from ssmlbench.plugins.loader import Plugins
from ssmlbench.runs.context import RunContext
from ssmlbench.runs.execute import execute
from ssmlbench.runs.folder import RunFolder
from ssmlbench.runs.resolve import resolve
from ssmlbench.runs.saved_model import SavedModel
from ssmlbench.runs.scores import StoredScores
from ssmlbench.training import estimator_state, model_file
from tests.faults.makers import FAULTS
from tests.support.tiny_models import save_tiny_bert, write_data_plugin

SHORT = {"epochs": 3, "warmup_epochs": 1, "batch_size": 16, "labelled_batch_size": 8, "pi": 0.3}
LEARNERS = [name for name in Plugins().methods if "semi" in Plugins().methods[name].regimes]


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Plugins:
    return Plugins([write_data_plugin(tmp_path_factory.mktemp("plugins"))])


@pytest.fixture
def made(tiny: Plugins, tmp_path: Path) -> Callable[..., tuple[Path, np.ndarray]]:
    """Make a run; its folder, and its scores of the test rows."""

    def make(keep: bool | None = None, **fields: Any) -> tuple[Path, np.ndarray]:
        fields = {"method": "bce", "dataset": "tiny-vectors", **SHORT, **fields}
        spec = resolve(tiny, {}, **fields)
        context = RunContext(tmp_path / "results", "cpu", keep_model=keep)
        execute(spec, tiny, context)
        folder = RunFolder.of(tmp_path / "results", spec).path
        return folder, StoredScores.read(folder).scores

    return make


def test_inputs(plugins: Plugins, dataset: str) -> list[Any]:
    return list(prepare(plugins.datasets[dataset]()).inputs("test"))


test_inputs.__test__ = False  # type: ignore[attr-defined]


@pytest.mark.parametrize("method", LEARNERS)
def test_a_kept_model_scores_like_its_run(method: str, made: Any, tiny: Plugins) -> None:
    dataset = "tiny-images" if method == "d2l_mat" else "tiny-vectors"
    fields = (
        {"backbone": "hog", "image_size": 16, "strong_views": 1} if dataset == "tiny-images" else {}
    )
    folder, scores = made(method=method, dataset=dataset, **fields)
    model = SavedModel(folder, tiny, device="cpu")
    assert model.notes == []
    assert np.allclose(model.scores(test_inputs(tiny, dataset)), scores, atol=2e-5)


@pytest.mark.parametrize(
    "fields",
    [
        {"dataset": "tiny-text"},
        {"dataset": "tiny-text", "method": "logistic"},
        {"dataset": "tiny-images", "backbone": "squeezenet1_1", "weights": "none", "freeze": True},
        {"dataset": "tiny-images", "backbone": "squeezenet1_1", "weights": "none"},
        {"dataset": "tiny-vectors", "scaling": "none"},
        {"dataset": "tiny-vectors", "selection": "val", "pi": 0.6},
    ],
    ids=["tfidf", "tfidf logistic", "frozen network", "trained network", "unscaled", "val"],
)
def test_whatever_the_inputs_go_through_is_kept(
    fields: dict[str, Any], made: Any, tiny: Plugins
) -> None:
    size = {"image_size": 32} if fields["dataset"] == "tiny-images" else {}
    size |= {"strong_views": 1} if fields.get("freeze") else {}
    folder, scores = made(**fields, **size)
    model = SavedModel(folder, tiny, device="cpu")
    raws = test_inputs(tiny, str(fields["dataset"]))
    assert np.allclose(model.scores(raws), scores, atol=2e-5)
    parts = np.concatenate([model.scores(raws[:7]), model.scores(raws[7:])])
    assert np.allclose(parts, scores, atol=2e-5)  # batches of any size
    assert model.scores([]).shape == (0, 3)


def test_it_works_elsewhere_with_the_encoder_in_another_place(
    made: Any, tiny: Plugins, tmp_path: Path
) -> None:
    bert = save_tiny_bert(tmp_path / "bert")
    folder, scores = made(dataset="tiny-text", backbone=str(bert), freeze=True, max_tokens=16)
    moved, elsewhere = tmp_path / "moved", tmp_path / "other place"
    shutil.copytree(folder, moved)
    shutil.rmtree(tmp_path / "results")
    shutil.move(bert, elsewhere)
    raws = test_inputs(tiny, "tiny-text")
    with pytest.raises(UserError, match="not there; --backbone says where"):
        SavedModel(moved, tiny, device="cpu")
    model = SavedModel(moved, tiny, backbone=str(elsewhere), device="cpu")
    assert np.allclose(model.scores(raws), scores, atol=2e-5)
    other = save_tiny_bert(tmp_path / "other weights", seed=1)
    with pytest.raises(UserError, match="its weights have changed"):
        SavedModel(moved, tiny, backbone=str(other), device="cpu").scores(raws)


def test_the_card_says_all_that_is_needed(made: Any, tiny: Plugins) -> None:
    folder, _ = made(dataset="tiny-text")
    card = json.loads((folder / "model.json").read_text())
    assert card["labels"] == ["a", "b", "c"]
    assert card["kind"] == "text"
    assert card["spec"]["backbone"] == "tfidf"
    assert set(card["rules"]) == {"calibrated", "threshold"}
    assert card["data"]["fingerprint"] == card["spec"]["data"]
    assert card["made_with"].keys() >= {"ssmlbench", "torch", "scikit-learn"}
    stored = StoredScores.read(folder).parameters["thresholds"]
    kept = SavedModel(folder, tiny).card.rule_parameters["thresholds"]
    assert np.array_equal(stored, kept)


def test_a_threshold_that_no_score_reaches_survives(made: Any, tiny: Plugins) -> None:
    folder, _ = made()
    file = folder / "model.json"
    card = json.loads(file.read_text())
    card["rules"]["calibrated"]["thresholds"][1] = None
    (folder / "result.json").unlink()  # it knows the file as it was
    write_json(file, card)
    assert SavedModel(folder, tiny).card.rule_parameters["thresholds"][1] == np.inf


def test_numbers_do_not_depend_on_whether_a_model_is_kept(made: Any, tmp_path: Path) -> None:
    first, kept = made(keep=True, method="cap")
    (first / "result.json").unlink()
    second, not_kept = made(keep=False, method="cap")
    assert first == second
    assert np.array_equal(kept, not_kept)
    assert not (second / "model.safetensors").exists()
    assert not (second / "model.json").exists()


@pytest.mark.parametrize("alone", [True, False], ids=["without the result", "in place"])
def test_a_damaged_model_is_named_and_left_where_it_is(
    made: Any, tiny: Plugins, tmp_path: Path, alone: bool
) -> None:
    whole, _ = made()
    for number, fault in enumerate(fault for fault in FAULTS if fault != "delete"):
        for name in ("model.json", "model.safetensors"):
            folder = tmp_path / fault / name / "0-abc"
            shutil.copytree(whole, folder)
            if alone:
                (folder / "result.json").unlink()
            FAULTS[fault](folder / name, random.Random(number))
            with pytest.raises(
                UserError, match=rf"{name} is damaged: .* makes the run and its model"
            ):
                SavedModel(folder, tiny)
            assert os.path.lexists(folder / name)  # a loop of links is there, and leads nowhere
            if not alone and fault != "flip silently":  # `doctor` reads every byte
                assert not RunFolder(folder).finished, "the same `run` makes it again"


def test_a_model_of_another_run_is_not_taken_for_this_one(made: Any, tiny: Plugins) -> None:
    one, _ = made(seed=0)
    other, _ = made(seed=1)
    shutil.copy(other / "model.safetensors", one / "model.safetensors")
    with pytest.raises(UserError, match=r"model\.safetensors is damaged"):
        SavedModel(one, tiny)


def test_a_large_model_is_kept_only_if_asked_for(
    made: Any, tiny: Plugins, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ssmlbench.runs.train.MOST_BYTES", 10)
    events: list[Event] = []
    spec = resolve(tiny, {}, method="bce", dataset="tiny-vectors", **SHORT)
    execute(spec, tiny, RunContext(tmp_path / "results", "cpu"), events.append)
    folder = RunFolder.of(tmp_path / "results", spec).path
    assert any(isinstance(e, Warned) and "--keep-model only" in e.text for e in events)
    with pytest.raises(UserError, match="keeps no model"):
        SavedModel(folder, tiny)
    kept, _ = made(keep=True, seed=1)
    assert (kept / "model.safetensors").stat().st_size > 10


def test_a_trial_of_a_study_keeps_no_model(tiny: Plugins, tmp_path: Path) -> None:
    spec = resolve(tiny, {}, method="bce", dataset="tiny-vectors", **SHORT)
    trial = dataclasses.replace(spec, judged_on="held-out", tuned={"trial": 0})
    execute(trial, tiny, RunContext(tmp_path, "cpu"))
    assert not list(tmp_path.rglob("model.*"))


# ------------------------------------------------------------------------- estimators as arrays


class _Odd(Estimator):
    """An estimator that keeps a function."""

    name: ClassVar[str] = "odd"

    def fit(self, labelled: Any, unlabelled: Any) -> None:
        self.prior, self.link = labelled.prior, lambda x: x

    def scores(self, features: Any) -> Any:
        return np.tile(self.prior, (len(features), 1))


def test_an_estimator_that_cannot_be_stored_says_what_it_keeps() -> None:
    odd = _Odd(None, 3, 0)
    odd.prior, odd.link = np.ones(3), lambda x: x  # type: ignore[attr-defined]
    with pytest.raises(estimator_state.NotStorable, match="link: an object of builtins"):
        estimator_state.estimator_state(odd)


@pytest.mark.parametrize(
    "path", ["os.system", "builtins.eval", "sklearn.utils.deprecation.warnings"]
)
def test_a_stored_model_can_name_no_other_code(path: str) -> None:
    text = json.dumps({"prior": {"class": path, "attributes": {"dict": []}}})
    with pytest.raises((ValueError, ModuleNotFoundError, AttributeError)):
        estimator_state.restore_estimator(_Odd(None, 3, 0), {}, text)


def test_everything_is_tensors_and_json(made: Any) -> None:
    folder, _ = made(method="forest")
    arrays = load_file(folder / "model.safetensors")  # would not read a pickle
    assert sum(name.endswith("nodes") for name in arrays) >= 300  # one for each tree
    assert (folder / "model.safetensors").stat().st_size < model_file.MOST_BYTES
