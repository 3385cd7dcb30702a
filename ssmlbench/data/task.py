"""A prepared data set: Arrow files read through memory maps, and the card that describes them.

It holds raw inputs and true labels; prepare.py writes it.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ssmlbench.core.checksums import FileFacts, stat_of, verify_beside, verify_file
from ssmlbench.core.errors import DamagedFile
from ssmlbench.core.files import naming, read_own_json
from ssmlbench.core.sealed_files import CARD, LABELS
from ssmlbench.data.adapter import Kind
from ssmlbench.data.label_lists import label_matrix
from ssmlbench.protocol.observation import Labels

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt


SAMPLED_ROWS = 1_000
"""Enough rows to see whether vectors are sparse."""


@dataclass(frozen=True)
class Card:
    """The description of a prepared task."""

    name: str
    kind: Kind
    version: int
    label_names: list[str]
    rows: dict[str, int]  # by split; a data set without test rows has no "test" here
    positives: dict[str, list[int]]  # by split, of each label
    fingerprint: str  # of names, inputs and labels: the same on every machine
    flips: bool
    licence: str = ""
    citation: str = ""
    notes: list[str] = field(default_factory=list)
    source: str = ""  # the raw folder or the hub revision it was made from
    skipped: dict[str, int] = field(default_factory=dict)  # bad rows left out, by kind of fault
    labelled: dict[str, int] = field(default_factory=dict)  # by split: every label is known
    partly_labelled: dict[str, int] = field(default_factory=dict)  # some labels are unknown
    unlabelled: dict[str, int] = field(default_factory=dict)  # nothing is known
    files: dict[str, FileFacts] = field(default_factory=dict)  # by name: size and checksum
    columns: dict[str, Any] = field(default_factory=dict)  # the fields of its InputColumns
    folder: str = ""  # the name of its folder in the cache; older cards do not say

    def mean_labels(self, *splits: str) -> float:
        """Positive labels of a row that has labels, on average over the splits named (or all)."""
        chosen = splits or tuple(self.rows)
        rows = sum(self.rows[s] - self.unlabelled.get(s, 0) for s in chosen)
        return sum(sum(self.positives[s]) for s in chosen) / max(rows, 1)

    def for_training(self) -> Card:
        """The card for training: what inputs are read by, and nothing that was counted from labels.

        Frequencies, notes ("3 labels have no test row") and checksums of labels would reveal hidden ones.
        """
        inputs = {name: facts for name, facts in self.files.items() if "/" not in name}
        return Card(
            name=self.name,
            kind=self.kind,
            version=self.version,
            label_names=self.label_names,
            rows=self.rows,
            positives={},
            fingerprint=self.fingerprint,
            flips=self.flips,
            files=inputs,
            columns=self.columns,
            folder=self.folder,
        )

    @property
    def density(self) -> float:
        """The share of positive entries in the label matrix."""
        return self.mean_labels() / len(self.label_names)

    @property
    def has_unknown(self) -> bool:
        """Whether some label of a training row is unknown: such data needs `--regime given`."""
        return bool(self.partly_labelled.get("train", 0) or self.unlabelled.get("train", 0))


def inputs_file(folder: Path, split: str) -> Path:
    """The inputs of a split of the task in a folder."""
    return folder / f"{split}.arrow"


def labels_file(folder: Path, split: str) -> Path:
    """The file of a split's true labels and ids, in its own folder, which training never opens."""
    return folder / LABELS / f"{split}.arrow"


def card_file(folder: Path) -> Path:
    """The card in a task's folder."""
    return folder / CARD


def read_card(folder: Path) -> Card:
    """The card of the task in a folder; a DamagedFile unless the files are as the card records them."""
    file = card_file(folder)
    status = stat_of(file)
    card = _read_card(file, status.st_ino, status.st_mtime_ns, status.st_size)
    older = not card.folder and folder.name.startswith(f"{card.name}-v{card.version}.")
    if card.folder != folder.name and not older:
        raise DamagedFile(file, f"it belongs to {card.folder or card.name}")
    verify_beside(file, card.files)
    return card


@functools.lru_cache(maxsize=64)
def _read_card(file: Path, *version: int) -> Card:
    """Read a card once per version of its file: a grid asks for it thousands of times."""
    try:
        card = Card(**read_own_json(file))
    except TypeError:
        raise DamagedFile(file, "not a card of this version of ssmlbench") from None
    if not card.files:
        raise DamagedFile(file, "it has no checksums")
    return card


