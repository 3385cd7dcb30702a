"""After any single fault of the disk a command gives the same numbers or names the damaged file.

Never a traceback, never another number, and never a file that a user has to delete by hand.
"""

from __future__ import annotations

import os
import random
import re
from pathlib import Path

import pytest

from tests.faults.makers import FAULTS
from tests.faults.world import FINISHED, NEW, STOPPED, World

RUNS = {"new": NEW, "finished": FINISHED, "stopped": STOPPED}
TRIES = int(os.environ.get("FAULT_TRIES", "200"))
REMEDY = re.compile("`ssmlbench |--keep-model|copy the whole run folder")
GONE = ("delete", "dangling link")
SEED = int(os.environ.get("FAULT_SEED", "0"))


@pytest.fixture(scope="module")
def sound(made: World) -> dict[str, object]:
    """What the commands give without a fault."""
    world = made.copy(made.root.with_name("sound"))
    world.enter()
    return commands(world)


def commands(world: World) -> dict[str, object]:
    found: dict[str, object] = {}
    readers = {"status": world.status, "compare": world.compare}
    for name, reader in readers.items():
        found[name] = reader().value
    found["tuned"] = world.tuned().value
    found["predict"] = world.predict().value
    for name, asked in RUNS.items():
        found[name] = world.run(asked).value
    found["compared again"] = world.compare().value
    return found


def check(world: World, sound: dict[str, object], file: Path, fault: str, seed: int) -> None:
    """Damage the file, give the commands, and see that each holds the promise."""
    where = f"{fault} of {file}, seed {seed}"
    world.enter()
    FAULTS[fault](world.root / file, random.Random(seed))
    assert world.status().value is not None, where
    compared = world.compare()
    tuned, predicted = world.tuned(), world.predict()
    for said, expected in (
        (compared, sound["compare"]),
        (tuned, sound["tuned"]),
        (predicted, sound["predict"]),
    ):
        # Nobody knows of a result, study or model that is gone; the error says how to make one.
        gone = fault in GONE and said.value is None and REMEDY.search(said.text)
        assert said.value == expected or file.name in said.text or gone, f"{where}: {said}"
    for name, asked in RUNS.items():
        said = world.run(asked)
        if said.value is None:  # refused in one line: the same command then works
            assert file.name in said.text, f"{name} run after {where}: {said}"
            said = world.run(asked)
        assert said.value == sound[name], f"{name} run after {where}: {said.lines}"
    again = world.compare()
    assert again.value == sound["compared again"], f"{where}: {again}"
    model = world.predict()
    assert model.value == sound["predict"] or (gone_model(file, fault) and model.text), where


def gone_model(file: Path, fault: str) -> bool:
    """A model may be deleted to save space: the run stays finished."""
    return fault in GONE and file.name.startswith("model.")


def test_no_fault_changes_a_number_or_needs_a_hand(
    made: World, sound: dict[str, object], tmp_path: Path
) -> None:
    """Each file of each kind once, with a fault drawn for it."""
    for number, file in enumerate(one_of_each_kind(made.files())):
        fault = list(FAULTS)[number % len(FAULTS)]
        check(made.copy(tmp_path / str(number)), sound, file, fault, seed=number)


def one_of_each_kind(files: list[Path]) -> list[Path]:
    """The first file of each folder of the layout and name."""
    kinds = {
        (file.parts[0], file.parts[1] if file.parts[0] == "cache" else "", file.name): file
        for file in reversed(files)
    }
    return sorted(kinds.values())


@pytest.mark.slow
def test_many_faults(made: World, sound: dict[str, object], tmp_path: Path) -> None:
    """The long form, `make faults`: FAULT_TRIES faults in any file, drawn with FAULT_SEED."""
    draw = random.Random(SEED)
    files = made.files()
    for number in range(TRIES):
        file, fault = draw.choice(files), draw.choice(list(FAULTS))
        check(made.copy(tmp_path / "world"), sound, file, fault, seed=draw.randrange(1 << 30))
        (tmp_path / "world").rename(tmp_path / f"done-{number}")
