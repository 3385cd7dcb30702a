"""What other programs keep beside our files: desktops, editors, copies of clouds and of file managers.

It is no damage, changes no answer, and never has to be deleted by hand.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

from ssmlbench.cli import app
from ssmlbench.core.errors import UserError
from ssmlbench.runs.choose import named_run
from tests.faults.test_doctor import doctor, world  # noqa: F401
from tests.faults.world import World

GARBAGE = b"\0\5\x16\7"


def write(name: str) -> Callable[[Path], None]:
    return lambda folder: folder.joinpath(name).write_bytes(GARBAGE) and None


def hidden_copies(folder: Path) -> None:
    """What macOS writes beside each file on other file systems."""
    for file in [*folder.iterdir()]:
        file.with_name(f"._{file.name}").write_bytes(GARBAGE)


def conflicts(folder: Path) -> None:
    """What a cloud keeps of files that two machines wrote."""
    for file in [file for file in folder.iterdir() if file.is_file()]:
        file.with_name(f"{file.stem} (conflicted copy){file.suffix}").write_bytes(GARBAGE)


def emacs_locks(folder: Path) -> None:
    for file in [file for file in folder.iterdir() if file.is_file()]:
        file.with_name(f".#{file.name}").symlink_to("me@here.123:456")


FOREIGN: dict[str, Callable[[Path], None]] = {
    "desktop": write(".DS_Store"),
    "hidden copies": hidden_copies,
    "conflicts": conflicts,
    "locks of an editor": emacs_locks,
    "folders": lambda folder: (
        [(folder / n).mkdir() for n in ("lost+found", "@eaDir", ".git")] and None
    ),
    "links": lambda folder: (folder / "loop").symlink_to("loop"),
}


@pytest.mark.parametrize("kind", FOREIGN)
def test_files_of_other_programs_are_no_damage_and_change_no_answer(
    world: World,  # noqa: F811
    kind: str,
) -> None:
    commands = (world.compare, world.predict, world.tuned, world.status)
    doctor(world)
    before = [command() for command in commands]
    for folder in [path for path in world.root.rglob("*") if path.is_dir()]:
        FOREIGN[kind](folder)
    assert [command() for command in commands] == before
    listed = CliRunner().invoke(app, ["cache", "list"])
    assert listed.exit_code == 0, listed.output
    code, said = doctor(world)
    assert code == 0, said
    assert "all is well" in said


def test_of_a_copied_run_the_path_is_asked_for(world: World) -> None:  # noqa: F811
    run = next(world.results.glob("tiny-text/*/*/*"))
    copied = run.with_name(f"{run.name} copy")
    shutil.copytree(run, copied)
    id_, folders = run.name.partition("-")[2], [run, copied]
    for typed in (id_, id_[:8]):
        with pytest.raises(UserError, match=f"the path of one: {run}, {copied}"):
            named_run(typed, [(id_, folder) for folder in folders], [world.results])
    delete = ["runs", "delete", str(copied), "--yes", "--results", str(world.results)]
    deleted = CliRunner().invoke(app, delete)
    assert deleted.exit_code == 0, deleted.output
    assert run.is_dir()
    assert not copied.exists()
