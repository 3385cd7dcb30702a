"""Pipes and devices in the place of files are refused at once, wherever a user names a file."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from ssmlbench.core.errors import ListedMistakes, UserError
from ssmlbench.core.paths import absolute, usable
from ssmlbench.core.plain_files import plain_bytes, plain_text
from ssmlbench.plugins.loader import load_file
from tests.cli.test_usage_mistakes import line_of
from tests.support.board_runs import grid

Call = Callable[..., "subprocess.CompletedProcess[str]"]


def test_only_files_are_read(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("a\r\nb\u2028c\n")
    assert plain_bytes(tmp_path / "file") == "a\r\nb\u2028c\n".encode()
    assert list(plain_text(tmp_path / "file")) == ["a\r\n", "b\u2028c\n"]
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", tmp_path, Path("/dev/zero")):
        with pytest.raises(OSError, match=r"it is not a file|Is a directory"):
            plain_bytes(path)


def test_a_pipe_in_a_folder_of_papers_is_one_line(ssmlbench: Call, tmp_path: Path) -> None:
    grid(tmp_path / "results", {"bce": [0.5]})
    (tmp_path / "papers").mkdir()
    os.mkfifo(tmp_path / "papers" / "a.toml")
    assert "it is not a file" in line_of(ssmlbench("compare", "--papers", "papers"))


def test_a_pipe_in_the_place_of_a_plugin_file_is_said_to_be_one(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "mine.py")
    with pytest.raises(UserError, match=r"mine\.py is a pipe or a device"):
        load_file(tmp_path / "mine.py")
    with pytest.raises(UserError, match=r"other\.py does not exist"):
        load_file(tmp_path / "other.py")


def test_a_path_that_no_file_can_have_is_a_user_error(tmp_path: Path) -> None:
    (tmp_path / "circle").symlink_to("circle")
    for path in (tmp_path / "circle", "a\0b", "s3://bucket/a", "x" * 5000, "~no-such-user"):
        with pytest.raises(UserError):
            absolute(path)
    assert usable("a/../b") == Path("a/../b")
    assert absolute("a:b/c").name == "c"


def test_the_text_of_a_mistake_is_one_line_unless_it_lists() -> None:
    assert str(UserError("a  b\n  c\u2028d")) == "a  b c d"
    assert str(ListedMistakes("a\nb", "  c\nd", "e")) == "a b\n  c d\ne"
