"""leaderboards/held_out.py: the division of training rows that docs/recipe.md was measured on."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from ssmlbench.core.events import Done
from ssmlbench.grid.run_one import run_one
from ssmlbench.plugins.loader import Plugins
from ssmlbench.runs.context import RunContext
from ssmlbench.runs.resolve import resolve
from tests.conftest import ROOT

PLUGIN = ROOT / "leaderboards" / "held_out.py"


@pytest.mark.parametrize("layout", ["table", "arrays"])
def test_own_data_are_divided_without_a_test_row(
    layout: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "mine"
    home.mkdir()
    for split, rows in (("train", 20), ("test", 5)):
        first = 0 if split == "train" else 100
        if layout == "table":
            lines = [f"text {first + i},{'a' if i % 2 else 'b'}" for i in range(rows)]
            (home / f"{split}.csv").write_text("text,labels\n" + "\n".join(lines) + "\n")
        else:
            features = np.arange(first, first + rows, dtype=np.float32)[:, None]
            labels = np.eye(2, dtype=np.int8)[np.arange(rows) % 2]
            np.save(home / f"X_{split}.npy", features)
            np.save(home / f"Y_{split}.npy", labels)
    monkeypatch.setenv("HELD_OUT_OF", str(home))
    monkeypatch.setenv("HELD_OUT_SEED", "3")
    plugin = (
        tmp_path / "held_out.py"
    )  # a file of its own: a loaded one would keep another test's data
    plugin.write_text(PLUGIN.read_text(encoding="utf-8"), encoding="utf-8")
    found = Plugins([plugin]).datasets["held-out-mine-3"]()
    number = (lambda text: int(text.split()[1])) if layout == "table" else (lambda row: int(row[0]))
    train, test = ([number(row.input) for row in found.rows(split)] for split in ("train", "test"))
    assert (len(train), len(test)) == (14, 6)
    assert sorted(train + test) == list(range(20))


def test_a_run_on_a_data_set_plugin_that_reads_its_files_when_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The training process may not read the data; the plugin's file is not loaded there."""
    random = np.random.default_rng(0)
    home = tmp_path / "mine"
    home.mkdir()
    for split in ("train", "test"):
        np.save(home / f"X_{split}.npy", random.normal(size=(40, 3)).astype(np.float32))
        np.save(home / f"Y_{split}.npy", (random.random((40, 2)) < 0.5).astype(np.int8))
    monkeypatch.setenv("HELD_OUT_OF", str(home))
    plugin = tmp_path / "held_out.py"
    plugin.write_text(PLUGIN.read_text(encoding="utf-8"), encoding="utf-8")
    plugins = Plugins([plugin])
    spec = resolve(plugins, {}, method="prior", dataset="held-out-mine-0", pi=0.5)
    assert plugins.training_files(spec.method, spec.backbone) == ()
    context = RunContext(tmp_path / "results", "cpu", 1)
    assert isinstance(run_one(spec, plugins, context, lambda event: None), Done)
