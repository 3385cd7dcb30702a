"""The files that make the committed boards: complete lists of methods, and a script that parses."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from ssmlbench.grid.toml_file import read_grid
from ssmlbench.plugins.loader import Plugins

LEADERBOARDS = Path(__file__).parents[2] / "leaderboards"


@pytest.mark.parametrize(
    ("grid", "regime"), [("semi.toml", "semi"), ("positives.toml", "single-positive")]
)
def test_a_board_has_every_method_of_its_regime(grid: str, regime: str) -> None:
    request = read_grid(LEADERBOARDS / "grids" / grid)
    methods = Plugins([]).methods
    fitting = sorted(name for name in methods if regime in methods[name].regimes)
    assert sorted(request.values["method"]) == fitting


@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
def test_the_script_of_the_boards_parses_and_names_files_that_exist() -> None:
    script = LEADERBOARDS / "make.sh"
    subprocess.run(["bash", "-n", script], check=True)
    text = script.read_text(encoding="utf-8")
    assert (LEADERBOARDS / "encoders/efficientnet_lite0.py").is_file()
    assert "encoders/efficientnet_lite0.py" in text
    grids = set(re.findall(r"grids/[\w-]+\.toml", text))
    assert grids == {"grids/semi.toml", "grids/positives.toml"}
    assert all((LEADERBOARDS / grid).is_file() for grid in grids)
    parts = re.search(r'"\$\{@:-(.*)\}"', text)
    assert parts is not None
    assert set(parts[1].split()) == set(re.findall(r"^make_(\w+)\(\)", text, re.MULTILINE))
