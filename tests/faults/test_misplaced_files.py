"""Whole files in the wrong place, as a hasty copy leaves them: their own checksums are right."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
import torch

from ssmlbench.boards.report.histories import read_history
from ssmlbench.core.errors import DamagedFile, DamageWarning
from ssmlbench.core.files import write_json
from ssmlbench.runs.finished import Unreadable, read_finished, read_result
from ssmlbench.runs.folder import RunFolder
from ssmlbench.training.checkpoint import Checkpoint
from tests.faults.world import FINISHED, NEW, World
from tests.support.board_runs import BASE, grid


def swap(one: Path, other: Path) -> None:
    between = one.with_name("between")
    one.rename(between)
    other.rename(one)
    between.rename(other)


def test_a_result_in_another_runs_folder_is_no_result(tmp_path: Path) -> None:
    for run in grid(tmp_path, {"bce": [0.1, 0.2, 0.3]}):
        write_json(run.folder / "result.json", {**run.result, "hash": run.spec.hash})
    one, other = (RunFolder.of(tmp_path, dataclasses.replace(BASE, seed=k)) for k in (0, 1))
    swap(one.result_file, other.result_file)
    runs, complaints = read_finished([tmp_path])
    assert [run.spec.seed for run in runs] == [2]
    assert len(complaints) == 2
    assert all("the result of another run" in line for line in complaints)
    for folder in (one, other):
        assert not folder.finished
        assert "another run" in str(folder.damage())
        assert isinstance(read_result(folder.path), Unreadable)


def test_a_renamed_folder_is_read_as_ever(tmp_path: Path) -> None:
    (run,) = grid(tmp_path, {"bce": [0.1]})
    write_json(run.folder / "result.json", {**run.result, "hash": run.spec.hash})
    folder = run.folder
    folder.rename(folder.with_name("0-kept-from-last-week"))
    assert len(read_finished([tmp_path])[0]) == 1


def test_the_state_of_another_run_is_not_continued_from(tmp_path: Path) -> None:
    file = tmp_path / "checkpoint.safetensors"
    Checkpoint(file, "aaaa").write({"network": {"w": torch.ones(2)}}, {"epoch": 3})
    stored = Checkpoint(file, "aaaa").read()
    assert stored is not None
    assert stored.epochs == 3
    with pytest.warns(DamageWarning, match="the state of another run, aaaa"):
        assert Checkpoint(file, "bbbb").read() is None
    assert not file.exists()


def test_a_state_that_does_not_say_whose_it_is_is_read(tmp_path: Path) -> None:
    """As those of older versions."""
    file = tmp_path / "checkpoint.safetensors"
    Checkpoint(file).write({"network": {"w": torch.ones(2)}}, {"epoch": 3})
    assert Checkpoint(file, "bbbb").read() is not None


def test_files_swapped_between_two_runs_are_made_again(made: World, tmp_path: Path) -> None:
    world = made.copy(tmp_path / "world")
    world.enter()
    sound = {name: world.run(asked).value for name, asked in (("one", FINISHED), ("other", NEW))}
    one, other = (RunFolder.of(world.results, world.spec(asked)) for asked in (FINISHED, NEW))
    swap(one.path / "history.csv", other.path / "history.csv")
    for folder in (one, other):  # of equal length, by chance: found when it is read, not before
        with pytest.raises(DamagedFile, match=r"history\.csv"):
            folder.verify("history.csv")
    found = {run.folder: run for run in read_finished([world.results])[0]}
    assert read_history(found[one.path]) is None, "a report leaves it out"
    swap(one.path / "history.csv", other.path / "history.csv")
    for name in ("result.json", "scores.safetensors", "model.json", "spec.json"):
        swap(one.path / name, other.path / name)
        world.compare()
        for which, asked in (("one", FINISHED), ("other", NEW)):
            said = world.run(asked)
            if said.value is None:  # named in one line when it is read: the same command then works
                assert name in said.text
                said = world.run(asked)
            assert said.value == sound[which], f"{name}: {said.lines}"
        assert one.finished
        assert other.finished
