"""COCO 2014: photographs with the object categories annotated in them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from ssmlbench.api import BadRow, DatasetAdapter, PublishedStatistics, Row, UserError


class Coco2014(DatasetAdapter):
    """Photographs, 80 object categories; train2014 and val2014."""

    name = "coco2014"
    kind = "image"
    backbone = "resnet50"
    citation = "Lin et al., Microsoft COCO: Common Objects in Context, ECCV 2014"
    licence = "annotations CC BY 4.0; Flickr terms of use for the images"
    download = "annotations_trainval2014.zip, train2014.zip, val2014.zip from cocodataset.org"
    folders = ("coco", "COCO", "COCO2014")
    layout = """
annotations/instances_train2014.json
annotations/instances_val2014.json
train2014/COCO_train2014_000000000009.jpg      (or images/train2014/…)
val2014/COCO_val2014_000000000042.jpg
"""
    published = PublishedStatistics("HML Table 1", 82081, 40137, 80, 2.92)
    notes = (
        "test is val2014: the real test set has no public labels",
        "images without any annotated object are left out, as in the papers",
    )

    @cached_property
    def _categories(self) -> dict[int, str]:
        index = self._index("test")  # the smaller of two files with the same list
        return dict(index["categories"])

    def label_names(self) -> list[str]:
        return list(self._categories.values())

    def rows(self, split: str) -> Iterator[Row | BadRow]:
        index = self._index(split)
        where = self.where(self._annotations(split))
        if index["categories"] != self._categories:
            raise UserError(f"data set {self.name}: {where} has other categories than val2014's")
        positions = {category: k for k, category in enumerate(self._categories)}
        labels: dict[int, set[int]] = {}
        for number, (image, category) in enumerate(index["annotations"], start=1):
            if category not in positions:
                reason = f"annotation {number}: no category has id {category}"
                yield BadRow(where, reason, "unknown label")
            elif image not in index["images"]:
                yield BadRow(where, f"annotation {number}: no image has id {image}")
            else:
                labels.setdefault(image, set()).add(positions[category])
        part = self._part(split)
        folder = self.path(part, f"images/{part}")
        for image, found in sorted(labels.items()):
            file = folder / index["images"][image]
            yield Row(file, tuple(sorted(found)), f"{part}/{image}", self.where(file))

    def _part(self, split: str) -> str:
        return {"train": "train2014", "test": "val2014"}[split]

    def _annotations(self, split: str) -> Path:
        return self.path(f"annotations/instances_{self._part(split)}.json")

    def _index(self, split: str) -> dict[str, Any]:
        """Categories and images by id, and (image, category) of every annotation.

        Outlines and boxes are dropped as they are parsed: as objects they take gigabytes.
        """
        file = self._annotations(split)
        try:
            content = json.loads(file.read_bytes(), object_pairs_hook=_slim)
            categories = {entry.id: entry.name for entry in content["categories"]}
            images = {entry.id: entry.file_name for entry in content["images"]}
            annotations = [(entry.image_id, entry.category_id) for entry in content["annotations"]]
            _check_ids(content["categories"], "name")
            _check_ids(content["images"], "file_name")
            for number, pair in enumerate(annotations, start=1):
                if not all(type(value) is int for value in pair):
                    raise ValueError(f"annotation {number} has image and category {pair}")
            return {
                "categories": dict(sorted(categories.items())),
                "images": images,
                "annotations": annotations,
            }
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise UserError(
                f"{file}: not COCO instances ({type(error).__name__}: {error}); expected images, "
                "annotations and categories"
            ) from None


class Entry(NamedTuple):
    """What is read of an image, a category or an annotation; None where it has no such value."""

    id: Any
    name: Any
    file_name: Any
    image_id: Any
    category_id: Any


def _slim(pairs: list[tuple[str, Any]]) -> Any:
    value = dict(pairs)
    if len(value) < len(pairs):
        raise ValueError(f"a name comes twice in one object, one of {', '.join(value)}")
    if "id" in value or "image_id" in value:
        return Entry(*(value.get(name) for name in Entry._fields))
    return value


def _check_ids(entries: list[Entry], field: str) -> None:
    """Raise a ValueError unless every entry has an id of its own and a text in the field."""
    known: dict[int, str] = {}
    for entry in entries:
        text = getattr(entry, field)
        if type(entry.id) is not int or not isinstance(text, str):
            raise ValueError(f"id {entry.id!r} with the {field} {text!r}")
        if known.setdefault(entry.id, text) != text:
            raise ValueError(f"id {entry.id} has two: {known[entry.id]} and {text}")
