"""Every filter of the commands that read finished runs names the values that none of the shown runs has."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

import ssmlbench as package
from tests.support.board_runs import grid

Call = Callable[..., "subprocess.CompletedProcess[str]"]

COMMANDS = (
    ["compare"],
    ["compare", "--export", "boards"],
    pytest.param(["report"], marks=pytest.mark.slow),
    pytest.param(["plot", "--format", "svg", "--figure", "cost"], marks=pytest.mark.slow),
)
UNMET = {
    "--method cap,zzz": "--method zzz: no finished run here has it. There is: bce, cap.",
    "--method cap,bcee": "--method bcee: no finished run here has it. Did you mean bce?",
    "--dataset toy,zzz": "--dataset zzz: no finished run here has it. There is: toy.",
    "--pi 0.1,0.3": "--pi 0.3: no finished run here has it.",
    "--regime semi,full": "--regime full: no finished run here has it. There is: semi.",
    "--selection last,val": "--selection val: no finished run here has it. There is: last.",
    "--method cap,bce --pi 0.2": "--method cap: no finished run that fits the other filters has it",
}


@pytest.fixture
def results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    grid(tmp_path / "results", {"bce": [0.5, 0.6], "cap": [0.8, 0.7]}, pi=0.1)
    grid(tmp_path / "results", {"bce": [0.5, 0.6]}, pi=0.2)
    return tmp_path


@pytest.mark.parametrize("command", COMMANDS)
def test_a_value_that_no_shown_run_has_is_named(
    results: Path, ssmlbench: Call, command: list[str]
) -> None:
    for typed, said in UNMET.items():
        made = ssmlbench(*command, *typed.split())
        one_method = "Only one method: nothing to set its cost against" in made.stderr
        assert made.returncode == (2 if one_method else 0), made
        assert f"warning: {said}" in made.stderr
    assert "warning: --" not in ssmlbench(*command, "--method", "cap,bce", "--pi", "0.1").stderr


def test_from_python_it_is_a_warning(results: Path) -> None:
    with pytest.warns(UserWarning, match="--method zzz: no finished run here has it"):
        package.compare(results / "results", method=["cap", "zzz"])


def test_a_list_of_runs_names_it_too(results: Path, ssmlbench: Call) -> None:
    made = ssmlbench("runs", "list", "--method", "cap,zzz", "--dataset", "toy,no-such")
    assert made.returncode == 0
    assert "--method zzz: no run here has it. There is: bce, cap." in made.stderr
    assert "--dataset no-such: no run here has it." in made.stderr
