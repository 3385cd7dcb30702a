"""The files that `ssmlbench new` writes pass `ssmlbench check` and run as they are."""

from __future__ import annotations

from pathlib import Path

import pytest

from ssmlbench.cli.check import check_plugins
from ssmlbench.cli.plugins import RUN_IT, new_dataset, new_encoder
from ssmlbench.cli.templates import CALLED, write_plugin
from ssmlbench.core.console import Console
from ssmlbench.core.errors import UserError
from ssmlbench.plugins.loader import Plugins
from ssmlbench.runs.context import RunContext
from ssmlbench.runs.execute import execute
from ssmlbench.runs.resolve import resolve

pytestmark = pytest.mark.usefixtures("empty_cache")


def test_every_kind_has_a_file_and_a_command() -> None:
    assert CALLED.keys() == RUN_IT.keys()


@pytest.mark.parametrize("kind", sorted(CALLED))
def test_a_new_plugin_passes_its_check(kind: str, tmp_path: Path) -> None:
    file = write_plugin(kind, f"my-{kind}", tmp_path)
    console = Console(record=True, width=200)
    assert check_plugins(str(file), console)
    said = console.export_text()
    assert f"my-{kind}: all checks passed" in said
    assert "warning" not in said


@pytest.mark.parametrize("kind", ["dataset", "encoder"])
def test_a_new_plugin_runs(kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    new = {"dataset": new_dataset, "encoder": new_encoder}[kind]
    new(f"my-{kind}", tmp_path)
    assert RUN_IT[kind].format(name=f"my-{kind}") in capsys.readouterr().out
    data = {"dataset": "my-dataset", "method": "logistic"}
    if kind == "encoder":  # on its neighbour's texts nothing could be seen
        write_plugin("dataset", "pictures", tmp_path)
        pictures = tmp_path / "pictures.py"
        pictures.write_text(PICTURES)
        data = {"dataset": "pictures", "method": "bce", "backbone": "my-encoder", "freeze": True}
        data |= {"epochs": 2, "warmup_epochs": 1}
    plugins = Plugins(sorted(tmp_path.glob("*.py")))
    spec = resolve(plugins, {}, pi=0.5, **data)
    done = execute(spec, plugins, RunContext(tmp_path / "results", "cpu"))
    assert done.map is not None  # type: ignore[union-attr]
    assert done.map > (0.9 if kind == "dataset" else 0)  # type: ignore[union-attr]


PICTURES = """
import numpy as np
from ssmlbench.api import DatasetAdapter, Row


class Pictures(DatasetAdapter):
    name = "pictures"
    kind = "image"
    backbone = "small-cnn"

    def label_names(self):
        return ["bright", "left"]

    def rows(self, split):
        draw = np.random.default_rng(0)
        for _ in range(12):
            bright, left = draw.random(2) < 0.5
            picture = draw.integers(0, 120, (8, 8)).astype(np.uint8) + np.uint8(100 * bright)
            picture[:, :4] += np.uint8(30 * left)
            yield Row(picture, tuple(k for k, yes in enumerate((bright, left)) if yes))
"""


@pytest.mark.parametrize(
    ("kind", "name", "message"),
    [
        ("dataset", "My Data", "cannot be the name of a data set"),
        ("dataset", "multidigits", "there is a data set called 'multidigits' already"),
        ("encoder", "tfidf", "there is an encoder called 'tfidf' already"),
        ("encoder", "random", "would hide the module random"),
        ("dataset", "torch", "would hide the module torch"),
    ],
)
def test_a_name_that_cannot_be_used_is_one_line(
    kind: str, name: str, message: str, tmp_path: Path
) -> None:
    new = {"dataset": new_dataset, "encoder": new_encoder}[kind]
    with pytest.raises(UserError, match=message):
        new(name, tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("name", "splits", "fault"),
    [
        ("no-test", ("train",), ""),
        ("other", ("training", "test"), "splits returned ('training', 'test')"),
    ],
)
def test_check_takes_the_splits_that_a_data_set_has(
    name: str, splits: tuple[str, ...], fault: str, tmp_path: Path
) -> None:
    file = write_plugin("dataset", name, tmp_path)
    file.write_text(f"{file.read_text()}\n    def splits(self):\n        return {splits!r}\n")
    console = Console(record=True, width=200)
    assert check_plugins(str(file), console) == (not fault)
    assert fault in console.export_text()
