"""A system call that fails: one line that names the file, nothing sound is deleted, no row is left out."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest
from safetensors import SafetensorError

from ssmlbench import cli
from ssmlbench.core import checksums
from ssmlbench.core.checksums import verify_trailer
from ssmlbench.core.errors import CHANGED, DISK_ERRORS, PASSING_ERRORS, UserError
from ssmlbench.core.files import (
    atomic,
    naming,
    publish_folder,
    read_own_json,
    remove_folder,
    write_json,
)
from ssmlbench.core.locks import Lock, is_held
from ssmlbench.core.paths import paths_below
from ssmlbench.core.sealed_files import LABELS, TASKS, in_tasks
from ssmlbench.data import prepare
from ssmlbench.data.plain_inputs import input_files
from ssmlbench.data.prepare import recomputed_fingerprint
from ssmlbench.data.user_data import data_class
from ssmlbench.grid.doctor import Checkup
from ssmlbench.grid.queue_file import queued
from ssmlbench.grid.repairs import Repairs
from ssmlbench.grid.status import read_states
from ssmlbench.runs.finished import read_finished
from ssmlbench.runs.folder import RunFolder
from ssmlbench.training import checkpoint
from tests.faults.makers import flip
from tests.faults.world import FINISHED, STOPPED, World

Patch = pytest.MonkeyPatch


def refused(code: int, *named: object) -> OSError:
    return OSError(code, os.strerror(code), *map(str, named))


def fail(patch: Patch, owner: Any, name: str, code: int, end: str = "") -> None:
    """A function fails for paths that end so; the error of one without a path names none."""
    original: Callable[..., Any] = getattr(owner, name)

    def call(path: Any, *rest: Any, **more: Any) -> Any:
        if isinstance(path, int):
            raise refused(code)
        if str(path).endswith(end):
            raise refused(code, path)
        return original(path, *rest, **more)

    patch.setattr(owner, name, call)


# -------------------------------------------------------------------------------------- one line


def said(error: BaseException, patch: Patch, capsys: pytest.CaptureFixture[str]) -> str:
    """What a command prints that ends with an error; its exit code is 2."""

    def command(prog_name: str) -> None:
        raise error

    patch.setattr(cli, "app", command)
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == 2
    return capsys.readouterr().err


@pytest.mark.parametrize("code", [*DISK_ERRORS, *CHANGED], ids=errno.errorcode.get)
def test_an_error_of_the_machine_is_one_line_that_names_the_file(
    code: int, monkeypatch: Patch, capsys: pytest.CaptureFixture[str]
) -> None:
    line = said(refused(code, "results/own"), monkeypatch, capsys)
    assert line.startswith("error: results/own")
    assert len(line.splitlines()) == 1


def test_too_little_memory_is_one_line(
    monkeypatch: Patch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "too little memory" in said(MemoryError(), monkeypatch, capsys)


def test_an_error_that_names_no_file_and_may_be_a_bug_keeps_its_traceback(
    monkeypatch: Patch, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(FileNotFoundError):
        said(refused(errno.ENOENT), monkeypatch, capsys)


@pytest.mark.parametrize("function", ["open", "replace"])
def test_an_error_while_a_file_is_written_names_the_file_and_not_its_unfinished_copy(
    function: str, tmp_path: Path, monkeypatch: Patch
) -> None:
    fail(monkeypatch, os, function, errno.EBUSY)
    with pytest.raises(OSError, match="busy") as caught, atomic(tmp_path / "a.json") as unfinished:
        os.close(os.open(unfinished, os.O_CREAT | os.O_WRONLY))
    assert caught.value.filename == str(tmp_path / "a.json")


@pytest.mark.parametrize(
    "error",
    [
        OSError("Memory mapping file failed: Cannot allocate memory"),  # Arrow
        RuntimeError("unable to mmap 9 bytes from file <a>: Cannot allocate memory (12)"),  # torch
        SafetensorError("Error while serializing: Cannot allocate memory (os error 12)"),
    ],
)
def test_the_error_of_the_disk_in_a_librarys_message_is_found(error: Exception) -> None:
    with pytest.raises(OSError, match="memory") as caught, naming(Path("a.arrow")):
        raise error
    assert (caught.value.errno, caught.value.filename) == (errno.ENOMEM, "a.arrow")


def test_other_errors_of_libraries_stay_as_they_are() -> None:
    with pytest.raises(SafetensorError), naming(Path("a")):
        raise SafetensorError("HeaderTooSmall")


# ------------------------------------------------------------------- what is sound is not deleted


@pytest.mark.parametrize("code", PASSING_ERRORS, ids=errno.errorcode.get)
def test_a_file_that_could_not_be_read_at_this_moment_is_not_damaged(
    code: int, tmp_path: Path, monkeypatch: Patch
) -> None:
    file = tmp_path / "a.json"
    write_json(file, {"a": 1})
    fail(monkeypatch, os, "open", code, "a.json")
    fail(monkeypatch, checksums, "_compare_trailer", code)
    for read in (read_own_json, verify_trailer):
        with pytest.raises(OSError, match=os.strerror(code)) as caught:
            read(file)
        assert caught.value.filename == str(file)


def test_a_finished_run_is_not_made_again_because_too_many_files_are_open(
    made: World, tmp_path: Path, monkeypatch: Patch
) -> None:
    world = made.copy(tmp_path / "world")
    world.enter()
    spec = world.spec(FINISHED)
    folder = RunFolder.of(world.results, spec)
    before = sorted(folder.path.iterdir())
    with monkeypatch.context() as patch:
        fail(patch, os, "open", errno.EMFILE, "result.json")
        lines = world.run(FINISHED).lines
    assert [line.partition(";")[0] for line in lines] == [
        f"{folder.result_file}: {os.strerror(errno.EMFILE)}"
    ]
    assert sorted(folder.path.iterdir()) == before
    assert folder.finished


def test_a_board_does_not_leave_a_run_out_because_too_many_files_are_open(
    made: World, monkeypatch: Patch
) -> None:
    """`predict --best` took another run's model, with a warning."""
    fail(monkeypatch, os, "open", errno.EMFILE, "result.json")
    said = made.compare()
    assert said.value is None
    assert os.strerror(errno.EMFILE) in said.text


