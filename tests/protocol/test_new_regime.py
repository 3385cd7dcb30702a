"""A regime with a number is two files, and so is a run option: shown on a copy of the package.

The copy runs in an interpreter of its own, as its spec has other fields than the one under test.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

import pytest

from tests.conftest import ROOT
from tests.runs.test_execute import DATASET

SPEC = "ssmlbench/core/spec.py"
REGIMES = "ssmlbench/protocol/regimes.py"
OBSERVATION = "ssmlbench/protocol/observation.py"

NEW_REGIME = {
    SPEC: (
        "    seed: int = run_option(",
        """    noise: float | None = run_option(
        None, "noisy: fraction of labels flipped, or several.", axis=True, least=0, most=1,
        regimes=("noisy",), symbol="σ", example=0.2,
    )
    seed: int = run_option(""",
    ),
    REGIMES: (
        "_ENTRIES = (",
        """def _noisy(truth: Labels, number: float, split: str, seed: int) -> Drawn:
    import numpy as np

    flipped = np.random.RandomState(seed).random_sample(truth.shape) < number
    return _every_row(np.where(flipped, 1 - truth, truth).astype(np.int8))


_ENTRIES = (
    Regime("noisy", "a fraction noise of all labels is flipped", _noisy, _among_known),""",
    ),
}
NEW_OPTION = {
    SPEC: (
        "    split: Split = measured_option(",
        """    skipped_rows: int = measured_option(
        0, "Labelled rows that are left out.", least=0, added_later=True
    )
    split: Split = measured_option(""",
    ),
    OBSERVATION: (
        "labelled, validation = drawn.labelled,",
        "labelled, validation = drawn.labelled[spec.skipped_rows :],",
    ),
}
METHOD = '''
from ssmlbench.api import Method, bce

class Plain(Method):
    """BCE on what is observed."""
    name = "plain"
    regimes = {"noisy", "semi"}
    unlabelled_views = ()

    def loss(self, labelled, unlabelled):
        return {"labelled": bce(labelled.logits("strong"), labelled.observed).mean()}
'''
GRID = """
method = "plain"
dataset = "tiny"
regime = ["semi", "noisy"]
pi = 0.5
noise = [0.1, 0.3]
seeds = 1
epochs = 2
plugin = ["tiny.py", "plain.py"]
"""
COMMANDS = """
from ssmlbench.cli import app
from ssmlbench.grid import run_one
from ssmlbench.grid.engines import local
for module in (run_one, local):  # runs in this process: it has the new fields already
    module.can_be_sealed = lambda plugins: False
run_one.start_fork_server = lambda: None
for words in (
    "run --grid grid.toml --device cpu --jobs 1 --quiet",
    "run --grid grid.toml --device cpu --jobs 1 --quiet --regime noisy --noise 0.1 --skipped-rows 7",
    "compare --format markdown --metric map",
    "compare --format markdown --metric map --noise 0.3",
    "run --help",
):
    print("$", words)
    app(words.split(), standalone_mode=False)
for words in ("run --grid grid.toml --noise 2", "run --grid grid.toml --skipped-rows -1"):
    try:
        app(words.split(), standalone_mode=False)
    except Exception as error:
        print("$", words, "\\n", type(error).__name__, error)
"""


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What a copy of the package with the new regime and the new option prints, by command."""
    folder = tmp_path_factory.mktemp("copy")
    shutil.copytree(ROOT / "ssmlbench", folder / "ssmlbench")
    for name in ("methods", "datasets"):
        (folder / name).symlink_to(ROOT / name)
    for edits in (NEW_REGIME, NEW_OPTION):
        assert len(edits) == 2
        for file, (before, after) in edits.items():
            text = (folder / file).read_text()
            assert text.count(before) == 1, f"{file}: {before}"
            (folder / file).write_text(text.replace(before, after))
    for name, text in {"tiny.py": DATASET, "plain.py": METHOD, "grid.toml": GRID}.items():
        (folder / name).write_text(text)
    done = subprocess.run(
        [sys.executable, "-c", COMMANDS],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(folder), "COLUMNS": "200"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    parts = done.stdout.split("$ ")[1:]
    return {part.partition("\n")[0].strip(): part.partition("\n")[2] for part in parts}


def test_a_new_regime_runs_expands_and_stands_on_a_board_with_its_symbol(
    answers: dict[str, str],
) -> None:
    board = answers["compare --format markdown --metric map"]
    assert "tiny · semi π = 0.5" in board
    assert "tiny · noisy · not the published data §\n" in board
    assert "mAP ↑ σ=0.1 | mAP ↑ σ=0.3" in board
    chosen = answers["compare --format markdown --metric map --noise 0.3"]
    assert "tiny · noisy σ = 0.3" in chosen
    assert "tiny · semi π = 0.5" in chosen  # a filter of one regime leaves the others


def test_a_new_option_is_typed_hashed_and_separates_tables(answers: dict[str, str]) -> None:
    board = answers["compare --format markdown --metric map"]
    assert "skipped_rows 7 instead of 0" in board


def test_help_and_bounds_know_both(answers: dict[str, str]) -> None:
    text = answers["run --help"]
    assert "noisy: fraction of labels flipped, or several." in text
    assert "semi, single-positive, single-positive-negatives" in text.replace("noisy, ", "")
    assert "Labelled rows that are left out." in text
    assert "--noise 2.0: must lie in [0, 1]" in answers["run --grid grid.toml --noise 2"]
    refused = answers["run --grid grid.toml --skipped-rows -1"]
    assert "--skipped-rows -1: must be at least 0" in refused
