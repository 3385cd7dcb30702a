"""What is larger than its record says, or was never written, is not read to find that out."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ssmlbench.core import checksums
from ssmlbench.core.checksums import (
    append_trailer,
    file_facts,
    verify_file,
    verify_placed_stamp,
    verify_stamp,
    verify_trailer,
)
from ssmlbench.core.errors import DamagedFile


@pytest.mark.skipif(os.name != "posix", reason="files have no holes there")
def test_terabytes_that_were_never_written_are_not_read(tmp_path: Path) -> None:
    """A run whose model was such a file kept its judge busy for hours."""
    file = tmp_path / "model.safetensors"
    file.write_bytes(b"content")
    append_trailer(file, "place")
    facts = file_facts(tmp_path, [file])[file.name]
    os.truncate(file, 2**43)
    for verify in (verify_stamp, verify_placed_stamp, verify_trailer):
        with pytest.raises(DamagedFile, match="nearly all of it was never written"):
            verify(file)
    with pytest.raises(DamagedFile, match="nearly all of it was never written"):
        file_facts(tmp_path, [file])
    with pytest.raises(DamagedFile, match="nearly all of it was never written"):
        verify_file(file, facts, file)


def test_a_file_of_another_size_than_its_record_says_is_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "scores.safetensors"
    file.write_bytes(b"content")
    facts = file_facts(tmp_path, [file])[file.name]
    file.write_bytes(b"content and more")
    monkeypatch.setattr(checksums, "digest_of", lambda _: pytest.fail("it was read"))
    with pytest.raises(DamagedFile, match="it has 16 bytes, not 7"):
        verify_file(file, facts, file)
