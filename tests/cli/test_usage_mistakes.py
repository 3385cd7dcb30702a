"""What the parser of the command line rejects, over all verbs: one line that names it, exit code 2."""

from __future__ import annotations

import functools
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from ssmlbench import cli
from ssmlbench.cli import verbs
from ssmlbench.cli.verbs import VERBS
from tests.cli.test_help import leaves

Call = Callable[..., "subprocess.CompletedProcess[str]"]
NUMBERS = ("int", "float", "integer", "integer range")
load_once = functools.cache(verbs.load_verb)


@pytest.fixture(autouse=True)
def verbs_are_built_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verbs, "load_verb", load_once)


def commands() -> list[tuple[tuple[str, ...], Any]]:
    return [found for verb in VERBS for found in leaves((verb,), load_once(verb))]


def arguments_of(command: Any) -> list[Any]:
    return [own for own in command.params if own.param_type_name == "argument"]


def options_with_values(command: Any) -> list[Any]:
    options = [own for own in command.params if own.param_type_name == "option"]
    return [option for option in options if not option.is_flag]


def kind_of(option: Any) -> str:
    """`int` and so on, from Typer's own description or, in older versions, from Click's."""
    described = getattr(option, "type_descriptor", None)
    return described.annotation.__name__ if described else option.type.name


def bounds_of(option: Any) -> tuple[Any, Any]:
    described = getattr(option, "type_descriptor", None)
    holder = described.parameter_info if described else option.type
    return getattr(holder, "min", None), getattr(holder, "max", None)


def line_of(made: subprocess.CompletedProcess[str]) -> str:
    assert made.returncode == 2, made
    assert made.stdout == "", made
    (line,) = made.stderr.splitlines()
    assert line.startswith("error: "), line
    return line


def test_an_option_that_is_not_there_is_one_line(ssmlbench: Call) -> None:
    for path, _ in commands():
        line = line_of(ssmlbench(*path, "--no-such-option"))
        assert "--no-such-option" in line
        assert f"`ssmlbench {' '.join(path)} --help`" in line


def test_a_missing_value_is_one_line(ssmlbench: Call) -> None:
    for path, command in commands():
        for option in options_with_values(command)[:1]:
            assert option.opts[-1] in line_of(ssmlbench(*path, option.opts[-1]))


def test_a_missing_argument_or_verb_and_one_too_many_is_one_line(ssmlbench: Call) -> None:
    for path, command in commands():
        arguments = arguments_of(command)
        if hasattr(command, "commands"):
            assert "no-such-verb" in line_of(ssmlbench(*path, "no-such-verb"))
        elif any(own.required for own in command.params):
            assert "is missing" in line_of(ssmlbench(*path))
        elif all(argument.nargs == 1 for argument in arguments):
            typed = (*path, *(["text"] * len(arguments)), "one-too-many")
            assert "one-too-many" in line_of(ssmlbench(*typed))


def test_a_number_that_is_none_or_out_of_bounds_is_one_line(ssmlbench: Call) -> None:
    bounded = []
    for path, command in commands():
        typed = (*path, *(["text"] * len(arguments_of(command))))
        numbers = [own for own in options_with_values(command) if kind_of(own) in NUMBERS]
        for option in numbers:
            assert_names_value(ssmlbench, typed, option.opts[-1], "many")
            low, high = bounds_of(option)
            if low is not None:
                bounded.append(option.opts[-1])
                assert_names_value(ssmlbench, typed, option.opts[-1], str(low - 1))
            if high is not None:
                assert_names_value(ssmlbench, typed, option.opts[-1], str(high + 1))
    assert {"--gpus", "--micro-batch", "--folds", "--examples"} <= set(bounded)


def assert_names_value(call: Call, typed: Sequence[str], option: str, value: str) -> None:
    line = line_of(call(*typed, option, value))
    assert option in line
    assert value in line.split(option)[1]
    assert "nput should" not in line, "the words of a library"


def test_a_verb_that_is_not_there_is_one_line_with_a_proposal(ssmlbench: Call) -> None:
    assert line_of(ssmlbench("comprae")).endswith("Did you mean 'compare'?")
    assert "`ssmlbench --help`" in line_of(ssmlbench("--no-such-option"))


@pytest.mark.parametrize("group", [(), ("data",)])
def test_a_group_without_a_verb_shows_its_verbs(ssmlbench: Call, group: tuple[str, ...]) -> None:
    made = ssmlbench(*group)
    assert made.returncode == 2
    assert "Commands" in made.stdout
    assert "error" not in made.stderr


@pytest.mark.parametrize(
    "typed",
    [
        "run --method bce --dataset multidigits --pi 0.1 --dry-run",
        "check plugin.py",
        "doctor --results results",
        "data prepare rows.csv",
        "recommend --dataset rows.csv",
    ],
)
def test_a_working_folder_that_was_deleted_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], typed: str
) -> None:
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    monkeypatch.setattr(sys, "argv", ["ssmlbench", *typed.split()])
    with pytest.raises(SystemExit) as stop:
        cli.main()
    assert stop.value.code == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "does not exist any more" in line or "no results folder" in line


@pytest.mark.parametrize(
    "typed",
    ["run --method bce --dataset multidigits --pi 0.1", "data list", "data prepare multidigits"],
)
def test_a_folder_of_data_that_is_not_there_is_one_line(
    ssmlbench: Call, tmp_path: Path, typed: str
) -> None:
    """Although nothing would be read there."""
    made = ssmlbench(*typed.split(), "--data-dir", tmp_path / "nowhere")
    assert "nowhere: there is no such folder" in line_of(made)
