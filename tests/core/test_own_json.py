"""A JSON file of this tool counts only with its checksum; else it is named as damaged."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import pytest

from ssmlbench.core.errors import DamagedFile
from ssmlbench.core.files import read_json, read_own_json, read_record, write_json

VALUES = {"map": 0.654, "rows": 391}


@dataclass
class Facts:
    rows: int = 0


@pytest.fixture
def file(tmp_path: Path) -> Path:
    write_json(tmp_path / "facts.json", VALUES)
    return tmp_path / "facts.json"


def test_a_whole_file_is_read(file: Path) -> None:
    assert read_own_json(file) == VALUES
    assert read_json(file) is not None


def test_a_number_and_any_other_byte_that_are_both_damaged_are_noticed(file: Path) -> None:
    """The other byte may be one of the name of the checksum's field, which then seems to be missing."""
    changed = file.read_bytes().replace(b"0.654", b"0.954")
    for place in range(len(changed)):
        content = bytearray(changed)
        content[place] ^= 1
        file.write_bytes(content)
        assert read_json(file) is None, bytes(content)
        with pytest.raises(DamagedFile):
            read_own_json(file)


def test_a_state_of_a_run_is_shown_though_an_old_version_wrote_it_without_a_checksum(
    file: Path,
) -> None:
    file.write_text(json.dumps(VALUES))
    assert read_record(file, Facts) == Facts(391)
    with pytest.raises(DamagedFile, match="it has no checksum"):
        read_own_json(file)
