"""`data verify` compares every byte with the card, and the card with what the raw files give now."""

from __future__ import annotations

import os
import random
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from ssmlbench.cli import app
from ssmlbench.core import checksums
from ssmlbench.core.errors import DamagedFile, DamageWarning
from ssmlbench.data import prepare, prepare_whole
from ssmlbench.data.task import share_of_zeros
from ssmlbench.plugins.loader import Plugins
from ssmlbench.runs.resolve import resolve
from tests.faults.makers import flip_silently
from tests.support.tiny_models import write_data_plugin


def verify(plugin: Path) -> tuple[int, str]:
    checksums._verified.clear()  # as in a process of its own
    command = ["data", "verify", "tiny-text", "--plugin", str(plugin)]
    result = CliRunner().invoke(app, command, env={"COLUMNS": "300"})
    return result.exit_code, result.output


@pytest.fixture
def plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SSMLBENCH_CACHE", str(tmp_path / "cache"))
    return write_data_plugin(tmp_path)


@pytest.mark.parametrize("name", ["train.arrow", "labels/test.arrow"])
def test_a_flipped_bit_is_found_and_mended_at_the_next_use(plugin: Path, name: str) -> None:
    task = prepare(Plugins([plugin]).datasets["tiny-text"]())
    before = (task.folder / name).read_bytes()
    assert verify(plugin)[0] == 0
    flip_silently(task.folder / name, random.Random(5))
    code, said = verify(plugin)
    assert code == 1
    assert f"{name} is damaged" in said
    assert verify(plugin)[0] == 0
    assert (task.folder / name).read_bytes() == before


def test_raw_files_that_changed_since_give_another_fingerprint(plugin: Path) -> None:
    prepare(Plugins([plugin]).datasets["tiny-text"]())
    changed = plugin.with_name("changed.py")
    changed.write_text(plugin.read_text().replace("random.integers(1, 9)", "random.integers(1, 8)"))
    code, said = verify(changed)
    assert code == 1
    assert "the raw files now give" in said


@pytest.mark.parametrize("place", [60, 0.5, 0.999], ids=["header", "vectors", "end"])
def test_vectors_are_compared_before_a_run_is_planned_from_them(plugin: Path, place: float) -> None:
    """The recipe counts their zeros; the kind of damage decides what Arrow would say."""
    plugins = Plugins([plugin])
    typed: dict[str, Any] = {"method": "bce", "dataset": "tiny-vectors", "pi": 0.5, "epochs": 2}
    planned = resolve(plugins, {}, **typed)
    file = prepare(plugins.datasets["tiny-vectors"]()).folder / "train.arrow"
    before, times = file.read_bytes(), file.stat()
    at = int(place if place > 1 else place * len(before))
    file.write_bytes(before[:at] + bytes([before[at] ^ 0xFF]) + before[at + 1 :])
    os.utime(file, ns=(times.st_atime_ns, times.st_mtime_ns))
    checksums._verified.clear()
    share_of_zeros.cache_clear()
    with pytest.warns(DamageWarning, match="train.arrow is damaged: .*; tiny-vectors is prepared"):
        assert resolve(plugins, {}, **typed) == planned
    assert file.read_bytes() == before


def test_damaged_vectors_without_raw_files_are_one_line(plugin: Path) -> None:
    adapter = Plugins([plugin]).datasets["tiny-vectors"]
    file = prepare(adapter()).folder / "train.arrow"
    flip_silently(file, random.Random(1))
    checksums._verified.clear()
    gone = type("Gone", (adapter,), {"files_there": False})
    with pytest.raises(DamagedFile, match=r"the raw files of tiny-vectors are not there.*; type `"):
        prepare_whole(gone())
