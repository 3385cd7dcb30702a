"""A process is killed while a library writes a file of a run: the next attempt deletes what it left.

Also beside the run's folder, where other runs write too: there, what is left is named after its file.
"""

from __future__ import annotations

import os
import resource
import signal
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from ssmlbench.core.files import PART, atomic
from ssmlbench.runs.diagnostics import Diagnostics
from ssmlbench.runs.folder import RunFolder
from ssmlbench.runs.scores import StoredScores
from ssmlbench.training.checkpoint import Checkpoint

ROWS = 20_000
LIMIT = 30_000
"""Bytes after which the system kills the writer: less than any of the files has."""


def state(file: Path, shared_folder: bool = False) -> None:
    checkpoint = Checkpoint(file, "run", shared_folder=shared_folder)
    checkpoint.write({"model": {"weight": torch.zeros(ROWS)}}, {"epoch": 1})


def judgements(file: Path) -> None:
    state(file, shared_folder=True)


def scores(file: Path) -> None:
    zeros = np.zeros((ROWS, 4))
    StoredScores(zeros.astype(np.float32), zeros.astype(bool)).write(file)


def diagnostics(file: Path) -> None:
    Diagnostics({"angles": np.zeros(ROWS)}, ["a"]).write(file.parent, file.name)


def plain(file: Path) -> None:
    with atomic(file) as unfinished:
        unfinished.write_bytes(bytes(ROWS * 4))


WRITERS = {
    "checkpoint_file": state,
    "judgements_file": judgements,
    "weights_file": state,
    "scores_file": scores,
    "diagnostics": diagnostics,
    "history_file": plain,
}


def killed_while(write: Callable[[Path], None], file: Path) -> bool:
    """Whether a child that writes was killed at the limit."""
    child = os.fork()
    if child == 0:
        try:
            signal.signal(signal.SIGXFSZ, signal.SIG_DFL)  # Python ignores it
            resource.setrlimit(resource.RLIMIT_FSIZE, (LIMIT, LIMIT))
            write(file)
        finally:
            os._exit(0)
    _, status = os.waitpid(child, 0)
    return os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGXFSZ


@pytest.mark.parametrize("kind", WRITERS)
def test_what_a_killed_writer_left_is_deleted_by_the_next_attempt(
    tmp_path: Path, kind: str
) -> None:
    folder = RunFolder(tmp_path / "0-abc")
    folder.path.mkdir()
    other = tmp_path / ".1-abc.judgements.safetensors"
    other.touch()
    file = folder.path / kind if kind == "diagnostics" else getattr(folder, kind)
    assert killed_while(WRITERS[kind], file)
    left = [path for path in file.parent.iterdir() if path not in (folder.path, other)]
    assert left, "the test needs a file that is half written"
    if file.parent != folder.path:
        assert all(p.name.startswith(f".{file.name}.") and p.name.endswith(PART) for p in left)
    folder.drop_leftovers()
    assert [path for path in tmp_path.rglob("*") if path not in (folder.path, other)] == []
    assert other.exists()
