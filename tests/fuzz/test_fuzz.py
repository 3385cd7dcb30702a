"""Whatever is in a file, the answer is its content or one clear error: parsers against random files.

`make fuzz` runs for as long as it is told, with atheris where that is installed.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.fuzz.__main__ import CORPUS
from tests.fuzz.kept import FOLDER, MOST_BYTES, add_time, keep, kept_contents, times
from tests.fuzz.rounds import fuzz_for, fuzz_round, try_content
from tests.fuzz.targets import TARGETS

SECONDS = float(os.environ.get("FUZZ_SECONDS", "20"))
"""Of the slow test, for each kind of file."""
KEPT_TRIED = 20
"""Kept contents that the default tests try, of each kind."""


@pytest.mark.parametrize("name", TARGETS)
def test_a_damaged_file_is_a_clear_error(name: str, tmp_path: Path) -> None:
    kept = kept_contents(name)
    sample = kept[:: len(kept) // KEPT_TRIED + 1]
    for content in [*(file.read_bytes() for file in (CORPUS / name).glob("*")), *sample]:
        try_content(TARGETS[name], content, tmp_path)
    fuzz_round(TARGETS[name], 15, tmp_path, 0)


@pytest.mark.parametrize("name", TARGETS)
def test_a_good_file_is_read(name: str, tmp_path: Path) -> None:
    seeds = TARGETS[name].seeds()
    assert seeds
    for content in seeds:
        TARGETS[name].read(content, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("name", TARGETS)
def test_many_damaged_files_are_clear_errors(name: str, tmp_path: Path) -> None:
    assert fuzz_for(TARGETS[name], SECONDS, tmp_path, seed=7)


@pytest.mark.slow
@pytest.mark.parametrize("name", TARGETS)
def test_every_kept_content_is_read_or_a_clear_error(name: str, tmp_path: Path) -> None:
    for content in kept_contents(name):
        try_content(TARGETS[name], content, tmp_path)


def test_what_is_kept_adds_up(tmp_path: Path) -> None:
    keep("csv", [b"bb", b"a"], tmp_path)
    keep("csv", [b"c", b"a", b"x" * MOST_BYTES], tmp_path)
    assert kept_contents("csv", tmp_path) == [b"a", b"c", b"bb"]
    before = (tmp_path / "csv.zip").read_bytes()
    keep("csv", [], tmp_path)
    assert (tmp_path / "csv.zip").read_bytes() == before
    add_time("csv", 60, 1000, tmp_path)
    add_time("csv", 5, 10, tmp_path)
    assert times(tmp_path) == {"csv": (65, 1010)}


def test_everything_in_the_corpus_has_a_target() -> None:
    assert {folder.name for folder in CORPUS.iterdir()} <= TARGETS.keys()
    assert {file.stem for file in FOLDER.glob("*.zip")} <= TARGETS.keys()
    assert times().keys() <= TARGETS.keys()


json_values: Any = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=3)
    ),
    max_leaves=8,
)


@settings(max_examples=15, deadline=None, database=None, suppress_health_check=list(HealthCheck))
@given(st.lists(json_values, min_size=1, max_size=4))
def test_any_json_is_a_label_cell_or_a_bad_row(tmp_path: Path, values: list[Any]) -> None:
    rows = [{"text": "t", "labels": ["a"]}, *({"text": "t", "labels": v} for v in values)]
    content = "\n".join(map(json.dumps, rows)).encode()
    try_content(TARGETS["jsonl"], content, tmp_path)
