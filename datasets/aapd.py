"""AAPD: abstracts of arXiv computer science papers, labelled with their subjects.

Read from either of its usual forms: a TSV with a 0/1 string a line, or text and label files.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import zip_longest

from ssmlbench.api import (
    SPLITS,
    BadRow,
    DatasetAdapter,
    PublishedStatistics,
    Row,
    UserError,
    label_string,
    numbered_lines,
)


class Aapd(DatasetAdapter):
    """arXiv abstracts, 54 subjects (Yang et al., COLING 2018)."""

    name = "aapd"
    kind = "text"
    backbone = "bert-base-uncased"
    citation = (
        "Yang et al., SGM: Sequence Generation Model for Multi-label Classification, COLING 2018"
    )
    licence = "not stated by its authors"
    download = "the AAPD archive linked from github.com/lancopku/SGM"
    layout = """
text_train  label_train     one text per line; its labels on the line of the same number: cs.CV stat.ML
text_test   label_test
or
train.tsv   test.tsv        0/1 string of the labels, tab, text
labels.txt                  optional: the labels' names, in the order of the digits
"""
    published = PublishedStatistics(
        "commonly quoted rows (unverified); mean inferred from published Hamming losses",
        53840,
        1000,
        54,
        2.42,
    )
    notes = ("the validation file (text_val or dev.tsv) is not used",)

    @property
    def _pairs(self) -> bool:
        return self.has("label_train") or self.has("text_train")

    def label_names(self) -> list[str]:
        if self._pairs:
            found: set[str] = set()
            for split in SPLITS:
                file = self.path(f"label_{split}")
                for number, line in numbered_lines(file):
                    if "," in line or ";" in line:
                        where = self.where(file, number)
                        raise UserError(
                            f"data set {self.name}: {where}: labels are joined by spaces"
                        )
                    found.update(line.split())
            return sorted(found)
        if self.has("labels.txt"):
            return [line for _, line in numbered_lines(self.path("labels.txt")) if line]
        _, first = next(numbered_lines(self.path("train.tsv")), (0, ""))
        return [f"label-{k:02d}" for k in range(len(first.partition("\t")[0]))]

    def rows(self, split: str) -> Iterator[Row | BadRow]:
        return self._pair_rows(split) if self._pairs else self._tsv_rows(split)

    def _pair_rows(self, split: str) -> Iterator[Row | BadRow]:
        positions = {name: k for k, name in enumerate(self.label_names())}
        texts, labels = self.path(f"text_{split}"), self.path(f"label_{split}")
        both = zip_longest(numbered_lines(texts), numbered_lines(labels))
        for number, (text, names) in enumerate(both, start=1):
            where = self.where(texts if text else labels, number)
            if text is None or names is None:
                absent = texts.name if text is None else labels.name
                yield BadRow(where, f"{absent} has no line {number}")
            elif not names[1].strip():
                yield BadRow(self.where(labels, number), "no label")
            else:
                yield Row(text[1], tuple(positions[name] for name in names[1].split()), "", where)

    def _tsv_rows(self, split: str) -> Iterator[Row | BadRow]:
        label_count = len(self.label_names())
        file = self.path(f"{split}.tsv")
        for number, line in numbered_lines(file):
            where = self.where(file, number)
            digits, tab, text = line.partition("\t")
            if not tab:
                yield BadRow(where, "no tab between labels and text")
                continue
            labels = label_string(digits, label_count, where)
            yield labels if isinstance(labels, BadRow) else Row(text, labels, "", where)