def test_a_checkpoint_is_not_deleted_because_too_many_files_are_open(
    made: World, tmp_path: Path, monkeypatch: Patch
) -> None:
    world = made.copy(tmp_path / "world")
    world.enter()
    file = RunFolder.of(world.results, world.spec(STOPPED)).checkpoint_file

    def refuse(*arguments: Any, **more: Any) -> None:
        raise SafetensorError("Too many open files (os error 24)")

    monkeypatch.setattr(checkpoint, "safe_open", refuse)
    with pytest.raises(OSError, match="open files"):
        checkpoint.Checkpoint(file).read()
    assert file.is_file()


def test_a_lock_whose_file_cannot_be_deleted_is_free(tmp_path: Path, monkeypatch: Patch) -> None:
    with monkeypatch.context() as patch, Lock(tmp_path / "a.lock") as lock:
        fail(patch, os, "unlink", errno.EROFS)
        fail(patch, os, "fstat", errno.EIO)
        lock.release(remove=True)
    assert not is_held(tmp_path / "a.lock")


def test_a_lock_that_cannot_be_taken_names_its_file(tmp_path: Path, monkeypatch: Patch) -> None:
    with monkeypatch.context() as patch:
        fail(patch, os, "fstat", errno.ESTALE)
        with pytest.raises(OSError, match="Stale") as caught:
            Lock(tmp_path / "a.lock").acquire()
    assert caught.value.filename == str(tmp_path / "a.lock")


def test_a_grid_whose_queue_file_cannot_be_deleted_has_ended_well(
    tmp_path: Path, monkeypatch: Patch
) -> None:
    with monkeypatch.context() as patch, queued(tmp_path, [], "local"):
        fail(patch, os, "unlink", errno.EBUSY)
    with queued(tmp_path, [], "local"):
        pass
    assert not list(tmp_path.iterdir()), "the next grid deletes it"


