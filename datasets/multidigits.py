"""multidigits: one to three real handwritten digits side by side; the labels are the digits there.

Made from the 1,797 digits inside scikit-learn: no network. Fully determined by `version`.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from ssmlbench.api import DatasetAdapter, Row

SIDE, SLOTS = 10, 3  # a canvas is three squares of 10 × 10 side by side
ROWS = {"train": 4000, "test": 2000}

# Long-tailed weight of each digit, and the share of rows with 1, 2 and 3 digits.
PRIOR = np.array([0.20, 0.16, 0.13, 0.11, 0.10, 0.08, 0.07, 0.06, 0.05, 0.04])
COUNT_SHARES = np.array([0.45, 0.40, 0.15])
# Digits of one group attract each other: labels co-occur more than the prior alone explains.
GROUPS = ((0, 3, 8), (1, 4, 7), (2, 5, 6, 9))
ATTRACTION = 5.0
# How each digit is changed. This is what few labelled rows cannot cover and many unlabelled ones
# do: with upright, clean digits 200 labelled rows already say almost everything.
TURN, GROW, SLANT, MOVE = np.deg2rad(25), 0.2, 0.2, 1.0
DIMMEST, NOISE = 0.5, 0.08
# The source digits are divided once, the same way in every version: no handwriting sample is in
# any version's training and any version's test rows.
SOURCE_SEED = 20240
TRAIN_SHARE = 2 / 3


class Multidigits(DatasetAdapter):
    """Turned, slanted, dimmed digits on a noisy 10 × 30 canvas; long-tailed, with label groups."""

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
    """One source digit per label, in slots from left to right, each changed in its own way."""
    canvas = np.zeros((SIDE, SLOTS * SIDE))
    slots = np.sort(random.permutation(SLOTS)[: len(digits)])
    for slot, digit in zip(slots, random.permutation(digits), strict=True):
        glyph = change(glyphs[random.choice(sources[digit])], random)
        canvas[:, SIDE * slot : SIDE * (slot + 1)] = glyph
    noisy = canvas + NOISE * random.normal(size=canvas.shape)
    pixels: NDArray[np.uint8] = np.rint(255 * noisy.clip(0, 1)).astype(np.uint8)
    return pixels


def change(glyph: NDArray[np.float64], random: np.random.Generator) -> NDArray[np.float64]:
    """Turn, slant, scale, move and dim one 8 × 8 digit; 10 × 10 out."""
    from scipy.ndimage import affine_transform

    turn, slant = random.uniform(-TURN, TURN), random.uniform(-SLANT, SLANT)
    scale = np.exp(random.uniform(-GROW, GROW))
    matrix = np.array([[np.cos(turn), -np.sin(turn)], [np.sin(turn) + slant, np.cos(turn)]]) / scale
    centre = np.full(2, (SIDE - 1) / 2)
    offset = centre - matrix @ centre + random.uniform(-MOVE, MOVE, 2)
    moved: NDArray[np.float64] = affine_transform(
        np.pad(glyph, (SIDE - len(glyph)) // 2), matrix, offset, order=1
    )
    return np.asarray(moved * random.uniform(DIMMEST, 1.0))
