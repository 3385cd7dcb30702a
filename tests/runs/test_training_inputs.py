"""What a training process is given: the same, to the bit, whatever the hidden and the test labels are."""

from __future__ import annotations

import dataclasses
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from ssmlbench.api import DatasetAdapter, PublishedStatistics, Row
from ssmlbench.core.errors import RunStopped
from ssmlbench.core.spec import REGIME_NUMBERS, RunSpec
from ssmlbench.data import Task, prepare
from ssmlbench.data.task import LABELS
from ssmlbench.grid.run_one import SealedRun
from ssmlbench.plugins.loader import Plugins
from ssmlbench.protocol.judge import Judge
from ssmlbench.protocol.regimes import REGIMES, UNKNOWN
from ssmlbench.runs import fork_server
from ssmlbench.runs.context import RunContext
from ssmlbench.runs.execute import judge_run, open_task
from ssmlbench.runs.fork_server import read_request
from ssmlbench.runs.resolve import resolve

TRAIN, TEST, K, SHARE, SEED = 48, 20, 3, 0.5, 1
RANDOM = np.random.default_rng(5)
INPUTS = {"train": RANDOM.normal(size=(TRAIN, 4)), "test": RANDOM.normal(size=(TEST, 4))}
TRUTH = {part: (RANDOM.random((len(x), K)) < 0.4).astype(np.int8) for part, x in INPUTS.items()}
PARTLY = np.ones((TRAIN, K), dtype=bool)
PARTLY[::3] = False
PARTLY[1::6, 0] = False
"""Which labels are known in the regime `given`: a third of the rows has none."""
SELECTIONS = [
    {"selection": selection, "split": split, "judged_on": judged_on}
    for selection in ("last", "val", "oracle")
    for split in ("random", "stratified")
    for judged_on in ("test", "held-out")  # a run, and a trial of `tune`
    if (selection, judged_on) != ("oracle", "held-out")
]


class Told(DatasetAdapter):
    """Vectors with the labels that a test puts here."""

    name, kind, backbone = "told", "vector", "vector"
    published = PublishedStatistics("nobody", train=TRAIN, mean_labels=7.0)
    truth = TRUTH
    known: NDArray[np.bool_]

    def label_names(self) -> list[str]:
        return ["a", "b", "c"]

    def rows(self, split: str) -> Iterator[Row]:
        known = self.known if split == "train" else np.ones((TEST, K), dtype=bool)
        for vector, row, there in zip(INPUTS[split], self.truth[split], known, strict=True):
            positive, unknown = (
                tuple(map(int, np.flatnonzero(where))) for where in ((row == 1) & there, ~there)
            )
            if there.any():
                yield Row(vector.astype(np.float32), positive, unknown=unknown)
            else:
                yield Row(vector.astype(np.float32), None)


@pytest.fixture
def plugins(empty_cache: None) -> Plugins:
    loaded = Plugins()
    loaded.add(Told)
    return loaded


@pytest.mark.parametrize("regime", sorted(REGIMES))
def test_hidden_and_test_labels_change_no_bit_of_what_training_is_given(
    plugins: Plugins, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, regime: str
) -> None:
    """Under every selection, split and kind of judged rows; but for the fingerprint of the data.

    (A stratified split is drawn from all training labels: there the test labels are others.)
    """
    as_given = REGIMES[regime].as_given
    monkeypatch.setattr(Told, "known", PARTLY if as_given else PARTLY | True, raising=False)
    folds = [{"folds": 4, **choice} for choice in SELECTIONS[:4:2]]
    method = "bce" if regime in ("semi", "full", "given") else "an"
    number = {REGIME_NUMBERS[regime].name: SHARE} if regime in REGIME_NUMBERS else {}
    for choice in [*SELECTIONS, *(folds if as_given else [])]:
        fields = {"epochs": 2, "seed": SEED, "regime": regime, **number, **choice}
        judged_on: Any = fields.pop("judged_on")
        monkeypatch.setattr(Told, "truth", TRUTH)
        prepare(Told(), overwrite=True)
        spec = resolve(plugins, {}, method=method, dataset="told", **fields)
        spec = dataclasses.replace(spec, judged_on=judged_on)
        Task(prepare(Told()).folder).verify()  # as `doctor` does, which may repeat runs
        given = given_to_training(spec, plugins, tmp_path, monkeypatch)
        monkeypatch.setattr(Told, "truth", scrambled(spec))
        card = prepare(Told(), overwrite=True).card
        assert any("labels have no test row" in note for note in card.notes)
        other = dataclasses.replace(spec, data=card.fingerprint)
        assert other.data != spec.data
        again = given_to_training(other, plugins, tmp_path, monkeypatch)
        for first, second in zip(given, again, strict=True):
            assert first.keys() == second.keys()
            changed = [name for name in first if first[name] != second[name]]
            assert not changed, (choice, [(first[n], second[n]) for n in changed])


def scrambled(spec: RunSpec) -> dict[str, NDArray[np.int8]]:
    """Other labels, of which a run with this spec observes the same."""
    known, train = Told.known, TRUTH["train"]
    visible = Judge.of(
        spec, np.where(known, train, UNKNOWN).astype(np.int8), TRUTH["test"]
    ).visible()
    held_out = np.zeros((TRAIN, 1), dtype=bool)
    held_out[[*visible.validation, *visible.judged]] = True
    hidden = visible.labels == UNKNOWN
    if spec.regime.startswith("partial"):  # what could have been drawn would then be seen
        hidden &= np.random.RandomState(SEED).random_sample(train.shape) >= SHARE
    elif spec.regime == "single-positive":
        hidden &= train == 1
    elif spec.regime == "single-positive-negatives":
        hidden &= False  # all are positive
    free = hidden | held_out if spec.split == "random" else hidden & False
    test = 1 - TRUTH["test"]
    test[:, 0] = 0
    return {"train": np.where(free, 1 - train, train).astype(np.int8), "test": test}


def given_to_training(
    spec: RunSpec, plugins: Plugins, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> Any:
    """The request and the assignment of a run, as plain values without the fingerprint."""
    context = RunContext(folder / "results", "cpu", 1)
    given: list[Any] = []

    class Server:
        def fork(self, judge: str, training: str, request: Any) -> None:
            given.append(read_request(pickle.dumps(request)))
            raise OSError("not forked")

    monkeypatch.setattr(fork_server, "fork_server", Server)
    SealedRun(spec, plugins, context)

    def train(assignment: Any, *rest: Any) -> Any:
        given.append(pickle.loads(pickle.dumps(assignment)))
        raise RunStopped("given")

    with pytest.raises(RunStopped, match="given"):
        judge_run(spec, lambda: open_task(spec, plugins), context, train, lambda event: None)
    assert len(given) == 2
    return [plain(value, spec) for value in given]


def plain(value: Any, spec: RunSpec) -> Any:
    """A value as one that can be compared, without what names the data and the times of files."""
    if dataclasses.is_dataclass(value):
        fields = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
        for file, *_ in fields.pop(
            "verified", ()
        ):  # not those that are as young as a tick of the clock
            assert file.name in ("train.arrow", "test.arrow")
            assert file.parent.name != LABELS
        return plain(fields, spec)
    if isinstance(value, dict):
        return {name: plain(inner, spec) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [plain(inner, spec) for inner in value]
    if isinstance(value, np.ndarray):
        return value.dtype.str, value.shape, value.tobytes()
    if isinstance(value, str | Path):
        return str(value).replace(spec.data, "DATA").replace(spec.hash, "RUN")
    assert value is None or isinstance(value, bool | int | float), value
    return value
