"""Formats of other libraries, written by those libraries themselves."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import dump_svmlight_file

import datasets
from ssmlbench.core.data_options import DataAddress, DataOptions
from ssmlbench.core.errors import UserError
from ssmlbench.data import Task, prepare
from ssmlbench.data.user_data import data_class
from ssmlbench.plugins.loader import Plugins
from tests.support.raw_layouts import jpeg, put

X = np.array([[1.5, 0.0, 2.0], [0.0, -3.0, 0.0], [4.0, 0.0, 0.5]], dtype=np.float32)
Y = np.array([[1, 0, 1, 0], [0, 1, 0, 0], [0, 0, 1, 1]])
TEXTS = ["one text", "another, with a comma", "a third"]
NAMES = ["art", "law", "sport", "war"]


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSMLBENCH_CACHE", str(tmp_path / "cache"))
    datasets.disable_progress_bars()


def read(path: Path | str, **options: Any) -> Task:
    return prepare(data_class(DataAddress(str(path), DataOptions(**options)))())


def vectors(task: Task, split: str) -> Any:
    return np.stack(task.inputs(split)[:])


def listed(y: np.ndarray = Y) -> list[list[str]]:
    return [[NAMES[k] for k in np.flatnonzero(row)] for row in y]


# Packed files, other encodings, JSON ----------------------------------------------------------


def test_tables_are_read_packed_and_in_the_encodings_that_pandas_writes(tmp_path: Path) -> None:
    texts = ["one “text”", "another, with a comma", "a third\nin two lines"]
    frame = pd.DataFrame({"text": texts, "labels": [json.dumps(row) for row in listed()]})
    lists = frame.assign(labels=listed())

    def folder(name: str) -> Path:
        (tmp_path / name / "mine").mkdir(parents=True)
        return tmp_path / name / "mine"

    frame.to_csv(folder("plain") / "train.csv", index=False)
    expected = read(tmp_path / "plain/mine").card.fingerprint
    for packing in ("gz", "bz2", "xz", "zip"):
        frame.to_csv(folder(packing) / f"train.csv.{packing}", index=False)
    for encoding in ("utf-16", "utf-32", "utf-8-sig"):
        frame.to_csv(folder(encoding) / "train.csv", index=False, encoding=encoding)
    frame.to_csv(folder("upper") / "train.CSV", index=False)
    lists.to_json(folder("jsonl") / "train.jsonl.gz", orient="records", lines=True)
    lists.to_json(folder("lines") / "train.json", orient="records", lines=True)
    lists.to_json(folder("records") / "train.json", orient="records", indent=1)
    lists.to_json(folder("columns") / "train.json.xz")
    datasets.Dataset.from_pandas(lists).to_json(folder("hf") / "train.json")
    for home in sorted(tmp_path.glob("*/mine")):
        assert read(home).card.fingerprint == expected, home
    frame.to_csv(tmp_path / "mine.csv.gz", index=False)
    task = read(tmp_path / "mine.csv.gz")
    assert (task.card.name, task.card.fingerprint) == ("mine", expected)
    with Path(tmp_path / "mine.csv.gz").open("r+b") as packed:
        packed.truncate(60)
    with pytest.raises(UserError, match="cannot be unpacked, is it damaged"):
        read(tmp_path / "mine.csv.gz")


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be", "utf-32-le", "utf-32-be"])
@pytest.mark.parametrize("ending", ["csv", "tsv", "jsonl", "json"])
def test_half_a_character_is_one_line(encoding: str, ending: str, tmp_path: Path) -> None:
    file = tmp_path / f"mine.{ending}"
    file.write_bytes("\ufefftext,labels\na,b".encode(encoding) + b"\n")
    with pytest.raises(UserError, match=r"not a whole text in utf-..-.*; save it as UTF-8"):
        read(file)


# NumPy ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "names",
    [
        ("X_train", "y_train", "X_test", "y_test"),
        ("train_features", "train_labels", "test_features", "test_labels"),
    ],
)
def test_arrays_in_one_file_or_in_several(names: tuple[str, ...], tmp_path: Path) -> None:
    arrays = dict(zip(names, (X, Y, X[:1], Y[:1]), strict=True))
    np.savez(tmp_path / "toy.npz", **arrays, label_names=NAMES)
    (tmp_path / "b/toy").mkdir(parents=True)
    for name, array in arrays.items():
        np.save(tmp_path / "b/toy" / f"{name}.npy", array)
    put(tmp_path / "b/toy/labels.txt", "\n".join(NAMES))
    first, second = read(tmp_path / "toy.npz"), read(tmp_path / "b/toy")
    for task in (first, second):
        assert (task.card.name, task.card.label_names) == ("toy", NAMES)
        assert np.array_equal(vectors(task, "train"), X)
        assert np.array_equal(task.truth("train"), Y)
        assert task.card.rows == {"train": 3, "test": 1}
    assert first.card.fingerprint == second.card.fingerprint


def test_arrays_of_texts_images_and_unknown_labels(tmp_path: Path) -> None:
    y = Y.astype(float)
    y[0, 1], y[1] = np.nan, -1
    np.savez_compressed(tmp_path / "t.npz", X=np.array(TEXTS), y=y, X_unlabelled=np.array(["u"]))
    task = read(tmp_path / "t.npz")
    assert list(task.inputs("train")[:]) == [*TEXTS, "u"]
    assert task.truth("train").tolist() == [[1, -1, 1, 0], [-1] * 4, [0, 0, 1, 1], [-1] * 4]
    assert task.card.label_names == ["0", "1", "2", "3"]
    images = np.arange(3 * 4 * 5 * 3, dtype=np.uint8).reshape(3, 4, 5, 3)
    np.savez(tmp_path / "i.npz", X=images, y=Y.astype(bool))
    assert np.array_equal(np.stack(read(tmp_path / "i.npz").inputs("train")[:]), images)


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"X": X}, "no array called y_train or y"),
        ({"X": X, "y": Y[:2]}, "3 inputs"),
        ({"X": X, "y": Y[:, 0]}, "expected rows × labels"),
        ({"X": X, "y": Y + 1}, "a label is 2, expected 0 or 1"),
        ({"X": X, "y": Y, "X_test": X[:, :2], "y_test": Y}, "that of train"),
        ({"X": X, "y": Y, "X_test": X}, "call their inputs X_unlabelled"),
        ({"X": X, "y": Y.astype(str)}, "expected numbers"),
        ({"X": np.array([{}, 1, 2]), "y": Y}, "Python objects, which are never read"),
        ({"X": X, "y": Y, "label_names": NAMES[:2]}, "2 names for 4 columns"),
        ({"X": X + np.inf, "y": Y}, "not a finite number"),
    ],
)
def test_arrays_that_do_not_fit(arrays: dict[str, Any], message: str, tmp_path: Path) -> None:
    np.savez(tmp_path / "toy.npz", **arrays)
    with pytest.raises(UserError, match=message):
        read(tmp_path / "toy.npz")
    put(tmp_path / "cut.npz", (tmp_path / "toy.npz").read_bytes()[:200])
    with pytest.raises(UserError, match="not a file of plain arrays"):
        read(tmp_path / "cut.npz")


def test_sparse_matrices_as_scipy_writes_them(tmp_path: Path) -> None:
    from scipy import sparse

    folder = tmp_path / "sparse"
    folder.mkdir()
    sparse.save_npz(folder / "X_train.npz", sparse.csr_matrix(X))
    sparse.save_npz(folder / "y_train.npz", sparse.csc_matrix(Y))
    np.save(folder / "X_test.npy", X[:1])
    sparse.save_npz(folder / "y_test.npz", sparse.coo_matrix(Y[:1]))
    put(folder / "labels.txt", "\n".join(NAMES))
    task = read(folder)
    assert np.array_equal(vectors(task, "train"), X)
    assert np.array_equal(task.truth("train"), Y)
    assert task.card.rows == {"train": 3, "test": 1}


# Tables of numbers ----------------------------------------------------------------------------


def test_tables_of_numbers_as_pandas_writes_them(tmp_path: Path) -> None:
    frame = pd.DataFrame(X, columns=["f0", "f1", "f2"])
    flags = pd.DataFrame(Y, columns=NAMES)
    wide = pd.concat([frame, flags], axis=1)
    wide.to_csv(tmp_path / "toy.csv", index=False)
    wide.to_parquet(tmp_path / "toy.parquet")
    column = pd.DataFrame({"vector": list(X), "labels": listed()})
    column.to_parquet(tmp_path / "vectors.parquet")
    column.to_json(tmp_path / "vectors.jsonl", orient="records", lines=True)
    pd.DataFrame({"vector": [str(row) for row in X], "labels": map(str, listed())}).to_csv(
        tmp_path / "vectors.csv", index=False
    )
    hot = pd.DataFrame({"vector": list(X), "labels": Y.tolist()})
    hot.to_parquet(tmp_path / "hot.parquet")
    tasks = [
        read(tmp_path / "toy.csv", label_column=",".join(NAMES)),
        read(tmp_path / "toy.parquet", vector_column="f*", label_column=",".join(NAMES)),
        read(tmp_path / "toy.parquet", vector_column="f*"),
        read(tmp_path / "vectors.parquet"),
        read(tmp_path / "vectors.jsonl"),
        read(tmp_path / "vectors.csv"),
        read(tmp_path / "hot.parquet"),
    ]
    for task in tasks:
        assert np.array_equal(vectors(task, "train"), X)
        assert np.array_equal(task.truth("train"), Y)
    with pytest.raises(UserError, match="--label-column"):
        read(tmp_path / "toy.csv")


def test_a_vector_of_another_length_is_a_bad_row(tmp_path: Path) -> None:
    put(tmp_path / "v.jsonl", '{"vector": [1, 2], "labels": ["a"]}\n{"vector": [1], "labels": []}')
    with pytest.raises(UserError, match=r"v.jsonl line 2: a vector of 1 numbers, others have 2"):
        read(tmp_path / "v.jsonl")


def test_lists_of_zeros_and_ones_are_not_ids(tmp_path: Path) -> None:
    for n, lists in enumerate(([[0, 1, 0], [1, 1, 0]], [[0.0, 1.0, 0.0], [1.0, 1.0, 0.0]])):
        rows = [{"text": f"t{k}", "labels": row} for k, row in enumerate(lists)]
        put(tmp_path / f"{n}.jsonl", "\n".join(map(json.dumps, rows)))
        assert read(tmp_path / f"{n}.jsonl").truth("train").tolist() == [[0, 1, 0], [1, 1, 0]]
    put(tmp_path / "tuples.csv", 'text,labels\na,"(0, 1, 0)"\nb,"(1, 1, 0)"\n')
    assert read(tmp_path / "tuples.csv").truth("train").tolist() == [[0, 1, 0], [1, 1, 0]]
    put(tmp_path / "ids.jsonl", '{"text": "a", "labels": [0, 1]}\n{"text": "b", "labels": [1]}')
    assert read(tmp_path / "ids.jsonl").truth("train").tolist() == [[1, 1], [0, 1]]


# Names of labels ------------------------------------------------------------------------------


def write_named(form: str, folder: Path) -> None:
    """Rows with the labels 0, 1 and 2 in a form that reads labels.txt; folders have a label each."""
    folder.mkdir()
    if form == "libsvm":
        put(folder / "train.svm", "0,2 1:1\n1 1:2\n")
    elif form == "arrays":
        np.savez(folder / "train.npz", X=X, y=Y[:, :3])
    elif form == "folders":
        for name in ("a", "b"):
            put(folder / "train" / name / f"{name}.txt", f"a text of {name}")
    else:
        frame = {"text": TEXTS[:2], "labels": [[0, 2], [1]]}
        if form == "saved":
            datasets.DatasetDict({"train": datasets.Dataset.from_dict(frame)}).save_to_disk(folder)
        else:
            pd.DataFrame(frame).to_json(folder / "train.jsonl", orient="records", lines=True)


@pytest.mark.parametrize("form", ["libsvm", "arrays", "folders", "saved", "table"])
def test_names_of_labels_that_are_edited_later_are_read(form: str, tmp_path: Path) -> None:
    folder = tmp_path / "named"
    write_named(form, folder)
    source = folder / "train.npz" if form == "arrays" else folder
    read(source)
    names = ["b", "c", "a"]
    put(folder / "labels.txt", "\n".join(names))
    assert read(source).card.label_names == names
    put(folder / "labels.txt", "\n".join(reversed(names)) + "\n")
    assert read(source).card.label_names == names[::-1]


# LIBSVM ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("zero_based", [True, False])
def test_files_that_scikit_learn_dumps(zero_based: bool, tmp_path: Path) -> None:
    (tmp_path / "toy").mkdir()
    for split, rows in (("train", slice(3)), ("test", slice(1, 3))):
        with (tmp_path / "toy" / f"{split}.svm").open("wb") as file:
            dump_svmlight_file(
                X[rows], Y[rows], file, multilabel=True, zero_based=zero_based, comment="rows\nof X"
            )
    put(tmp_path / "toy/labels.txt", "\n".join(NAMES))
    task = read(tmp_path / "toy")
    assert np.array_equal(vectors(task, "train"), X)
    assert np.array_equal(task.truth("train"), Y)
    assert np.array_equal(vectors(task, "test"), X[1:])
    assert task.card.label_names == NAMES


def test_one_libsvm_file_and_its_empty_labels(tmp_path: Path) -> None:
    put(tmp_path / "rows.svm", "3,10 1:0.5 3:1\n 2:7\n10 1:-1e-2  # a comment\n")
    with pytest.raises(UserError, match="--empty-labels none or"):
        read(tmp_path / "rows.svm")
    task = read(tmp_path / "rows.svm", empty_labels="unknown")
    assert task.card.label_names == ["3", "10"]
    assert task.truth("train").tolist() == [[1, 1], [-1, -1], [0, 1]]
    assert vectors(task, "train").tolist() == [[0.5, 0, 1], [0, 7, 0], [pytest.approx(-0.01), 0, 0]]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("a 1:2", "label 'a' is not a number"),
        ("-1 1:2", "label '-1' is not a number"),
        ("1 2", "expected INDEX:VALUE, found '2'"),
        ("1 2:x", "'x' is not a number"),
        ("1 2:1_0", "'1_0' is not a number"),
        ("1 2:1 2:3", "feature 2 occurs twice"),
        ("1 2:nan", "not a finite number"),
    ],
)
def test_a_bad_line_of_a_libsvm_file(line: str, message: str, tmp_path: Path) -> None:
    put(tmp_path / "rows.svm", f"1 1:1 2:2\n{line}\n")
    with pytest.raises(UserError, match=f"rows.svm line 2: .*{message}"):
        read(tmp_path / "rows.svm")


# ARFF -----------------------------------------------------------------------------------------


def arff(labels_first: bool, count: str) -> str:
    flags = [f"@attribute {name} {{0,1}}" for name in NAMES]
    numbers = [f"@attribute f{k} numeric" for k in range(3)]
    columns = [*flags, *numbers] if labels_first else [*numbers, *flags]
    rows = [
        ",".join(map(str, [*y, *x] if labels_first else [*x, *y]))
        for x, y in zip(X.tolist(), Y.tolist(), strict=True)
    ]
    return "\n".join([f"@relation 'toy: -C {count}'", *columns, "@data", *rows])


def test_mekas_relation_counts_the_labels(tmp_path: Path) -> None:
    put(tmp_path / "first.arff", arff(True, "4"))
    put(tmp_path / "last.arff", arff(False, "-4"))
    for name in ("first", "last"):
        task = read(tmp_path / f"{name}.arff")
        assert task.card.label_names == NAMES
        assert np.array_equal(vectors(task, "train"), X)
        assert np.array_equal(task.truth("train"), Y)
    put(tmp_path / "none.arff", arff(True, "0"))
    with pytest.raises(UserError, match="which attributes are labels"):
        read(tmp_path / "none.arff")


def test_a_mulan_folder_and_one_without_a_split(tmp_path: Path) -> None:
    xml = "<labels>" + "".join(f'<label name="{name}"/>' for name in NAMES) + "</labels>"
    for name in ("cal-train", "cal-test"):
        put(tmp_path / "a" / f"{name}.arff", arff(False, "0"))
    put(tmp_path / "a/cal.arff", arff(False, "0"))
    put(tmp_path / "a/cal.xml", xml)
    assert read(tmp_path / "a").card.rows == {"train": 3, "test": 3}
    put(tmp_path / "b/cal.arff", arff(False, "0"))
    put(tmp_path / "b/cal.xml", xml)
    assert read(tmp_path / "b").card.rows == {"train": 3}
    assert read(tmp_path / "b/cal.arff", holdout=0.34).card.rows == {"train": 2, "test": 1}
    put(tmp_path / "b/other.arff", arff(True, "4"))
    with pytest.raises(UserError, match="which of its ARFF files"):
        read(tmp_path / "b")


# Hugging Face ---------------------------------------------------------------------------------


def hugging_face(labels: Any, feature: Any, **more: Any) -> datasets.Dataset:
    columns = {"text": TEXTS, "labels": labels, **more}
    features = datasets.Dataset.from_dict(columns).features
    features["labels"] = feature
    return datasets.Dataset.from_dict(columns, features=features)


def ids_with_names() -> datasets.Dataset:
    ids = [np.flatnonzero(row).tolist() for row in Y]
    return hugging_face(ids, datasets.List(datasets.ClassLabel(names=NAMES)))


def test_folders_of_save_to_disk(tmp_path: Path) -> None:
    names = hugging_face(listed(), datasets.List(datasets.Value("string")))
    hot = hugging_face(Y.tolist(), datasets.List(datasets.Value("int64")))
    for form, data in {"ids": ids_with_names(), "names": names, "hot": hot}.items():
        splits = datasets.DatasetDict(
            {"train": data, "test": data.select([1, 2]), "validation": data}
        )
        splits.save_to_disk(tmp_path / form)
        task = read(tmp_path / form)
        assert task.card.rows == {"train": 3, "test": 2}
        assert np.array_equal(task.truth("train"), Y)
        assert list(task.inputs("test")[:]) == TEXTS[1:]
        assert task.card.label_names == (["0", "1", "2", "3"] if form == "hot" else NAMES)
        assert any("validation is not used" in note for note in task.card.notes)


def test_a_saved_data_set_without_splits_and_one_with_images(tmp_path: Path) -> None:
    ids_with_names().save_to_disk(tmp_path / "one")
    assert read(tmp_path / "one", holdout=0.34).card.rows == {"train": 2, "test": 1}
    images = datasets.Dataset.from_dict(
        {"image": [{"bytes": jpeg(n), "path": None} for n in range(3)], "labels": listed()},
        features=datasets.Features(
            image=datasets.Image(), labels=datasets.List(datasets.Value("string"))
        ),
    )
    datasets.DatasetDict({"train": images, "test": images}).save_to_disk(tmp_path / "pictures")
    task = read(tmp_path / "pictures")
    assert task.card.kind == "image"
    assert np.asarray(task.inputs("train")[0]).shape == (16, 24, 3)


def test_a_saved_folder_that_is_damaged(tmp_path: Path) -> None:
    datasets.DatasetDict({"train": ids_with_names()}).save_to_disk(tmp_path / "d")
    file = next((tmp_path / "d").rglob("*.arrow"))
    file.write_bytes(file.read_bytes()[:64])
    with pytest.raises(UserError, match="it cannot be read"):
        read(tmp_path / "d")
    datasets.DatasetDict({"part": ids_with_names()}).save_to_disk(tmp_path / "e")
    with pytest.raises(UserError, match="no split called train; it has part"):
        read(tmp_path / "e")


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Path]:
    """A hub with one repository at two commits, as local folders of its layout."""
    commits = {}
    for n, commit in enumerate(("a" * 40, "b" * 40)):
        folder = tmp_path / "snapshots" / commit
        (folder / "data").mkdir(parents=True)
        data = ids_with_names().rename_columns({"text": "abstract", "labels": "topics"})
        for split, rows in (("train", [0, 1, 2]), ("test", [n])):
            data.select(rows).to_parquet(folder / f"data/{split}-00000-of-00001.parquet")
        put(folder / "README.md", "---\nlicense: mit\n---\n")
        commits[commit] = folder

    def snapshot(repository: str, revision: str, **_: Any) -> str:
        if repository != "owner/papers":
            raise ConnectionError("no network")
        return str(commits.get(revision, commits["b" * 40]))

    monkeypatch.setattr("huggingface_hub.snapshot_download", snapshot)
    return commits


def test_a_hub_data_set_is_pinned_to_its_commit(hub: dict[str, Path]) -> None:
    options = DataOptions(text_column="abstract", label_column="topics")
    plugins = Plugins((), options)
    name = plugins.data_set("hf:owner/papers")
    assert plugins.files[0].startswith(f"hf:owner/papers@{'b' * 40}?")
    task = prepare(plugins.datasets[name]())
    assert (task.card.name, task.card.label_names) == ("owner-papers", NAMES)
    assert np.array_equal(task.truth("train"), Y)
    assert f"from the hub: owner/papers at {'b' * 40}" in task.card.notes
    again = Plugins(plugins.files)
    assert prepare(again.datasets[name]()).card == task.card
    older = Plugins((), options)
    older_name = older.data_set(f"hf:owner/papers@{'a' * 40}")
    assert prepare(older.datasets[older_name]()).card.fingerprint != task.card.fingerprint


def test_the_revision_is_part_of_the_fingerprint(hub: dict[str, Path]) -> None:
    """Two commits with the same rows are two data sets: what else changed is not known."""
    first, second = hub.values()
    for file in (first / "data").iterdir():
        (second / "data" / file.name).write_bytes(file.read_bytes())
    cards = [
        prepare(data_class(DataAddress(f"hf:owner/papers@{commit}", DataOptions(
            text_column="abstract", label_column="topics"
        )))()).card
        for commit in hub
    ]  # fmt: skip
    assert cards[0].rows == cards[1].rows
    assert cards[0].fingerprint != cards[1].fingerprint


@pytest.mark.parametrize(
    ("typed", "message"),
    [
        ("hf:owner/other", "is not available from the hub .ConnectionError: no network"),
        ("hf:../../etc", "expected hf:owner/name"),
        ("hf:", "expected hf:owner/name"),
    ],
)
def test_a_hub_id_that_cannot_be_had(typed: str, message: str, hub: dict[str, Path]) -> None:
    with pytest.raises(UserError, match=message):
        Plugins().data_set(typed)


def test_a_folder_in_the_layout_of_the_hub(hub: dict[str, Path]) -> None:
    task = read(hub["a" * 40], text_column="abstract", label_column="topics")
    assert task.card.label_names == NAMES
    assert task.card.rows == {"train": 3, "test": 1}


def test_a_saved_folder_reads_no_file_outside_of_it(tmp_path: Path) -> None:
    ids_with_names().save_to_disk(tmp_path / "other")
    ids_with_names().save_to_disk(tmp_path / "mine")
    state = tmp_path / "mine" / "state.json"
    name = json.loads(state.read_text())["_data_files"][0]["filename"]
    state.write_text(state.read_text().replace(name, f"../other/{name}"))
    with pytest.raises(UserError, match=r"it lists '\.\./other/.*expected .arrow files"):
        data_class(DataAddress(str(tmp_path / "mine")))
