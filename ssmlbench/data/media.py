"""Images and texts that are files of their own: found in folders, and by the names in a table."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import Any

from ssmlbench.data.adapter import BadRow, Kind, Row

IMAGE_ENDINGS = (".jpg", ".jpeg", ".png", ".bmp", ".gif", ".tif", ".tiff", ".webp")
MEDIA: dict[Kind, tuple[str, ...]] = {"image": IMAGE_ENDINGS, "text": (".txt",), "vector": ()}
"""The endings of files that are one input each."""
ABOUT = ("labels.txt", "classes.txt", "readme.txt", "license.txt")
"""Text files that are about a folder, and no input."""


def media_files(folder: Path, kind: Kind) -> list[Path]:
    """The images or texts below a folder, in the order of their paths; hidden ones are left out."""
    return sorted(
        file
        for file in folder.rglob("*")
        if file.suffix.lower() in MEDIA[kind]
        and file.name.lower() not in ABOUT
        and not any(part.startswith(".") for part in file.relative_to(folder).parts)
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
        for base in dict.fromkeys((self.root, near or self.root)):
            file = base / value
            if bad := self._fault(file, value):
                return bad
            try:
                if file.exists():
                    return file
            except OSError:  # the name is too long
                return _no_path(value)
        names = [value]
        if not Path(value).suffix:
            names += [f"{value}{ending}" for ending in IMAGE_ENDINGS]
        places = [near or self.root, *(self._folders if "/" not in value else ())]
        found = [place / name for place in places for name in names if _is_file(place / name)]
        if len(set(found)) > 1:
            shown = " and ".join(str(f.relative_to(self.root)) for f in found[:2])
            return BadRow("", f"{value[:60]!r} may be {shown}; write the path", "unclear path")
        if found:
            return self._fault(found[0], value) or found[0]
        return self.root / value

    def _fault(self, file: Path, value: str) -> BadRow | None:
        try:
            inside = file.resolve().is_relative_to(self._inside)
        except (OSError, ValueError, RuntimeError):  # a zero byte, a loop of links
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
    except OSError:  # the name is too long
        return False


def read_text(file: Path) -> str | BadRow:
    """The text of a file; bytes that are not UTF-8 are kept, and `prepare` reports them."""
    try:
        return file.read_text(encoding="utf-8-sig", errors="surrogateescape")
    except OSError as error:
        return BadRow("", f"text file {file.name}: {error.strerror}", "unreadable text")


def file_row(
    finder: MediaFinder, path: str, kind: Kind, labels: tuple[int, ...] | None, id_: str = ""
) -> Row | BadRow:
    """The row of an image or text file, by its path in the data folder, which is its id if it has none."""
    found = finder.find(path)
    value = read_text(found) if kind == "text" and isinstance(found, Path) else found
    if isinstance(value, BadRow):
        return BadRow(path, value.reason, value.kind)
    return Row(value, labels, id_ or path, path)
