"""Mistakes that no data is needed for are found before a data set is prepared, which may take minutes."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

Call = Callable[..., "subprocess.CompletedProcess[str]"]

LARGE = '''
from pathlib import Path

from ssmlbench.api import DatasetAdapter, Row


class {title}(DatasetAdapter):
    """A data set that takes long to prepare."""

    name = "{name}"
    kind = "{kind}"
    version = 7
    backbone = "{backbone}"

    def label_names(self):
        return ["a", "b"]

    def rows(self, split):
        Path(__file__).with_suffix(".opened").touch()
        for i in range(40):
            yield Row([1.0, float(i)] if self.kind == "vector" else f"text {{i}}", (i % 2,))
'''
SETS = {"slow-vectors": ("vector", "vector"), "slow-texts": ("text", "tfidf")}
CELL = "--pi 0.5 --dataset"
TRAINED = f"--method bce {CELL}"


@pytest.fixture
def slow(tmp_path: Path, empty_cache: None, ssmlbench: Call) -> Call:
    """Type a command with two data sets that are not prepared; the line of error that it gives."""
    files = []
    for name, (kind, backbone) in SETS.items():
        file = tmp_path / f"{name.replace('-', '_')}.py"
        title = name.title().replace("-", "")
        file.write_text(LARGE.format(title=title, name=name, kind=kind, backbone=backbone))
        files += ["--plugin", file]

    def call(*words: object) -> subprocess.CompletedProcess[str]:
        return ssmlbench(*words, *files)

    return call


def opened(folder: Path) -> bool:
    return any(folder.glob("*.opened"))


MISTAKES = [
    f"run {TRAINED} slow-vectors --backbone resnet50",
    f"run {TRAINED} slow-texts --backbone no/such-model",
    f"run {TRAINED} slow-texts --backbone ./no-such-folder",
    f"run {TRAINED} slow-vectors --set no_such_name=1",
    f"run {TRAINED} slow-vectors --set loss=no-such-loss",
    f"run {TRAINED} slow-vectors --set cap.loss=bce",
    f"run {TRAINED} slow-vectors --set nosuch.loss=bce",
    f"run --method bce,no_such_method {CELL} slow-vectors",
    "run --method bce,cap --regime full --dataset slow-vectors",
    f"run {TRAINED} slow-vectors,no-such-set",
    "run --method bce --dataset slow-vectors --pi 0.5,0",
    f"run {TRAINED} slow-vectors --epochs 3 --warmup-epochs 4",
    f"run {TRAINED} slow-vectors --freeze --compile",
    f"run {TRAINED} slow-vectors --strong-views 3",
    f"run {TRAINED} slow-texts --backbone tfidf --no-freeze",
    f"run {TRAINED} slow-texts --max-tokens 5",
    f"run {TRAINED} slow-texts --scaling none --tune lora",
    f"run {TRAINED} slow-vectors --folds 3",
    f"run {TRAINED} slow-vectors --seed 0,-1",
    f"run {TRAINED} slow-vectors --precision bf8",
    f"run {TRAINED} slow-vectors --device cuda:99",
    f"run {TRAINED} slow-vectors --engine nowhere",
    f"run {TRAINED} slow-vectors --log nowhere",
    f"run {TRAINED} slow-vectors --jobs 0",
    f"run {TRAINED} slow-vectors --results a-file",
    f"run {TRAINED} slow-vectors --results a-file/below",
    f"run {TRAINED} slow-vectors --tuned",
    f"tune --trials 2 {TRAINED} slow-vectors --selection oracle",
    f"tune --trials 2 {TRAINED} slow-vectors --set no_such_name=1",
    f"tune --trials 2 {TRAINED} slow-vectors --results a-file",
    f"tune --trials 2 {TRAINED} slow-texts --backbone no/such-model",
    "recommend --dataset slow-vectors --method no_such_method",
    "recommend --dataset slow-vectors --method knn,no_such_method",
    "recommend --dataset slow-texts --method knn --backbone small-cnn",
    "recommend --dataset slow-vectors --method all",
    "recommend --dataset slow-vectors --method ,",
    "recommend --dataset slow-texts --backbone no/such-model",
    "recommend --dataset slow-vectors --device nowhere",
    "recommend --dataset slow-vectors --jobs 0",
    "recommend --dataset slow-vectors --results a-file",
    "recommend --dataset slow-vectors --log nowhere",
    "recommend --dataset slow-vectors --out labels.xlsx",
]


@pytest.mark.parametrize("typed", MISTAKES)
def test_it_is_one_line_before_data_is_read(slow: Call, tmp_path: Path, typed: str) -> None:
    (tmp_path / "a-file").touch()
    made = slow(*typed.split())
    assert made.returncode == 2, made
    (line,) = made.stderr.splitlines()
    assert line.startswith("error: "), line
    assert made.stdout == ""
    assert not opened(tmp_path)
    assert not (tmp_path / "results").exists(), "nothing is left behind"


def test_a_right_command_reads_the_data(slow: Call, tmp_path: Path) -> None:
    made = slow("run", *f"{TRAINED} slow-vectors --dry-run".split())
    assert made.returncode == 0, made
    assert opened(tmp_path)


def test_a_grid_file_that_excludes_everything_reads_no_data(slow: Call, tmp_path: Path) -> None:
    (tmp_path / "grid.toml").write_text(
        'method = ["bce"]\ndataset = ["slow-vectors"]\npi = [0.5]\n[[exclude]]\nmethod = ["bce"]\n'
    )
    made = slow("run", "--grid", tmp_path / "grid.toml")
    assert made.returncode == 2
    assert "every run is excluded" in made.stderr
    assert not opened(tmp_path)