def test_a_folder_is_removed_as_far_as_possible(tmp_path: Path, monkeypatch: Patch) -> None:
    """`shutil.rmtree` with `ignore_errors` raises what fstat raises, which ended the judge's process."""
    (tmp_path / "folder").mkdir()
    with monkeypatch.context() as patch:
        fail(patch, os, "fstat", errno.EIO)
        remove_folder(tmp_path / "folder")
    remove_folder(tmp_path / "folder")
    assert not list(tmp_path.iterdir())


def test_a_folder_that_cannot_be_replaced_is_named_with_the_reason(
    tmp_path: Path, monkeypatch: Patch
) -> None:
    """It was "some.unfinished: Directory not empty; did another process change it?"."""
    unfinished, folder = tmp_path / "some.unfinished", tmp_path / "some"
    for path in (unfinished, folder):
        path.mkdir()
        (path / "train.arrow").touch()
    with monkeypatch.context() as patch:
        fail(patch, os, "unlink", errno.EACCES, "train.arrow")
        with pytest.raises(PermissionError, match=r"train.arrow"):
            publish_folder(unfinished, folder)
    publish_folder(unfinished, folder)
    assert [path.name for path in tmp_path.iterdir()] == ["some"]


def test_files_of_a_deleted_run_that_are_left_are_doctors(
    made: World, tmp_path: Path, monkeypatch: Patch
) -> None:
    world = made.copy(tmp_path / "world")
    folder = RunFolder.of(world.results, world.spec(FINISHED))
    monkeypatch.setattr(shutil, "rmtree", lambda path: (_ for _ in ()).throw(refused(errno.EIO)))
    with pytest.raises(UserError, match="doctor"):
        folder.delete()
    assert not folder.path.exists()


# -------------------------------------------------------------------------- no row is left out


def text_folder(root: Path) -> Path:
    for part in ("train", "test"):
        for label in "ab":
            (root / part / label).mkdir(parents=True)
            for row in range(3):
                (root / part / label / f"{row}.txt").write_text(f"{part} {label} {row}")
    return root


@pytest.mark.parametrize("code", PASSING_ERRORS, ids=errno.errorcode.get)
def test_a_text_that_could_not_be_read_at_this_moment_is_no_bad_row(
    code: int, tmp_path: Path, empty_cache: None, monkeypatch: Patch
) -> None:
    adapter = data_class(text_folder(tmp_path / "texts"))()
    with monkeypatch.context() as patch:
        fail(patch, os, "open", code, "train/a/1.txt")
        with pytest.raises(OSError, match=os.strerror(code)):
            prepare(adapter, skip_bad=True)
    assert prepare(adapter, skip_bad=True).card.rows == {"train": 6, "test": 6}


def test_an_image_that_could_not_be_read_at_this_moment_is_no_bad_row(
    tmp_path: Path, monkeypatch: Patch
) -> None:
    from ssmlbench.data.row_checks import _stored_image

    (tmp_path / "a.png").write_bytes(b"")
    fail(monkeypatch, os, "open", errno.EMFILE, "a.png")
    with pytest.raises(OSError, match="open files"):
        _stored_image(tmp_path / "a.png", "row 1")


def test_a_folder_of_raw_files_that_cannot_be_listed_is_an_error(
    tmp_path: Path, empty_cache: None, monkeypatch: Patch
) -> None:
    """`Path.rglob` leaves such a folder out: the data set had fewer rows, without a word."""
    home = text_folder(tmp_path / "texts")
    (home / "train/a/more").mkdir()
    adapter = data_class(home)()
    fail(monkeypatch, os, "scandir", errno.EACCES, "more")
    with pytest.raises(PermissionError) as caught:
        prepare(adapter)
    assert caught.value.filename == str(home / "train/a/more")
    with pytest.raises(PermissionError):
        input_files(home, "text")


