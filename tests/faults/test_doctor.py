"""`ssmlbench doctor` finds every damaged file, repairs what it can, and sweeps leftovers."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest
from typer.testing import CliRunner

from ssmlbench.cli import app
from ssmlbench.core.files import temporary_beside
from tests.faults.makers import FAULTS
from tests.faults.world import World


@pytest.fixture
def world(made: World, tmp_path: Path) -> World:
    world = made.copy(tmp_path / "world")
    world.enter()
    return world


def doctor(world: World, *options: str) -> tuple[int, str]:
    command = ["doctor", "--results", str(world.results), "--plugin", world.plugins.files[0]]
    result = CliRunner().invoke(app, [*command, *options], env={"COLUMNS": "300"})
    assert result.exception is None or isinstance(result.exception, SystemExit)
    return result.exit_code, result.output


def test_a_sound_world_is_well(world: World) -> None:
    world.run({"dataset": "tiny-vectors", "method": "softmatch", "pi": 0.5})
    doctor(world)  # sweeps the locks of the cache
    code, said = doctor(world)
    assert code == 0
    assert "all is well" in said


@pytest.mark.parametrize("fault", ["flip silently", "empty", "garbage"])
def test_every_damaged_file_is_named_and_a_dry_run_changes_nothing(
    world: World, fault: str
) -> None:
    files = [file for file in world.files() if file.name not in ("progress.json", ".lock")]
    for number, file in enumerate(files):
        if file.suffix in (".npy", ".arrow"):
            continue  # one damaged file of a folder is enough
        FAULTS[fault](world.root / file, random.Random(number))
    before = {file: (world.root / file).read_bytes() for file in files}
    _, said = doctor(world, "--dry-run")
    assert {file: (world.root / file).read_bytes() for file in files} == before
    # A run, a data set and a view of features are named by the first file that shows the damage.
    named = {"result.json", "card.json", "about.json", "checkpoint.safetensors"}
    for file in files:
        if file.name in named or "studies" in file.parts:
            assert str(file) in said, f"{fault} of {file}: {said}"


@pytest.mark.parametrize("fault", list(FAULTS))
def test_what_it_repaired_is_sound_afterwards(world: World, fault: str) -> None:
    chosen = [
        next(f for f in world.files() if f.name == name and f.parts[0] == part)
        for part, name in (
            ("cache", "00000.npy"),
            ("cache", "train.arrow"),
            ("results", "spec.json"),
        )
    ]
    for file in chosen:
        FAULTS[fault](world.root / file, random.Random(3))
    code, said = doctor(world)
    assert code == 0, said
    assert all(str(file) in said for file in chosen)
    assert "all is well" in doctor(world)[1]


def test_leftovers_are_swept(world: World) -> None:
    run = next((world.results).glob("tiny-text/*/*/*"))
    part = temporary_beside(run / "result.json")
    left = [part, run / "checkpoint.safetensors", run / ".lock"]
    for file in left:
        file.write_bytes(b"x")
    os.utime(part, (1, 1))
    unfinished = world.cache / "tasks" / "some-v1.1.unfinished"
    unfinished.mkdir()
    code, _ = doctor(world)
    assert code == 0
    assert not any(file.exists() for file in (*left, unfinished))
