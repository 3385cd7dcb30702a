"""Checks that a method or an estimator respects the seal, by a short run in the processes of real runs."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from ssmlbench.checks.statements import Broken, Statement
from ssmlbench.checks.toy import LABELS, toy
from ssmlbench.core.events import Failed
from ssmlbench.core.process_environment import fixed_environment
from ssmlbench.core.registry import source_file
from ssmlbench.core.spec import REGIME_NUMBERS, RunSpec
from ssmlbench.data import DatasetAdapter, Row, prepare
from ssmlbench.grid.run_one import run_one
from ssmlbench.kit.estimator import Estimator
from ssmlbench.kit.method import Method
from ssmlbench.plugins.loader import Plugins
from ssmlbench.protocol.observation import Labels, observe
from ssmlbench.runs.context import RunContext
from ssmlbench.runs.folder import RunFolder
from ssmlbench.runs.resolve import resolve
from ssmlbench.runs.scores import StoredScores


def sealed_statements(cls: type[Method | Estimator]) -> Iterator[Statement]:
    """Yield the statement about the seal, with its check."""
    text = "in a sealed process it opens no labels, and scrambled ones change no score"
    yield Statement(
        text,
        partial(stays_sealed, cls),
        "stays_sealed",
        ("declares", "trains", "fits", "repeats_itself"),
    )


def stays_sealed(cls: type[Method | Estimator]) -> None:
    """Make two short sealed runs, one with other hidden and test labels, and compare their scores."""
    regime = "semi" if "semi" in cls.regimes else min(cls.regimes)
    data = toy("vector")
    with tempfile.TemporaryDirectory() as folder, fixed_environment(SSMLBENCH_CACHE=folder):
        plugins = _plugins_with(cls)
        true = _data_set("check-true-labels", data.truth, data.test_truth)
        spec = _spec(cls, regime, true, plugins)
        scores = _scores(spec, plugins, Path(folder))
        seen = observe(data.truth, spec)
        hidden = np.where(seen.labels >= 0, data.truth, 1 - data.truth).astype(np.int8)
        if observe(hidden, spec).digest != seen.digest:
            return  # the draw itself reads the labels: the toy's checks give it the true ones
        other = _data_set("check-scrambled-labels", hidden, 1 - data.test_truth)
        blind = _scores(_spec(cls, regime, other, plugins), plugins, Path(folder))
    if not np.array_equal(scores, blind):
        raise Broken("its scores depend on labels it must not know")


def _plugins_with(cls: type[Method | Estimator]) -> Plugins:
    """The plugins that the command line would load for this class."""
    plugins = Plugins()
    known = cls.name in plugins.methods and source_file(plugins.methods[cls.name])
    return plugins if known == source_file(cls) else Plugins([source_file(cls)])


def _data_set(title: str, truth: Labels, test_truth: Labels) -> type[DatasetAdapter]:
    """The toy's vectors as a data set with these labels."""
    data = toy("vector")
    values = {"train": data.train.values.numpy(), "test": data.test.values.numpy()}
    labels = {"train": truth, "test": test_truth}

    class ToyData(DatasetAdapter):
        """Toy vectors."""

        name, kind, backbone = title, "vector", "vector"

        def label_names(self) -> list[str]:
            return [f"label {k}" for k in range(LABELS)]

        def rows(self, split: str) -> Iterator[Row]:
            for vector, row in zip(values[split], labels[split], strict=True):
                yield Row(vector, tuple(map(int, np.flatnonzero(row))))

    prepare(ToyData())
    return ToyData


def _spec(
    cls: type[Method | Estimator], regime: str, data: type[DatasetAdapter], plugins: Plugins
) -> RunSpec:
    plugins.datasets.add(data)
    fields: dict[str, Any] = {"method": cls.name, "dataset": data.name, "regime": regime}
    if number := REGIME_NUMBERS.get(regime):
        fields[number.name] = number.example
    if not issubclass(cls, Estimator):
        fields |= {"epochs": 3, "warmup_epochs": 1, "batch_size": 16, "labelled_batch_size": 8}
    return resolve(plugins, {}, **fields)


def _scores(spec: RunSpec, plugins: Plugins, folder: Path) -> Any:
    context = RunContext(folder / "results", "cpu", 1)
    last = run_one(spec, plugins, context, lambda event: None)
    if isinstance(last, Failed):
        raise Broken(last.text)
    return StoredScores.read(RunFolder.of(context.results, spec).path).scores
