"""Rows a second of `data prepare` against plain `Dataset.from_generator` of the same rows.

Preparing also checks every row (labels, ids, texts, images that can be decoded), counts labels and
takes the fingerprint. The two alternate, so a noisy machine slows both alike.
"""

from __future__ import annotations

import io
import os
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from ssmlbench.data import DatasetAdapter, Row, prepare

ROUNDS = 3


class Texts(DatasetAdapter):
    """As many words and labels a row as AAPD has."""

    name = "bench-texts"
    kind = "text"
    backbone = "bert-base-uncased"
    counts = {"train": 30_000, "test": 100}

    def label_names(self) -> list[str]:
        return [f"label-{k}" for k in range(54)]

    def content(self) -> list[Any]:
        draw = np.random.default_rng(0)
        words = ["".join(map(chr, 97 + draw.integers(0, 26, 6))) for _ in range(2000)]
        return [" ".join(draw.choice(words, 160)) for _ in range(500)]

    def rows(self, split: str) -> Iterator[Row]:
        content = self.content()
        for i in range(self.counts[split]):
            yield Row(content[i % len(content)], (i % 54, (i * 7 + 1) % 54), f"{split} {i}")


class Images(Texts):
    """JPEGs of 128 pixels."""

    name = "bench-images"
    kind = "image"
    backbone = "resnet50"
    counts = {"train": 4_000, "test": 100}

    def content(self) -> list[Any]:
        from PIL import Image

        files = []
        for seed in range(100):
            small = np.random.default_rng(seed).integers(0, 256, (16, 16, 3), dtype=np.uint8)
            file = io.BytesIO()
            Image.fromarray(small).resize((128, 128)).save(file, format="JPEG")
            files.append(file.getvalue())
        return files


def plain(adapter: DatasetAdapter, folder: Path) -> None:
    import datasets

    image = adapter.kind == "image"
    features = datasets.Features(
        {
            "input": datasets.Image() if image else datasets.Value("string"),
            "labels": datasets.List(datasets.Value("int32")),
        }
    )

    def rows(split: str) -> Iterator[dict[str, Any]]:
        for row in adapter.rows(split):
            stored = {"bytes": row.input, "path": None} if image else row.input
            yield {"input": stored, "labels": list(row.labels)}

    for split in ("train", "test"):
        datasets.Dataset.from_generator(
            rows, features=features, cache_dir=str(folder), gen_kwargs={"split": split}
        )


def seconds(action: Any) -> float:
    began = time.perf_counter()
    action()
    return time.perf_counter() - began


def main() -> None:
    import datasets

    datasets.disable_progress_bars()
    print("rows        prepare rows/s   of from_generator's")
    before = os.environ.get("SSMLBENCH_CACHE")
    try:
        for cls in (Texts, Images):
            mine, theirs = [], []
            for _ in range(ROUNDS):
                with tempfile.TemporaryDirectory() as folder:
                    os.environ["SSMLBENCH_CACHE"] = folder
                    mine.append(seconds(lambda cls=cls: prepare(cls())))
                    theirs.append(
                        seconds(lambda cls=cls, f=folder: plain(cls(), Path(f) / "plain"))
                    )
            count = sum(cls.counts.values())
            print(f"{cls.kind:11} {count / min(mine):12,.0f} {min(theirs) / min(mine):15.2f} ×")
    finally:
        os.environ.pop("SSMLBENCH_CACHE") if before is None else os.environ.update(
            SSMLBENCH_CACHE=before
        )


if __name__ == "__main__":
    main()
