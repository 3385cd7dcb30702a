"""Two stored files or folders that changed places: each is whole, and its own checksum is right.

A command then gives the same numbers, or names what is wrong and gives them when it is typed again.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
import torch

from ssmlbench.data import prepare
from ssmlbench.grid.study import Study, close, trials_root
from ssmlbench.inputs import decoded, frozen
from ssmlbench.inputs.encoders import find_encoder
from ssmlbench.inputs.frozen import FrozenEncoder
from ssmlbench.runs.context import RunContext
from ssmlbench.runs.execute import execute
from tests.faults.stages import STAGES, Stage
from tests.faults.test_misplaced_files import swap
from tests.faults.world import FINISHED, NEW, TRIALS, TUNED, Said, World, attempt

SHARD_ROWS = 16
Pair = tuple[Path, Path]


def every_feature(world: World) -> Said:
    """The features of both splits, from several shards each."""
    spec = world.spec(FINISHED)
    encoder = find_encoder(world.plugins.encoders, spec.backbone, "text")
    lines: list[str] = []

    def read() -> bytes:
        task = prepare(world.plugins.datasets["tiny-text"]())
        cpu = torch.device("cpu")
        lists = FrozenEncoder(spec, encoder, task, cpu, notify=lambda e: lines.append(str(e)))
        return b"".join(lists.features(s, "plain").numpy().tobytes() for s in ("train", "test"))

    said = attempt(read)
    return Said(said.value, lines + said.lines)


def tasks(world: World) -> Said:
    """Labels and ids of both splits of every data set."""

    def read() -> list[Any]:
        found = [
            prepare(world.plugins.datasets[name]())
            for name in sorted(world.plugins.datasets)
            if name.startswith("tiny-")
        ]
        return [(task.card.name, task.ids(split), task.truth(split).tobytes(), str(task.inputs(split)[0]))
                for task in found for split in task.splits]  # fmt: skip

    return attempt(read)


def tune(world: World) -> Said:
    """`ssmlbench tune`: the trials that are missing, then the study's file."""

    def make() -> Any:
        study = Study.of(world.spec(TUNED), world.plugins, TRIALS)
        for spec in study.specs():
            execute(spec, world.plugins, RunContext(trials_root(world.results)))
        return close(study, world.results)

    return attempt(make)


def both_runs(world: World) -> Said:
    """`ssmlbench run` of two seeds."""
    said = [world.run(asked) for asked in (FINISHED, NEW)]
    lines = [line for one in said for line in one.lines]
    return Said(
        None if any(one.value is None for one in said) else [one.value for one in said], lines
    )


USES = {
    **{name: stage for name, stage in STAGES.items() if name != "the index of results"},
    "a study": Stage("", World.tuned, tune),
    "every feature": Stage("", every_feature),
    "tasks": Stage("", tasks),
    "compare": Stage("", World.compare, both_runs),
    "both runs": Stage("", both_runs),
}


@pytest.fixture(scope="module", autouse=True)
def small_shards() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(frozen, "SHARD_ROWS", SHARD_ROWS)
        patch.setattr(decoded, "SHARD_BYTES", 8 * 3 * 16 * 16)
        yield


@pytest.fixture(scope="module")
def whole(made: World, tmp_path_factory: pytest.TempPathFactory) -> World:
    """Every kind of file, with several shards and runs."""
    world = World(tmp_path_factory.mktemp("swaps"), made.plugins)
    shutil.copytree(made.results, world.results)
    world.enter()
    for use in USES.values():
        use.again(world)
    return world


@pytest.fixture(scope="module")
def sound(whole: World) -> dict[str, Any]:
    whole.enter()
    found = {name: use.use(whole) for name, use in USES.items()}
    assert [said.lines for said in found.values()] == [[]] * len(found)
    return {name: said.value for name, said in found.items()}


def siblings(root: Path) -> dict[str, list[Pair]]:
    """Pairs that can be mistaken for one another, by kind.

    Two files of a folder with the same ending, two of one name in neighbouring folders, and two
    neighbouring folders.
    """
    found: dict[str, list[Pair]] = {}
    everything = sorted(path.relative_to(root) for path in root.rglob("*"))
    for one, other in combinations(everything, 2):
        both_files = (root / one).is_file() and (root / other).is_file()
        both_folders = (root / one).is_dir() and (root / other).is_dir()
        beside = one.parent == other.parent
        near = one.parent.parent == other.parent.parent and one.name == other.name
        if both_files and ((beside and one.suffix == other.suffix) or (near and not beside)):
            name = one.name if near else f"*{one.suffix}"
            found.setdefault(f"{one.parts[0]} {one.parts[1]} {name}", []).append((one, other))
        elif both_folders and beside and len(one.parts) > 2:
            found.setdefault(f"{one.parts[0]} {one.parts[1]} folders", []).append((one, other))
    return found


def check(world: World, pair: Pair, sound: dict[str, Any]) -> None:
    world.enter()
    swap(*(world.root / path for path in pair))
    where = f"after a swap of {pair[0]} and {pair[1]}"
    for name, use in USES.items():
        said = use.use(world)
        for _ in pair:  # of two files, each is named when it is read
            if said.value == sound[name]:
                break
            left_out = name == "compare"  # it shows the other runs
            assert said.value is None or left_out, f"{name} {where}: {said.text}"
            assert said.lines, f"{name} {where}"
            said = use.again(world)
        assert said.value == sound[name], f"{name} again {where}: {said.text}"
    assert {name: use.use(world).value for name, use in USES.items()} == sound, where


KINDS = (  # the others are in `test_every_pair`
    "cache decoded *.npy",
    "cache features *.npy",
    "cache features folders",
    "cache tasks folders",
    "results tiny-text model.safetensors",
)


@pytest.mark.parametrize("kind", KINDS)
def test_two_files_that_changed_places_change_no_number(
    whole: World, sound: dict[str, Any], tmp_path: Path, kind: str
) -> None:
    check(whole.copy(tmp_path / "world"), siblings(whole.root)[kind][0], sound)


@pytest.mark.slow
def test_every_pair(whole: World, sound: dict[str, Any], tmp_path: Path) -> None:
    pairs = [pair for kind in siblings(whole.root).values() for pair in kind]
    fell = []
    for number, pair in enumerate(pairs):
        try:
            check(whole.copy(tmp_path / str(number)), pair, sound)
        except Exception as error:
            fell.append(repr(error)[:500])
    assert not fell, f"{len(fell)} of {len(pairs)}"
