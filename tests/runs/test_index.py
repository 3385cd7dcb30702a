"""The index of finished runs saves reading, and is never believed over the folders."""

from __future__ import annotations

import dataclasses
import json
import shutil
from pathlib import Path

import pytest

from ssmlbench.core.checksums import with_checksum
from ssmlbench.runs import finished
from ssmlbench.runs.finished import read_finished
from ssmlbench.runs.folder import RunFolder
from ssmlbench.runs.index import RunIndex
from ssmlbench.runs.schema import REPEATS_IT
from tests.support.board_runs import BASE, grid


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SSMLBENCH_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(finished, "INDEXED_RUNS", 1)
    grid(tmp_path / "results", {"bce": [0.1, 0.2], "cap": [0.3, 0.4]})
    return tmp_path / "results"


def values(root: Path) -> dict[str, float]:
    runs, _ = read_finished([root])
    return {str(run.spec): run.result["metrics"]["threshold"]["default"]["map"] for run in runs}


def files_read(root: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    read: list[str] = []
    load = finished._load
    with monkeypatch.context() as patch:
        patch.setattr(finished, "_load", lambda file: read.append(str(file)) or load(file))
        read_finished([root])
    return read


def test_a_second_reader_opens_no_result_and_finds_the_same(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = read_finished([root])
    assert not files_read(root, monkeypatch)
    assert read_finished([root]) == first


def test_what_changes_in_the_folders_is_seen(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = values(root)
    grid(root, {"asl": [0.5]})
    changed = RunFolder.of(root, dataclasses.replace(BASE, method="cap", seed=1))
    result = json.loads(changed.result_file.read_text())
    result["metrics"]["threshold"]["default"]["map"] = 0.9
    changed.result_file.write_text(json.dumps(result))
    shutil.rmtree(RunFolder.of(root, dataclasses.replace(BASE, seed=0)).path)
    after = values(root)
    assert len(before) == len(after) == 4
    assert sorted(after.values()) == [0.2, 0.3, 0.5, 0.9]
    assert not files_read(root, monkeypatch)


def test_a_damaged_result_is_never_taken_from_or_into_the_index(root: Path) -> None:
    file = next(root.rglob("result.json"))
    result = with_checksum(json.loads(file.read_text()))
    result["metrics"]["threshold"]["default"]["map"] = 0.99
    file.write_text(json.dumps(result))
    for _ in range(2):
        runs, complaints = read_finished([root])
        assert len(runs) == 3
        assert "damaged" in complaints[0]


@pytest.mark.parametrize("content", [b"", b"not a database" * 100, bytes(4096)])
def test_an_index_that_cannot_be_used_is_left_out(root: Path, content: bytes) -> None:
    expected = values(root)
    RunIndex(root).file.write_bytes(content)
    assert values(root) == expected
    assert values(root) == expected


def test_entries_of_a_damaged_index_are_read_from_the_folders(root: Path) -> None:
    expected = values(root)
    file = RunIndex(root).file
    content = file.read_bytes()
    assert b'"map":0.3' in content
    file.write_bytes(content.replace(b'"map":0.3', b'"map":0.8'))
    assert values(root) == expected


def test_without_a_cache_that_can_be_written_runs_are_read_as_ever(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = root.parent / "a file"
    file.write_text("")
    monkeypatch.setenv("SSMLBENCH_CACHE", str(file))
    assert len(values(root)) == 4


def test_thousands_of_results_with_one_fault_are_a_few_lines(tmp_path: Path) -> None:
    grid(tmp_path, {"bce": [0.1] * finished.MOST_LINES, "cap": [0.2] * (finished.MOST_LINES + 1)})
    for file in tmp_path.glob("*/*/cap/*/result.json"):
        file.write_text("{")
    for file in tmp_path.glob("*/*/bce/*/result.json"):
        file.write_text("{}")
    _, complaints = read_finished([tmp_path])
    damaged = [line for line in complaints if "damaged" in line]
    assert len(complaints) == 2 * len(damaged) == 2 * finished.MOST_LINES
    assert damaged[-1] == f"2 more results: left out, damaged, not a whole JSON file; {REPEATS_IT}"
    assert all("/bce/" in line for line in complaints if line not in damaged)
