"""`ssmlbench doctor` finds every damaged file, repairs what it can, and sweeps leftovers."""

from __future__ import annotations

import json
import os
import random
import shutil
import time
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from ssmlbench.cli import app
from ssmlbench.cli.dispatch import GridCommand
from ssmlbench.core import locks
from ssmlbench.core.errors import disk_error
from ssmlbench.core.files import temporary_beside, write_json
from ssmlbench.core.locks import Lock
from ssmlbench.core.spec import RunSpec
from ssmlbench.data.prepare import TASK_FORMAT
from ssmlbench.grid import doctor as grid_doctor
from ssmlbench.grid import repairs, reruns
from ssmlbench.runs import train
from ssmlbench.runs.folder import RunFolder
from tests.faults.makers import FAULTS
from tests.faults.world import FINISHED, NEW, STOPPED, World


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


@pytest.mark.parametrize("fault", ["a field of another version", "no checksums", "garbage"])
@pytest.mark.parametrize("away", [-1, 1])
def test_a_data_set_that_another_version_prepared_is_no_fault_that_comes_back(
    world: World, away: int, fault: str
) -> None:
    """This version writes to a folder of its own format: it can promise nothing about the others."""
    doctor(world)  # sweeps the locks of the cache
    ours = next((world.cache / "tasks").glob("tiny-text-*/"))
    other = ours.with_name(f"tiny-text-v1.{TASK_FORMAT + away}")
    shutil.copytree(ours, other)
    card = json.loads((other / "card.json").read_text()) | {"folder": other.name}
    changed = {"field": 1} if fault == "a field of another version" else {"files": {}}
    write_json(other / "card.json", card | changed)
    if fault == "garbage":
        FAULTS[fault](other / "card.json", random.Random(0))
    before = (other / "card.json").read_bytes()
    code, said = doctor(world)
    assert (code, other.name in said) == (0, False), said
    assert (other / "card.json").read_bytes() == before


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


def test_the_damaged_spec_of_a_stopped_run_is_named_until_the_run_goes_on(world: World) -> None:
    folder = RunFolder.of(world.results, world.spec(STOPPED))
    FAULTS["flip"](folder.spec_file, random.Random(3))
    code, said = doctor(world)
    assert code == 1
    assert f"{folder.spec_file}: damaged" in said
    world.run(STOPPED)
    assert "all is well" in doctor(world)[1]


def of_a_process_that_has_ended(file: Path) -> Path:
    """The name of an unfinished file as a process made it that is no more."""
    reader, writer = os.pipe()
    if (child := os.fork()) == 0:
        os.write(writer, os.fsencode(temporary_beside(file)))
        os._exit(0)
    os.waitpid(child, 0)
    return Path(os.fsdecode(os.read(reader, 4096)))


def test_leftovers_are_swept(world: World) -> None:
    run = next((world.results).glob("tiny-text/*/*/*"))
    part = of_a_process_that_has_ended(run / "result.json")
    lease = run / f".lock{locks.LEASE}0"
    left = [part, lease, run / "checkpoint.safetensors", run / ".lock"]
    for file in left:
        file.write_bytes(b"x")
    unfinished = world.cache / "tasks" / "some-v1.1.unfinished"
    deleted = of_a_process_that_has_ended(run.with_name("0-deleted"))
    scratch = run / ".scratch"
    for folder in (unfinished, deleted, scratch):
        folder.mkdir()
        (folder / "inside").touch()
    for file in (part, lease, deleted):
        os.utime(file, (1, 1))
    code, _ = doctor(world)
    assert code == 0
    assert not any(file.exists() for file in (*left, unfinished, deleted, scratch))


def test_a_lease_of_a_time_far_ahead_is_swept(world: World) -> None:
    """A clock that was set back since has left it; it was never deleted."""
    lease = world.cache / f"tasks/some.lock{locks.LEASE}0"
    lease.touch()
    ahead = time.time() + 10 * locks.FUTURE_SECONDS
    os.utime(lease, (ahead, ahead))
    code, said = doctor(world)
    assert code == 0, said
    assert not lease.exists()


