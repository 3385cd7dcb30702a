"""CUB-200-2011: photographs of birds, labelled with the attributes seen in each."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from ssmlbench.api import (
    BadRow,
    DatasetAdapter,
    PublishedStatistics,
    Row,
    numbered_lines,
    whole_number,
)

ABSENT = 2
"""The mark of an attribute that no line of the file is about."""


class Cub(DatasetAdapter):
    """Photographs of 200 bird species, 312 attributes annotated image by image."""

    name = "cub"
    kind = "image"
    backbone = "resnet50"
    citation = "Wah et al., The Caltech-UCSD Birds-200-2011 Dataset, CNS-TR-2011-001"
    licence = "non-commercial research and education (not verified)"
    download = "CUB_200_2011.tgz from www.vision.caltech.edu/datasets/cub_200_2011"
    folders = ("CUB_200_2011", "CUB")
    layout = """
attributes.txt                                        (or CUB_200_2011/attributes/attributes.txt)
CUB_200_2011/images.txt                               (or these files directly)
CUB_200_2011/train_test_split.txt
CUB_200_2011/attributes/image_attribute_labels.txt
CUB_200_2011/images/001.Black_footed_Albatross/…jpg
"""
    published = PublishedStatistics("HML Table 1", 5994, 5794, 312, 31.47)
    notes = ("an attribute counts as there whatever the annotator's certainty",)

    def label_names(self) -> list[str]:
        file = self.path("attributes.txt", *self._below("attributes/attributes.txt"))
        return self.counted_texts(file)

    def rows(self, split: str) -> Iterator[Row | BadRow]:
        wanted = {"train": "1", "test": "0"}[split]
        files, flags = self._file("images.txt"), self._file("train_test_split.txt")
        names, split_of = self.numbered_texts(files), self.numbered_texts(flags)
        if split == "train":  # the files hold both splits: report once
            yield from self._misplaced(flags, names, split_of)
        # The mark of each attribute: 0, 1, or ABSENT as long as no line has said it.
        blank = bytes([ABSENT]) * len(self.label_names())
        marks = {image: bytearray(blank) for image in names if split_of.get(image) == wanted}
        yield from self._read_attributes(marks, names, report=split == "train")
        images = self._file("images")
        for image, found in marks.items():
            file = images / names[image]
            if ABSENT in found:
                reason = f"no line says whether attribute {found.index(ABSENT) + 1} is there"
                yield BadRow(self.where(file), f"image {image}: {reason}")
            else:
                labels = tuple(k for k, mark in enumerate(found) if mark)
                yield Row(file, labels, str(image), self.where(file))

    def _misplaced(
        self, file: Path, names: dict[int, str], split_of: dict[int, str]
    ) -> Iterator[BadRow]:
        """The images that are in one of the two lists only, or in no split."""
        for image in sorted(names.keys() | split_of.keys()):
            if image not in names:
                yield BadRow(self.where(file), f"image {image} is not in images.txt")
            elif split_of.get(image) not in ("0", "1"):
                found = split_of.get(image, "nothing")
                yield BadRow(self.where(file), f"image {image}: expected 0 or 1, found {found}")

    def _read_attributes(
        self, marks: dict[int, bytearray], names: dict[int, str], report: bool
    ) -> Iterator[BadRow]:
        """Fill in the images' attributes. The file is read for both splits and reported once."""
        file = self._file("attributes/image_attribute_labels.txt")
        label_count = len(self.label_names())
        for number, line in numbered_lines(file):
            # image, attribute, is it there, certainty, seconds; some lines have stray extra fields
            parts = line.split(maxsplit=3)
            image, attribute = (whole_number(part) for part in [*parts, "", ""][:2])
            if len(parts) < 3 or image is None or parts[2] not in ("0", "1"):
                if report and parts:
                    yield BadRow(
                        self.where(file, number), f"expected IMAGE ATTRIBUTE 0|1: {line!r}"
                    )
            elif attribute is None or not 1 <= attribute <= label_count:
                if report:
                    reason = f"attribute {parts[1]} outside 1..{label_count}"
                    yield BadRow(self.where(file, number), reason, "unknown label")
            elif image in marks:
                mark, before = int(parts[2]), marks[image][attribute - 1]
                marks[image][attribute - 1] = mark
                if before not in (ABSENT, mark):
                    reason = f"attribute {attribute} of image {image} is both 0 and 1"
                    yield BadRow(self.where(file, number), reason)
                    del marks[image]
            elif report and image not in names:
                yield BadRow(self.where(file, number), f"image {image} is not in images.txt")

    def _below(self, name: str) -> tuple[str, str]:
        return f"CUB_200_2011/{name}", name

    def _file(self, name: str) -> Path:
        return self.path(*self._below(name))
