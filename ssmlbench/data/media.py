"""Images and texts that are files of their own: found in folders, and by the names in a table."""

from __future__ import annotations

import os
from functools import cached_property
from pathlib import Path
from typing import Any

from ssmlbench.core.errors import is_passing
from ssmlbench.core.paths import paths_below
from ssmlbench.core.plain_files import plain_bytes
from ssmlbench.data.adapter import BadRow, Kind, Row

IMAGE_ENDINGS = (".jpg", ".jpeg", ".png", ".bmp", ".gif", ".tif", ".tiff", ".webp")
OTHER_IMAGES = (
    ".jfif",
    ".jpe",
    ".jp2",
    ".j2k",
    ".jxl",
    ".heic",
    ".heif",
    ".avif",
    ".svg",
    ".psd",
    ".dng",
    ".ppm",
    ".pgm",
    ".pnm",
    ".tga",
    ".ico",
)
"""Those of images that are not read."""
MEDIA: dict[Kind, tuple[str, ...]] = {"image": IMAGE_ENDINGS, "text": (".txt",), "vector": ()}
"""The endings of files that are one input each."""
ABOUT = ("labels.txt", "classes.txt", "readme.txt", "license.txt")
"""Text files that are about a folder, and no input."""


def media_files(folder: Path, kind: Kind) -> list[Path]:
    """The images or texts below a folder, in the order of their paths; hidden ones are left out."""
    return sorted(
        file
        for file in paths_below(folder)
        if file.suffix.lower() in MEDIA[kind]
        and file.name.lower() not in ABOUT
        and not any(part.startswith(".") for part in file.relative_to(folder).parts)
        and file.is_file()
    )


def unread_images(folder: Path) -> list[Path]:
    """The images below a folder that are of formats that are not read."""
    return sorted(file for file in paths_below(folder) if file.suffix.lower() in OTHER_IMAGES)


def without_ending(folder: Path) -> list[Path]:
    """The files below a folder whose names have no ending: nothing tells what they hold."""
    return sorted(
        file
        for file in paths_below(folder)
        if not file.suffix
        and not any(part.startswith(".") for part in file.relative_to(folder).parts)
        and f"{file.name.lower()}.txt" not in ABOUT
        and file.is_file()
    )


def kind_of_name(value: Any) -> Kind | None:
    """The kind of a file of this name; None if the value does not name an image or a text."""
    if not isinstance(value, str) or "\n" in value:
        return None
    ending = Path(value).suffix.lower()
    return next((kind for kind, endings in MEDIA.items() if ending in endings), None)


class MediaFinder:
    """Finds the files that tables name. They must lie in the data folder: a table may be a stranger's."""

    def __init__(self, root: Path, allow_outside: bool):
        """root: the data folder."""
        self.root = root
        self.allow_outside = allow_outside

    @cached_property
    def _inside(self) -> Path:
        return self.root.resolve()

    @cached_property
    def _folders(self) -> list[Path]:
        """The folders in the data folder."""
        if not self.root.is_dir():
            return []
        return sorted(f for f in self.root.iterdir() if f.is_dir() and f.name[0] != ".")

    def find(self, value: str, near: Path | None = None) -> Path | BadRow:
        """The file of a name: seen from the data folder, from `near`, or in a folder of the data folder.

        A name without an ending may be that of an image. A file that is not there is the reader's to tell.
        """
        there = []
        for base in dict.fromkeys((self.root, near or self.root)):
            file = base / value
            if bad := self._fault(file, value):
                return bad
            try:
                there += [file] if file.exists() else []
            except OSError as error:  # the name is too long
                if is_passing(error):
                    raise
                return _no_path(value)
        if len({file.resolve() for file in there}) > 1:
            return self._unclear(value, there)
        if there:
            return there[0]
        names = [value]
        if not Path(value).suffix:
            names += [f"{value}{ending}" for ending in IMAGE_ENDINGS]
        places = [near or self.root, *(self._folders if "/" not in value else ())]
        found = [place / name for place in places for name in names if _is_file(place / name)]
        if len(set(found)) > 1:
            return self._unclear(value, found)
        if found:
            return self._fault(found[0], value) or found[0]
        return self.root / value

    def facts(self, value: str, near: Path) -> tuple[int, int] | None:
        """Size and time of the last change of the file of a name; None if there is none."""
        try:  # by text, not pathlib, and first where most files are: it is asked for every row
            found = os.stat(f"{self.root}/{value}")  # noqa: PTH116
        except (OSError, ValueError):
            file = self.find(value, near)
            if not isinstance(file, Path) or not _is_file(file):
                return None
            found = file.stat()
        return found.st_size, found.st_mtime_ns

    def _unclear(self, value: str, found: list[Path]) -> BadRow:
        shown = " and ".join(str(file.relative_to(self.root)) for file in found[:2])
        return BadRow("", f"{value[:60]!r} may be {shown}; write the path", "unclear path")

    def _fault(self, file: Path, value: str) -> BadRow | None:
        try:
            inside = file.resolve().is_relative_to(self._inside)
        except (OSError, ValueError, RuntimeError) as error:  # a zero byte, a loop of links
            if is_passing(error):
                raise
            return _no_path(value)
        if inside or self.allow_outside:
            return None
        reason = f"image {value[:60]!r} is outside the data folder; --allow-outside reads it"
        return BadRow("", reason, "image outside the data folder")


def _no_path(value: str) -> BadRow:
    return BadRow("", f"image {value[:60]!r} is not a path", "unreadable image")


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError as error:  # the name is too long
        if is_passing(error):
            raise
        return False


def read_text(file: Path) -> str | BadRow:
    """The text of a file; bytes that are not UTF-8 are kept, and `prepare` reports them."""
    try:
        text = plain_bytes(file).decode("utf-8-sig", errors="surrogateescape")
    except OSError as error:
        if is_passing(error):  # --skip-bad would leave a sound row out
            raise
        return BadRow("", f"text file {file.name}: {error.strerror}", "unreadable text")
    return text.replace("\r\n", "\n").replace("\r", "\n")


def file_row(
    finder: MediaFinder, path: str, kind: Kind, labels: tuple[int, ...] | None, id_: str = ""
) -> Row | BadRow:
    """The row of an image or text file, by its path in the data folder, which is its id if it has none."""
    found = finder.find(path)
    value = read_text(found) if kind == "text" and isinstance(found, Path) else found
    if isinstance(value, BadRow):
        return BadRow(path, value.reason, value.kind)
    return Row(value, labels, id_ or path, path)