@functools.lru_cache(maxsize=64)
def share_of_zeros(folder: Path, fingerprint: str) -> float:
    """The share of zeros in a task's first training vectors: near 1 for counts of words.

    folder: of a task whose inputs were verified. fingerprint: of the task, so that each version of it is
    read once per process.
    """
    import pyarrow as pa

    path = inputs_file(folder, "train")
    with naming(path), pa.memory_map(str(path)) as file:
        rows = zeros = entries = 0
        for batch in pa.ipc.open_stream(file):
            values = batch.column("input").flatten().to_numpy()
            rows, entries = rows + len(batch), entries + values.size
            zeros += int((values == 0).sum())
            if rows >= SAMPLED_ROWS:
                break
    return zeros / max(entries, 1)


class ImageFiles:
    """The image files of a split as they are stored, by row. Threads may read at the same time."""

    def __init__(self, column: Any):
        """column: of Arrow, whose rows have the field `bytes`."""
        self._column = column

    def __len__(self) -> int:
        return len(self._column)

    def __getitem__(self, row: int) -> bytes:
        content: bytes = self._column[row]["bytes"].as_py()
        return content


def _has_images(rows: Any) -> bool:
    import datasets

    return isinstance(rows.features["input"], datasets.Image)


class Task:
    """A prepared data set: Arrow files on disk, read through memory maps."""

    def __init__(
        self, folder: Path, card: Card | None = None, unlike_published: Sequence[str] = ()
    ):
        """card: read from the folder if it is not given.

        unlike_published: how it differs from the data set that papers describe, which `prepare` knows
        from the adapter. A DamagedFile if the card, or a file beside it, is not as it was written.
        """
        self.folder = folder
        self.card = card or read_card(folder)
        self.unlike_published = tuple(unlike_published)

    @property
    def label_count(self) -> int:
        """K."""
        return len(self.card.label_names)

    @property
    def splits(self) -> tuple[str, ...]:
        """The splits that it has: "train", and "test" unless the data set has none."""
        return tuple(self.card.rows)

    @cached_property
    def _splits(self) -> dict[str, Any]:
        return {split: self._open(inputs_file(self.folder, split)) for split in self.splits}

    def _open(self, file: Path) -> Any:
        import datasets

        verified = self._verified(file)
        with naming(file):
            return datasets.Dataset.from_file(verified)

    @property
    def input_files(self) -> list[Path]:
        """The files that training reads, one for each split."""
        return [inputs_file(self.folder, split) for split in self.splits]

    def verify_inputs(self) -> None:
        """Compare the files of inputs with the card; a DamagedFile if one is not as it was written."""
        for file in self.input_files:
            self._verified(file)

    def _verified(self, file: Path) -> str:
        """The path of one of its files, whose content was compared with the card."""
        facts = self.card.files[file.relative_to(self.folder).as_posix()]
        verify_file(file, facts, self.folder / CARD)
        return str(file)

    def verify(self) -> None:
        """Raise DamagedFile unless the content of every file is as it was written."""
        for name in self.card.files:
            self._verified(self.folder / name)

    def truth(self, split: str) -> Labels:
        """The true labels, N × K int8, -1 where the data set itself does not know.

        Only the judge of a run calls this. Test rows are always fully labelled.
        """
        lists = self._sealed_rows(split).data["labels"].combine_chunks()
        return label_matrix(lists, self.label_count)

    def ids(self, split: str) -> list[str]:
        """The id of each row in the source, or else its file and line.

        Training does not see it: an id may name a label, as in `cat/1.png`.
        """
        return list(self._sealed_rows(split)["id"])

    def _sealed_rows(self, split: str) -> Any:
        file = labels_file(self.folder, split)
        sys.audit("ssmlbench.truth", str(file))  # the library opens files without a word to Python
        return self._open(file)

    def inputs(self, split: str) -> Any:
        """The raw inputs of a split: a Hugging Face column in NumPy format."""
        return self._splits[split].with_format("numpy")["input"]

    def vectors(self, split: str) -> list[npt.NDArray[np.float32]]:
        """The vectors of a split as memory maps, N × D in pieces: nothing is read yet."""
        pieces = self._splits[split].data.column("input").chunks
        return [
            piece.flatten().to_numpy(zero_copy_only=True).reshape(len(piece), -1)
            for piece in pieces
            if len(piece)
        ]

    def image_files(self, split: str) -> ImageFiles | None:
        """The stored image files of a split; None if its inputs are not images."""
        rows = self._splits[split]
        return ImageFiles(rows.data.column("input")) if _has_images(rows) else None

    def back_translations(self, split: str) -> Any | None:
        """The texts of a split, translated to another language and back, where it has them."""
        if "back_translation" not in self._splits[split].column_names:
            return None
        return self._splits[split].with_format("numpy")["back_translation"]
