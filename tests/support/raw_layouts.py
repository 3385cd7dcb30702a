"""Miniatures of the raw layouts, as small as they can be and still be read."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
from PIL import Image


def jpeg(seed: int = 0, size: tuple[int, int] = (24, 16)) -> bytes:
    pixels = np.random.default_rng(seed).integers(0, 256, (size[1], size[0], 3), dtype=np.uint8)
    content = io.BytesIO()
    Image.fromarray(pixels).save(content, format="JPEG")
    return content.getvalue()


def put(file: Path, content: str | bytes, encoding: str = "utf-8") -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(content.encode(encoding) if isinstance(content, str) else content)
    return file


def npy(values: list[list[int]]) -> bytes:
    content = io.BytesIO()
    np.save(content, np.array(values))
    return content.getvalue()


def aapd_pairs(folder: Path) -> None:
    put(folder / "text_train", "a first text\nsecond\nthird\n")
    put(folder / "label_train", "cs.CV stat.ML\ncs.IT\ncs.CV\n")
    put(folder / "text_test", "fourth\n")
    put(folder / "label_test", "math.IT cs.IT\n")
    put(folder / "text_val", "not read\n")


def aapd_tsv(folder: Path) -> None:
    put(folder / "train.tsv", "101\tfirst\n010\tsecond with\ta tab\n")
    put(folder / "test.tsv", "001\tthird\n")


def ohsumed(folder: Path) -> None:
    text = "Caf\xe9-au-lait\n   spots."
    for place in ("training/C01/0001", "training/C04/0001", "training/C23/0002", "test/C04/0003"):
        put(folder / place, text if place.endswith("1") else f"doc {place[-1]}", "latin-1")


def voc2012(folder: Path) -> None:
    from ssmlbench.core.paths import builtin_root
    from ssmlbench.plugins.loader import load_file

    root = folder / "VOCdevkit" / "VOC2012"
    rows = {"train": {"2008_02": ["cat"], "2008_01": ["cat", "person"]}, "val": {"2009_01": []}}
    for part, images in rows.items():
        put(root / "ImageSets" / "Main" / f"{part}.txt", "".join(f"{i}\n" for i in images))
        for name in load_file(builtin_root() / "datasets" / "voc2012.py").CLASSES:
            lines = [f"{i} {' 1' if name in found else '-1'}" for i, found in images.items()]
            if name == "dog":
                lines = [f"{i}  0" for i in images]  # only there as `difficult`
            put(root / "ImageSets" / "Main" / f"{name}_{part}.txt", "\n".join(lines) + "\n")
        for seed, image in enumerate(images):
            put(root / "JPEGImages" / f"{image}.jpg", jpeg(seed))
    # 2009_01 holds a sofa
    sofa = root / "ImageSets" / "Main" / "sofa_val.txt"
    put(sofa, "2009_01  1\n")


def coco_instances(images: list[int], pairs: list[tuple[int, int]], part: str) -> str:
    return json.dumps(
        {
            "info": {"url": "x"},
            "licenses": [{"id": 1, "name": "free", "url": "x"}],
            "images": [{"id": i, "file_name": f"COCO_{part}_{i:012d}.jpg"} for i in images],
            "annotations": [
                {"id": n, "image_id": i, "category_id": c, "segmentation": [[1, 2]], "bbox": [0]}
                for n, (i, c) in enumerate(pairs)
            ],
            "categories": [{"id": 3, "name": "car"}, {"id": 1, "name": "person"}],
        }
    )


def coco2014(folder: Path) -> None:
    train = coco_instances([7, 5, 6], [(7, 3), (7, 3), (5, 1), (5, 3)], "train2014")
    put(folder / "annotations" / "instances_train2014.json", train)
    val = coco_instances([9], [(9, 1)], "val2014")
    put(folder / "annotations" / "instances_val2014.json", val)
    for part, images in (("train2014", (5, 6, 7)), ("val2014", (9,))):
        for i in images:
            put(folder / part / f"COCO_{part}_{i:012d}.jpg", jpeg(i))


def awa2(folder: Path) -> None:
    root = folder / "Animals_with_Attributes2"
    put(root / "classes.txt", "      1\tantelope\n      2\tzebra+x\n")
    put(root / "predicates.txt", "      1\tblack\n      2\tstripes\n      3\tbig\n")
    put(root / "predicate-matrix-binary.txt", "1 0 1\n1 1 0\n")
    put(root / "trainclasses.txt", "antelope\n")
    put(root / "testclasses.txt", "zebra+x\n")
    for seed, name in enumerate(("antelope/antelope_2", "antelope/antelope_1", "zebra+x/zebra_1")):
        put(root / "JPEGImages" / f"{name}.jpg", jpeg(seed))


def nuswide(folder: Path) -> None:
    put(folder / "ConceptsList" / "Concepts81.txt", "airport\nanimal\n")
    put(folder / "ImageList" / "TrainImagelist.txt", "actor\\01.jpg\r\nbear\\02.jpg\r\n")
    put(folder / "ImageList" / "TestImagelist.txt", "bear\\03.jpg\r\n")
    labels = folder / "Groundtruth" / "TrainTestLabels"
    put(labels / "Labels_airport_Train.txt", "1\n0\n")
    put(labels / "Labels_animal_Train.txt", "1\n0\n")
    put(labels / "Labels_airport_Test.txt", "0\n")
    put(labels / "Labels_animal_Test.txt", "1\n")
    for seed, name in enumerate(("actor/01", "bear/02", "bear/03")):
        put(folder / "Flickr" / f"{name}.jpg", jpeg(seed))


def nuswide_recrawl(folder: Path) -> None:
    names = {"train": ["actor/01.jpg", "bear/02.jpg"], "val": ["bear/03.jpg"]}
    labels = {"train": [[1, 0, 1], [0, 0, 0]], "val": [[0, 1, 0]]}
    folder.mkdir(parents=True, exist_ok=True)
    for part, files in names.items():
        np.save(folder / f"formatted_{part}_images.npy", np.array(files))
        np.save(folder / f"formatted_{part}_labels.npy", np.array(labels[part], dtype=float))
        for seed, name in enumerate(files):
            put(folder / "Flickr" / name, jpeg(seed + 10 * (part == "val")))


CUB_LINES = [
    *("1 1 0 3 2.1", "1 2 1 3 2.1", "1 3 1 1 0"),
    *("2 1 1 4 1", "2 2 0 4 1", "2 3 0 4 1"),
    *("3 1 0 3 1", "3 2 0 3 1", "3 3 1 3 0 1.5"),
]


def cub(folder: Path) -> None:
    root = folder / "CUB_200_2011"
    put(folder / "attributes.txt", "1 has_bill::hooked\n2 has_wing::blue\n3 has_eye::red\n")
    put(root / "images.txt", "1 001.A/a.jpg\n2 001.A/b.jpg\n3 002.B/c.jpg\n")
    put(root / "train_test_split.txt", "1 1\n2 0\n3 1\n")
    put(root / "attributes" / "image_attribute_labels.txt", "\n".join(CUB_LINES) + "\n")
    for seed, name in enumerate(("001.A/a", "001.A/b", "002.B/c")):
        put(root / "images" / f"{name}.jpg", jpeg(seed))


def goemotions(folder: Path) -> None:
    put(folder / "train.tsv", "Thanks!\t15,17\tx1\r\nWhat\u2028now?\t27\tx2\r\n")
    put(folder / "test.tsv", "Oh no\t25\tx3\n")


def story(number: int, split: str, topics: list[str], body: str, used: str = "YES") -> str:
    listed = "".join(f"<D>{topic}</D>" for topic in topics)
    return (
        f'<REUTERS TOPICS="{used}" LEWISSPLIT="{split}" CGISPLIT="X" OLDID="1" NEWID="{number}">\n'
        f"<DATE>1-JAN-1987</DATE>\n<TOPICS>{listed}</TOPICS>\n<PLACES><D>usa</D></PLACES>\n"
        f"<TEXT>&#2;\n<TITLE>TITLE {number}</TITLE>\n<DATELINE>X</DATELINE>{body}</TEXT>\n"
        "</REUTERS>\n"
    )


def reuters21578(folder: Path) -> None:
    head = '<!DOCTYPE lewis SYSTEM "lewis.dtd">\n'
    first = (
        story(1, "TRAIN", ["grain", "wheat"], "<BODY>A &lt;AB> co. Reuter\n&#3;</BODY>")
        + story(2, "TRAIN", ["earn"], "<BODY>Profit</BODY>")
        + story(3, "TRAIN", ["grain"], "<BODY>unused</BODY>", used="NO")
        + story(4, "TRAIN", ["only-in-train"], "<BODY>Left out</BODY>")
    )
    put(folder / "reut2-000.sgm", head + first, "latin-1")
    second = story(5, "TEST", ["grain", "earn", "only-in-test"], "brief\n") + story(
        6, "NOT-USED", ["wheat"], ""
    )
    put(folder / "reut2-001.sgm", head + second, "latin-1")


def reuters_json(folder: Path) -> None:
    stories = [
        {"id": 1, "title": "T", "body": "b", "topics": ["grain"], "lewis_split": '"TRAIN"'},
        {"id": 2, "title": "T", "text": "c", "topics": ["grain", "x"], "lewis_split": "TEST"},
    ]
    put(folder / "reuters-000.json", json.dumps(stories))


# What each miniature must become: (train rows, test rows, labels of every row by name), by hand.
Expected = tuple[list[list[str]], list[list[str]]]
LAYOUTS: dict[str, tuple[str, Callable[[Path], None], Expected]] = {
    "aapd-pairs": (
        "aapd",
        aapd_pairs,
        ([["cs.CV", "stat.ML"], ["cs.IT"], ["cs.CV"]], [["cs.IT", "math.IT"]]),
    ),
    "aapd-tsv": (
        "aapd",
        aapd_tsv,
        ([["label-00", "label-02"], ["label-01"]], [["label-02"]]),
    ),
    "ohsumed": (
        "ohsumed",
        ohsumed,
        (
            [
                ["C01 Bacterial Infections and Mycoses", "C04 Neoplasms"],
                ["C23 Pathological Conditions, Signs and Symptoms"],
            ],
            [["C04 Neoplasms"]],
        ),
    ),
    "voc2012": ("voc2012", voc2012, ([["cat", "person"], ["cat"]], [["sofa"]])),
    "coco2014": ("coco2014", coco2014, ([["person", "car"], ["car"]], [["person"]])),
    "awa2": ("awa2", awa2, ([["black", "big"], ["black", "big"]], [["black", "stripes"]])),
    "nuswide": ("nuswide", nuswide, ([["airport", "animal"], []], [["animal"]])),
    "nuswide-recrawl": (
        "nuswide",
        nuswide_recrawl,
        ([["label-00", "label-02"], []], [["label-01"]]),
    ),
    "cub": (
        "cub",
        cub,
        ([["has_wing::blue", "has_eye::red"], ["has_eye::red"]], [["has_bill::hooked"]]),
    ),
    "goemotions": ("goemotions", goemotions, ([["gratitude", "joy"], ["neutral"]], [["sadness"]])),
    "reuters-sgml": ("reuters21578", reuters21578, ([["grain"], ["earn"]], [["earn", "grain"]])),
    "reuters-json": ("reuters21578", reuters_json, ([["grain"]], [["grain"]])),
}
