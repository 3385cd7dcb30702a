"""Raw files of built-in data sets: one file of each form, in a miniature whose other files are good."""

from __future__ import annotations

import tempfile
from functools import cache, partial
from pathlib import Path

from ssmlbench.data.adapter import DatasetAdapter
from ssmlbench.data.row_checks import RowChecker
from ssmlbench.plugins.loader import Plugins
from tests.fuzz.attack import Target
from tests.support.raw_layouts import LAYOUTS

FILES = {
    "aapd-pairs": ("text_train", "label_train"),
    "aapd-tsv": ("train.tsv",),
    "ohsumed": ("training/C01/0001",),
    "voc2012": (
        "VOCdevkit/VOC2012/ImageSets/Main/train.txt",
        "VOCdevkit/VOC2012/ImageSets/Main/cat_train.txt",
    ),
    "coco2014": ("annotations/instances_train2014.json", "annotations/instances_val2014.json"),
    "awa2": (
        "Animals_with_Attributes2/classes.txt",
        "Animals_with_Attributes2/predicates.txt",
        "Animals_with_Attributes2/predicate-matrix-binary.txt",
        "Animals_with_Attributes2/trainclasses.txt",
    ),
    "nuswide": (
        "ConceptsList/Concepts81.txt",
        "ImageList/TrainImagelist.txt",
        "Groundtruth/TrainTestLabels/Labels_airport_Train.txt",
    ),
    "nuswide-recrawl": ("formatted_train_images.npy", "formatted_train_labels.npy"),
    "cub": (
        "attributes.txt",
        "CUB_200_2011/images.txt",
        "CUB_200_2011/train_test_split.txt",
        "CUB_200_2011/attributes/image_attribute_labels.txt",
    ),
    "goemotions": ("train.tsv",),
    "reuters-sgml": ("reut2-000.sgm",),
    "reuters-json": ("reuters-000.json",),
}
"""Of each layout, by its name in LAYOUTS."""


def read_layout(layout: str, file: str, content: bytes, folder: Path) -> None:
    """Read a layout to its end, as `prepare` does, with the content in the place of one file."""
    raw = folder / "raw"
    if not raw.is_dir():
        LAYOUTS[layout][1](raw)
    (raw / file).write_bytes(content)
    adapter = adapter_of(layout)(raw)
    checker = RowChecker(adapter, len(adapter.label_names()))
    for split in adapter.splits():
        checker.ids.start_split()
        for row in adapter.rows(split):
            checker.checked(row, split, row.where)


def good_file(layout: str, file: str) -> list[bytes]:
    with tempfile.TemporaryDirectory() as folder:
        LAYOUTS[layout][1](Path(folder))
        return [(Path(folder) / file).read_bytes()]


@cache
def adapter_of(layout: str) -> type[DatasetAdapter]:
    return Plugins().datasets[LAYOUTS[layout][0]]


RAW_FILES = {
    f"{layout}-{Path(file).stem}": Target(
        partial(read_layout, layout, file), partial(good_file, layout, file)
    )
    for layout, files in FILES.items()
    for file in files
}
