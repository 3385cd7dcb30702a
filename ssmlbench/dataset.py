"""The data set contract, and the Arrow task that every adapter is turned into once.

An adapter only says where its rows come from; writing, fingerprinting and memory-mapping are here.
Views and encoders are not: a task hands out raw inputs.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import shutil
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np

from ssmlbench.errors import UserError
from ssmlbench.protocol import Labels

Kind = Literal["image", "text", "vector"]
SPLITS = ("train", "test")


@dataclass(frozen=True)
class Row:
    """One example: an image (H × W or H × W × 3, uint8), a text, or a vector of floats."""

    input: Any
    labels: tuple[int, ...]  # the positions of its positive labels


class DatasetAdapter(ABC):
    """Where a data set's rows come from. One file in datasets/ holds one of these."""

    name: ClassVar[str]
    kind: ClassVar[Kind]
    version: ClassVar[int] = 1  # raised when the rows change; prepared copies are then made anew
    backbone: ClassVar[str]  # the encoder used when the command line names none
    citation: ClassVar[str] = ""
    licence: ClassVar[str] = ""
    flips: ClassVar[bool] = True  # images: does a mirrored row keep its labels?

    @abstractmethod
    def label_names(self) -> list[str]:
        """The K labels, in the order of the label positions."""

    @abstractmethod
    def rows(self, split: str) -> Iterator[Row]:
        """The rows of "train" or "test", one by one: nothing is held in memory here."""


@dataclass(frozen=True)
class Card:
    """What a prepared task says of itself."""

    name: str
    kind: Kind
    version: int
    label_names: list[str]
    rows: dict[str, int]
    positives: dict[str, list[int]]
    fingerprint: str
    flips: bool


class Task:
    """A prepared data set: Arrow files on disk, read through memory maps."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.card = Card(**json.loads((folder / "card.json").read_text()))

    @property
    def label_count(self) -> int:
        return len(self.card.label_names)

    @cached_property
    def _splits(self) -> dict[str, Any]:
        import datasets

        return {
            s: datasets.Dataset.from_file(str(self.folder / f"{s}.arrow")) for s in SPLITS
        }

    def truth(self, split: str) -> Labels:
        """The true labels, N × K int8. The runner seals the training part; methods get none."""
        lists = self._splits[split].data["labels"].combine_chunks()
        offsets, positions = np.asarray(lists.offsets), np.asarray(lists.flatten())
        labels = np.zeros((len(lists), self.label_count), dtype=np.int8)
        row_of = np.repeat(np.arange(len(lists)), np.diff(offsets))
        labels[row_of, positions] = 1
        return labels

    def inputs(self, split: str) -> Any:
        """The raw inputs of a split, as Hugging Face hands them out in NumPy form."""
        return self._splits[split].with_format("numpy")["input"]


def cache_root() -> Path:
    """Where prepared data lives: SSMLBENCH_CACHE, or the user's cache folder."""
    chosen = os.environ.get("SSMLBENCH_CACHE")
    if chosen:
        return Path(chosen)
    return Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "ssmlbench"


def prepare(adapter: DatasetAdapter) -> Task:
    """The adapter's task, made on first use: complete or not there, whoever else is making it."""
    from filelock import FileLock

    folder = cache_root() / "tasks" / f"{adapter.name}-v{adapter.version}"
    if not (folder / "card.json").is_file():
        folder.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(f"{folder}.lock"):
            if not (folder / "card.json").is_file():
                _write(adapter, folder)
    return Task(folder)


def _write(adapter: DatasetAdapter, folder: Path) -> None:
    unfinished = folder.with_name(f"{folder.name}.unfinished")
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir(parents=True)
    names = adapter.label_names()
    fingerprint = hashlib.sha256(json.dumps([adapter.name, names]).encode())
    counts, positives = {}, {}
    for split in SPLITS:
        counts[split], positives[split] = _write_split(
            adapter, split, unfinished / f"{split}.arrow", len(names), fingerprint
        )
        if not counts[split]:
            raise UserError(f"data set {adapter.name}: its {split} split has no rows")
    card = Card(
        adapter.name,
        adapter.kind,
        adapter.version,
        names,
        counts,
        positives,
        fingerprint.hexdigest()[:16],
        adapter.flips,
    )
    (unfinished / "card.json").write_text(json.dumps(asdict(card), indent=1))
    shutil.rmtree(folder, ignore_errors=True)
    unfinished.rename(folder)


def _write_split(
    adapter: DatasetAdapter, split: str, file: Path, label_count: int, fingerprint: Any
) -> tuple[int, list[int]]:
    """Stream one split into an Arrow file; rows go through memory one batch at a time."""
    import datasets
    from datasets.arrow_writer import ArrowWriter

    inputs = {
        "image": datasets.Image(),
        "text": datasets.Value("string"),
        "vector": datasets.List(datasets.Value("float32")),
    }[adapter.kind]
    features = datasets.Features({"input": inputs, "labels": datasets.List(datasets.Value("int32"))})
    count, positives = 0, np.zeros(label_count, dtype=np.int64)
    with ArrowWriter(features=features, path=str(file), writer_batch_size=500) as writer:
        for row in adapter.rows(split):
            labels = sorted(set(row.labels))
            if labels and not (0 <= labels[0] and labels[-1] < label_count):
                raise UserError(
                    f"data set {adapter.name}, {split} row {count}: label position {labels} "
                    f"outside 0..{label_count - 1}"
                )
            writer.write({"input": _stored(row.input, adapter.kind), "labels": labels})
            fingerprint.update(_bytes(row.input) + json.dumps(labels).encode())
            positives[labels] += 1
            count += 1
        writer.finalize()
    return count, positives.tolist()


def _stored(value: Any, kind: Kind) -> Any:
    """Images as PNG: lossless, and what Hugging Face's viewers and decoders know."""
    if kind != "image":
        return value
    from PIL import Image

    png = io.BytesIO()
    Image.fromarray(value).save(png, format="PNG")
    return {"bytes": png.getvalue(), "path": None}


def _bytes(value: Any) -> bytes:
    return value.encode() if isinstance(value, str) else np.ascontiguousarray(value).tobytes()
