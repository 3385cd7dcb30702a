"""Contents that fuzzing found worth keeping, packed, and how long each parser was fuzzed so far.

A call of `python -m tests.fuzz` starts from them, so that hours add up over many calls; `--keep` adds
what it found.
"""

from __future__ import annotations

import csv
import io
import zipfile
from collections.abc import Iterable
from hashlib import sha256
from pathlib import Path

FOLDER = Path(__file__).with_name("kept")
MOST_BYTES = 60_000
"""Of the contents of one kind; small ones are kept first."""
SAME_TIME = (1980, 1, 1, 0, 0, 0)
"""In an archive, so that equal contents make equal files."""


def kept_contents(name: str, folder: Path = FOLDER) -> list[bytes]:
    """The kept contents of a kind, small ones first."""
    file = folder / f"{name}.zip"
    if not file.is_file():
        return []
    with zipfile.ZipFile(file) as archive:
        return [archive.read(member) for member in archive.namelist()]


def keep(name: str, contents: Iterable[bytes], folder: Path = FOLDER) -> None:
    """Add contents to those of a kind."""
    chosen, size = [], 0
    for content in sorted({*kept_contents(name, folder), *contents}, key=lambda c: (len(c), c)):
        size += len(content)
        if size > MOST_BYTES:
            break
        chosen.append(content)
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for content in chosen:
            member = zipfile.ZipInfo(sha256(content).hexdigest()[:16], SAME_TIME)
            archive.writestr(member, content, zipfile.ZIP_DEFLATED)
    folder.mkdir(exist_ok=True)
    (folder / f"{name}.zip").write_bytes(packed.getvalue())


def times(folder: Path = FOLDER) -> dict[str, tuple[int, int]]:
    """The processor seconds and the contents of each kind so far."""
    file = folder / "times.csv"
    if not file.is_file():
        return {}
    with file.open(newline="") as rows:
        return {
            row["kind"]: (int(row["seconds"]), int(row["contents"])) for row in csv.DictReader(rows)
        }


def add_time(name: str, seconds: int, contents: int, folder: Path = FOLDER) -> None:
    """Count a call of fuzzing."""
    so_far = times(folder)
    before = so_far.get(name, (0, 0))
    so_far[name] = (before[0] + seconds, before[1] + contents)
    folder.mkdir(exist_ok=True)
    with (folder / "times.csv").open("w", newline="") as file:
        rows = csv.writer(file, lineterminator="\n")
        rows.writerow(("kind", "seconds", "contents"))
        rows.writerows((kind, *numbers) for kind, numbers in sorted(so_far.items()))
