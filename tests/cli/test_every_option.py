"""Hostile values for every option and argument of every verb: no traceback, one line, nothing written.

The commands are read from the parser: an option that is added later is tried too.
"""

from __future__ import annotations

import os
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ssmlbench.cli import verbs
from tests.cli.test_usage_mistakes import (
    NUMBERS,
    arguments_of,
    commands,
    kind_of,
    load_once,
    options_with_values,
)
from tests.support.board_runs import grid

Call = Callable[..., "subprocess.CompletedProcess[str]"]
Case = tuple[list[str], bool]
"""A command, and whether it must be refused."""

NAME = "a\nb\x1b[31m\u202e[red]{x}%s\udce9"
"""A text with what terminals, Rich, templates and encodings might take for more than text."""
ANY_TEXT = {"--label-separator", "--caption", "--slurm", "--address", "--rename"}
MUST_EXIST = {"--grid", "--from", "--papers", "--data-dir", "--input", "--prefer"}
REFUSED: dict[str, list[str]] = {
    "number": ["٣", "0x10", "nan", "1e400", "9" * 5000, "-7"],
    "path": ["s3://bucket/x", "circle", "~no-such-user/x"],
    "existing": ["pipe", "/dev/zero", "nowhere/x", NAME],
    "text": [NAME],
}
MOST_VERBS = 2
"""An option that many verbs share is tried in so many of them."""
BASE = {
    "run": "--method bce --dataset mine.csv --pi 0.5 --holdout 0.5 --dry-run",
    "tune": "--method bce --dataset mine.csv --pi 0.5 --trials 2 --dry-run",
    "recommend": "--dataset mine.csv",
    "predict": "--best --out out.csv",
    "analyse ablation": "--method cap --dataset mine.csv --pi 0.5 --dry-run",
    "analyse sensitivity": "--method cap --dataset mine.csv --pi 0.5 --param margin --dry-run",
}
"""What a verb needs beside the option that is tried."""
SLOW = {("analyse", "theory"), ("doctor",), ("check",)}
"""Verbs that compute for seconds if a value is right; their numbers are tried elsewhere."""


@pytest.fixture(autouse=True)
def verbs_are_built_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verbs, "load_verb", load_once)


@pytest.fixture
def world(tmp_path: Path, empty_cache: None) -> Path:
    """Data, finished runs, a pipe and a circle of links."""
    rows = [f"{i},{i % 7},{'ab'[i % 2]}" for i in range(40)]
    (tmp_path / "mine.csv").write_text("\n".join(["f1,f2,labels", *rows]) + "\n")
    grid(tmp_path / "results", {"bce": [0.5, 0.6], "cap": [0.7, 0.8]})
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "circle").symlink_to("circle")
    return tmp_path


def refused_values(option: Any) -> list[str]:
    flag, kind = option.opts[-1], kind_of(option)
    if flag in ANY_TEXT:
        return []
    if kind in NUMBERS:
        return REFUSED["number"]
    if flag in MUST_EXIST:
        return [*REFUSED["path"], *REFUSED["existing"]]
    if kind == "Path" or flag == "--results":
        return REFUSED["path"]
    return REFUSED["text"]


def cases() -> Iterator[Case]:
    tried: Counter[str] = Counter()
    for path, command in commands():
        if hasattr(command, "commands") or path in SLOW:
            continue
        base = BASE.get(" ".join(path), "").split()
        needed = ["a" for own in arguments_of(command) if own.required]
        for option in options_with_values(command):
            flag = option.opts[-1]
            tried[flag] += 1
            if tried[flag] > MOST_VERBS:
                continue
            rest = list(base)
            if flag in rest:
                del rest[rest.index(flag) : rest.index(flag) + 2]
            for value in refused_values(option):
                yield [*path, *needed, *rest, f"{flag}={value}"], True
        for _ in arguments_of(command)[:1]:
            yield [*path, *base, *needed[1:], NAME], False


@pytest.mark.slow
def test_hostile_values_are_one_line_and_leave_nothing(ssmlbench: Call, world: Path) -> None:
    before = sorted(world.rglob("*"))
    tried = list(cases())
    assert len(tried) > 400
    for words, must_be_refused in tried:
        made = ssmlbench(*words)
        assert made.returncode in ((2,) if must_be_refused else (0, 1, 2)), made
        shown = made.stdout + made.stderr
        assert all(c.isprintable() or c in "\n\t" for c in shown), made
        if made.returncode == 2:
            lines = [line for line in made.stderr.splitlines() if not line.startswith("warning: ")]
            assert len(lines) == 1, made
            assert lines[0].startswith("error: "), made
            assert made.stdout == "", made
            left = [p for p in world.rglob("*") if p not in before and "cache" not in p.parts]
            assert not left, made


@pytest.mark.parametrize("typed", ["--out=~/new.html", "--out=~"])
def test_a_home_folder_after_an_equals_sign_is_the_home_folder(
    ssmlbench: Call, world: Path, monkeypatch: pytest.MonkeyPatch, typed: str
) -> None:
    """A shell leaves `~` there as it is."""
    monkeypatch.setenv("HOME", str(world / "home"))
    if typed == "--out=~":
        (world / "home").mkdir()
    made = ssmlbench("report", typed)
    assert made.returncode == 2, made
    assert "home" in made.stderr
    assert not (world / "~").exists()


def test_a_folder_for_output_is_checked_before_runs_are_made(ssmlbench: Call, world: Path) -> None:
    cell = "--method cap --dataset mine.csv --pi 0.5"
    made = ssmlbench("analyse", "ablation", *cell.split(), "--out", "mine.csv")
    assert "mine.csv is not a folder; choose another folder with --out" in made.stderr
    assert sorted(p.name for p in world.iterdir()) == ["circle", "mine.csv", "pipe", "results"]
