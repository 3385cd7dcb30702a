"""From files to labels: every kind of input, every format of output, and the data set's own rows."""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from ssmlbench.api import DatasetAdapter, Row
from ssmlbench.core.csv_cells import cell_text, spreadsheet_cell
from ssmlbench.core.errors import UserError
from ssmlbench.data.plain_inputs import plain_inputs
from ssmlbench.plugins.loader import Plugins
from ssmlbench.protocol.decisions import decide
from ssmlbench.runs.choose import best_run, run_folder
from ssmlbench.runs.context import RunContext
from ssmlbench.runs.execute import execute
from ssmlbench.runs.finished import read_finished
from ssmlbench.runs.folder import RunFolder
from ssmlbench.runs.predict import OwnRows, predict_rows
from ssmlbench.runs.resolve import resolve
from ssmlbench.runs.saved_model import SavedModel
from tests.support.board_runs import grid

WORDS = ("apple pear fruit", "car wheel road", "wind rain cloud")


class HalfLabelled(DatasetAdapter):
    """Texts of three topics; every second one has no labels."""

    name = "half-labelled"
    kind = "text"
    backbone = "tfidf"

    def label_names(self) -> list[str]:
        return ["food", "traffic", "weather; or not"]

    def splits(self) -> tuple[str, ...]:
        return ("train",)

    def rows(self, split: str) -> Iterator[Row]:
        random = np.random.default_rng(0)
        for i in range(120):
            labels = tuple(int(k) for k in np.flatnonzero(random.random(3) < 0.5))
            words = [*" ".join(WORDS[k] for k in labels).split(), "word", f"number{i % 7}"]
            text = " ".join(random.permutation(words))
            yield Row(text, labels if i % 2 else None, id=f"row {i}")


@pytest.fixture(scope="module")
def plugins() -> Plugins:
    loaded = Plugins()
    loaded.add(HalfLabelled)
    return loaded


