"""Three small data sets for the golden runs: images, vectors and texts, with four labels each.

A plugin file. Every number in it is drawn with NumPy from a fixed seed.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ssmlbench.api import DatasetAdapter, Row

LABELS = ["a", "b", "c", "d"]
FREQUENCY = np.array([0.5, 0.4, 0.3, 0.2])
ROWS = {"train": 64, "test": 16}
WORDS = ["ba", "de", "fi", "go", "ku", "la", "me", "ni", "po", "ru"]


class _Golden(DatasetAdapter):
    def label_names(self) -> list[str]:
        return LABELS

    def drawn(self, split: str) -> Iterator[tuple[np.random.Generator, tuple[int, ...]]]:
        """A generator and the labels of each row; a row has at least one label."""
        random = np.random.default_rng(len(split))
        for i in range(ROWS[split]):
            present = np.flatnonzero(random.random(4) < FREQUENCY)
            yield random, tuple(int(k) for k in (present if len(present) else [i % 4]))


class GoldenImages(_Golden):
    """Grey noise with one bright square a label."""

    name = "golden-images"
    kind = "image"
    backbone = "small-cnn"
    flips = True

    def rows(self, split: str) -> Iterator[Row]:
        for random, labels in self.drawn(split):
            image = random.integers(0, 60, (10, 20))
            for k in labels:
                image[1 + k : 5 + k, 5 * k : 5 * k + 4] += 90 + 30 * k
            yield Row(image.astype(np.uint8), labels)


class GoldenVectors(_Golden):
    """Columns of different scale, so that a run without scaling gives other scores."""

    name = "golden-vectors"
    kind = "vector"
    backbone = "vector"

    def rows(self, split: str) -> Iterator[Row]:
        for random, labels in self.drawn(split):
            vector = random.normal(size=12)
            vector[list(labels)] += 2.0
            yield Row((vector * np.linspace(0.5, 3.0, 12) + 1.0).astype(np.float32), labels)


class GoldenTexts(_Golden):
    """A few words for each label, and other words between them."""

    name = "golden-texts"
    kind = "text"
    backbone = "bert-base-uncased"

    def rows(self, split: str) -> Iterator[Row]:
        for random, labels in self.drawn(split):
            words = [WORDS[k] for k in labels for _ in range(3)]
            words += list(random.choice(WORDS, random.integers(3, 9)))
            yield Row(" ".join(random.permutation(words)), labels)
