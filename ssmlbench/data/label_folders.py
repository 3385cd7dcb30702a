"""A folder for each label, with its images or texts in it; a file that is in several has several labels."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path

from ssmlbench.core.counts import first_of
from ssmlbench.core.data_options import DataOptions
from ssmlbench.core.errors import UserError
from ssmlbench.core.plain_files import plain_bytes
from ssmlbench.data.adapter import BadRow, Kind, Row
from ssmlbench.data.listed_names import read_names
from ssmlbench.data.media import (
    MEDIA,
    MediaFinder,
    file_row,
    media_files,
    unread_images,
    without_ending,
)
from ssmlbench.data.table_source import part_folders
from ssmlbench.data.user_files import BACKBONES, PART_OF, PARTS, SPLIT_NAMES, UserFiles

LAYOUT = """
LABEL/…                         a folder for each label, with images or .txt files in it; a file that
                                is in several folders has several labels
test/LABEL/…                    optional: the test rows (the others may be in train/LABEL)
unlabelled/…                    optional: training rows whose labels are not known
labels.txt                      optional: one label per line; fixes the labels and their order
"""
SHOWN_NAMES = 5
KINDS: tuple[Kind, ...] = ("image", "text")


class LabelFolders(UserFiles):
    """Folders of files, one folder per label."""

    layout = LAYOUT
    format_name = "folders of labels"
    reads = frozenset({"allow_outside"})

    @classmethod
    def at(cls, path: Path, options: DataOptions) -> type[LabelFolders]:
        """Build the data set class of a folder of label folders."""
        kind = kind_of_folder(path)
        assert kind is not None
        train = part_folder(path, "train")
        labels = label_folders(train) if train else {}
        if len(labels) < 2:
            raise UserError(
                f"data set {path}: its {kind}s are in no folders of labels, and no table names their "
                f"labels; expected labels.csv with the columns {kind} and labels, or one folder per label"
            )
        return cls.named(path, options, kind=kind, backbone=BACKBONES[kind])

    def source_files(self) -> list[Path]:
        """Return every file of a row."""
        return media_files(self.home, self.kind)

    def row_files(self) -> list[Path]:
        """Return the files in the folder of each part."""
        parts = [sub for part in SPLIT_NAMES for sub in part_folders(self.home, part)]
        used = [sub for sub in parts if sub in self._folders.values()]
        return [
            file
            for file in self.source_files()
            if any(sub in file.parents for sub in used)
            or (self.home in self._folders.values() and not any(s in file.parents for s in parts))
        ]

    @cached_property
    def _folders(self) -> dict[str, Path]:
        """The parts that have files, and their folders."""
        found = {part: part_folder(self.home, part) for part in PARTS}
        return {p: folder for p, folder in found.items() if folder and has_media(folder, self.kind)}

    def parts(self) -> tuple[str, ...]:
        """Return the parts that have a folder."""
        return tuple(self._folders)

    def card_notes(self) -> list[str]:
        """Name the folders of validation rows, which are not used, and those beside the folder train."""
        notes = [
            f"{folder.name}/ is not used: validation rows come from train"
            for folder in part_folders(self.home, "validation")
            if has_media(folder, self.kind)
        ]
        if self._folders.get("train") not in (None, self.home):
            beside = [
                f"{name}/"
                for name, sub in label_folders(self.home).items()
                if has_media(sub, self.kind)
            ]
            notes += [f"not read: {first_of(beside, SHOWN_NAMES)}"] if beside else []
        return notes

    def label_names(self) -> list[str]:
        """Return the lines of labels.txt, or the names of the folders."""
        return self._names

    @cached_property
    def _names(self) -> list[str]:
        parts = [part for part in self._folders if part != "unlabelled"]
        for part in parts:
            self._check_no_part(self._folders[part])
        found = {name for part in parts for name in label_folders(self._folders[part])}
        listed = read_names(self.home)
        if strange := sorted(found - set(listed)) if listed else []:
            raise UserError(f"data set {self.home}: folder {strange[0]!r} is not in labels.txt")
        return listed or sorted(found)

    def _check_no_part(self, folder: Path) -> None:
        """Raise a UserError if a folder of a label has the name of a part: it would be left out."""
        for sub in sorted(folder.iterdir()) if folder != self.home else ():
            if sub.is_dir() and sub.name.lower() in PART_OF and has_media(sub, self.kind):
                raise UserError(
                    f"data set {self.home}: is {sub.relative_to(self.home)} a label? Folders of labels may "
                    f"not be called {sub.name}; rename it"
                )

    def part_rows(self, part: str) -> Iterator[Row | BadRow]:
        """Yield the rows of a part; labelled ones in an order that tells nothing about their labels."""
        folder = self._folders[part]
        if part == "unlabelled":
            for file in media_files(folder, self.kind):
                yield self._row(file, None)
            return
        positions = {name: k for k, name in enumerate(self._names)}
        files: defaultdict[str, list[tuple[str, Path]]] = defaultdict(list)
        for label, of_label in label_folders(folder).items():
            for file in media_files(of_label, self.kind):
                files[file.relative_to(of_label).as_posix()].append((label, file))
        found: list[tuple[bytes, str, Path, tuple[int, ...]]] = []  # content, id, file, labels
        for name in sorted(files):
            same: defaultdict[bytes, list[tuple[str, Path]]] = defaultdict(list)
            for label, file in files[name]:
                same[self._content(file)].append((label, file))
            for content, group in same.items():
                labels = tuple(sorted(positions[label] for label, _ in group))
                label, file = group[0]
                found.append((content, name if len(same) == 1 else f"{label}/{name}", file, labels))
        for _, id_, file, labels in sorted(found):
            yield self._row(file, labels, id_)
        yield from self._unread(folder)

    def _unread(self, folder: Path) -> Iterator[BadRow]:
        """Yield the files in the folder of a part that may be rows, and are not read."""
        for file in media_files(folder, self.kind):
            if file.parent == folder:
                yield BadRow(
                    self.where(file),
                    "it is in no folder of a label; put rows without labels into unlabelled/",
                    "file beside the label folders",
                )
        for file in unread_images(folder) if self.kind == "image" else ():
            if any(file.is_relative_to(of_label) for of_label in label_folders(folder).values()):
                yield BadRow(self.where(file), "images of this format are not read; save it as PNG")
        for of_label in label_folders(folder).values():
            for file in without_ending(of_label):
                ending = MEDIA[self.kind][0]
                yield BadRow(
                    self.where(file),
                    f"its name has no ending; call it {file.name}{ending} if it is a row",
                )

    def _content(self, file: Path) -> bytes:
        """A digest of a file. Rows are read several times, e.g. for each split; a file is hashed once."""
        facts = file.stat()
        key = (file, facts.st_size, facts.st_mtime_ns)
        if key not in self._digests:
            self._digests[key] = hashlib.blake2b(plain_bytes(file), digest_size=16).digest()
        return self._digests[key]

    @cached_property
    def _digests(self) -> dict[tuple[Path, int, int], bytes]:
        """The digests so far, by file, size and time of its last change."""
        return {}

    @cached_property
    def _finder(self) -> MediaFinder:
        return MediaFinder(self.home, self.options.allow_outside)

    def _row(self, file: Path, labels: tuple[int, ...] | None, id_: str = "") -> Row | BadRow:
        path = file.relative_to(self.home).as_posix()
        return file_row(self._finder, path, self.kind, labels, id_)


def part_folder(home: Path, part: str) -> Path | None:
    """The folder of a part; training rows may be in the data folder itself."""
    found = next(iter(part_folders(home, part)), None)
    return home if part == "train" and found is None else found


def label_folders(folder: Path) -> dict[str, Path]:
    """The folders of labels in the folder of a part, by label."""
    return {
        sub.name: sub
        for sub in sorted(folder.iterdir())
        if sub.is_dir() and not sub.name.startswith(".") and sub.name.lower() not in PART_OF
    }


def kind_of_folder(folder: Path) -> Kind | None:
    """The kind of the files in the folders of a folder; None if they are neither images nor texts."""
    below = [sub for sub in sorted(folder.iterdir()) if sub.is_dir() and sub.name[0] != "."]
    return next((k for k in KINDS if any(has_media(sub, k) for sub in below)), None)


def has_media(folder: Path, kind: Kind) -> bool:
    """Whether there is an image or a text below a folder."""
    return bool(media_files(folder, kind))
