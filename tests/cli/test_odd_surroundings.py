"""Names of files that are no UTF-8, and settings of the surroundings that are wrong: no traceback."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from ssmlbench import cli
from ssmlbench.core.files import write_output
from ssmlbench.core.plain_text import valid_text
from ssmlbench.data import prepare
from ssmlbench.data.user_data import data_class
from tests.cli.test_usage_mistakes import line_of

Call = Callable[..., "subprocess.CompletedProcess[str]"]
BYTES = os.fsdecode(b"caf\xe9")
"""As Python has a name that is in Latin-1."""
linux = pytest.mark.skipif(sys.platform == "darwin", reason="its names of files are Unicode")


def test_bytes_that_are_no_utf_8_are_written_out() -> None:
    assert valid_text("café ☃") == "café ☃"
    assert valid_text(BYTES) == r"caf\xe9"
    assert valid_text(os.fsdecode("café".encode()).encode().decode("ascii", "surrogateescape")) == (
        "café"  # typed under LC_ALL=C
    )
    assert valid_text("\ud800") == r"\ud800"


@linux
def test_rows_from_files_with_such_names_have_ids(tmp_path: Path, empty_cache: None) -> None:
    for part in ("train", "test"):
        for label in "ab":
            folder = tmp_path / "texts" / part / label
            folder.mkdir(parents=True)
            for name in (BYTES, os.fsdecode(b"caf\xe8")):
                (folder / f"{name}-{label}.txt").write_text(f"{part} {label} {ord(name[-1])}")
    task = prepare(data_class(tmp_path / "texts")())
    ids = sorted(str(id_) for id_ in task.ids("train"))
    assert len(set(ids)) == 4
    assert all(r"caf\xe" in id_ for id_ in ids)


@linux
def test_a_table_with_such_a_name_is_read(tmp_path: Path, empty_cache: None) -> None:
    file = tmp_path / f"{BYTES}.csv"
    file.write_text("text,labels\nx,a\ny,b\n")
    assert list(prepare(data_class(file)()).ids("train")) == [
        r"caf\xe9.csv line 2",
        r"caf\xe9.csv line 3",
    ]


def test_a_text_with_such_a_name_is_written(tmp_path: Path) -> None:
    write_output(tmp_path / "a.csv", f"{BYTES},1\n")
    assert (tmp_path / "a.csv").read_text(encoding="utf-8") == "caf\\xe9,1\n"


@linux
def test_a_label_with_such_a_name_is_one_line_about_the_data(
    ssmlbench: Call, tmp_path: Path
) -> None:
    for label in ("a", BYTES):
        (tmp_path / "texts/train" / label).mkdir(parents=True)
        (tmp_path / "texts/train" / label / "1.txt").write_text("a text")
    line = line_of(ssmlbench("data", "prepare", "./texts"))
    assert line.startswith("error: data set texts: label ")


@pytest.mark.parametrize("width", ["0", "00", ""])
def test_a_terminal_without_a_width_shows_something(
    ssmlbench: Call, monkeypatch: pytest.MonkeyPatch, width: str
) -> None:
    from ssmlbench.cli import _ignore_zero_width

    monkeypatch.setenv("COLUMNS", width)
    _ignore_zero_width()
    assert "COLUMNS" not in os.environ
    monkeypatch.setenv("COLUMNS", "100")
    _ignore_zero_width()
    assert os.environ["COLUMNS"] == "100"


def test_a_cache_that_is_no_folder_is_one_line(
    ssmlbench: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a.csv").write_text("text,labels\nx,a\ny,b\n")
    for cache in ("/dev/null", tmp_path / "a.csv" / "below"):
        monkeypatch.setenv("SSMLBENCH_CACHE", str(cache))
        line = line_of(ssmlbench("data", "prepare", "a.csv"))
        assert "a file is in the place of this folder" in line
        assert "choose another path" in line


def test_a_misspelt_way_to_lock_is_one_line(
    ssmlbench: Call, tmp_path: Path, empty_cache: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a.csv").write_text("text,labels\nx,a\ny,b\n")
    monkeypatch.setenv("SSMLBENCH_LOCKS", "leese")
    line = line_of(ssmlbench("data", "prepare", "a.csv"))
    assert line == "error: SSMLBENCH_LOCKS=leese: must be flock or lease"


def test_ctrl_c_after_the_work_is_done_is_no_traceback() -> None:
    """Python takes a second to take torch down, and the server of processes to end."""
    script = (
        "import atexit, os, signal, sys\n"
        "atexit.register(lambda: print('taken down'))\n"
        "atexit.register(os.kill, os.getpid(), signal.SIGINT)\n"
        "sys.argv = ['ssmlbench', '--version']\n"
        "from ssmlbench.cli import main; main()"
    )
    ended = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=600
    )
    assert (ended.returncode, ended.stderr) == (0, "")
    assert "taken down" in ended.stdout


def test_after_ctrl_c_a_terminal_has_its_cursor_again(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Rich hides it before it can be told to stop."""

    def interrupted(prog_name: str) -> None:
        raise SystemExit(130)

    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setattr(cli, "app", interrupted)
    with pytest.raises(SystemExit) as stop:
        cli.main()
    assert stop.value.code == 130
    assert capsys.readouterr().err == "\x1b[?25h"