@pytest.fixture(scope="module")
def results(plugins: Plugins, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folds of two learners, and one trained on everything."""
    root = tmp_path_factory.mktemp("results")
    fields = {"dataset": "half-labelled", "regime": "given"}
    for method, folds, seed in (
        ("logistic", 2, 0),
        ("logistic", 2, 1),
        ("prior", 2, 0),
        ("prior", 2, 1),
    ):
        spec = resolve(plugins, {}, method=method, folds=folds, seed=seed, **fields)
        execute(spec, plugins, RunContext(root, "cpu"))
    whole = resolve(plugins, {}, method="logistic", folds=0, **fields)
    execute(whole, plugins, RunContext(root, "cpu"))
    return root


@pytest.fixture(scope="module")
def model(results: Path, plugins: Plugins) -> SavedModel:
    runs, _ = read_finished([results])
    (whole,) = [run for run in runs if run.spec.judged_on == "nothing"]
    return SavedModel(whole.folder, plugins, device="cpu")


TEXTS = [("1", "a pear and other fruit"), ("2", "rain on the road"), ("3", "nothing known")]


@pytest.mark.parametrize("ending", [".csv", ".jsonl", ".parquet"])
@pytest.mark.parametrize("decision", ["calibrated", "threshold"])
def test_every_format_has_ids_labels_probabilities_and_the_rule(
    ending: str, decision: str, model: SavedModel, tmp_path: Path
) -> None:
    out = tmp_path / f"labels{ending}"
    assert predict_rows(model, TEXTS, out, decision) == 3
    if ending == ".jsonl":
        read = [json.loads(line) for line in out.read_text().splitlines()]
        found = [(r["id"], r["labels"], r["rule"], list(r["probabilities"].values())) for r in read]
    else:
        table = pd.read_csv(out) if ending == ".csv" else pd.read_parquet(out)
        columns = [f"p({label})" for label in model.card.labels]
        assert list(table.columns) == ["id", "labels", "rule", *columns]
        # A label with a semicolon in its name: CSV holds JSON lists.
        labels = [json.loads(t) if ending == ".csv" else list(t) for t in table.labels]
        found = list(
            zip(
                table.id.astype(str),
                labels,
                table.rule,
                table[columns].values.tolist(),
                strict=True,
            )
        )
    scores = model.scores([text for _, text in TEXTS])
    chosen = decide(scores, decision, parameters=model.card.rule_parameters)
    for (identity, _), row, values, record in zip(TEXTS, chosen, scores, found, strict=True):
        names = [label for label, yes in zip(model.card.labels, row, strict=True) if yes]
        assert record[:3] == (identity, names, decision)
        assert np.allclose(record[3], values, atol=1e-5)


def test_the_labels_are_right(model: SavedModel, tmp_path: Path) -> None:
    scores = model.scores(["apple pear", "wheel road", "cloud wind"])
    assert (scores.argmax(axis=1) == [0, 1, 2]).all()


def test_without_input_the_unlabelled_rows_are_predicted(
    model: SavedModel, plugins: Plugins, tmp_path: Path
) -> None:
    rows = OwnRows(model)
    out, seen = tmp_path / "own.csv", []
    assert predict_rows(model, rows, out, report=seen.append, score=rows.score) == len(rows) == 60
    assert seen[-1] == 60
    with out.open(newline="") as lines:
        read = list(csv.DictReader(lines))
    assert [row["id"] for row in read] == [f"row {i}" for i in range(0, 120, 2)]
    truth = {f"row {i}": row for i, row in enumerate(HalfLabelled().rows("train"))}
    hits = sum(("apple" in truth[r["id"]].input) == ("food" in r["labels"]) for r in read)
    assert hits >= 55


@pytest.mark.parametrize("method", ["logistic", "bce"])
def test_own_rows_are_scored_from_the_cache_as_from_their_texts(
    method: str, plugins: Plugins, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fields = {"dataset": "half-labelled", "regime": "given", "folds": 0, "method": method}
    if method == "bce":
        fields |= {"epochs": 2, "warmup_epochs": 1}
    spec = resolve(plugins, {}, **fields)
    execute(spec, plugins, RunContext(tmp_path, "cpu"))
    folder = run_folder(spec.hash, [tmp_path])
    anew, cached = (SavedModel(folder, plugins, device="cpu") for _ in range(2))
    own = OwnRows(cached)
    numbers = [row for _, row in own]
    texts = [own.task.inputs("train")[row] for row in numbers]
    expected = anew.scores(texts)
    monkeypatch.setattr(type(cached), "scores", None)  # no text is encoded again
    assert np.abs(own.score(numbers) - expected).max() < 1e-6


def test_nothing_is_written_if_a_row_is_bad(model: SavedModel, tmp_path: Path) -> None:
    def rows() -> Iterator[tuple[str, Any]]:
        yield "1", "fine"
        raise UserError("line 2: bad")

    with pytest.raises(UserError, match="line 2"):
        predict_rows(model, rows(), tmp_path / "labels.csv")
    with pytest.raises(UserError, match="no rows"):
        predict_rows(model, [], tmp_path / "labels.csv")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("out", "decision", "message"),
    [
        ("labels.xlsx", "calibrated", "ends with .csv, .jsonl, .parquet"),
        ("nowhere/labels.csv", "calibrated", "there is no folder"),
        ("made.csv", "calibrated", "is a folder; name a file"),
        ("labels.csv", "top-k", "--decision top-k"),
    ],
)
def test_what_cannot_be_written_is_one_line(
    out: str, decision: str, message: str, model: SavedModel, tmp_path: Path
) -> None:
    (tmp_path / "made.csv").mkdir()
    with pytest.raises(UserError, match=message):
        predict_rows(model, TEXTS, tmp_path / out, decision)


# ------------------------------------------------------------------------------ choosing a run


def test_a_run_is_named_by_hash_or_folder(results: Path, model: SavedModel) -> None:
    hash_ = model.spec.hash
    folder = run_folder(hash_[:6], [results])
    assert folder.name.endswith(hash_)
    assert run_folder(str(folder), []) == folder
    with pytest.raises(UserError, match=r"no finished run in .* has an id like it"):
        run_folder("zzz", [results])
    with pytest.raises(UserError, match="no finished run"):
        run_folder("", [results])


def test_the_best_row_gives_the_run_that_learnt_from_everything(results: Path) -> None:
    runs, _ = read_finished([results])
    chosen, why = best_run(runs, None, "map", "calibrated")
    assert (chosen.spec.method, chosen.spec.judged_on) == ("logistic", "nothing")
    assert "logistic" in why
    with pytest.raises(
        UserError, match=r"no finished run of data set other\. There is: half-labelled"
    ):
        best_run(runs, "other", "map", "calibrated")
    chosen, _ = best_run(runs, None, "hamming", "calibrated")  # less is better
    assert chosen.spec.method == "logistic"


def test_a_row_whose_metric_is_not_defined_is_never_the_best(tmp_path: Path) -> None:
    runs = grid(tmp_path, {"bce": [math.nan, math.nan], "cap": [0.5, math.nan], "mime": [0.4, 0.4]})
    for run in runs:
        RunFolder(run.folder).model_file.touch()
    for order in (runs, runs[::-1]):
        for metric in ("map", "hamming"):
            assert best_run(order, None, metric, "calibrated")[0].spec.method == "cap"


# ------------------------------------------------------------------------------------- inputs


def test_texts_of_every_form(tmp_path: Path) -> None:
    frame = pd.DataFrame({"id": ["a", "b"], "text": ["first, one", "second"]})
    frame.to_csv(tmp_path / "t.csv", index=False)
    frame.to_json(tmp_path / "t.jsonl", orient="records", lines=True)
    frame.to_parquet(tmp_path / "t.parquet")
    expected = [("a", "first, one"), ("b", "second")]
    for name in ("t.csv", "t.jsonl", "t.parquet"):
        assert list(plain_inputs(tmp_path / name, "text")) == expected
    frame.rename(columns={"text": "abstract"}).to_csv(tmp_path / "named.csv", index=False)
    assert list(plain_inputs(tmp_path / "named.csv", "text", "abstract")) == expected
    with pytest.raises(UserError, match=r"it has: id, abstract.*--column"):
        list(plain_inputs(tmp_path / "named.csv", "text"))
    (tmp_path / "lines.txt").write_text("one\ntwo\n")
    assert list(plain_inputs(tmp_path / "lines.txt", "text")) == [("1", "one"), ("2", "two")]
    folder = tmp_path / "folder"
    (folder / "sub").mkdir(parents=True)
    (folder / "x.txt").write_text("a whole\ntext")
    (folder / "sub" / "y.txt").write_text("another")
    found = list(plain_inputs(folder, "text"))
    assert found == [("sub/y.txt", "another"), ("x.txt", "a whole\ntext")]


def test_images_of_a_folder_and_of_a_table(tmp_path: Path) -> None:
    grey = np.arange(12, dtype=np.uint8).reshape(3, 4)
    (tmp_path / "b").mkdir()
    Image.fromarray(grey).save(tmp_path / "b" / "one.png")
    turned = Image.fromarray(grey)
    exif = turned.getexif()
    exif[0x0112] = 6  # turn by 90°
    turned.save(tmp_path / "two.png", exif=exif)
    (name, first), (_, second) = plain_inputs(tmp_path, "image")
    assert name == "b/one.png"
    assert np.array_equal(first, grey)
    assert second.shape == (4, 3)
    (tmp_path / "list.csv").write_text("id,image\n7,b/one.png\n")
    ((identity, third),) = plain_inputs(tmp_path / "list.csv", "image")
    assert identity == "7"
    assert np.array_equal(third, grey)
    (tmp_path / "bad.png").write_bytes(b"no image")
    with pytest.raises(UserError, match=r"bad.png: not an image"):
        list(plain_inputs(tmp_path, "image"))


def test_vectors_of_every_form(tmp_path: Path) -> None:
    values = np.arange(6, dtype=np.float32).reshape(2, 3)
    np.save(tmp_path / "v.npy", values)
    np.savez(tmp_path / "v.npz", X=values, other=np.ones(3))
    frame = pd.DataFrame(values, columns=["x", "y", "z"])
    frame.to_csv(tmp_path / "v.csv", index=False)
    pd.DataFrame({"vector": list(values)}).to_parquet(tmp_path / "v.parquet")
    for name in ("v.npy", "v.npz", "v.csv", "v.parquet"):
        found = [row for _, row in plain_inputs(tmp_path / name, "vector")]
        assert np.array_equal(found, values), name
    frame.assign(x=["", "1"]).to_csv(tmp_path / "hole.csv", index=False)
    with pytest.raises(UserError, match=r"hole.csv line 2: column x: a missing value"):
        list(plain_inputs(tmp_path / "hole.csv", "vector"))


@pytest.mark.parametrize(
    ("name", "kind", "message"),
    [
        ("none", "text", "no such file or folder"),
        ("x.pdf", "text", "expected a file that ends with"),
        (".", "image", "no file in it"),
    ],
)
def test_an_input_that_cannot_be_read_is_one_line(
    name: str, kind: str, message: str, tmp_path: Path
) -> None:
    (tmp_path / "x.pdf").write_bytes(b"")
    with pytest.raises(UserError, match=message):
        list(plain_inputs(tmp_path / name, kind))


def test_the_command_line_writes_the_file(
    results: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    from ssmlbench.cli.predict import predict

    (tmp_path / "new.txt").write_text("apple pear\nwheel road\n")
    predict(
        out=tmp_path / "labels.csv",
        best=True,
        input_=tmp_path / "new.txt",
        results=[results],
        device="cpu",
    )
    assert len((tmp_path / "labels.csv").read_text().splitlines()) == 3
    assert "2 rows predicted by logistic" in capsys.readouterr().err
    with pytest.raises(UserError, match="either --run HASH, or --best"):
        predict(out=tmp_path / "labels.csv")


def test_a_csv_file_of_predictions_holds_no_formula(tmp_path: Path) -> None:
    labels = ["=cmd", "plain", "-2+3"]
    model: Any = SimpleNamespace(
        card=SimpleNamespace(labels=labels, rule_parameters={}),
        scores=lambda raws: np.tile(np.float32([0.9, 0.2, 0.8]), (len(raws), 1)),
    )
    ids = ["@SUM(A1)", "1", "-7"]
    out = tmp_path / "labels.csv"
    predict_rows(model, [(one, "text") for one in ids], out, "threshold")
    with out.open(newline="") as opened:
        first, *rows = csv.reader(opened)
    assert first == ["id", "labels", "rule", *(f"p({label})" for label in labels)]
    assert all(cell == spreadsheet_cell(cell_text(cell)) for row in rows for cell in row)
    assert [cell_text(row[0]) for row in rows] == ids
    assert [json.loads(row[1]) for row in rows] == [["=cmd", "-2+3"]] * 3
    assert {float(cell) for row in rows for cell in row[3:]} == {0.9, 0.2, 0.8}
