"""Arguments of a wrong type, over all public functions: a UserError of one line, and nothing written."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import ssmlbench
from ssmlbench.core.arguments import several
from ssmlbench.core.errors import UserError
from tests.support.board_runs import grid


class Textless:
    """A value whose text cannot be shown."""

    def __repr__(self) -> str:
        raise RuntimeError("no text")


WRONG: dict[str, list[Any]] = {
    "bool": ["false", "", 1, 0.0, None, np.array([True, False]), pd.Series([True]), []],
    "int": ["many", 1.5, True, np.float32(0.5), float("nan"), 10**5000, b"1", {1: 2}, pd.NA],
    "str": [1, True, b"bce", Path("a"), Textless(), {}, ["a"], pd.Series(["a"]), int],
    "path": ["", 1, True, b"a", Textless(), {"a": 1}, "a\0b", "s3://bucket/a", "x" * 5000, pd.NaT],
    "mapping": ["a=b", 1, ["a"], {1: 2}, pd.Series([1, 2]), Textless()],
    "list": [Textless(), {"a": "b"}, np.array("x"), object()],
}
"""Values that no argument with such an annotation takes."""


def kinds(annotation: str) -> list[str]:
    """The keys of WRONG whose values an argument does not take."""
    if "Paths" in annotation or "Path" in annotation or annotation == "Files":
        return ["path"]
    if "Mapping" in annotation:
        return ["mapping"]
    if annotation in ("Several", "Numbers"):
        return ["list"]
    return [kind for kind in ("bool", "int", "str") if annotation.split(" ", maxsplit=1)[0] == kind]


def cases() -> Iterator[tuple[str, str, Any]]:
    functions: dict[str, Callable[..., Any]] = {
        "run": ssmlbench.run,
        "compare": ssmlbench.compare,
        "methods": ssmlbench.methods,
        "datasets": ssmlbench.datasets,
        **{f"Boards.{name}": getattr(ssmlbench.Boards, name) for name in ("to_latex", "to_html")},
    }
    for function, called in functions.items():
        for name, own in inspect.signature(called).parameters.items():
            for kind in kinds(str(own.annotation)):
                for value in WRONG[kind]:
                    if not (value is None and "None" in str(own.annotation)):
                        yield function, name, value


def call(function: str, arguments: dict[str, Any]) -> Any:
    if function.startswith("Boards."):
        return getattr(ssmlbench.compare("results"), function.removeprefix("Boards."))(**arguments)
    given = {"method": "bce", "dataset": "multidigits", "pi": 0.5} if function == "run" else {}
    return getattr(ssmlbench, function)(**{**given, **arguments})


def test_an_argument_of_another_type_is_a_user_error_that_names_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    grid(tmp_path / "results", {"bce": [0.5], "cap": [0.6]})
    monkeypatch.chdir(tmp_path)
    before = sorted(tmp_path.rglob("*"))
    tried = list(cases())
    assert len(tried) > 250
    for function, name, value in tried:
        with pytest.raises(UserError) as error:
            call(function, {name: value})
        line = str(error.value)
        assert len(line.splitlines()) == 1, (function, name, line)
        assert len(line) < 4000
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize("shown", [3, None, b"Ours", ["Ours"], " "])
def test_a_row_is_renamed_to_a_text(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shown: Any
) -> None:
    grid(tmp_path / "results", {"bce": [0.5]})
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match=r"--rename bce=.*: expected a text that is not empty"):
        call("Boards.to_latex", {"rename": {"bce": shown}})


def test_numbers_of_numpy_are_numbers_and_parts_of_bytes_are_not() -> None:
    assert several(np.arange(3), int, "seed") == (0, 1, 2)
    assert several(np.float64(0.5), float, "pi") == (0.5,)
    assert several(pd.Series([0.5, 0.1]), float, "pi") == (0.5, 0.1)
    for wrong in (np.array([0.5]), np.float32(0.5), b"bce", {1: 2}, np.True_, "٣", 10**20):
        with pytest.raises(UserError, match="seed="):
            several(wrong, int, "seed")


def test_a_single_run_with_a_numpy_number_is_one_result() -> None:
    from ssmlbench.core.arguments import is_list

    assert not is_list(np.int64(1))
    assert not is_list(np.array(0.5))
    assert is_list(np.array([0.5]))
