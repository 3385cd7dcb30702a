"""Raw files with the same content in another form are read alike; other content never passes for it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ssmlbench.core.errors import UserError
from ssmlbench.data import Task, prepare
from ssmlbench.plugins.loader import Plugins
from tests.support.raw_layouts import LAYOUTS, npy, put, story

Edit = Callable[[Path], object]
AWA = "Animals_with_Attributes2"
CUB = "CUB_200_2011"
VOC = "VOCdevkit/VOC2012/ImageSets/Main"
MARK = b"\xef\xbb\xbf"


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSMLBENCH_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("SSMLBENCH_DATA", raising=False)


def prepared(layout: str, folder: Path, edit: Edit = lambda folder: None) -> Task:
    name, build, _ = LAYOUTS[layout]
    build(folder)
    edit(folder)
    return prepare(Plugins().datasets[name](folder), overwrite=True)


def changed(file: str, change: Callable[[bytes], bytes]) -> Edit:
    return lambda folder: put(folder / file, change((folder / file).read_bytes()))


def marked(file: str) -> Edit:
    return changed(file, lambda content: MARK + content)


def reversed_lines(file: str) -> Edit:
    return changed(file, lambda content: b"\n".join(content.strip().split(b"\n")[::-1]))


def replaced(file: str, old: str, new: str) -> Edit:
    return changed(file, lambda content: content.replace(old.encode(), new.encode()))


def more(file: str, line: str) -> Edit:
    return changed(file, lambda content: content + line.encode())


def coco(change: Callable[[dict[str, Any]], object], *parts: str) -> Edit:
    def edit(folder: Path) -> None:
        for part in parts or ("train",):
            file = folder / "annotations" / f"instances_{part}2014.json"
            content = json.loads(file.read_bytes())
            change(content)
            put(file, json.dumps(content))

    return edit


def reuters(**fields: object) -> Edit:
    def edit(folder: Path) -> None:
        file = folder / "reuters-000.json"
        put(file, json.dumps([story | fields for story in json.loads(file.read_bytes())]))

    return edit


def renamed(file: str, name: str) -> Edit:
    return lambda folder: (folder / file).rename((folder / file).with_name(name))


def utf_8_documents(folder: Path) -> None:
    for category in ("C01", "C04"):
        put(folder / "training" / category / "0001", "Caf\xe9-au-lait\n   spots.")


SAME: dict[str, tuple[str, Edit]] = {
    "a byte order mark before the texts": ("aapd-pairs", marked("text_train")),
    "a byte order mark before the labels": ("aapd-pairs", marked("label_train")),
    "a byte order mark before 0/1 strings": ("aapd-tsv", marked("train.tsv")),
    "a byte order mark before comments": ("goemotions", marked("test.tsv")),
    "a byte order mark before a document": ("ohsumed", marked("training/C23/0002")),
    "a byte order mark before a list of images": ("voc2012", marked(f"{VOC}/train.txt")),
    "a byte order mark before a column": (
        "nuswide", marked("Groundtruth/TrainTestLabels/Labels_animal_Train.txt"),
    ),
    "documents in UTF-8": ("ohsumed", utf_8_documents),
    "a hidden file of the system": ("ohsumed", lambda f: put(f / "training/C04/.DS_Store", "x")),
    "classes in another order": ("awa2", reversed_lines(f"{AWA}/classes.txt")),
    "attributes in another order": ("awa2", reversed_lines(f"{AWA}/predicates.txt")),
    "an image with an ending in upper case": (
        "awa2", renamed(f"{AWA}/JPEGImages/antelope/antelope_2.jpg", "antelope_2.JPG"),
    ),
    "an image called .jpeg": (
        "awa2", renamed(f"{AWA}/JPEGImages/antelope/antelope_2.jpg", "antelope_2.jpeg"),
    ),
    "lists of COCO in another order": (
        "coco2014", coco(lambda c: [c[k].reverse() for k in ("images", "annotations", "categories")]),
    ),
    "annotations with names": (
        "coco2014", coco(lambda c: [a.update(name="x", file_name="y") for a in c["annotations"]]),
    ),
    "topics with spaces": ("reuters-sgml", replaced("reut2-000.sgm", "grain<", "grain\n<")),
    "SGML with an ending in upper case": ("reuters-sgml", renamed("reut2-001.sgm", "reut2-001.SGM")),
}  # fmt: skip


@pytest.mark.parametrize("case", SAME)
def test_the_same_content_in_another_form_is_read_alike(case: str, tmp_path: Path) -> None:
    layout, edit = SAME[case]
    first = prepared(layout, tmp_path / "first").card
    second = prepared(layout, tmp_path / "second", edit).card
    assert second.label_names == first.label_names
    assert second.fingerprint == first.fingerprint


LONG = "x" * 5000


def long_animal(folder: Path) -> None:
    for name in ("classes.txt", "trainclasses.txt"):
        replaced(f"{AWA}/{name}", "antelope", LONG)(folder)


REFUSED: dict[str, tuple[str, Edit, str]] = {
    "a class whose name is too long for a folder": (
        "awa2", long_animal, f"JPEGImages/{LONG[:50]}",
    ),
    "a concept whose name is too long for a file": (
        "nuswide", more("ConceptsList/Concepts81.txt", LONG[:290]), "Labels_xxx",
    ),
    "a concept whose name leads elsewhere": (
        "nuswide", more("ConceptsList/Concepts81.txt", "../../x"), "_Train.txt is missing",
    ),
    "emotions with other numbers": (
        "goemotions",
        lambda folder: put(folder / "emotions.txt", "anger\nadmiration\n") and None,
        "emotions.txt calls label 0 'anger'",
    ),
    "texts in UTF-16": (
        "aapd-pairs", changed("text_train", lambda c: c.decode().encode("utf-16")), "UTF-16",
    ),
    "a document in UTF-16": (
        "ohsumed", changed("test/C04/0003", lambda c: c.decode().encode("utf-16")), "UTF-16",
    ),
    "a document that is packed": (
        "ohsumed", changed("test/C04/0003", lambda c: b"\x1f\x8b\x08\x08\0\0"), "zero bytes",
    ),
    "lines that end with a carriage return": (
        "aapd-pairs", changed("text_train", lambda c: c.replace(b"\n", b"\r")), r"end with \r",
    ),
    "labels with commas between them": (
        "aapd-pairs", replaced("label_train", "cs.CV stat.ML", "cs.CV,stat.ML"), "joined by spaces",
    ),
    "labels that look the same": (
        "aapd-pairs", replaced("label_test", "cs.IT", "cs.IT\u200b"), "look the same",
    ),
    "a matrix with a row too many": (
        "awa2", changed(f"{AWA}/predicate-matrix-binary.txt", lambda c: b"0 0 0\n" + c), "3 rows for",
    ),
    "numbers of classes with a gap": (
        "awa2", replaced(f"{AWA}/classes.txt", "2\t", "3\t"), "numbers are not 1, 2, 3",
    ),
    "an image that is no JPEG file": (
        "awa2", lambda f: put(f / AWA / "JPEGImages/antelope/a.png", b"x"), "not a .jpg file",
    ),
    "a class file that was cut off": (
        "voc2012", changed(f"{VOC}/cat_train.txt", lambda c: c[: c.index(b"\n")]),
        "cat_train.txt does not say 1, 0 or -1",
    ),
    "two marks of one image": (
        "voc2012", more(f"{VOC}/cat_train.txt", "2008_02 -1\n"), "has 1 in another line",
    ),
    "an image in no split": (
        "cub", replaced(f"{CUB}/train_test_split.txt", "3 1\n", ""), "expected 0 or 1, found nothing",
    ),
    "an image in an unknown split": (
        "cub", replaced(f"{CUB}/train_test_split.txt", "3 1\n", "3 2\n"), "expected 0 or 1, found 2",
    ),
    "a split of an unknown image": (
        "cub", more(f"{CUB}/train_test_split.txt", "9 1\n"), "image 9 is not in images.txt",
    ),
    "attributes that were cut off": (
        "cub", replaced(f"{CUB}/attributes/image_attribute_labels.txt", "3 3 1 3 0 1.5", ""),
        "image 3: no line says whether attribute 3",
    ),
    "an attribute that is 0 and 1": (
        "cub", more(f"{CUB}/attributes/image_attribute_labels.txt", "1 2 0 3 2\n"), "both 0 and 1",
    ),
    "attributes of an unknown image": (
        "cub", more(f"{CUB}/attributes/image_attribute_labels.txt", "9 2 0 3 2\n"),
        "image 9 is not in images.txt",
    ),
    "two attributes of one number": (
        "cub", replaced("attributes.txt", "3 has", "2 has"), "2 is 'has_wing::blue' in another line",
    ),
    "two files of one image": (
        "coco2014", coco(lambda c: c["images"].append(c["images"][2] | {"id": 5})), "id 5 has two",
    ),
    "two names of one category": (
        "coco2014", coco(lambda c: c["categories"].append({"id": 3, "name": "cat"}), "train", "val"),
        "id 3 has two",
    ),
    "a category that is no number": (
        "coco2014", coco(lambda c: c["annotations"][0].update(category_id=True)), "annotation 1 has",
    ),
    "annotations that come twice": (
        "coco2014",
        changed("annotations/instances_train2014.json", lambda c: c[:-1] + b', "annotations": []}'),
        "a name comes twice",
    ),
    "two texts of one document": (
        "ohsumed", lambda f: put(f / "training/C04/0001", "other"), "another text is called 0001",
    ),
    "topics that are a text": ("reuters-json", reuters(topics="grain"), "not a list of names"),
    "a title that is a list": ("reuters-json", reuters(title=["T"]), "title is not a text"),
    "a part of another name": ("reuters-json", reuters(lewis_split="TRAINING"), "is none of TRAIN"),
    "SGML of another part": (
        "reuters-sgml", replaced("reut2-000.sgm", '"TRAIN"', '"TRAINING"'), "is none of TRAIN",
    ),
    "SGML in lower case": (
        "reuters-sgml", lambda f: put(f / "x.sgm", story(9, "TRAIN", ["grain"], "").lower()),
        "no <REUTERS> in it",
    ),
    "SGML without topics": (
        "reuters-sgml", replaced("reut2-001.sgm", "TOPICS>", "topics>"), "without <TOPICS>",
    ),
    "concepts that were cut off": (
        "nuswide", replaced("ConceptsList/Concepts81.txt", "animal\n", ""),
        "Labels_animal_Train.txt is not in Concepts81.txt",
    ),
    "lists of classes that were cut off": (
        "awa2", changed(f"{AWA}/trainclasses.txt", lambda c: b""), "'antelope' is in neither",
    ),
    "an image outside the data folder": (
        "coco2014", coco(lambda c: c["images"][1].update(file_name="../../elsewhere.jpg")),
        "leads out of the data folder",
    ),
    "an absolute path of an image": (
        "nuswide", replaced("ImageList/TrainImagelist.txt", "bear\\02.jpg", "/etc/02.jpg"),
        "leads out of the data folder",
    ),
    "test labels with a column less": (
        "nuswide-recrawl", lambda f: put(f / "formatted_val_labels.npy", npy([[0, 1]])),
        "has other columns",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_content_that_is_damaged_or_unclear_is_refused(case: str, tmp_path: Path) -> None:
    layout, edit, message = REFUSED[case]
    with pytest.raises(UserError) as error:
        prepared(layout, tmp_path, edit)
    assert message in str(error.value)


def test_more_files_with_endings_in_upper_case_are_read(tmp_path: Path) -> None:
    extra = story(9, "TRAIN", ["grain"], "<BODY>more</BODY>")
    task = prepared("reuters-sgml", tmp_path, lambda f: put(f / "reut2-002.SGM", extra))
    assert np.array_equal(task.truth("train")[-1], [0, 1])
    assert task.card.rows["train"] == 3
