"""NUS-WIDE: Flickr photographs with 81 concepts, from the official lists or Cole's re-crawl."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import zip_longest
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ssmlbench.api import (
    BadRow,
    DatasetAdapter,
    PublishedStatistics,
    Row,
    UserError,
    numbered_lines,
    read_npy,
)


class NusWide(DatasetAdapter):
    """Flickr photographs, 81 concepts; the official lists, or the papers' (Cole et al., CVPR 2021)."""

    name = "nuswide"
    kind = "image"
    backbone = "resnet50"
    citation = "Chua et al., NUS-WIDE: A Real-World Web Image Database, CIVR 2009"
    licence = "Flickr terms of use (the images' own)"
    download = (
        "Flickr.zip (on request), ImageList, Groundtruth and ConceptsList from lms.comp.nus.edu.sg"
    )
    folders = ("NUS-WIDE", "nus", "nus_wide")
    layout = """
ImageList/TrainImagelist.txt                              lines such as actor\\0001_2124494179.jpg
ImageList/TestImagelist.txt
Groundtruth/TrainTestLabels/Labels_airport_Train.txt      (or TrainTestLabels/…) 0 or 1 a line
Groundtruth/TrainTestLabels/Labels_airport_Test.txt
ConceptsList/Concepts81.txt                               (or Concepts81.txt)
Flickr/actor/0001_2124494179.jpg                          (or images/…)
or, of the re-crawl (caltech.box.com/v/single-positive-multi-label):
formatted_train_images.npy, formatted_val_images.npy      file names below Flickr/
formatted_train_labels.npy, formatted_val_labels.npy      rows of 81 zeros and ones
Flickr/…
"""
    published = PublishedStatistics("HML Table 1", 150000, 60260, 81, 1.89)

    def card_notes(self) -> list[str]:
        if self._recrawled:
            return ["the re-crawl's files do not name their columns: labels are numbered as there"]
        return [
            "the papers' row counts are those of a re-crawl (Cole et al., CVPR 2021); the official "
            "lists are longer, and images that are gone need --skip-bad"
        ]

    @property
    def _recrawled(self) -> bool:
        return self.has("formatted_train_images.npy")

    def label_names(self) -> list[str]:
        if self._recrawled:
            return [f"label-{k:02d}" for k in range(self._matrix("train").shape[1])]
        file = self.path("ConceptsList/Concepts81.txt", "Concepts81.txt")
        return sorted(line.strip() for _, line in numbered_lines(file) if line.strip())

    def rows(self, split: str) -> Iterator[Row | BadRow]:
        return self._recrawled_rows(split) if self._recrawled else self._official_rows(split)

    def _recrawled_rows(self, split: str) -> Iterator[Row | BadRow]:
        part = {"train": "train", "test": "val"}[split]
        listing = self.path(f"formatted_{part}_images.npy")
        names, matrix = read_npy(listing), self._matrix(part)
        images = self.path("Flickr", "images")
        if names.shape != matrix.shape[:1]:
            raise self.missing(f"formatted_{part}_labels.npy does not have a row for each image")
        if matrix.shape[1] != len(self.label_names()):
            raise self.missing(f"formatted_{part}_labels.npy has other columns than that of train")
        for number, (name, cells) in enumerate(zip(names, matrix, strict=True), start=1):
            where = f"{self.where(listing)} row {number}"
            if np.isin(cells, (0, 1)).all():
                labels = tuple(int(k) for k in np.flatnonzero(cells))
                yield Row(images / str(name), labels, str(name), where)
            else:
                yield BadRow(where, "its labels are not all 0 or 1")

    def _matrix(self, part: str) -> NDArray[Any]:
        """The labels of the re-crawl's images, N × K."""
        file = self.path(f"formatted_{part}_labels.npy")
        matrix = read_npy(file)
        if matrix.ndim != 2 or matrix.dtype.kind not in "buif":
            raise UserError(
                f"{file}: {matrix.ndim}-dimensional {matrix.dtype}, expected a row of numbers for "
                "each image"
            )
        return matrix

    def _official_rows(self, split: str) -> Iterator[Row | BadRow]:
        part = split.capitalize()
        listing = self.path(f"ImageList/{part}Imagelist.txt")
        truth = self.path("Groundtruth/TrainTestLabels", "TrainTestLabels")
        images = self.path("Flickr", "images")
        files = [truth / f"Labels_{name}_{part}.txt" for name in self.label_names()]
        there = {*truth.glob(f"Labels_*_{part}.txt")}
        if more := sorted(there - {*files}):
            raise self.missing(f"the concept of {more[0].name} is not in Concepts81.txt")
        for file in files:
            if file not in there:
                raise self.missing(f"{self.where(file)[:100]} is missing")
        # 82 files side by side: nothing is held but a line of each
        columns = [numbered_lines(file) for file in (listing, *files)]
        rows = zip_longest(*columns, fillvalue=(0, ""))
        for number, lines in enumerate(rows, start=1):
            where = self.where(listing, number)
            name, *digits = (line.strip() for _, line in lines)
            if not name:
                yield BadRow(where, "the label files have more lines than the image list")
            elif wrong := [k for k, digit in enumerate(digits) if digit not in ("0", "1")]:
                reason = f"{files[wrong[0]].name} has {digits[wrong[0]]!r}, expected 0 or 1"
                yield BadRow(where, reason)
            else:
                name = name.replace("\\", "/")
                labels = tuple(k for k, digit in enumerate(digits) if digit == "1")
                yield Row(images / name, labels, name, where)
