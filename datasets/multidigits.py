"""multidigits: one to three real handwritten digits side by side; the labels are the digits there.

Made from the 1,797 digits inside scikit-learn, so it needs no network. Fully determined by `version`.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from ssmlbench.dataset import DatasetAdapter, Row

HEIGHT, WIDTH, GLYPH = 10, 30, 8
ROWS = {"train": 4000, "test": 2000}

# Long-tailed weight of each digit, and the share of rows with 1, 2 and 3 digits.
PRIOR = np.array([0.27, 0.19, 0.14, 0.11, 0.085, 0.065, 0.05, 0.04, 0.03, 0.02])
COUNT_SHARES = np.array([0.25, 0.40, 0.35])
# Digits of one group attract each other: labels co-occur more than the prior alone explains.
GROUPS = ((0, 3, 8), (1, 4, 7), (2, 5, 6, 9))
ATTRACTION = 5.0
# The source digits are divided once, the same way in every version: no handwriting sample is in
# any version's training and any version's test rows.
SOURCE_SEED = 20240
TRAIN_SHARE = 2 / 3


class Multidigits(DatasetAdapter):
    """Digits on a 10 × 30 canvas, jittered in place and brightness; long-tailed, with label groups."""

    name = "multidigits"
    kind = "image"
    version = 1
    backbone = "small-cnn"
    flips = False
    citation = "composed from the UCI handwritten digits (Alpaydin & Kaynak, 1998) in scikit-learn"
    licence = "CC BY 4.0 (UCI ML Repository)"

    def label_names(self) -> list[str]:
        return [str(digit) for digit in range(10)]

    def rows(self, split: str) -> Iterator[Row]:
        random = np.random.default_rng([self.version, list(ROWS).index(split)])
        glyphs, sources = source_digits(split)
        for _ in range(ROWS[split]):
            digits = draw_digits(random)
            yield Row(draw_canvas(digits, glyphs, sources, random), tuple(digits))


def source_digits(split: str) -> tuple[NDArray[np.float64], list[NDArray[np.int64]]]:
    """All digits scaled to 0..1 (1797 × 8 × 8), and for each label the ones `split` may use."""
    from sklearn.datasets import load_digits

    digits = load_digits()
    order = np.random.default_rng(SOURCE_SEED).permutation(len(digits.target))
    cut = int(TRAIN_SHARE * len(order))
    mine = np.sort(order[:cut] if split == "train" else order[cut:])
    return digits.images / 16.0, [mine[digits.target[mine] == label] for label in range(10)]


def draw_digits(random: np.random.Generator) -> list[int]:
    """The distinct digits of one row: each attracts its group when the next is drawn."""
    affinity = np.ones((10, 10))
    for group in GROUPS:
        affinity[np.ix_(group, group)] = ATTRACTION
    chosen: list[int] = []
    for _ in range(1 + random.choice(3, p=COUNT_SHARES)):
        weight = PRIOR * affinity[chosen].prod(axis=0)
        weight[chosen] = 0.0
        chosen.append(int(random.choice(10, p=weight / weight.sum())))
    return chosen


def draw_canvas(
    digits: list[int],
    glyphs: NDArray[np.float64],
    sources: list[NDArray[np.int64]],
    random: np.random.Generator,
) -> NDArray[np.uint8]:
    """One source digit per label, in slots from left to right, each moved and dimmed a little."""
    canvas = np.zeros((HEIGHT, WIDTH))
    slots = np.sort(random.permutation(WIDTH // HEIGHT)[: len(digits)])
    for slot, digit in zip(slots, random.permutation(digits), strict=True):
        glyph = glyphs[random.choice(sources[digit])] * random.uniform(0.5, 1.0)
        top = random.integers(0, HEIGHT - GLYPH + 1)
        left = HEIGHT * slot + random.integers(0, HEIGHT - GLYPH + 1)
        canvas[top : top + GLYPH, left : left + GLYPH] = glyph
    return np.rint(255 * canvas).astype(np.uint8)
