"""Every raw layout becomes the task it should; what is wrong with one is told with its place."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ssmlbench.core.errors import UserError
from ssmlbench.data import DatasetAdapter, Task, is_prepared, prepare
from ssmlbench.data.published import compare_statistics
from ssmlbench.plugins.loader import Plugins
from tests.support import raw_layouts
from tests.support.raw_layouts import CUB_LINES, LAYOUTS, jpeg, npy, put

REGISTRY = Plugins().datasets


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSMLBENCH_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("SSMLBENCH_DATA", raising=False)


@pytest.fixture
def raw(tmp_path: Path) -> Path:
    return tmp_path / "raw"


def names_of(task: Task, split: str) -> list[list[str]]:
    return [[task.card.label_names[k] for k in np.flatnonzero(row)] for row in task.truth(split)]


def made(layout: str, folder: Path) -> DatasetAdapter:
    name, build, _ = LAYOUTS[layout]
    build(folder)
    return REGISTRY[name](folder)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_raw_layout_becomes_the_rows_it_holds(layout: str, raw: Path) -> None:
    adapter = made(layout, raw)
    task = prepare(adapter)
    train, test = LAYOUTS[layout][2]
    assert names_of(task, "train") == train
    assert names_of(task, "test") == test
    assert task.card.rows == {"train": len(train), "test": len(test)}
    assert task.card.mean_labels() == sum(map(len, train + test)) / len(train + test)
    assert task.card.skipped == {}
    assert len(task.inputs("train")) == len(train)
    kind = type(task.inputs("train")[0])
    assert issubclass(kind, {"text": str, "image": np.ndarray}[adapter.kind])


@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_fingerprint_is_the_same_wherever_the_files_are(
    layout: str, raw: Path, tmp_path: Path
) -> None:
    first = prepare(made(layout, raw)).card
    moved = tmp_path / "elsewhere" / "x"
    shutil.copytree(raw, moved)
    second = prepare(REGISTRY[first.name](moved), overwrite=True).card
    assert (first.fingerprint, first.rows) == (second.fingerprint, second.rows)
    assert first.source != second.source


@pytest.mark.parametrize("layout", LAYOUTS)
def test_verify_says_what_differs_from_the_published_numbers(
    layout: str, raw: Path, ssmlbench: Callable[..., Any]
) -> None:
    adapter = made(layout, raw / LAYOUTS[layout][0])
    if layout not in ("aapd-tsv", "awa2", "coco2014"):  # one a kind through a process of its own
        found = compare_statistics(prepare(adapter).card, adapter.published)
        assert {each.name: each.same for each in found}["train rows"] is False
        return
    done = ssmlbench("data", "verify", adapter.name, "--data-dir", raw)
    assert done.returncode == 1, done.stderr
    assert "differs: labels: " in done.stdout
    assert "note: " in done.stdout


def test_awa2_says_that_train_and_test_are_different_animals(raw: Path) -> None:
    card = prepare(made("awa2", raw)).card
    assert any("disjoint animal classes" in note for note in card.notes)


def test_the_texts_are_read_in_the_right_encoding_and_line_by_line(raw: Path) -> None:
    assert prepare(made("ohsumed", raw / "o")).inputs("train")[0] == "Café-au-lait spots."
    # U+2028 is no line end in a TSV
    assert prepare(made("goemotions", raw / "g")).inputs("train")[1] == "What\u2028now?"
    stories = prepare(made("reuters-sgml", raw / "r"))
    assert stories.inputs("train")[0] == "TITLE 1 A <AB> co. Reuter"
    assert stories.inputs("test")[0].startswith("TITLE 5")
    assert "brief" in stories.inputs("test")[0]


def test_images_are_kept_as_the_bytes_of_their_files(raw: Path) -> None:
    import datasets

    task = prepare(made("coco2014", raw))
    column = datasets.Dataset.from_file(str(task.folder / "train.arrow")).data["input"]
    stored = column[0].as_py()
    file = raw / "train2014" / "COCO_train2014_000000000005.jpg"
    assert stored == {"bytes": file.read_bytes(), "path": None}


# (layout, file to write, its new content, what the error must say, good rows with --skip-bad)
GOOD_TSV = "101\tfirst\n"
MALFORMED: dict[str, tuple[str, str, str | bytes, str, str, int]] = {
    "a label string of the wrong length": (
        "aapd-tsv", "train.tsv", GOOD_TSV + "10\tshort\n",
        "train.tsv line 2: the label string has 2 digits, expected 3",
        "label string of the wrong length", 1,
    ),
    "a label string with other characters": (
        "aapd-tsv", "train.tsv", GOOD_TSV + "1x1\tx\n", "train.tsv line 2: label string '1x1'",
        "malformed row", 1,
    ),
    "no tab": (
        "aapd-tsv", "train.tsv", GOOD_TSV + "101 no tab\n", "train.tsv line 2: no tab",
        "malformed row", 1,
    ),
    "an empty text": (
        "aapd-tsv", "train.tsv", GOOD_TSV + "100\t \n", "train.tsv line 2: the text is empty",
        "malformed row", 1,
    ),
    "bytes that are not UTF-8": (
        "aapd-tsv", "train.tsv", GOOD_TSV.encode() + b"100\tcaf\xe9\n",
        "train.tsv line 2: the text is not valid UTF-8", "malformed row", 1,
    ),
    "a text without labels": (
        "aapd-pairs", "label_train", "cs.CV\ncs.IT\n",
        "text_train line 3: label_train has no line 3", "malformed row", 2,
    ),
    "a label that is not one of the data set's": (
        "goemotions", "train.tsv", "a\t28\tx8\nb\t3\tx9\n",
        "train.tsv line 1: label position 28 outside 0..27", "unknown label", 1,
    ),
    "an id that occurs twice": (
        "goemotions", "train.tsv", "a\t1\tx8\nb\t3\tx8\n",
        "train.tsv line 2: id 'x8' occurs twice", "duplicate id", 1,
    ),
    "a row with columns missing": (
        "goemotions", "train.tsv", "a\t1\tx8\nb\t3\n", "train.tsv line 2: 2 columns, expected 3",
        "malformed row", 1,
    ),
    "label ids that are no numbers": (
        "goemotions", "train.tsv", "a\t1\tx8\nb\tjoy\tx7\n", "train.tsv line 2: label ids 'joy'",
        "malformed row", 1,
    ),
    "an unknown category folder": (
        "ohsumed", "training/C24/0009", "x", "training/C24: folder C24 is none of", "unknown label",
        2,
    ),
    "an image that is cut off": (
        "coco2014", "train2014/COCO_train2014_000000000007.jpg", jpeg(1, (64, 64))[:700],
        "train2014/COCO_train2014_000000000007.jpg: image COCO_train2014_000000000007.jpg cannot",
        "unreadable image", 1,
    ),
    "a file that is no image": (
        "awa2", "Animals_with_Attributes2/JPEGImages/antelope/antelope_1.jpg", "<html>",
        "antelope_1.jpg cannot be read", "unreadable image", 1,
    ),
    "an annotation of an unknown category": (
        "coco2014", "annotations/instances_train2014.json",
        raw_layouts.coco_instances([5], [(5, 1), (5, 99)], "train2014"),
        "annotation 2: no category has id 99", "unknown label", 1,
    ),
    "an annotation of an unknown image": (
        "coco2014", "annotations/instances_train2014.json",
        raw_layouts.coco_instances([5], [(5, 1), (4, 1)], "train2014"),
        "annotation 2: no image has id 4", "malformed row", 1,
    ),
    "a class that is not in the list": (
        "awa2", "Animals_with_Attributes2/trainclasses.txt", "antelope\nunicorn\n",
        "trainclasses.txt line 2: 'unicorn' is not in classes.txt", "unknown label", 2,
    ),
    "an attribute row of the wrong length": (
        "awa2", "Animals_with_Attributes2/predicate-matrix-binary.txt", "1 0 1\n1 1\n",
        "predicate-matrix-binary.txt line 2: 2 values, expected 3",
        "label string of the wrong length", -1,
    ),
    "a class line that is malformed": (
        "voc2012", "VOCdevkit/VOC2012/ImageSets/Main/cat_train.txt",
        "2008_01 1\n2008_02 1\n2008_02 maybe\n",
        "cat_train.txt line 3: expected an id and 1, 0 or -1", "malformed row", 2,
    ),
    "a class line of an image that is not listed": (
        "voc2012", "VOCdevkit/VOC2012/ImageSets/Main/cat_train.txt", "2008_01 1\n2008_02 1\n2007_09 1\n",
        "cat_train.txt line 3: image 2007_09 is not listed in train.txt", "malformed row", 2,
    ),
    "an image of the list that is not there": (
        "nuswide", "ImageList/TrainImagelist.txt", "actor\\01.jpg\nbear\\99.jpg\n",
        "TrainImagelist.txt line 2: image 99.jpg does not exist", "unreadable image", 1,
    ),
    "a label file that is shorter": (
        "nuswide", "Groundtruth/TrainTestLabels/Labels_animal_Train.txt", "1\n",
        "TrainImagelist.txt line 2: Labels_animal_Train.txt has ''", "malformed row", 1,
    ),
    "a label file of the re-crawl with other numbers": (
        "nuswide-recrawl", "formatted_train_labels.npy", npy([[1, 0, 2], [0, 1, 0]]),
        "formatted_train_images.npy row 1: its labels are not all 0 or 1", "malformed row", 1,
    ),
    "an attribute number that is too large": (
        "cub", "CUB_200_2011/attributes/image_attribute_labels.txt", "\n".join([*CUB_LINES, "1 4 1 3 2"]),
        "image_attribute_labels.txt line 10: attribute 4 outside 1..3", "unknown label", 2,
    ),
    "an attribute line that is malformed": (
        "cub", "CUB_200_2011/attributes/image_attribute_labels.txt", "\n".join([*CUB_LINES, "1 x"]),
        "image_attribute_labels.txt line 10: expected IMAGE ATTRIBUTE", "malformed row", 2,
    ),
    "a story that is not closed": (
        "reuters-sgml", "reut2-002.sgm", '\n<REUTERS TOPICS="YES" LEWISSPLIT="TRAIN" NEWID="9">\n',
        "reut2-002.sgm line 2: <REUTERS> is not closed", "malformed row", 2,
    ),
    "a story without a split": (
        "reuters-json", "reuters-001.json", '[{"title": "x", "topics": ["grain"]}]',
        "reuters-001.json line 1: no lewis_split", "malformed row", 1,
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", MALFORMED)
def test_what_is_wrong_is_told_with_its_place_and_skipped_on_demand(case: str, raw: Path) -> None:
    layout, file, content, message, kind, good = MALFORMED[case]
    adapter = made(layout, raw)
    put(raw / file, content)
    with pytest.raises(UserError) as error:
        prepare(adapter)
    assert message in str(error.value)
    assert f"1 bad row ({kind}: 1)" in str(error.value)
    assert "--skip-bad" in str(error.value)
    assert not is_prepared(adapter)
    if good < 0:  # the only class of the test split is bad: nothing is left
        with pytest.raises(UserError, match="test split has no rows"):
            prepare(adapter, skip_bad=True)
        return
    card = prepare(adapter, skip_bad=True).card
    assert card.rows["train"] == good
    assert card.skipped == {kind: 1}


def test_the_first_few_bad_rows_are_shown_and_all_are_counted(raw: Path) -> None:
    adapter = made("aapd-tsv", raw)
    put(raw / "train.tsv", GOOD_TSV + "10\tx\n" * 7 + "x\n" * 2)
    with pytest.raises(UserError) as error:
        prepare(adapter)
    lines = str(error.value).splitlines()
    counts = "label string of the wrong length: 7, malformed row: 2"
    assert lines[0] == f"data set aapd: 9 bad rows ({counts})"
    assert [line.split(":")[0] for line in lines[1:6]] == [
        f"  train.tsv line {n}" for n in range(2, 7)
    ]
    assert lines[6] == "  … and 4 more"


def test_an_id_of_train_that_comes_again_in_test_is_told(raw: Path) -> None:
    adapter = made("goemotions", raw)
    put(raw / "test.tsv", "Oh no\t25\tx1\nfine\t1\tx9\n")
    with pytest.raises(UserError, match=r"test\.tsv line 1: id 'x1' occurs twice"):
        prepare(adapter)


def test_an_empty_split_is_an_error_that_skip_bad_does_not_hide(raw: Path) -> None:
    adapter = made("goemotions", raw)
    put(raw / "test.tsv", "")
    for skip_bad in (False, True):
        with pytest.raises(UserError, match="its test split has no rows"):
            prepare(adapter, skip_bad=skip_bad)


@pytest.mark.parametrize("name", [n for n in REGISTRY if REGISTRY[n].layout])
def test_missing_files_are_told_on_one_screen(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    adapter = REGISTRY[name]()
    if adapter.hub:
        monkeypatch.setattr("huggingface_hub.HfApi.dataset_info", unreachable)
    (tmp_path / "empty" / name).mkdir(parents=True)
    for nowhere in (adapter, REGISTRY[name](data_dir=tmp_path / "empty")):
        with pytest.raises(UserError) as error:
            prepare(nowhere)
        text = str(error.value)
        assert len(text.splitlines()) <= 24
        assert max(map(len, text.splitlines())) <= 200
        assert "download:" in text
        assert f"DIR/{name}" in text
        assert "--data-dir" in text
        assert "should look like" in text
        assert adapter.layout.strip().splitlines()[0] in text
    assert not list((tmp_path / "cache" / "tasks").glob("*.unfinished"))


def unreachable(*arguments: object, **options: object) -> None:
    raise ConnectionError("no network")


def test_a_missing_split_and_a_packed_archive_are_named(raw: Path) -> None:
    adapter = made("aapd-pairs", raw)
    (raw / "text_train").unlink()
    with pytest.raises(UserError, match="text_train is missing"):
        prepare(adapter)
    put(raw / "o" / "ohsumed-first-20000-docs.tar.gz", "x")
    with pytest.raises(UserError, match=r"unpack first: ohsumed-first-20000-docs\.tar\.gz"):
        prepare(REGISTRY["ohsumed"](raw / "o"))


def test_the_hub_is_asked_for_a_pinned_revision_and_gives_the_same_rows(
    raw: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import datasets

    from_files = prepare(made("goemotions", raw)).card
    asked = []
    rows = {
        "train": [("Thanks!", [15, 17], "x1"), ("What\u2028now?", [27], "x2")],
        "test": [("Oh no", [25], "x3")],
    }

    def load(repository: str, config: str, *, revision: str, split: str) -> Any:
        asked.append((repository, config, revision, split))
        columns = zip(*rows[split], strict=True)
        return datasets.Dataset.from_dict(dict(zip(("text", "labels", "id"), columns, strict=True)))

    monkeypatch.setattr(datasets, "load_dataset", load)
    monkeypatch.setattr("huggingface_hub.HfApi.dataset_info", lambda *_, **__: None)
    card = prepare(REGISTRY["goemotions"](), overwrite=True).card
    assert card.fingerprint == from_files.fingerprint
    assert card.source == f"{asked[0][0]}@{asked[0][2]}"
    assert [split for *_, split in asked] == ["train", "test"]
    assert len(asked[0][2]) == 40


def test_a_folder_is_found_below_the_data_folder_under_its_usual_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    LAYOUTS["voc2012"][1](tmp_path / "data")  # makes data/VOCdevkit
    (tmp_path / "data" / "VOCdevkit" / "VOC2012").rename(tmp_path / "data" / "VOC2012")
    monkeypatch.setenv("SSMLBENCH_DATA", str(tmp_path / "data"))
    shutil.rmtree(tmp_path / "data" / "VOCdevkit")
    assert prepare(REGISTRY["voc2012"]()).card.rows == {"train": 2, "test": 1}


def test_a_prepared_copy_never_passes_for_another_folder(
    raw: Path, ssmlbench: Callable[..., Any]
) -> None:
    made("goemotions", raw / "one" / "goemotions")
    made("goemotions", raw / "two" / "goemotions")
    put(raw / "two" / "goemotions" / "test.tsv", "another\t1\tz\n")
    assert ssmlbench("data", "prepare", "goemotions", "--data-dir", raw / "one").returncode == 0
    # without a folder the prepared copy is used
    assert "already" in ssmlbench("data", "prepare", "goemotions").stdout
    refused = ssmlbench("data", "prepare", "goemotions", "--data-dir", raw / "two")
    assert refused.returncode == 2
    assert "was prepared from" in refused.stderr
    again = ssmlbench("data", "prepare", "goemotions", "--from", raw / "two" / "goemotions")
    assert again.returncode == 0, again.stderr
    assert "two/goemotions" in again.stdout


def test_the_commands_print_the_card_and_the_list(raw: Path, ssmlbench: Callable[..., Any]) -> None:
    made("awa2", raw)
    bad = raw / "Animals_with_Attributes2" / "JPEGImages" / "antelope" / "antelope_3.jpg"
    put(bad, "no image")
    stopped = ssmlbench("data", "prepare", "awa2", "--from", raw)
    assert stopped.returncode == 2
    assert "antelope_3.jpg" in stopped.stderr
    assert "Traceback" not in stopped.stderr
    done = ssmlbench("data", "prepare", "awa2", "--from", raw, "--skip-bad")
    assert done.returncode == 0, done.stderr
    card = prepare(REGISTRY["awa2"]()).card
    for fact in ("2 train, 1 test", "2.000", "0.6667", "1 (unreadable image)", "stripes"):
        assert fact in done.stdout
    for fact in (card.licence, card.citation, card.fingerprint, "disjoint animal classes"):
        assert fact in done.stdout
    listed = ssmlbench("data", "list").stdout
    assert "prepared" in next(line for line in listed.splitlines() if " awa2 " in line)
    assert "no files" in next(line for line in listed.splitlines() if " cub " in line)


def test_the_data_commands_do_not_load_torch() -> None:
    import subprocess
    import sys

    code = (
        "import sys; from ssmlbench.cli import data as data_cli;"
        "data_cli.list_command(); sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True).returncode == 0


def test_a_killed_preparation_leaves_nothing_that_looks_finished(raw: Path) -> None:
    adapter = made("goemotions", raw)

    def stop(split: str, rows: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        prepare(adapter, report=stop)
    assert not is_prepared(adapter)
    assert prepare(adapter).card.rows["train"] == 2


def test_a_card_survives_the_disk(raw: Path) -> None:
    task = prepare(made("coco2014", raw))
    assert json.loads((task.folder / "card.json").read_text())["rows"] == {"train": 2, "test": 1}
    assert Task(task.folder).card == task.card
