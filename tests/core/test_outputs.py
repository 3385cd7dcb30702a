"""Files in a user's own folders: what killed processes left of them goes with the next write."""

from __future__ import annotations

import os
from pathlib import Path

from ssmlbench.core.files import PART, temporary_beside, write_output


def left_by(file: Path, pid: int, host: str | None = None) -> Path:
    name = temporary_beside(file).name.replace(f"-{os.getpid()}-", f"-{pid}-")
    if host is not None:
        name = f".{file.name}.{host}-{pid}-0123abcd{PART}"
    part = file.with_name(name)
    part.touch()
    return part


def test_only_parts_of_the_same_file_by_dead_processes_of_this_host_go(tmp_path: Path) -> None:
    child = os.fork()
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)
    file = tmp_path / "labels[1].csv"
    dead = left_by(file, child)
    kept = [
        left_by(file, os.getpid()),
        left_by(file, child, host="elsewhere"),
        left_by(tmp_path / "others.csv", child),
    ]
    write_output(file, "a")
    assert file.read_text() == "a"
    assert not dead.exists()
    assert all(part.exists() for part in kept)
