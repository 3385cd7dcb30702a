"""CUB-200-2011: photographs of birds, labelled with the attributes seen in each."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from ssmlbench.api import (
    BadRow,
    DatasetAdapter,
    PublishedStatistics,
    Row,
    UserError,
    numbered_lines,
    whole_number,
)


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
        return [name for _, name in self._pairs(file)]

    def rows(self, split: str) -> Iterator[Row | BadRow]:
        wanted = {"train": "1", "test": "0"}[split]
        in_split = {
            int(image)
            for image, flag in self._pairs(self._file("train_test_split.txt"))
            if flag == wanted
        }
        labels: dict[int, list[int]] = {image: [] for image in in_split}
        yield from self._read_attributes(labels, report=split == "train")
        images = self._file("images")
        for image, name in self._pairs(self._file("images.txt")):
            if image in labels:
                file = images / name
                yield Row(file, tuple(labels[image]), str(image), self.where(file))

    def _read_attributes(self, labels: dict[int, list[int]], report: bool) -> Iterator[BadRow]:
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
            elif parts[2] == "1" and image in labels:
                labels[image].append(attribute - 1)

    def _below(self, name: str) -> tuple[str, str]:
        return f"CUB_200_2011/{name}", name

    def _file(self, name: str) -> Path:
        return self.path(*self._below(name))

    def _pairs(self, file: Path) -> Iterator[tuple[int, str]]:
        """The lines `12 text` of a file, in the order of the numbers."""
        found = []
        for number, line in numbered_lines(file):
            text, _, value = line.strip().partition(" ")
            if not text:
                continue
            key = whole_number(text)
            if key is None or not value:
                where = self.where(file, number)
                raise UserError(f"data set {self.name}: {where}: expected a number and a text")
            found.append((key, value.strip()))
        return iter(sorted(found))
