"""What a year of use does around a run: clocks are set back, folders are moved, linked or closed."""

from __future__ import annotations

import errno
import os
import random
import shutil
import time
from pathlib import Path

import pytest

from ssmlbench.core.events import EpochEnded, Event
from ssmlbench.core.keep_alive import FUTURE_SECONDS, is_fresh
from ssmlbench.runs.context import RunContext
from ssmlbench.runs.execute import execute
from ssmlbench.runs.folder import RunFolder
from tests.faults.makers import flip
from tests.faults.test_full_disk import read_only
from tests.faults.world import FINISHED, NEW, World, attempt, numbers

DAY = 86_400


@pytest.fixture
def world(made: World, tmp_path: Path) -> World:
    world = made.copy(tmp_path / "world")
    world.enter()
    return world


def test_damage_is_mended_although_the_clock_was_set_back(world: World) -> None:
    """`compare` named a run as damaged that `run` took for done, until the clock had caught up."""
    folder = RunFolder.of(world.results, world.spec(FINISHED))
    expected, tomorrow = numbers(folder), time.time() + DAY
    os.utime(folder.result_file, (tomorrow, tomorrow))
    flip(folder.scores_file, random.Random(0))
    assert "scores.safetensors is damaged" in world.compare().text
    assert world.run(FINISHED).value == expected
    assert world.compare().lines == []


def test_damaged_data_are_prepared_again_although_the_clock_was_set_back(world: World) -> None:
    tomorrow = time.time() + DAY
    (card,) = world.cache.glob("tasks/tiny-text-*/card.json")
    os.utime(card, (tomorrow, tomorrow))
    flip(card.with_name("test.arrow"), random.Random(0))
    shutil.rmtree(world.cache / "features")
    lines = world.run(NEW).lines
    assert any("test.arrow is damaged" in line for line in lines), lines
    assert world.run(NEW).value is not None


@pytest.mark.parametrize(
    ("seconds_ahead", "fresh"),
    [(-DAY, False), (0, True), (FUTURE_SECONDS / 2, True), (DAY, False)],
)
def test_a_time_far_ahead_is_no_sign_of_life(
    tmp_path: Path, seconds_ahead: float, fresh: bool
) -> None:
    file = tmp_path / "progress.json"
    file.touch()
    touched = time.time() + seconds_ahead
    os.utime(file, (touched, touched))
    assert is_fresh(file) is fresh


@pytest.mark.parametrize("part", ["results", "cache"])
def test_a_folder_that_is_moved_while_a_run_is_made_is_one_line_and_the_run_can_be_made(
    world: World, part: str
) -> None:
    folder: Path = getattr(world, part)

    def move(event: Event) -> None:
        if isinstance(event, EpochEnded) and event.epoch == 1:
            folder.rename(folder.with_name("elsewhere"))

    def command() -> None:
        execute(world.spec(NEW), world.plugins, RunContext(world.results), move)

    (line,) = attempt(command).lines
    assert str(folder) in line
    assert "is gone (moved or deleted?); give the same command again" in line or part == "cache"
    assert world.run(NEW).value is not None


def test_a_cache_that_cannot_be_written_to_is_enough_for_what_is_in_it(world: World) -> None:
    """One that is shared by many users, say."""
    expected = world.run(NEW).value
    shutil.rmtree(world.results / "tiny-text")
    with read_only(world.cache, errno.EROFS):
        said = world.run(NEW)
        assert said.value == expected
        assert said.lines == world.compare().lines == world.status().lines == []


def test_results_behind_a_link_are_the_same_results(world: World, tmp_path: Path) -> None:
    linked = World(world.root, world.plugins)
    linked.results = tmp_path / "link"
    linked.results.symlink_to(world.results)
    made = linked.run(NEW).value
    times = [file.stat().st_mtime_ns for file in world.results.rglob("result.json")]
    assert world.run(NEW).value == made
    assert [file.stat().st_mtime_ns for file in world.results.rglob("result.json")] == times
    assert linked.status().value == world.status().value


def test_all_files_are_for_the_users_that_the_umask_lets_read_them(
    made: World, tmp_path: Path
) -> None:
    """A results folder and a cache may be shared: libraries write some files for one user only."""
    usual = tmp_path / "usual"
    usual.touch()
    modes = {file: (made.root / file).stat().st_mode for file in made.files()}
    assert modes == dict.fromkeys(modes, usual.stat().st_mode)
