"""Every benchmark works: each is run once, at a tiny size."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from ssmlbench.kit.method import Method
from ssmlbench.plugins.loader import Plugins
from tests.conftest import ROOT

FOLDER = ROOT / "benchmarks"

DOTS = """
import numpy as np
from ssmlbench.api import DatasetAdapter, Row


class Dots(DatasetAdapter):
    name, kind, backbone = "dots", "image", "small-cnn"

    def label_names(self):
        return ["a", "b", "c"]

    def rows(self, split):
        random = np.random.default_rng(len(split))
        for _ in range({"train": 60, "test": 20}[split]):
            labels = tuple(k for k in range(3) if random.random() < 0.5)
            yield Row(random.integers(0, 256, (32, 32), dtype=np.uint8), labels)
"""

Bench = Callable[..., ModuleType]


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Bench:
    """The module of a benchmark, with these of its constants."""
    monkeypatch.syspath_prepend(str(FOLDER))

    def load(name: str, **sizes: Any) -> ModuleType:
        module = importlib.import_module(f"bench_{name}")
        for constant, value in sizes.items():
            monkeypatch.setattr(module, constant, value)
        return module

    return load


@pytest.fixture(scope="module")
def dots(tmp_path_factory: pytest.TempPathFactory) -> Plugins:
    file = tmp_path_factory.mktemp("plugins") / "dots.py"
    file.write_text(DOTS)
    return Plugins([file])


def test_every_benchmark_has_a_test() -> None:
    names = {file.stem.removeprefix("bench_") for file in FOLDER.glob("bench_*.py")}
    tested = {name.split("_")[2] for name in globals() if name.startswith("test_bench_")}
    assert names == tested


def test_bench_checkpoints(bench: Bench, dots: Plugins) -> None:
    recording = bench("recording", ROWS=300, WIDTH=8, LABELS=3, EPOCHS=7, DATASET="dots")
    checkpoints = bench("checkpoints", EPOCHS=1, ROUNDS=1)
    for trainer in (
        recording.on_images("bce", dots),
        recording.on_vectors(dots.methods["cap"]),
    ):
        assert min(checkpoints.costs(trainer)) > 0


def test_bench_recording(bench: Bench, dots: Plugins) -> None:
    recording = bench("recording", ROWS=300, WIDTH=8, LABELS=3, EPOCHS=7, DATASET="dots")
    assert recording.share(recording.on_vectors(dots.methods["cap"])) > 0


@pytest.mark.slow
def test_bench_compare(
    bench: Bench, ssmlbench: Callable[..., Any], tmp_path: Path, capsys: Any
) -> None:
    sizes = {"METHODS": 2, "LEVELS": 2, "SEEDS": 2, "TEST_ROWS": 20, "EPOCHS": 2}
    compare = bench(
        "compare", **sizes, PLANNED_METHODS=("bce", "cap"), PLANNED_LEVELS="0.05", PLANNED_RUNS=4
    )

    def typed(command: list[str]) -> float:
        """In this process: a new one takes a second."""
        said = ssmlbench(*command)
        assert said.returncode == 0, said.stderr
        return 1.0

    compare.seconds_of = typed
    compare.boards(tmp_path, 8)
    compare.made_runs(tmp_path)
    said = capsys.readouterr().out
    assert "8 runs, compare: 1.0 s" in said
    assert "4 runs, run again: 1.0 s, 0.0 s more than one of them" in said


def test_bench_features(bench: Bench, plugins: Plugins, capsys: Any) -> None:
    bench("features", ROWS=300, WIDTH=8, LABELS=3).paper_length(plugins)
    assert len(capsys.readouterr().out.splitlines()) == 5


@pytest.mark.slow
def test_bench_features_of_an_encoder(bench: Bench, dots: Plugins, capsys: Any) -> None:
    bench("features", DATASET="dots").encoding_anew(dots)
    assert "encoding anew / cached" in capsys.readouterr().out


def test_bench_encoding(bench: Bench) -> None:
    for training in (False, True):
        assert bench("encoding").gain("resnet18", 2, 32, 1, training) > 0


def test_bench_heads(bench: Bench, plugins: Plugins) -> None:
    heads = bench("heads", ROWS=100, STEPS=2)
    for method in heads.METHODS:
        assert heads.step_milliseconds(plugins, method, width=4, labels=2, batch=4) > 0


def test_bench_images(bench: Bench) -> None:
    images = bench("images", ROUNDS=1, SIZE=32, BATCH=2)
    cost = images.measure(images.photographs(2))
    assert {f"{when} {view}" for when in images.BARS for view in ("weak", "strong")} < cost.keys()


@pytest.mark.slow
def test_bench_jobs(bench: Bench, ssmlbench: Callable[..., Any], tmp_path: Path) -> None:
    said = ssmlbench(*bench("jobs").RUNS, "--dry-run", "--results", tmp_path / "results")
    assert said.returncode == 0, said.stderr
    assert said.stdout.count("cap") == 4


@pytest.mark.parametrize("name", ["bce", "cap", "logistic", "knn"])
def test_bench_labels(bench: Bench, plugins: Plugins, name: str) -> None:
    labels = bench("labels", WIDTH=8, STEPS=1)
    cls = plugins.methods[name]
    measure = labels.measure if issubclass(cls, Method) else labels.measure_estimator
    assert measure(cls, 400, 5).endswith(" GB")


def test_bench_metrics(bench: Bench, capsys: Any) -> None:
    bench("metrics", ROWS=50, LABELS=5, DENSITY=0.3, REPEATS=1).main()
    difference = float(capsys.readouterr().out.split()[-1])
    assert difference < 1e-9


def test_bench_prepare(bench: Bench, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    prepare = bench("prepare", ROUNDS=1)
    for cls in (prepare.Texts, prepare.Images):
        monkeypatch.setattr(cls, "counts", {"train": 20, "test": 10})
    prepare.main()
    assert capsys.readouterr().out.count(" ×") == 2


def test_bench_pseudo(bench: Bench, capsys: Any) -> None:
    bench("pseudo", ROWS=400, LABELED=100, LABELS=5, WIDTH=8).main()
    assert capsys.readouterr().out.count("start_epoch") == 2


def test_bench_seal(
    bench: Bench, dots: Plugins, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seal = bench("seal", DATASET="dots")
    monkeypatch.setattr(seal.sealed, "JUDGE", "bench_seal:judge_process")
    monkeypatch.setattr(seal.sealed, "TRAINING", "bench_seal:training_process")
    notes = tmp_path / "notes"
    notes.mkdir()
    monkeypatch.setenv(seal.NOTES, str(notes))
    for make in (seal.run_here, seal.run_one):
        assert seal.processor_seconds(make, dots, tmp_path / make.__name__, 1, 0) > 0
    assert len(list(notes.iterdir())) == 2  # the judge and training


@pytest.mark.parametrize("name", ["bce", "d2l_mat", "flatmatch"])
def test_bench_steps(bench: Bench, plugins: Plugins, name: str) -> None:
    """d2l_mat asks the averaged network too, flatmatch has a step of its own."""
    steps = bench("steps", ROWS=200)
    found = steps.measure(steps.on_vectors(plugins.methods[name]), 2)
    assert min(found.values()) > 0