@pytest.mark.parametrize("end", ["pdf", "-1", "\u0663", "9" * 230])
def test_what_only_looks_like_a_lease_stays_and_holds_nothing(
    world: World, monkeypatch: pytest.MonkeyPatch, end: str
) -> None:
    """`doctor` called such files deleted; after a long number no name was left for the next lease."""
    monkeypatch.setenv("SSMLBENCH_LOCKS", "lease")
    run = RunFolder.of(world.results, world.spec(FINISHED)).path
    files = [run / f".lock{locks.LEASE}{end}", world.results / f"house{locks.LEASE}1"]
    for file in files:
        file.touch()
        os.utime(file, (0, 0))
    with Lock(run / ".lock"):
        pass
    assert "all is well" in doctor(world)[1]
    assert all(file.exists() for file in files)


def test_a_folder_in_the_place_of_any_file_is_named_and_what_is_in_it_stays(world: World) -> None:
    """It kept runs and data from being made, with advice that did not help, or was replaced unseen."""
    run = RunFolder.of(world.results, world.spec(STOPPED))
    lock = world.cache / "tasks" / "some.lock"
    places = [*run.files, lock, lock.with_name(f"{lock.name}{locks.LEASE}0")]
    for place in places:
        place.unlink(missing_ok=True)
        place.mkdir()
        (place / "inside").touch()
    code, said = doctor(world)
    assert code == 1
    for place in places:
        assert said.count(f"{place}: a folder with something in it is in the place") == 1, place
        assert (place / "inside").exists()
    with pytest.raises(IsADirectoryError) as raised, run.claim():
        pass
    assert "move it away, then give the same command again" in str(disk_error(raised.value))


def test_what_a_living_process_writes_stays_however_long_it_takes(world: World) -> None:
    part = temporary_beside(world.cache / "features" / "some.npy")
    part.touch()
    os.utime(part, (1, 1))
    doctor(world)
    assert part.exists()


