"""Predictions of a kept model: rows in, a file with their labels and probabilities out."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from ssmlbench.core.csv_cells import CsvWriter, is_formula
from ssmlbench.core.errors import UserError
from ssmlbench.core.files import atomic_output, check_output
from ssmlbench.core.plain_text import valid_text
from ssmlbench.core.suggestions import one_of
from ssmlbench.data.prepared import NotPrepared, prepared_task
from ssmlbench.protocol.decisions import decide
from ssmlbench.protocol.diagnostics import Float32Array
from ssmlbench.runs.model_card import USABLE_RULES
from ssmlbench.runs.saved_model import SavedModel

CHUNK_ROWS = 1024
"""Rows that are in memory at a time."""
SEPARATORS = ";|,"
"""A label with one of these in its name, or that looks like a formula, makes CSV hold JSON lists
instead of a;b;c: some programs take each part of a;b;c for a cell."""


RECOGNISED = {"id", "labels", "rule"}
"""The columns by which a CSV file of predictions is recognised."""


class RowWriter(Protocol):
    """Writes predictions of some rows."""

    def __call__(self, ids: Sequence[str], chosen: Any, scores: Any) -> None:
        """ids: of n rows; chosen: n × K label sets; scores: n × K."""


def predict_rows(
    model: SavedModel,
    rows: Iterable[tuple[str, Any]],
    out: Path,
    decision: str = "calibrated",
    report: Callable[[int], None] = lambda done: None,
    score: Callable[[Sequence[Any]], Float32Array] | None = None,
) -> int:
    """Write the predictions of all rows, whole or not at all; returns how many there are.

    report: called with the number of rows that are done, after each chunk.
    score: the scores of some rows; None: the model's, of raw inputs.
    """
    one_of(decision, USABLE_RULES, "--decision")
    check_out(out)
    done, iterator = 0, iter(rows)
    with atomic_output(out) as unfinished:
        with WRITERS[out.suffix](unfinished, model.card.labels, decision) as write:
            while chunk := _next_rows(iterator):
                ids, raws = zip(*chunk, strict=True)
                scores = model.scores(raws) if score is None else score(raws)
                parameters = model.card.rule_parameters
                write(
                    list(map(valid_text, ids)),
                    decide(scores, decision, parameters=parameters),
                    scores,
                )
                done += len(chunk)
                report(done)
        if not done:
            raise UserError("there are no rows to predict")
    return done


def _next_rows(rows: Iterator[tuple[str, Any]]) -> list[tuple[str, Any]]:
    with np.errstate(over="ignore"):  # a number that float32 has not is an error of its row
        return list(islice(rows, CHUNK_ROWS))


def check_out(out: Path, read: Iterable[Path] = ()) -> None:
    """Raise a UserError unless predictions can be written to a file of this name.

    read: files of inputs, which must not be overwritten.
    """
    if out.suffix not in WRITERS:
        raise UserError(f"--out {out}: expected a file that ends with {', '.join(WRITERS)}")
    if out.exists() and any(file.exists() and out.samefile(file) for file in read):
        raise UserError(f"--out {out}: the inputs are read from this file; choose another --out")
    check_output(out)


class OwnRows:
    """The rows of a model's own data set of which no label is known. A UserError if there are none."""

    def __init__(self, model: SavedModel):
        self.model = model
        try:
            self.task = prepared_task(model.spec.dataset, model.spec.data)
        except NotPrepared as missing:
            raise UserError(f"{missing}; name the rows with --input") from None
        self.numbers = np.flatnonzero((self.task.truth("train") < 0).all(axis=1))
        if not len(self.numbers):
            raise UserError(
                f"data set {self.task.card.name} has no unlabelled rows; name a file or folder with "
                "--input"
            )

    def __len__(self) -> int:
        return len(self.numbers)

    def __iter__(self) -> Iterator[tuple[str, int]]:
        """The id and the number of each row."""
        ids = self.task.ids("train")
        return ((ids[row], int(row)) for row in self.numbers)

    def score(self, numbers: Sequence[int]) -> Float32Array:
        """The scores of rows by their numbers."""
        return self.model.scores_of_rows(self.task, np.array(numbers, dtype=np.int64))


# -------------------------------------------------------------------------------------- writers


def _names(labels: Sequence[str], chosen: Any) -> list[str]:
    return [labels[int(k)] for k in np.flatnonzero(chosen)]


@contextmanager
def _csv_writer(file: Path, labels: Sequence[str], rule: str) -> Iterator[RowWriter]:
    plain = not any(
        separator in label or is_formula(label) for label in labels for separator in SEPARATORS
    )
    with file.open("w", encoding="utf-8", newline="") as opened:
        writer = CsvWriter(opened, "\r\n")
        writer.row(["id", "labels", "rule", *(f"p({label})" for label in labels)])

        def write(ids: Sequence[str], chosen: Any, scores: Any) -> None:
            for identity, row, values in zip(ids, chosen, scores, strict=True):
                names = _names(labels, row)
                text = ";".join(names) if plain else json.dumps(names, ensure_ascii=False)
                writer.row([identity, text, rule, *(f"{value:.6g}" for value in values)])

        yield write


@contextmanager
def _jsonl_writer(file: Path, labels: Sequence[str], rule: str) -> Iterator[RowWriter]:
    with file.open("w", encoding="utf-8") as opened:

        def write(ids: Sequence[str], chosen: Any, scores: Any) -> None:
            for identity, row, values in zip(ids, chosen, scores, strict=True):
                probabilities = {k: float(f"{v:.6g}") for k, v in zip(labels, values, strict=True)}
                record = {
                    "id": identity,
                    "labels": _names(labels, row),
                    "rule": rule,
                    "probabilities": probabilities,
                }
                opened.write(json.dumps(record, ensure_ascii=False) + "\n")

        yield write


@contextmanager
def _parquet_writer(file: Path, labels: Sequence[str], rule: str) -> Iterator[RowWriter]:
    import pyarrow as pa
    from pyarrow.parquet import ParquetWriter

    columns = [("id", pa.string()), ("labels", pa.list_(pa.string())), ("rule", pa.string())]
    schema = pa.schema([*columns, *((f"p({label})", pa.float32()) for label in labels)])
    with ParquetWriter(file, schema) as writer:

        def write(ids: Sequence[str], chosen: Any, scores: Any) -> None:
            names = [_names(labels, row) for row in chosen]
            own = [pa.array(list(ids)), pa.array(names, columns[1][1]), pa.array([rule] * len(ids))]
            values = [pa.array(column) for column in np.ascontiguousarray(scores.T)]
            writer.write_table(pa.Table.from_arrays([*own, *values], schema=schema))

        yield write


WRITERS = {".csv": _csv_writer, ".jsonl": _jsonl_writer, ".parquet": _parquet_writer}
"""The writer of each kind of file, by the end of its name."""
