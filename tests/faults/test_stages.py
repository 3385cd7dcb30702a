"""Faults in each kind of file (tests/faults/stages.py): named in one line, made again by a command.

The default tests try a few faults of each kind; `make faults` tries all of them, and a kill at every
operation on a file.
"""

from __future__ import annotations

import errno
import os
import random
import shutil
import signal
import sys
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch

from ssmlbench.core.files import PART
from ssmlbench.inputs import frozen
from tests.faults.makers import FAULTS
from tests.faults.stages import STAGES, Stage, files_of
from tests.faults.test_full_disk import files_of_at_most, read_only
from tests.faults.world import World

DAMAGE = ("empty", "truncate", "zero-fill", "flip")
SECONDS = 120
"""A process that takes longer is killed wherever it is."""
MISSING = ("delete", "dangling link", "folder instead", "link loop")
"""Faults that leave nothing to read: a cache may make the file again without a word."""
CHANGES = ("open", "os.rename", "os.remove", "os.mkdir")
"""Audit events of operations that change a file, or may."""


@pytest.fixture(scope="module")
def whole(made: World, tmp_path_factory: pytest.TempPathFactory) -> World:
    """The world with every stage's files in it."""
    world = made.copy(tmp_path_factory.mktemp("stages") / "whole")
    world.enter()
    for stage in STAGES.values():
        stage.again(world)
    return world


@pytest.fixture(scope="module")
def sound(whole: World) -> dict[str, Any]:
    """What each stage's command gives without a fault."""
    whole.enter()
    return {name: stage.use(whole).value for name, stage in STAGES.items()}


@pytest.fixture
def world(whole: World, tmp_path: Path) -> World:
    world = whole.copy(tmp_path / "world")
    world.enter()
    return world


def check_damage(world: World, name: str, fault: str, expected: Any, seed: int) -> None:
    stage = STAGES[name]
    (file, *_) = files_of(world, stage)
    FAULTS[fault](file, random.Random(seed))
    said = stage.use(world)
    where = f"{fault} of {file}, seed {seed}: {said.text}"
    made_again = fault in MISSING and stage.make is None
    assert said.value in (expected, None), where
    assert made_again or not stage.named or file.name in said.text, where
    assert all(len(line.splitlines()) == 1 for line in said.lines), where
    if said.value is None:
        assert "ssmlbench" in said.text, f"what to type: {where}"
        said = stage.again(world)
    assert said.value == expected, where
    assert stage.use(world).lines == [], "nothing is left to say"


@pytest.mark.parametrize("name", sorted(STAGES))
def test_a_damaged_file_is_named_and_made_again(
    world: World, sound: dict[str, Any], name: str
) -> None:
    number = sorted(STAGES).index(name)
    assert sound[name] is not None
    check_damage(world, name, DAMAGE[number % len(DAMAGE)], sound[name], number)


def is_damage(name: str, fault: str) -> bool:
    """Not so: a user's folder or pipe under the name of `--out`, which is an error of its own."""
    of_the_user = name == "predictions" and fault in ("folder instead", "pipe instead")
    return fault != "delete" and not of_the_user


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "fault"), [(n, f) for n in sorted(STAGES) for f in sorted(FAULTS) if is_damage(n, f)]
)
def test_every_damage(world: World, sound: dict[str, Any], name: str, fault: str) -> None:
    seed = int(os.environ.get("FAULT_SEED", "0"))
    check_damage(world, name, fault, sound[name], seed)


# ------------------------------------------------------------------------------------------ kills


def clear(world: World, stage: Stage) -> None:
    """Delete what the stage makes."""
    for file in files_of(world, stage):
        file.unlink()
    for folder in world.root.glob(stage.gone) if stage.gone else ():
        shutil.rmtree(folder)


