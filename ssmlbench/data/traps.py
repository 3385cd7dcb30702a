"""Common faults of data sets that are not errors: `prepare` finds them and writes notes on the card."""

from __future__ import annotations

import hashlib
import re
import unicodedata
from array import array
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from ssmlbench.core.counts import first_of
from ssmlbench.data.label_lists import LabelCounts

SHOWN = 5
SORTED_ROWS, SORTED = 20, 0.5
"""The least number of rows, and how far from a random order towards one by label, to call them sorted."""
WORD = re.compile(r"[^\W\d_]+")
SPELLED_LETTERS = 5
"""Shorter words that differ in one letter are usually two words: codes such as CV and CL."""
BITS = re.compile("[01]{2,}")
MISSING_NAMES = ("nan", "none", "null", "n/a", "na", "?")


def input_digest(content: str | bytes) -> int:
    """Eight bytes that are the same for equal inputs; texts are equal whatever their case and spaces."""
    if isinstance(content, str):
        content = " ".join(content.split()).casefold().encode(errors="replace")
    return int.from_bytes(hashlib.blake2b(content, digest_size=8).digest())


class SeenInputs:
    """The inputs of each split, eight bytes a row: which come twice, and which are in both splits."""

    def __init__(self) -> None:
        self._digests: dict[str, array[int]] = defaultdict(lambda: array("Q"))

    def add(self, split: str, digest: int) -> None:
        """Remember one row."""
        self._digests[split].append(digest)

    def notes(self, inputs: str) -> list[str]:
        """A line for each split with duplicates, and one for test rows that are training rows too."""
        notes = []
        arrays = {split: np.array(rows, np.uint64) for split, rows in self._digests.items()}
        for split, rows in arrays.items():
            if twice := len(rows) - len(np.unique(rows)):
                notes.append(
                    f"{twice:,} {split} rows repeat the {inputs} of an earlier {split} row"
                )
        if {"train", "test"} <= arrays.keys():
            leaks = int(np.isin(arrays["test"], arrays["train"], kind="sort").sum())
            if leaks:
                notes.append(
                    f"{leaks:,} of {len(arrays['test']):,} test rows have the {inputs} of a training "
                    "row, so that scores are too high; for own data, --drop-leaks leaves those "
                    "training rows out"
                )
        return notes


def label_notes(names: Sequence[str], counts: Mapping[str, LabelCounts]) -> list[str]:
    """Lines on labels that no row has, that look alike, or that look like a missing value."""
    return [
        *_split_notes(names, counts),
        *_name_notes(names),
        *_known_notes(names, counts["train"]),
    ]


def _split_notes(names: Sequence[str], counts: Mapping[str, LabelCounts]) -> list[str]:
    """Lines on labels that no row of a split has, and on splits that are sorted by label."""
    notes = []
    for split, count in counts.items():
        none = [name for name, rows in zip(names, count.positives, strict=True) if not rows]
        if none:
            notes.append(
                f"{len(none):,} of {len(names):,} labels have no {split} row: {first_of(none, SHOWN)}"
            )
        if count.rows.total() >= SORTED_ROWS and count.sorted_by_label > SORTED:
            notes.append(
                f"its {split} rows are sorted by label, so that a row's number tells its labels; shuffle "
                "them before you trust a method of others"
            )
    return notes


def _name_notes(names: Sequence[str]) -> list[str]:
    """Lines on names that look alike, or like something else than the name of one label."""
    notes = []
    if alike := [f"{a!r} and {b!r}" for a, b in look_alikes(names)]:
        notes.append(
            f"labels that differ only in case, punctuation or a letter: {first_of(alike, SHOWN)}"
        )
    if missing := [repr(name) for name in names if name.strip().casefold() in MISSING_NAMES]:
        notes.append(f"label {first_of(missing, SHOWN)} looks like a missing value")
    known = set(names)
    if joined := [repr(name) for name in names if _is_joined(name, known)]:
        notes.append(
            f"label {first_of(joined, SHOWN)} looks like several labels in one: --label-separator says "
            "what stands between them"
        )
    if (
        len(names) > 1
        and all(BITS.fullmatch(name) for name in names)
        and len({*map(len, names)}) == 1
    ):
        notes.append(
            f"labels {first_of(names, SHOWN)} look like a 0 or 1 for each label; as a list, [0, 1, 1], "
            "they are read so"
        )
    return notes


def _known_notes(names: Sequence[str], train: LabelCounts) -> list[str]:
    """Lines on training rows without a single negative label."""
    if train.negatives:
        return []
    if train.unknown:
        return [
            "no training label is negative, only positive or unknown: -1 and empty cells are read as "
            "unknown; if they mean no, write 0"
        ]
    if len(names) > 1:
        return [
            "every training row has every label; if its lists hold a 0 or 1 for each label, write them "
            "as columns, one per label"
        ]
    return []


def _is_joined(name: str, names: set[str]) -> bool:
    """Whether a name consists of other names with one mark between them."""
    marks = {mark for mark in re.findall(r"[^\w\s]|\s", name) if mark not in "-_.'"}
    return any(
        len(parts := [part.strip() for part in name.split(mark)]) > 1
        and set(parts) <= names - {name}
        for mark in marks
    )


def look_alikes(names: Sequence[str]) -> list[tuple[str, str]]:
    """Pairs of names that differ in case or punctuation, or in one letter of a word."""
    groups: defaultdict[str, list[str]] = defaultdict(list)
    for name in names:
        for key in {_plain(name), *_one_letter_less(name)}:
            groups[key].append(name)
    pairs = {
        (a, b)
        for group in groups.values()
        for k, a in enumerate(group[:SHOWN])
        for b in group[k + 1 : SHOWN]
        if _plain(a) == _plain(b) or _same_but_for_a_letter(a, b)
    }
    return sorted(pairs)


def _plain(name: str) -> str:
    """The letters and digits of a name; wide letters and ligatures are the usual ones."""
    usual = name if name.isascii() else unicodedata.normalize("NFKC", name)
    return re.sub(r"[\W_]+", "", usual).casefold() or name


def _one_letter_less(name: str) -> Iterable[str]:
    plain = _plain(name)
    return (plain[:k] + plain[k + 1 :] for k in range(len(plain)) if len(plain) <= 60)


def _same_but_for_a_letter(a: str, b: str) -> bool:
    """Whether one word of the names differs, in one letter, and is long enough to be a misspelling."""
    ours, theirs = (WORD.findall(name.casefold()) for name in (a, b))
    numbers = re.findall(r"\d+", a) == re.findall(r"\d+", b)
    if len(ours) != len(theirs) or not numbers:
        return False
    differing = [(x, y) for x, y in zip(ours, theirs, strict=True) if x != y]
    return len(differing) == 1 and _one_edit(*differing[0])


def _one_edit(a: str, b: str) -> bool:
    """Whether a word becomes the other by one letter more, less or exchanged."""
    short, long = sorted((a, b), key=len)
    if len(short) < SPELLED_LETTERS or len(long) - len(short) > 1:
        return False
    same = next((k for k, (x, y) in enumerate(zip(short, long)) if x != y), len(short))  # noqa: B905
    rest = short[same + 1 :] if len(short) == len(long) else short[same:]
    return rest == long[same + 1 :]
