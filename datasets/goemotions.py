"""GoEmotions: Reddit comments with the emotions raters agreed on, from its TSV files or the hub."""

from __future__ import annotations

from collections.abc import Iterator

from ssmlbench.api import (
    BadRow,
    DatasetAdapter,
    Hub,
    PublishedStatistics,
    Row,
    UserError,
    numbered_lines,
    whole_number,
)

EMOTIONS = (
    "admiration", "amusement", "anger", "annoyance", "approval", "caring", "confusion",
    "curiosity", "desire", "disappointment", "disapproval", "disgust", "embarrassment",
    "excitement", "fear", "gratitude", "grief", "joy", "love", "nervousness", "optimism", "pride",
    "realization", "relief", "remorse", "sadness", "surprise", "neutral",
)  # fmt: skip


class GoEmotions(DatasetAdapter):
    """Reddit comments, 27 emotions and neutral (Demszky et al., ACL 2020)."""

    name = "goemotions"
    kind = "text"
    backbone = "bert-base-uncased"
    citation = "Demszky et al., GoEmotions: A Dataset of Fine-Grained Emotions, ACL 2020"
    licence = "Apache 2.0"
    download = "goemotions/data/{train,test}.tsv of github.com/google-research/google-research"
    layout = """
train.tsv      text, tab, comma-joined label ids, tab, comment id
test.tsv
"""
    hub = Hub(
        "google-research-datasets/go_emotions",
        "add492243ff905527e67aeb8b80c082af02207c3",
        "simplified",
    )
    published = PublishedStatistics("its paper and repository", 43410, 5427, 28, 1.18)
    notes = ("dev.tsv is not used",)

    def label_names(self) -> list[str]:
        """The emotions; a UserError if the raw folder numbers them in another way."""
        listed = numbered_lines(self.path("emotions.txt")) if self.has("emotions.txt") else ()
        there = [line.strip() for _, line in listed if line.strip()]
        if there and there != list(EMOTIONS):
            k = next(
                (k for k, (a, b) in enumerate(zip(there, EMOTIONS, strict=False)) if a != b), -1
            )
            found = f"calls label {k} {there[k]!r}" if k >= 0 else f"has {len(there)} labels"
            raise UserError(
                f"data set {self.name}: emotions.txt {found}, other than its authors' list of "
                f"{len(EMOTIONS)}; prepare it as your own data"
            )
        return list(EMOTIONS)

    def rows(self, split: str) -> Iterator[Row | BadRow]:
        if self.folder is None:
            for row in self.from_hub(split):
                yield Row(row["text"], tuple(row["labels"]), row["id"], f"hub {split} {row['id']}")
            return
        file = self.path(f"{split}.tsv")
        for number, line in numbered_lines(file):
            where = self.where(file, number)
            parts = line.split("\t")
            if len(parts) != 3:
                yield BadRow(
                    where, f"{len(parts)} columns, expected 3: text, label ids, comment id"
                )
                continue
            text, ids, comment = parts
            texts = ids.split(",")
            labels = tuple(n for text in texts if (n := whole_number(text)) is not None)
            if len(labels) < len(texts):
                yield BadRow(where, f"label ids {ids!r} are not numbers")
                continue
            yield Row(text, labels, comment, where)
