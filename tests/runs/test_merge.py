"""One run in several places: once if its numbers agree, refused if they do not."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

from ssmlbench.boards.csv_files import export, read_exported
from ssmlbench.core.errors import UserError
from ssmlbench.runs.finished import Finished, read_finished
from ssmlbench.runs.merge import merge_runs
from tests.support.board_runs import grid


def read(*roots: Path) -> list[Finished]:
    return read_finished(roots)[0]


def test_equal_numbers_count_once_wherever_they_are(tmp_path: Path) -> None:
    runs = grid(tmp_path / "a", {"bce": [0.5, float("nan")]})
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    shutil.copytree(runs[0].folder, runs[0].folder.with_name("0-a backup"))
    (tmp_path / "toy.csv").write_bytes(export(runs, tmp_path / "out", "c")[0].read_bytes())
    found = [*read(tmp_path / "a", tmp_path / "b"), *read_exported([tmp_path / "toy.csv"])[0]]
    assert len(found) == 7
    assert sorted(run.spec.seed for run in merge_runs(found)) == [0, 1]


def test_different_numbers_are_refused_with_both_places(tmp_path: Path) -> None:
    for place, value in (("a", 0.5), ("b", 0.6)):
        grid(tmp_path / place, {"bce": [value, 0.7]})
    for order in (("a", "b"), ("b", "a")):
        roots = [tmp_path / name for name in order]
        with pytest.raises(UserError, match="1 run has different numbers in two places") as error:
            merge_runs(read(*roots))
        assert all(str(root) in str(error.value) for root in roots)
        for place, value in (("a", 0.5), ("b", 0.6)):
            kept = merge_runs(read(*roots), prefer=tmp_path / place)
            metrics = {run.spec.seed: run.result["metrics"]["top-k"]["default"] for run in kept}
            assert {seed: five["map"] for seed, five in metrics.items()} == {0: value, 1: 0.7}


@pytest.mark.parametrize(
    ("here", "there", "reason"),
    [
        (
            {"cpu_kernels": "AVX2"},
            {"cpu_kernels": "AVX512"},
            "CPU kernels differed: AVX2, and AVX512",
        ),
        ({"torch": "2.9", "threads": 1}, {"torch": "2.13"}, "their torch differed: 2.9, and 2.13"),
        ({"threads": 1}, {"threads": 2}, "their number of threads differed: 1, and 2"),
        ({"device": "cpu"}, {}, ""),
    ],
)
def test_different_numbers_of_different_machines_say_what_differed(
    tmp_path: Path, here: dict[str, Any], there: dict[str, Any], reason: str
) -> None:
    runs = [
        grid(tmp_path / place, {"bce": [value]})[0] for place, value in (("a", 0.5), ("b", 0.6))
    ]
    for run, made_with in zip(runs, (here, there), strict=True):
        run.result["made_with"] = made_with  # type: ignore[typeddict-item]
    with pytest.raises(UserError, match="different numbers") as error:
        merge_runs(runs)
    assert reason in str(error.value)
    assert bool(reason) == ("differed" in str(error.value))


def test_a_preferred_place_without_the_run_does_not_choose(tmp_path: Path) -> None:
    grid(tmp_path / "a", {"bce": [0.5]})
    grid(tmp_path / "b", {"bce": [0.6]})
    grid(tmp_path / "c", {"cap": [0.7]})
    with pytest.raises(UserError, match="--prefer PATH"):
        merge_runs(read(*(tmp_path / name for name in "abc")), prefer=tmp_path / "c")


def test_a_preferred_place_that_nothing_was_read_from_is_a_mistake(tmp_path: Path) -> None:
    grid(tmp_path / "a", {"bce": [0.5]})
    with pytest.raises(UserError, match="no run was read from there"):
        merge_runs(read(tmp_path / "a"), prefer=tmp_path / "aa")


def test_an_exported_file_can_be_the_one_that_counts(tmp_path: Path) -> None:
    (file,) = export(grid(tmp_path / "a", {"bce": [0.5]}), tmp_path, "c")
    runs = [*read_exported([file])[0], *grid(tmp_path / "b", {"bce": [0.6]})]
    with pytest.raises(UserError, match="different numbers"):
        merge_runs(runs)
    (run,) = merge_runs(runs, prefer=file)
    assert run.result["metrics"]["calibrated"]["default"]["map"] == 0.5


@pytest.mark.parametrize("verb", ["compare", "report", "plot"])
def test_every_command_refuses(
    tmp_path: Path, verb: str, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    from ssmlbench.cli import main

    for place, value in (("a", 0.5), ("b", 0.6)):
        grid(tmp_path / place, {"bce": [value]})
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["ssmlbench", verb, "--results", "a", "--results", "b"])
    with pytest.raises(SystemExit) as stop:
        main()
    assert stop.value.code == 2
    assert "different numbers in two places" in capsys.readouterr().err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "b"]


def test_the_rule_of_python_is_that_of_the_command_line(tmp_path: Path) -> None:
    from ssmlbench.boards.from_python import compare

    for place, value in (("a", 0.5), ("b", 0.6)):
        grid(tmp_path / place, {"bce": [value]})
    roots = [tmp_path / "a", tmp_path / "b"]
    with pytest.raises(UserError, match="different numbers"):
        compare(roots)
    (board,) = compare(roots, prefer=tmp_path / "b")
    assert board.rows[0].cells["map", "0.1"].mean == 0.6