def test_all_paths_below_a_folder_are_those_of_rglob(tmp_path: Path) -> None:
    home = text_folder(tmp_path / "texts")
    (home / "link").symlink_to(home / "train")
    (home / "circle").symlink_to(home)
    assert sorted(paths_below(home)) == sorted(home.rglob("*"))


# ------------------------------------------------------------------------------------- status


@pytest.mark.parametrize("function", ["scandir", "listdir"])
@pytest.mark.parametrize("code", [errno.EIO, errno.EACCES, errno.EMFILE], ids=errno.errorcode.get)
def test_status_shows_the_other_runs_if_a_folder_cannot_be_read(
    made: World, code: int, function: str, monkeypatch: Patch
) -> None:
    stopped = RunFolder.of(made.results, made.spec(STOPPED)).path
    unreadable = stopped if function == "listdir" else stopped.parent
    fail(monkeypatch, os, function, code, unreadable.name)
    with pytest.warns(UserWarning, match=os.strerror(code)) as caught:
        states = read_states([made.results])
    assert [state.state for state in states] == ["done"]
    assert str(unreadable) in str(caught[0].message)


@pytest.mark.parametrize("code", [errno.EIO, errno.EACCES, errno.EMFILE], ids=errno.errorcode.get)
@pytest.mark.parametrize("function", ["scandir", "stat"])
def test_a_board_says_which_runs_of_a_folder_cannot_be_read(
    made: World, tmp_path: Path, code: int, function: str, monkeypatch: Patch
) -> None:
    """One folder of another user ended `compare`, `runs list` and `predict --best`; its file did not."""
    world = made.copy(tmp_path / "world")
    finished = RunFolder.of(world.results, world.spec(FINISHED))
    other = finished.path.parent.with_name("other") / "0-0123456789ab"
    shutil.copytree(finished.path, other)
    assert len(read_finished([world.results])[0]) == 1
    unreadable = other.parent if function == "scandir" else other / "result.json"
    fail(monkeypatch, os, function, code, str(unreadable))
    if code == errno.EMFILE:
        with pytest.raises(OSError, match=os.strerror(code)):
            read_finished([world.results])
        return
    runs, lines = read_finished([world.results])
    assert [run.folder for run in runs] == [finished.path]
    assert lines == [f"{unreadable}: left out, cannot be read ({os.strerror(code)})"]


@pytest.mark.parametrize("place", ["results", "cache"])
def test_doctor_names_a_folder_that_cannot_be_read_and_checks_the_others(
    made: World, tmp_path: Path, place: str, monkeypatch: Patch
) -> None:
    world = made.copy(tmp_path / "world")
    world.enter()
    finished = RunFolder.of(world.results, world.spec(FINISHED))
    stopped = RunFolder.of(world.results, world.spec(STOPPED)).path
    features = next((world.cache / "features").iterdir())
    unreadable = stopped if place == "results" else features
    flip(finished.scores_file, Random(0))
    fail(monkeypatch, os, "listdir", errno.EACCES, unreadable.name)
    fail(monkeypatch, os, "scandir", errno.EACCES, unreadable.name)
    checkup = Checkup()
    checkup.results(world.results)
    checkup.cache(world.plugins)
    left = {finding.path: finding.problem for finding in checkup.findings if not finding.repaired}
    assert left.keys() == {unreadable, finished.scores_file}
    assert left[unreadable] == "it cannot be read (Permission denied)"


def test_status_knows_a_finished_run_in_a_folder_that_can_only_be_listed(
    made: World, monkeypatch: Patch
) -> None:
    before = [state.as_dict() for state in read_states([made.results])]
    fail(monkeypatch, os, "lstat", errno.EACCES, "result.json")
    assert [state.as_dict() for state in read_states([made.results])] == before


# ---------------------------------------------------------------------------------- leftovers


