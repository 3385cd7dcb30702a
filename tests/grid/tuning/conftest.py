"""Plugins of the tests of tuning, the runs that they ask for, and studies with and without training."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ssmlbench.core.spec import RunSpec
from ssmlbench.grid.study import (
    Record,
    Study,
    close,
    trials_root,
)
from ssmlbench.plugins.loader import Plugins
from ssmlbench.runs.context import RunContext
from ssmlbench.runs.execute import execute
from ssmlbench.runs.folder import RunFolder
from ssmlbench.runs.resolve import resolve

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


def record_study(study: Study, results: Path, maps: list[float]) -> None:
    """A study as `close` leaves it, with these scores and no training."""
    for spec, score in zip(study.specs(), maps, strict=True):
        folder = RunFolder.of(trials_root(results), spec)
        folder.path.mkdir(parents=True, exist_ok=True)
        metrics = {"threshold": {"default": {"map": score}}}
        result = {"spec": spec.as_dict(), "metrics": metrics}
        folder.result_file.write_text(json.dumps(result))
    assert close(study, results)
