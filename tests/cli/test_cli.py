"""The command line as a user types it: each mistake is one line and exit code 2."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from ssmlbench.core.errors import UserError
from ssmlbench.core.files import check_folder
from tests.runs.test_execute import DATASET

Call = Callable[..., "subprocess.CompletedProcess[str]"]
RUN = ("run", "--method", "bce", "--dataset", "typed", "--pi", "0.05", "--epochs", "1")


def run_with(*words: str) -> tuple[str, ...]:
    """RUN with other values of some of its options, then what RUN does not have."""
    run, rest = list(RUN), list[str]()
    for flag, value in zip(words[::2], words[1::2], strict=True):
        if flag in run:
            run[run.index(flag) + 1] = value
        else:
            rest += [flag, value]
    return (*run, *rest)


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """What is typed to have the data set of RUN: a plugin in a folder that no test looks at."""
    file = tmp_path_factory.mktemp("plugins") / "tiny.py"
    text = DATASET.replace(
        '"tiny"', '"typed"'
    )  # one name is one data set in the cache of all tests
    file.write_text(text.replace('split == "train" and ', ""))  # every label is tested
    return ("--plugin", str(file))


@pytest.mark.parametrize(
    ("arguments", "answer"),
    [
        (run_with("--method", "bbma"), "Did you mean bbam"),
        (run_with("--dataset", "multidigit"), "Did you mean multidigits"),
        ((*RUN, "--regime", "semy"), "Did you mean semi"),
        (run_with("--pi", "0"), "(0, 1]"),
        (run_with("--pi", "2"), "(0, 1]"),
        (run_with("--pi", "few"), "--pi few: must be numbers, one or several, e.g. --pi 0.05,0.1"),
        (run_with("--method", "cap", "--set", "los=bce"), "Did you mean loss"),
        (run_with("--method", "cap", "--set", "loss"), "expected key=value"),
        (
            (*RUN, "--regime", "full"),
            "--pi is for --regime semi, not for --regime full; leave it out",
        ),
        (
            ("run", "--method", "cap", "--dataset", "typed", "--regime", "single-positive"),
            "does not support",
        ),
        ((*RUN, "--set", "cap.loss=bce"), "--set cap.loss=bce: cap is not in --method bce"),
        ((*RUN, "--set", "x=1"), "method bce has no hyper-parameter 'x'. There is none."),
        (("tune", *RUN[1:]), "--trials is missing; see `ssmlbench tune --help`"),
        (("show",), "RUN is missing; see `ssmlbench show --help`"),
        (("runs", "list", "--state", "zzz"), "--state zzz: no such choice. There is: done, "),
        (("runs", "list", "--state", ""), "--state is empty"),
        ((*RUN, "--selection", "best"), "--selection best"),
        ((*RUN, "--split", "lucky"), "--split lucky"),
        ((*RUN, "--device", "tpu"), "--device tpu"),
        ((*RUN, "--jobs", "0"), "--jobs 0"),
        ((*RUN, "--weight-decay", "-1"), "--weight-decay -1.0: must be at least 0"),
        ((*RUN, "--device", "cpu", "--precision", "float16"), "not available on cpu"),
        ((*RUN, "--seed", "-1"), "--seed -1: must lie in [0, 4294967295], e.g. --seed 0"),
        ((*RUN, "--seeds", "0"), "--seeds 0"),
        ((*RUN, "--threads", "0"), "--threads 0: must be at least 1"),
        ((*RUN, "--engine", "rai"), "Did you mean ray"),
        ((*RUN, "--address", "there"), "--address there is for --engine ray"),
        ((*RUN, "--slurm", "mem=1G"), "--slurm mem=1G is for --engine slurm"),
        ((*RUN, "--engine", "slurm", "--slurm", "mem"), "expected key=value"),
        ((*RUN, "--grid", "none.toml"), "cannot be read"),
        ((*RUN, "--backbone", "smal-cnn"), "Did you mean small-cnn"),
        ((*RUN, "--plugin", "none.py"), "does not exist"),
        (("run", "--method", "bce", "--dataset", "multidigits"), "--pi is missing"),
        ((*RUN, "--regime", "partial-positive"), "--share is missing"),
        (("run", "--method", "bce", "--pi", "0.1"), "--dataset is missing"),
        (("compare", "--results", "nowhere"), "no results folder"),
        (("status", "--results", "nowhere"), "no results folder"),
        (("compare", "--format", "pdf", "--results", "."), "--format pdf"),
        (("compare", "--results", "."), "no finished run"),
        (("methods", "bbma"), "Did you mean bbam"),
        (("check", "nothing.py"), "does not exist"),
        (("new", "method", "My Method"), "cannot be the name of a method"),
        (("new", "method", "bbam"), "there is a method called 'bbam' already"),
    ],
    ids=lambda value: " ".join(value[-2:]) if isinstance(value, tuple) else "",
)
def test_a_mistake_is_one_line_and_exit_code_2(
    ssmlbench: Call,
    tiny: tuple[str, str],
    tmp_path: Path,
    arguments: tuple[str, ...],
    answer: str,
) -> None:
    made = ssmlbench(*arguments, *(tiny if arguments[0] == "run" else ()))
    assert made.returncode == 2, made.stderr
    assert answer in made.stderr
    assert len(made.stderr.strip().splitlines()) == 1
    assert not any(tmp_path.iterdir())  # nothing half-written


def test_a_mistake_in_a_process_of_its_own_is_one_line_too(
    ssmlbench_process: Call, tiny: tuple[str, str]
) -> None:
    made = ssmlbench_process(*run_with("--method", "bbma"), *tiny)
    assert made.returncode == 2
    assert len(made.stderr.strip().splitlines()) == 1


def test_an_unwritable_results_folder_is_told_at_once(
    ssmlbench: Call, tiny: tuple[str, str], tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("not a folder")
    made = ssmlbench(*RUN, *tiny, "--results", "file/results")
    assert made.returncode == 2
    assert "cannot write to file/results" in made.stderr


def test_the_check_of_a_results_folder_leaves_nothing_behind(tmp_path: Path) -> None:
    check_folder(tmp_path / "some" / "results", "--results")
    assert not any(tmp_path.iterdir())
    check_folder(tmp_path / "some" / "results", "--results", make=True)
    assert [file.name for file in tmp_path.rglob("*")] == ["some", "results"]


@pytest.mark.parametrize("make", [False, True])
def test_a_file_in_the_place_of_a_results_folder_is_named(tmp_path: Path, make: bool) -> None:
    (tmp_path / "file").write_text("not a folder")
    with pytest.raises(UserError, match="file is not a folder; choose another folder with"):
        check_folder(tmp_path / "file" / "results", "--results", make=make)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_read_only_results_folder_is_told_at_once(
    ssmlbench: Call, tiny: tuple[str, str], tmp_path: Path
) -> None:
    folder = tmp_path / "locked"
    folder.mkdir()
    folder.chmod(stat.S_IRUSR | stat.S_IXUSR)
    assert "cannot write" in ssmlbench(*RUN, *tiny, "--results", folder).stderr


def test_a_grid_is_shown_made_compared_and_not_made_again(
    ssmlbench: Call, tiny: tuple[str, str]
) -> None:
    grid = (*run_with("--method", "bce,cap", "--pi", "0.05,0.1", "--jobs", "2"), *tiny)
    dry = ssmlbench(*grid, "--dry-run")
    assert "0 done, 4 to make" in dry.stdout
    made = ssmlbench(*grid)
    assert made.returncode == 0, made.stdout + made.stderr
    assert "4 done, 0 already there, 0 failed" in made.stdout
    assert "4 done, 0 to make" in ssmlbench(*grid, "--dry-run").stdout
    again = ssmlbench(*grid)
    assert "already done, nothing to do" in again.stdout
    assert "0 done, 4 already there" in again.stdout
    board = ssmlbench("compare").stdout
    assert "typed · semi" in board
    assert "mAP ↑ π=0.05" in board
    for style in ("markdown", "latex", "csv", "json"):
        assert "bce" in ssmlbench("compare", "--format", style).stdout


def test_more_jobs_than_cores_is_a_warning(ssmlbench: Call, tiny: tuple[str, str]) -> None:
    made = ssmlbench(*RUN, *tiny, "--jobs", "500")
    assert made.returncode == 0
    assert "warning: --jobs 500 on" in made.stdout


def test_quiet_says_nothing_when_all_is_well(ssmlbench: Call, tiny: tuple[str, str]) -> None:
    made = ssmlbench(*RUN, *tiny, "--quiet")
    assert (made.returncode, made.stdout) == (0, "")


def test_a_run_that_fails_is_one_line_and_leaves_its_error(
    ssmlbench: Call, tiny: tuple[str, str], tmp_path: Path
) -> None:
    made = ssmlbench(*RUN, *tiny, "--lr", "1e38")
    assert made.returncode == 1
    assert "failed: " in made.stdout
    assert "not finite in epoch 1" in made.stdout
    assert "`ssmlbench status --failed` shows the errors" in made.stdout
    left = {file.name for file in (tmp_path / "results").rglob("*") if file.is_file()}
    assert left == {"spec.json", "error.json"}


def test_the_command_that_shows_errors_is_named_only_if_one_was_stored(
    ssmlbench: Call, tiny: tuple[str, str], tmp_path: Path
) -> None:
    """Where nothing can be written, such as on a full disk, no error is stored."""
    assert ssmlbench(*RUN, *tiny, "--lr", "1e38").returncode == 1
    folder = next((tmp_path / "results").rglob("error.json")).parent
    shutil.rmtree(folder)
    folder.write_text("in the place of a folder")
    made = ssmlbench(*RUN, *tiny, "--lr", "1e38")
    assert made.returncode == 1
    assert "the same command tries again" in made.stdout
    assert "status --failed" not in made.stdout


def test_what_there_is_can_be_listed_and_read(ssmlbench: Call) -> None:
    listed = ssmlbench("methods").stdout
    assert "bbam" in listed
    page = ssmlbench("methods", "bbam").stdout
    for word in (
        "negatives_per_positive",
        "η; none keeps every negative",
        "float | none",
        "cosine",
    ):
        assert word in page
    assert "multidigits" in ssmlbench("datasets").stdout
    page = ssmlbench("datasets", "multidigits").stdout
    assert "small-cnn" in page
    assert "coco2014" not in page
    wrong = ssmlbench("datasets", "multidigit")
    assert (wrong.returncode, wrong.stderr.count("\n")) == (2, 1)
    assert "multidigits" in wrong.stderr


def test_a_new_method_works_as_written(
    ssmlbench: Call, tiny: tuple[str, str], tmp_path: Path
) -> None:
    made = ssmlbench("new", "method", "my-method")
    assert made.returncode == 0
    assert (tmp_path / "my_method.py").is_file()
    assert ssmlbench("new", "method", "my-method").returncode == 2  # nothing is overwritten
    run = ssmlbench(*run_with("--method", "my-method"), *tiny, "--plugin", "my_method.py")
    assert run.returncode == 0
    assert "mAP" in run.stdout


def test_check_tells_in_plain_words_what_is_broken(ssmlbench: Call, tmp_path: Path) -> None:
    ssmlbench("new", "method", "my-method")
    file = tmp_path / "my_method.py"
    file.write_text(file.read_text().replace("return logits.sigmoid()", "return 2 * logits"))
    made = ssmlbench("check", file)
    assert made.returncode == 2
    assert "BROKEN  it trains, and its scores are N × K numbers in [0, 1]" in made.stdout
