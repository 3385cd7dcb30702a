"""The grid file and the command line: one grid, what is typed wins, every mistake is told."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ssmlbench.core.errors import UserError
from ssmlbench.grid.request import GridRequest, expand
from ssmlbench.grid.toml_file import read_grid
from ssmlbench.plugins.loader import Plugins
from tests.runs.test_execute import DATASET

GRID = """
methods = ["bce", "cap"]
datasets = "tiny"
pi = [0.2, 0.3]
seeds = 2
epochs = 3
batch-size = 16
plugin = "tiny.py"

[set.cap]
loss = "bce"
positive_share = 0.5

[[exclude]]
method = "bce"
pi = 0.2

[[exclude]]
method = ["bce", "cap"]
pi = 0.3
seed = 1
"""


@pytest.fixture
def write(tmp_path: Path) -> Callable[[str], Path]:
    (tmp_path / "tiny.py").write_text(DATASET)

    def call(text: str) -> Path:
        file = tmp_path / "grid.toml"
        file.write_text(text)
        return file

    return call


def runs(file: Path, **typed: Any) -> list[tuple[Any, ...]]:
    request = read_grid(file).overridden_by(GridRequest(typed))
    specs = expand(Plugins(request.plugins), request)
    return [(spec.method, spec.pi, spec.seed) for spec in specs]


def test_a_grid_file_is_every_combination_but_the_excluded(write: Callable[[str], Path]) -> None:
    # bce only at π = 0.3, and of π = 0.3 only seed 0
    assert runs(write(GRID)) == [
        ("cap", 0.2, 0),
        ("cap", 0.2, 1),
        ("bce", 0.3, 0),
        ("cap", 0.3, 0),
    ]


def test_settings_and_axes_reach_the_specs(write: Callable[[str], Path]) -> None:
    request = read_grid(write(GRID))
    specs = expand(Plugins(request.plugins), request)
    cap = next(spec for spec in specs if spec.method == "cap")
    assert (cap.config["loss"], cap.config["positive_share"]) == ("bce", 0.5)
    assert {(spec.epochs, spec.batch_size) for spec in specs} == {(3, 16)}
    assert next(spec for spec in specs if spec.method == "bce").changed == ()


def test_what_is_typed_wins_over_the_file(write: Callable[[str], Path]) -> None:
    file = write(GRID)
    assert runs(file, method=("cap",), pi=(0.2,), seed=(7,)) == [("cap", 0.2, 7)]
    assert len(runs(file, seed=(0,))) == 3
    request = read_grid(file).overridden_by(GridRequest({"epochs": 5}, {"loss": "asl"}))
    assert request.values["epochs"] == 5
    assert request.settings == {"cap.positive_share": "0.5", "loss": "asl"}  # for cap too


def test_a_number_of_the_file_is_left_out_for_a_typed_regime_that_does_not_read_it(
    write: Callable[[str], Path],
) -> None:
    file = write(GRID)
    assert runs(file, method=("bce",), regime=("full",), seed=(0,)) == [("bce", None, 0)]
    with pytest.raises(UserError, match=r"--pi is for --regime semi, not for --regime full"):
        runs(file, method=("bce",), regime=("full",), pi=(0.2,))


def test_a_setting_of_one_method_wins_over_one_of_all(write: Callable[[str], Path]) -> None:
    request = read_grid(write('[set.cap]\nloss = "bce"\n[set]\nloss = "asl"\nx = true\ny = 1e-3\n'))
    assert list(request.settings.items()) == [
        ("loss", "asl"),
        ("x", "true"),
        ("y", "0.001"),
        ("cap.loss", "bce"),
    ]


def test_an_excluded_run_may_be_one_that_could_not_be_made(write: Callable[[str], Path]) -> None:
    file = write(
        'methods = ["bce", "an"]\ndatasets = "tiny"\nregime = ["full", "single-positive"]\n'
        'plugin = "tiny.py"\n[[exclude]]\nmethod = "bce"\nregime = "single-positive"\n'
    )
    assert [run[0] for run in runs(file)] == ["bce", "an", "an"]


def test_paths_are_seen_from_the_grid_file(write: Callable[[str], Path], tmp_path: Path) -> None:
    request = read_grid(write('datasets = ["./mine", "tiny"]\nplugin = ["a.py", "/b.py"]\n'))
    assert request.values["dataset"] == (str(tmp_path / "mine"), "tiny")
    assert request.plugins == (str(tmp_path / "a.py"), "/b.py")


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ('metods = "bce"', "grid.toml: metods: no such key. Did you mean methods or method"),
        ("batch_sise = 3", "Did you mean batch-size"),
        ("jobs = 2", "type --jobs instead"),
        ('methods = "bce"\nmethod = "cap"', "given twice"),
        ("seeds = 2\nseed = 1", "seed and seeds are both given"),
        ("seeds = [1, 2]", "seeds = [1, 2]: must be a whole number, e.g. seeds = 3"),
        ('pi = ["few"]', 'pi = "few": must be a number, e.g. pi = [0.3]'),
        ("pi = []", "pi is empty"),
        ("pi = true", "must be a number"),
        ("method = 3", "must be a text"),
        ("epochs = 2.5", "must be a whole number"),
        ('freeze = "yes"', "must be true or false"),
        ('set = "loss"', "must be a table"),
        ("[set]\nloss = [1]", "set.loss = [1]: must be a text, a number, true or false"),
        ("exclude = 3", "must be tables"),
        ("[[exclude]]", "would leave every run out"),
        ('[[exclude]]\nmetod = "cap"', "exclude 1: no such key 'metod'. Did you mean method"),
        ('[[exclude]]\npi = "0.1"', "exclude 1: pi"),
        ("pi = 0.1 0.2", "not TOML"),
    ],
)
def test_a_mistake_in_the_file_is_told(
    write: Callable[[str], Path], text: str, answer: str
) -> None:
    with pytest.raises(UserError) as told:
        read_grid(write(text))
    assert answer in str(told.value)
    assert "\n" not in str(told.value)


@pytest.mark.parametrize(
    ("more", "answer"),
    [
        ('methods = "bce"', "--dataset is missing"),
        ('datasets = "tiny"', "--method is missing"),
        ('methods = "bce"\ndatasets = "tiny"', "--pi is missing"),
        ('methods = "bce"\ndatasets = "tiny"\nregime = "semy"', "Did you mean semi"),
        ('methods = "bce"\ndatasets = "tiny"\npi = 0.3\nsplit = "lucky"', "--split lucky"),
        ('methods = "bce"\ndatasets = "tiny"\npi = 0.3\nseeds = 0', "--seeds 0"),
        ('methods = "bbc"\ndatasets = "tiny"\npi = 0.3', "Did you mean bce"),
        ('methods = "bce"\ndatasets = "tinny"\npi = 0.3', "Did you mean tiny"),
        ('methods = "bce"\ndatasets = "tiny"\npi = 0.3\n[set.bbc]\nx = 1', "Did you mean bce"),
        ('methods = "bce"\ndatasets = "tiny"\npi = 0.3\n[[exclude]]\nmethod = "bbc"', "bce"),
        ('methods = "bce"\ndatasets = "tiny"\npi = 0.3\n[[exclude]]\nseed = 0', "every run is"),
    ],
)
def test_a_grid_that_cannot_be_made_is_told(
    write: Callable[[str], Path], more: str, answer: str
) -> None:
    with pytest.raises(UserError, match=answer):
        runs(write(f'plugin = "tiny.py"\n{more}'))


def test_a_file_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="cannot be read"):
        read_grid(tmp_path / "none.toml")
