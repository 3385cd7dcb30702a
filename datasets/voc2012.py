"""PASCAL VOC 2012: photographs with the object classes seen in them, from its unpacked archive."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from ssmlbench.api import BadRow, DatasetAdapter, PublishedStatistics, Row, numbered_lines

CLASSES = (
    "aeroplane", "bicycle", "bird", "boat", "bottle", "bus", "car", "cat", "chair", "cow",
    "diningtable", "dog", "horse", "motorbike", "person", "pottedplant", "sheep", "sofa", "train",
    "tvmonitor",
)  # fmt: skip
MARKS = ("1", "0", "-1")


class Voc2012(DatasetAdapter):
    """Photographs, 20 object classes; train and val of the classification lists."""

    name = "voc2012"
    kind = "image"
    backbone = "resnet50"
    citation = "Everingham et al., The PASCAL Visual Object Classes Challenge 2012"
    licence = "Flickr terms of use (the images' own)"
    download = "VOCtrainval_11-May-2012.tar from host.robots.ox.ac.uk/pascal/VOC/voc2012"
    folders = ("VOCdevkit", "VOC2012")
    layout = """
VOCdevkit/VOC2012/ImageSets/Main/train.txt             (or from VOC2012/ or ImageSets/ on)
VOCdevkit/VOC2012/ImageSets/Main/val.txt
VOCdevkit/VOC2012/ImageSets/Main/aeroplane_train.txt   an id a line, and 1, 0 (difficult) or -1
VOCdevkit/VOC2012/ImageSets/Main/…
VOCdevkit/VOC2012/JPEGImages/2008_000002.jpg
"""
    published = PublishedStatistics("HML Table 1", 5717, 5823, 20, 1.44)
    notes = (
        "test is VOC's val: its real test set has no public labels",
        "an object that is only there as `difficult` does not count as a label",
    )

    def label_names(self) -> list[str]:
        return list(CLASSES)

    def rows(self, split: str) -> Iterator[Row | BadRow]:
        part = {"train": "train", "test": "val"}[split]
        root = self.path("VOCdevkit/VOC2012", "VOC2012", ".")
        lists = root / "ImageSets" / "Main"
        listing = self._in(lists, f"{part}.txt")
        listed = {line.strip() for _, line in numbered_lines(listing)} - {""}
        marks: dict[str, list[str]] = {image: [""] * len(CLASSES) for image in listed}
        for position, name in enumerate(CLASSES):
            yield from self._read_class(self._in(lists, f"{name}_{part}.txt"), position, marks)
        for image, found in sorted(marks.items()):
            file = root / "JPEGImages" / f"{image}.jpg"
            unclear = [k for k, mark in enumerate(found) if mark not in MARKS]
            if unclear:
                reason = f"{CLASSES[unclear[0]]}_{part}.txt does not say 1, 0 or -1 for it"
                yield BadRow(self.where(file), reason)
            else:
                positions = tuple(k for k, mark in enumerate(found) if mark == "1")
                yield Row(file, positions, image, self.where(file))

    def _in(self, folder: Path, name: str) -> Path:
        if not (folder / name).is_file():
            raise self.missing(f"ImageSets/Main/{name} is missing")
        return folder / name

    def _read_class(
        self, file: Path, position: int, marks: dict[str, list[str]]
    ) -> Iterator[BadRow]:
        """Fill in the marks of one class: 1, 0 or -1, and ? where two lines contradict each other."""
        for number, line in numbered_lines(file):
            parts = line.split()
            if not parts:
                continue
            if len(parts) != 2 or parts[1] not in MARKS:
                yield BadRow(self.where(file, number), f"expected an id and 1, 0 or -1: {line!r}")
            elif parts[0] not in marks:
                reason = f"image {parts[0]} is not listed in {file.name.rpartition('_')[2]}"
                yield BadRow(self.where(file, number), reason)
            elif marks[parts[0]][position] not in ("", parts[1]):
                reason = f"image {parts[0]} has {marks[parts[0]][position]} in another line"
                yield BadRow(self.where(file, number), reason)
                marks[parts[0]][position] = "?"
            else:
                marks[parts[0]][position] = parts[1]