def killed_at(number: int, world: World, work: Callable[[], Any]) -> int:
    """Do the work in a process that is killed at its nth change of a file; how many there were."""
    inside, outside = os.pipe()
    child = os.fork()
    if child == 0:
        count = 0

        def hook(event: str, arguments: tuple[Any, ...]) -> None:
            nonlocal count
            inside_world = event in CHANGES and str(arguments[0]).startswith(str(world.root))
            if inside_world and (event != "open" or str(arguments[1])[:1] in "wax"):
                count += 1
                if count == number:
                    os.kill(os.getpid(), signal.SIGKILL)

        try:
            signal.alarm(SECONDS)  # a fork of a process with threads may hang
            frozen.all_cores = nullcontext
            torch.set_num_threads(1)
            sys.addaudithook(hook)
            work()
            os.write(outside, str(count).encode())
        finally:
            os._exit(0)
    os.close(outside)
    with os.fdopen(inside) as opened:
        count = opened.read()
    os.waitpid(child, 0)
    return int(count or 0)


def check_kill(world: World, name: str, number: int, expected: Any) -> None:
    stage = STAGES[name]
    clear(world, stage)
    killed_at(number, world, lambda: stage.again(world))
    said = stage.again(world)
    assert said.value == expected, f"killed at change {number}: {said.text}"
    assert not list(world.root.glob(f".*{PART}")), "nothing unfinished is left beside a user's file"


KILLED = ("frozen features", "decoded images", "the index of results", "predictions", "a study")


@pytest.mark.parametrize("name", KILLED)
def test_a_kill_while_a_file_is_made_costs_nothing_but_time(
    world: World, sound: dict[str, Any], name: str
) -> None:
    check_kill(world, name, 2, sound[name])


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(STAGES))
def test_a_kill_at_every_change_of_a_file(
    whole: World, sound: dict[str, Any], tmp_path: Path, name: str
) -> None:
    first = whole.copy(tmp_path / "first")
    first.enter()
    clear(first, STAGES[name])
    count = killed_at(0, first, lambda: STAGES[name].again(first))
    assert count
    for number in range(1, count + 1):
        world = whole.copy(tmp_path / str(number))
        world.enter()
        check_kill(world, name, number, sound[name])


# --------------------------------------------------------------------------- full, read-only disks


def check_refusal(world: World, name: str, refusing: Any, expected: Any) -> None:
    stage = STAGES[name]
    clear(world, stage)
    with refusing:
        said = stage.again(world)
    assert said.value in (expected, None), said.text
    assert said.value is not None or said.lines
    assert all(len(line.splitlines()) == 1 for line in said.lines), said.text
    again = stage.again(world)
    assert again.value == expected, f"{said.text}; then {again.text}"
    assert not list(world.root.rglob(f".*{PART}")), "nothing unfinished is left"


@pytest.mark.parametrize("name", ["decoded images", "predictions", "the index of results"])
def test_a_full_disk_is_one_line_and_the_same_command_works_afterwards(
    world: World, sound: dict[str, Any], name: str
) -> None:
    size = files_of(world, STAGES[name])[0].stat().st_size // 2
    check_refusal(world, name, files_of_at_most(size), sound[name])


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(STAGES))
@pytest.mark.parametrize("share", [0.0, 0.5, 0.99])
def test_a_full_disk_in_every_stage(
    world: World, sound: dict[str, Any], name: str, share: float
) -> None:
    size = int(files_of(world, STAGES[name])[0].stat().st_size * share)
    check_refusal(world, name, files_of_at_most(size), sound[name])


@pytest.mark.parametrize(
    "name",
    [
        name if not STAGES[name].gone else pytest.param(name, marks=pytest.mark.slow)
        for name in sorted(STAGES)
    ],
)
def test_a_folder_that_cannot_be_written_to_is_one_line(
    world: World, sound: dict[str, Any], name: str
) -> None:
    folder = files_of(world, STAGES[name])[0].parent
    check_refusal(world, name, read_only(folder, errno.EROFS), sound[name])