def test_what_a_process_takes_between_the_look_and_the_repair_is_left_alone(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Others take every lock in the moment in which it was found free."""
    finished = next((world.results).glob("tiny-text/*/*/*"))
    stopped = next(world.results.glob("*/*/softmatch/*/checkpoint.safetensors"))
    shard, arrow = (next(world.cache.rglob(name)) for name in ("00000.npy", "train.arrow"))
    for file in (stopped, shard, arrow):
        FAULTS["garbage"](file, random.Random(1))
    unfinished = world.cache / "tasks" / "some-v1.1.unfinished"
    unfinished.mkdir()
    (unfinished / "train.arrow").touch()
    (finished / "spec.json").unlink()
    (finished / "checkpoint.safetensors").touch()
    (finished / ".lock").touch()
    chosen = [stopped, shard, arrow, unfinished, finished / "checkpoint.safetensors"]
    before = {file: file.read_bytes() for file in world.root.rglob("*") if file.is_file()}
    taken: dict[Path, Lock] = {}

    def found_free_and_then_taken(path: Path) -> bool:
        if path not in taken:
            taken[path] = Lock(path)
            taken[path].acquire()
        return False

    for module in (grid_doctor, repairs):
        monkeypatch.setattr(module, "is_held", found_free_and_then_taken)
    _, said = doctor(world)
    monkeypatch.undo()
    world.enter()
    assert {file: file.read_bytes() for file in before} == before
    assert not any(str(file.relative_to(world.root)) in said for file in chosen)
    for lock in taken.values():
        lock.release(remove=True)
    doctor(world)
    assert not any(file.exists() for file in chosen if file != arrow)
    assert "all is well" in doctor(world)[1]


def test_runs_that_a_stopped_rerun_has_not_repeated_are_repeated_by_the_next_one(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The result of a run is deleted when it is begun: afterwards nothing told that it was ever there."""
    spec = world.spec(FINISHED)
    folder = RunFolder.of(world.results, spec)
    FAULTS["flip"](folder.scores_file, random.Random(0))
    repeated: list[RunSpec] = []

    def begin_and_stop(command: Any, specs: list[RunSpec], plugins: Any) -> None:
        repeated.extend(specs)
        for file in (folder.result_file, folder.scores_file, folder.spec_file):
            file.unlink(missing_ok=True)
        raise typer.Exit(130)

    with monkeypatch.context() as patch:
        patch.setattr(GridCommand, "make", begin_and_stop)
        assert doctor(world, "--rerun")[0] == 130
        code, said = doctor(world)
        assert code == 1
        assert f"{folder.path}: it was damaged, and is not repeated yet" in said
        assert doctor(world, "--rerun")[0] == 130
    assert repeated == [spec, spec]
    world.run(FINISHED)
    assert "all is well" in doctor(world)[1]


@pytest.mark.parametrize(
    "files", [[], 5, {"history.csv": 5}, {"history.csv": {"bytes": "x"}}, {"history.csv": {}}]
)
def test_a_result_that_does_not_say_what_its_files_hold_is_damaged(
    world: World, files: object
) -> None:
    folder = RunFolder.of(world.results, world.spec(FINISHED))
    result = json.loads(folder.result_file.read_text())
    del result["checksum"]
    write_json(folder.result_file, {**result, "files": files})
    code, said = doctor(world)
    assert code == 1, said
    assert f"{folder.result_file}: it does not say" in said
    assert not folder.finished


def test_a_rerun_leaves_what_it_cannot_repeat(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = RunFolder.of(world.results, world.spec(FINISHED))
    for file in (folder.result_file, folder.spec_file):
        file.write_text("{}")
    monkeypatch.setattr(GridCommand, "make", lambda *_: None)
    assert doctor(world, "--rerun")[0] == 1


def test_a_run_that_vanishes_meanwhile_is_no_fault(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = grid_doctor.run_paths

    def with_one_more(root: Path, *rest: Any) -> list[str]:
        return [*paths(root, *rest), "tiny-text/semi-0.5/cap/9-gone"]

    monkeypatch.setattr(grid_doctor, "run_paths", with_one_more)
    doctor(world)
    assert not list(world.results.rglob("9-gone"))


def test_a_run_whose_plugin_is_not_loaded_is_named_and_the_others_are_repeated(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One run on own data ended the command, and nothing was repeated."""
    spec = world.spec(FINISHED)
    folder = RunFolder.of(world.results, spec)
    FAULTS["flip"](folder.scores_file, random.Random(0))
    result = CliRunner().invoke(
        app, ["doctor", "--rerun", "--results", str(world.results)], env={"COLUMNS": "300"}
    )
    assert result.exit_code == 1
    assert f"{folder.path}: not repeated: data set tiny-text must be loaded" in result.output
    assert "ssmlbench doctor --rerun --plugin" in result.output
    assert folder.result_file.is_file()
    assert not folder.repeat_file.exists()

    known: list[RunSpec] = []
    monkeypatch.setattr(GridCommand, "make", lambda _, specs, plugins: known.extend(specs))
    assert doctor(world, "--rerun")[0] == 0
    assert known == [spec]


def test_a_rerun_keeps_a_result_that_the_present_code_would_not_make(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its metrics were deleted when it was begun, and then its method's code was another one."""
    folder = RunFolder.of(world.results, world.spec(FINISHED))
    FAULTS["flip"](folder.scores_file, random.Random(0))
    before = folder.result_file.read_bytes()
    monkeypatch.setattr(train, "code_digest", lambda method: "ast-of-today")
    for _ in range(2):
        code, said = doctor(world, "--rerun")
        assert code == 1
        assert "not repeated: method cap: its code has changed" in said
        assert f"ssmlbench runs delete {folder.path.name.partition('-')[2][:8]}" in said
    assert folder.result_file.read_bytes() == before
    assert not folder.error_file.exists()


@pytest.mark.parametrize("older", ["protocol", "hash"])
def test_a_damaged_run_of_an_older_version_is_not_repeated_under_its_name(
    world: World, monkeypatch: pytest.MonkeyPatch, older: str
) -> None:
    folder = RunFolder.of(world.results, world.spec(FINISHED))
    FAULTS["flip"](folder.scores_file, random.Random(0))
    if older == "protocol":
        monkeypatch.setattr(reruns, "PROTOCOL_VERSION", 99)
    else:
        folder.path.rename(folder.path.with_name(f"0-{'0123456789ab'}"))
    code, said = doctor(world, "--rerun")
    assert code == 1
    assert reruns.ANEW in said or "belongs" in said or "another run" in said
    assert list(world.results.glob("tiny-text/*/*/*/")) == list(
        world.results.glob("tiny-text/*/cap/0-*/")
    )


def test_a_damaged_study_stays_while_its_trials_can_be_made_again(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What `tune` wrote before there were checksums was listed by each call, and by `run --tuned`."""
    (study,) = world.results.rglob("studies/*.json")
    values = json.loads(study.read_text())
    del values["checksum"]
    study.write_text(json.dumps(values))
    code, said = doctor(world)
    assert code == 1
    assert f"{study}: it has no checksum; `ssmlbench run --tuned` or the same" in said
    monkeypatch.setattr(reruns, "PROTOCOL_VERSION", 99)
    code, said = doctor(world)
    assert code == 0
    assert f"{study}: it has no checksum; deleted, since an older version made its trials" in said
    assert "all is well" in doctor(world)[1]


def _in_place_of(folder: Path, what: str) -> None:
    if folder.is_dir():
        shutil.rmtree(folder)
    folder.parent.mkdir(parents=True, exist_ok=True)
    if what == "a file":
        folder.write_text("mine")
    else:
        folder.symlink_to({"a dead link": "/nowhere/at/all", "a circle": folder.name}[what])


@pytest.mark.parametrize("what", ["a file", "a dead link", "a circle"])
@pytest.mark.parametrize("place", ["run", "cache", "queue"])
def test_what_is_in_the_place_of_a_folder_is_named_and_not_deleted(
    world: World, what: str, place: str
) -> None:
    """A link may lead to a disk that is not there at the moment."""
    run = RunFolder.of(world.results, world.spec(FINISHED)).path
    folder = {"run": run, "cache": world.cache / "tasks", "queue": world.results / ".queue"}[place]
    _in_place_of(folder, what)
    code, said = doctor(world)
    assert code == 1
    assert f"{folder}: a {'file' if what == 'a file' else 'link'}" in said
    assert "move it away" in said
    assert os.path.lexists(folder)


@pytest.mark.parametrize("what", ["a file", "a dead link", "a circle"])
@pytest.mark.parametrize("above", [0, 1, 2, 3])
def test_a_run_names_what_is_in_the_place_of_one_of_its_folders(
    world: World, what: str, above: int
) -> None:
    """It said "did another process change it?", or advised another results folder."""
    run = RunFolder.of(world.results, world.spec(NEW)).path
    folder = (run, *run.parents)[above]
    _in_place_of(folder, what)
    said = world.run(NEW)
    assert said.value is None
    kind = "file is" if what == "a file" else "link that leads to no folder is"
    assert said.lines[-1].endswith(
        f"{folder}: a {kind} in the place of this folder; move it away, or choose another path"
    )


@pytest.mark.parametrize("what", ["a file", "a dead link", "a circle"])
def test_a_folder_of_cached_features_is_made_again_whatever_is_in_its_place(
    world: World, what: str
) -> None:
    expected = world.run(NEW).value
    RunFolder.of(world.results, world.spec(NEW)).delete()
    for folder in world.cache.glob("features/*/"):
        _in_place_of(folder, what)
    assert world.run(NEW).value == expected
