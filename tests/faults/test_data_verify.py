"""`data verify` compares every byte with the card, and the card with what the raw files give now."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from typer.testing import CliRunner

from ssmlbench.cli import app
from ssmlbench.core import checksums
from ssmlbench.data import prepare
from ssmlbench.plugins.loader import Plugins
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
