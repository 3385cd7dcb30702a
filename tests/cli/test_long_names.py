"""Names that are too long for a file are one line of error, whatever they are given for."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from ssmlbench.cli import main

LONG = "a" * 300
COMMANDS = (
    ["run", "--method", "bce", "--pi", "0.5", "--dataset", LONG],
    ["run", "--method", "bce", "--pi", "0.5", "--dataset", "multidigits", "--results", LONG],
    ["run", "--method", "bce", "--pi", "0.5", "--dataset", "x", "--plugin", f"{LONG}.py"],
    ["run", "--grid", f"{LONG}.toml"],
    ["data", "prepare", LONG],
    ["data", "show", LONG],
    ["check", LONG],
    ["show", LONG],
    ["status", "--results", LONG],
    ["compare", "--results", LONG],
    ["compare", "--export", LONG],
    ["report", "--results", LONG],
    ["doctor", "--results", LONG],
    ["predict", LONG, "text"],
    ["recommend", LONG],
)


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: " ".join(command)[:30])
def test_a_name_that_is_too_long_is_one_line(
    command: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    cache: Path,
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["ssmlbench", *command])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    told = capsys.readouterr().err
    assert "error" in told.lower()
    assert list(tmp_path.iterdir()) == []
