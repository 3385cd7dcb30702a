"""Animals with Attributes 2: photographs of animals, labelled with what their class is like."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from ssmlbench.api import (
    SPLITS,
    BadRow,
    DatasetAdapter,
    PublishedStatistics,
    Row,
    UserError,
    numbered_lines,
)


class Awa2(DatasetAdapter):
    """Photographs of 50 animals, 85 attributes; train and test are different animals."""

    name = "awa2"
    kind = "image"
    backbone = "resnet50"
    citation = "Xian et al., Zero-Shot Learning: A Comprehensive Evaluation, TPAMI 2018"
    licence = "each image's own, in its archive's licenses folder (not verified)"
    download = "AwA2-data.zip from cvml.ista.ac.at/AwA2"
    folders = ("Animals_with_Attributes2", "AwA2")
    layout = """
Animals_with_Attributes2/classes.txt                  (or these files directly)
Animals_with_Attributes2/predicates.txt
Animals_with_Attributes2/predicate-matrix-binary.txt
Animals_with_Attributes2/trainclasses.txt
Animals_with_Attributes2/testclasses.txt
Animals_with_Attributes2/JPEGImages/antelope/antelope_10001.jpg
"""
    published = PublishedStatistics("BBAM's released code", labels=85)
    notes = (
        "train and test are disjoint animal classes (trainclasses.txt, testclasses.txt): a "
        "zero-shot attribute task, whose test label prior differs from the training prior",
        "all images of a class share one label vector: as many distinct ones as classes",
    )

    def label_names(self) -> list[str]:
        return self.counted_texts(self._file("predicates.txt"))

    def rows(self, split: str) -> Iterator[Row | BadRow]:
        vectors = self._class_labels()
        lists = [numbered_lines(self._file(f"{part}classes.txt")) for part in SPLITS]
        listed = {line.strip() for lines in lists for _, line in lines}
        if absent := sorted(vectors.keys() - listed):
            raise UserError(
                f"data set {self.name}: {absent[0]!r} is in neither trainclasses.txt nor testclasses.txt"
            )
        listing = self._file(f"{split}classes.txt")
        for number, line in sorted(numbered_lines(listing), key=lambda pair: pair[1].strip()):
            animal = line.strip()
            if not animal:
                continue
            if animal not in vectors:
                where = self.where(listing, number)
                yield BadRow(where, f"{animal!r} is not in classes.txt", "unknown label")
                continue
            labels = vectors[animal]
            if isinstance(labels, BadRow):
                yield labels
                continue
            yield from self._images(self._file(f"JPEGImages/{animal}"), labels)

    def _images(self, folder: Path, labels: tuple[int, ...]) -> Iterator[Row | BadRow]:
        """The rows of a class."""
        files = sorted(file for file in folder.iterdir() if not file.name.startswith("."))
        if not files:
            yield BadRow(self.where(folder), "no image in it")
        for file in files:
            if file.suffix.lower() in (".jpg", ".jpeg"):
                yield Row(file, labels, file.stem, self.where(file))
            else:
                yield BadRow(self.where(file), "not a .jpg file")

    def _file(self, name: str) -> Path:
        return self.path(f"Animals_with_Attributes2/{name}", name)

    def _class_labels(self) -> dict[str, tuple[int, ...] | BadRow]:
        file = self._file("predicate-matrix-binary.txt")
        label_count = len(self.label_names())
        matrix = [(n, line.split()) for n, line in numbered_lines(file) if line.strip()]
        animals = self.counted_texts(self._file("classes.txt"))
        if len(matrix) != len(animals):
            raise UserError(
                f"data set {self.name}: {self.where(file)} has {len(matrix)} rows for the "
                f"{len(animals)} classes of classes.txt"
            )
        vectors: dict[str, tuple[int, ...] | BadRow] = {}
        for animal, (number, digits) in zip(animals, matrix, strict=True):
            where = self.where(file, number)
            if len(digits) != label_count:
                reason = f"{len(digits)} values, expected {label_count}"
                vectors[animal] = BadRow(where, reason, "label string of the wrong length")
            elif set(digits) - {"0", "1"}:
                vectors[animal] = BadRow(where, "a value is neither 0 nor 1")
            else:
                vectors[animal] = tuple(k for k, digit in enumerate(digits) if digit == "1")
        return vectors