def test_a_run_stays_finished_if_what_it_no_longer_needs_cannot_be_deleted(
    made: World, tmp_path: Path, monkeypatch: Patch
) -> None:
    """Its result was deleted: hours of work, for a progress.json that nobody reads."""
    world = made.copy(tmp_path / "world")
    world.enter()
    with monkeypatch.context() as patch:
        for name in ("progress.json", "checkpoint.safetensors", "judgements.safetensors", ".lock"):
            fail(patch, os, "unlink", errno.EIO, name)
        assert world.run(STOPPED).value is not None
    assert RunFolder.of(world.results, world.spec(STOPPED)).finished


def test_a_lock_that_is_a_link_to_nothing_is_made_anew(tmp_path: Path) -> None:
    """A process that claimed it waited for ever, with a busy core."""
    (tmp_path / "a.lock").symlink_to(tmp_path / "gone" / "a.lock")
    with Lock(tmp_path / "a.lock"):
        assert is_held(tmp_path / "a.lock")


@pytest.mark.parametrize("kind", ["folder", "circular link", "pipe", "full folder"])
def test_what_is_in_the_place_of_a_lock_is_no_reason_to_wait_or_to_fail(
    tmp_path: Path, kind: str
) -> None:
    """`run` failed until someone deleted the folder; `doctor` and `status` waited for ever at the pipe."""
    lock = tmp_path / "a.lock"
    if kind == "pipe":
        os.mkfifo(lock)
    elif kind == "circular link":
        lock.symlink_to(lock)
    else:
        lock.mkdir()
    assert not is_held(lock)
    if kind == "full folder":
        (lock / "kept").touch()
        with pytest.raises(IsADirectoryError, match=r"a\.lock"):
            Lock(lock).acquire()
        assert (lock / "kept").exists()
        return
    with Lock(lock):
        assert is_held(lock)
    assert not os.path.lexists(lock)


def test_what_a_library_was_writing_when_it_was_killed_is_deleted_before_training(
    tmp_path: Path,
) -> None:
    """Scores hold test labels, and safetensors writes them under a name of its own first."""
    (tmp_path / ".tmpaB3xYz").write_bytes(b"scores")
    (tmp_path / "checkpoint.safetensors").write_bytes(b"kept")
    RunFolder(tmp_path).drop_leftovers()
    assert [file.name for file in tmp_path.iterdir()] == ["checkpoint.safetensors"]


def test_doctor_deletes_what_a_library_was_writing_and_leaves_what_it_writes(
    tmp_path: Path,
) -> None:
    old, new = tmp_path / ".tmpaB3xYz", tmp_path / ".tmpZyX3Ba"
    for file in (old, new):
        file.write_bytes(b"weights")
    os.utime(old, (0, 0))
    Repairs().leftovers(tmp_path)
    assert list(tmp_path.iterdir()) == [new]


def test_labels_that_a_killed_verify_leaves_are_sealed_and_doctors(
    made: World, tmp_path: Path, monkeypatch: Patch
) -> None:
    """They were beside the prepared data sets, where every plugin could read them."""
    world = World(tmp_path, made.plugins)
    world.enter()
    adapter = made.plugins.datasets["tiny-vectors"]()
    card = prepare(adapter).card
    with monkeypatch.context() as patch:
        patch.setattr(shutil, "rmtree", lambda folder, ignore_errors: None)
        assert recomputed_fingerprint(adapter, card) == card.fingerprint
    (left,) = (world.cache / TASKS).glob("verify-*")
    assert in_tasks(f"{os.sep}{left.name}{os.sep}{LABELS}{os.sep}train.arrow")
    checkup = Checkup()
    checkup.cache(made.plugins)
    assert [finding.path for finding in checkup.findings] == [left]
    assert not left.exists()


def test_a_run_that_could_not_start_says_which_file_could_not_be_read(
    made: World, tmp_path: Path
) -> None:
    error = refused(errno.ESTALE, "raw/train.csv")
    failed = RunFolder(tmp_path / "run").record_error(made.spec(FINISHED), error)
    assert failed.text == f"raw/train.csv: {error.strerror}; give the same command again"
