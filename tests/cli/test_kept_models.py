"""Models that a command counts when it ends."""

from __future__ import annotations

from pathlib import Path

from ssmlbench.cli.dispatch import kept_models
from ssmlbench.runs.folder import RunFolder


def test_the_model_of_a_run_that_failed_later_is_not_counted(tmp_path: Path) -> None:
    """`predict` does not use it."""
    finished, failed = (RunFolder(tmp_path / name) for name in ("finished", "failed"))
    for folder in (finished, failed):
        folder.path.mkdir()
        folder.weights_file.touch()
    finished.result_file.touch()
    assert kept_models([finished, failed]) == [finished.weights_file]
