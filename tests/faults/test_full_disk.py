"""A disk that is full or read-only is one line of error; the same command works afterwards."""

from __future__ import annotations

import errno
import io
import os
import resource
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from ssmlbench.core.errors import RunFailed, UserError, disk_error
from ssmlbench.core.files import atomic, write_json, write_output
from ssmlbench.inputs.shards import ShardFolder
from ssmlbench.runs.context import RunContext
from ssmlbench.runs.execute import execute
from ssmlbench.runs.folder import RunFolder
from tests.faults.world import NEW, World, numbers


@contextmanager
def files_of_at_most(size: int) -> Iterator[None]:
    """Every write beyond this size fails, whichever library writes: as on a full disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@contextmanager
def read_only(root: Path, code: int) -> Iterator[None]:
    """Every attempt to write below the root fails, as far as Python opens the file."""

    def refusing(function: Callable[..., Any], writes: Callable[..., bool]) -> Callable[..., Any]:
        def call(path: Any, *rest: Any, **more: Any) -> Any:
            inside = isinstance(path, str | os.PathLike) and Path(path).is_relative_to(root)
            if inside and writes(*rest, **more):
                raise OSError(code, os.strerror(code), str(path))
            return function(path, *rest, **more)

        return call

    def flags(flags: int = 0, *rest: Any, **more: Any) -> bool:
        return bool(flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT))

    def mode(mode: str = "r", *rest: Any, **more: Any) -> bool:
        return any(letter in mode for letter in "wax+")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "open", refusing(os.open, flags))
        patch.setattr(io, "open", refusing(io.open, mode))
        patch.setattr(os, "mkdir", refusing(os.mkdir, lambda *rest, **more: True))
        patch.setattr(os, "replace", refusing(os.replace, lambda *rest, **more: True))
        yield


def command(world: World) -> str:
    """`ssmlbench run` of one run: its error, as the command line says it; empty if it is made."""
    try:
        spec = world.spec(NEW)
        execute(
            spec, world.plugins, RunContext(world.results)
        )  # here: limits reach no other process
        return ""
    except (UserError, RunFailed) as error:
        return str(error)
    except OSError as error:
        if (line := disk_error(error)) is None:
            raise
        return line


@pytest.fixture
def expected(made: World, tmp_path: Path) -> dict[str, Any]:
    world = made.copy(tmp_path / "sound")
    world.enter()
    assert command(world) == ""
    return numbers(RunFolder.of(world.results, world.spec(NEW)))


def empty_world(made: World, root: Path) -> World:
    world = World(root, made.plugins)
    world.results.mkdir(parents=True)
    world.enter()
    return world


def test_a_disk_that_is_full_in_any_stage_is_one_line_and_the_run_goes_on_afterwards(
    made: World, expected: dict[str, Any], tmp_path: Path
) -> None:
    # Each size lets one more stage through: data, features, checkpoint, scores.
    for size in (0, 1000, 3000, 9000, 12_000):
        world = empty_world(made, tmp_path / str(size))
        with files_of_at_most(size):
            said = command(world)
        assert said, f"with files of at most {size} bytes"
        assert len(said.splitlines()) == 1, said
        assert command(world) == ""
        assert numbers(RunFolder.of(world.results, world.spec(NEW))) == expected
        assert not list(world.root.rglob("*.part")), "nothing unfinished is left"


def save_arrays(file: Path) -> None:
    with atomic(file) as unfinished:
        save_file({"values": np.zeros(9999)}, unfinished)


WRITERS: dict[str, Callable[[Path], None]] = {
    "safetensors": save_arrays,
    "shards": lambda file: ShardFolder(file.parent).write_shard(0, np.zeros((99, 99))),
    "JSON": lambda file: write_json(file, {"values": [0.0] * 9999}),
    "tables": lambda file: write_output(file, "0" * 9999),
}


@pytest.mark.parametrize("size", [0, 5000])
@pytest.mark.parametrize("kind", WRITERS)
def test_whichever_library_writes_a_full_disk_is_an_error_of_the_system_that_names_the_file(
    tmp_path: Path, kind: str, size: int
) -> None:
    """safetensors raises an error of its own, and NumPy one without the system's reason."""
    with files_of_at_most(size), pytest.raises(OSError, match=os.strerror(errno.EFBIG)) as caught:
        WRITERS[kind](tmp_path / "00000.npy")
    assert caught.value.errno == errno.EFBIG
    assert caught.value.filename == str(tmp_path / "00000.npy")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("code", [errno.EROFS, errno.EACCES])
@pytest.mark.parametrize("part", ["results", "cache"])
def test_a_folder_that_cannot_be_written_to_is_one_line(
    made: World, expected: dict[str, Any], tmp_path: Path, part: str, code: int
) -> None:
    world = empty_world(made, tmp_path / "world")
    with read_only(world.root / part, code):
        said = command(world)
    assert os.strerror(code) in said
    assert str(world.root / part) in said
    assert len(said.splitlines()) == 1
    assert command(world) == ""
    assert numbers(RunFolder.of(world.results, world.spec(NEW))) == expected
