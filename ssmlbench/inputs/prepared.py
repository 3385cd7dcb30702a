"""Prepares the raw rows of a split as inputs of an encoder."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from ssmlbench.core.counts import counted
from ssmlbench.core.errors import ContractError
from ssmlbench.core.events import Notify
from ssmlbench.core.registry import written_at
from ssmlbench.data import Task
from ssmlbench.inputs.decoded import DecodedImages, DecodedInputs
from ssmlbench.inputs.decoding import Shortcuts, SquareDecoder
from ssmlbench.inputs.encoders import Encoder, EncoderOptions
from ssmlbench.inputs.mapped import MAPPED_BYTES, MappedRows
from ssmlbench.inputs.splits import BackTranslated, Inputs, SplitInputs, StoredInputs
from ssmlbench.inputs.views import View

IN_MEMORY_BYTES = 512 * 2**20
"""Larger splits are prepared row by row when they are read, or read from the cache of decoded images."""
CACHED_BYTES = 64 * 2**20
"""Smaller splits of images are decoded by every run, which takes a second or two."""
PREPARED_ROWS = 1000
"""Rows prepared in one call."""


@dataclass(frozen=True)
class Reading:
    """How the rows of a split are read; it does not change their values."""

    workers: int = 0  # threads that decode images
    decoded_cache: bool = True  # images are decoded once, into a cache that runs share
    read_once: bool = False  # rows are read a few times only, as by a frozen encoder
    notify: Notify = lambda event: None


def prepared_inputs(
    encoder: type[Encoder],
    options: EncoderOptions,
    task: Task,
    split: str,
    reading: Reading | None = None,
    shortcuts: Shortcuts | None = None,
) -> SplitInputs:
    """A split prepared for an encoder, with its back-translations if it has any.

    shortcuts: in decoding image files.
    """
    reading = reading or Reading()
    views = encoder.views(task.card.kind, task.card.flips, options)
    images = square_images(encoder, options, task, split, reading, shortcuts)
    if images is not None:
        return _images(images, views, reading)
    if task.card.kind == "vector" and _is_plain(encoder):
        rows = MappedRows(task.vectors(split))
        if rows.bytes > MAPPED_BYTES:
            return StoredInputs(len(rows), rows.take, views, on_the_fly=False)
    inputs = _prepared(encoder, options, task.inputs(split), views)
    translations = task.back_translations(split)
    if translations is None:
        return inputs
    return BackTranslated(inputs, _prepared(encoder, options, translations, views))


def square_images(
    encoder: type[Encoder],
    options: EncoderOptions,
    task: Task,
    split: str,
    reading: Reading,
    shortcuts: Shortcuts | None = None,
) -> DecodedImages | None:
    """The images of a split as squares; None if its inputs are none, or the encoder resizes them itself."""
    files = task.image_files(split) if takes_squares(encoder, options) else None
    if files is None or not options.image_size:
        return None
    decoder = SquareDecoder(
        files, options.image_size, encoder.interpolation, shortcuts or Shortcuts()
    )
    return DecodedImages(decoder, task.card, split, reading.workers, reading.notify)


def takes_squares(encoder: type[Encoder], options: EncoderOptions) -> bool:
    """Whether images are decoded and resized here, and not by the encoder itself."""
    return bool(_is_plain(encoder) and options.image_size)


def _is_plain(encoder: type[Encoder]) -> bool:
    """Whether the encoder inherits `prepare` from the contract."""
    return getattr(encoder.prepare, "__func__", None) is Encoder.prepare.__func__  # type: ignore[attr-defined]


def in_cache(images: DecodedImages, reading: Reading) -> bool:
    """Whether images are read from the cache; what is missing there is decoded now."""
    small = images.bytes <= IN_MEMORY_BYTES
    cached = images.bytes >= CACHED_BYTES and not (small and reading.read_once)
    return reading.decoded_cache and cached and images.available()


def _images(images: DecodedImages, views: dict[str, View], reading: Reading) -> SplitInputs:
    """Images as squares: from the cache, in memory, or decoded for each view."""
    if in_cache(images, reading):
        return DecodedInputs(images, views)
    decoder = images.decoder
    if images.bytes > IN_MEMORY_BYTES:
        return StoredInputs(
            len(decoder), lambda rows: torch.from_numpy(decoder.decode(rows)), views
        )
    (squares,) = decoder.ranges([(0, len(decoder))], reading.workers)
    return Inputs(torch.from_numpy(squares), views, on_the_fly=True)


def _prepared(
    encoder: type[Encoder], options: EncoderOptions, column: Any, views: dict[str, View]
) -> SplitInputs:
    """Prepare a small column now, in memory; a large one row by row when it is read."""
    count = len(column)
    first = prepared_rows(encoder, [column[0]], options)
    if first.nbytes * count > IN_MEMORY_BYTES:

        def prepare(rows: np.ndarray[Any, Any]) -> torch.Tensor:
            return prepared_rows(encoder, [column[int(row)] for row in rows], options)

        return StoredInputs(count, prepare, views)
    values = torch.empty((count, *first.shape[1:]), dtype=first.dtype)
    for start in range(0, count, PREPARED_ROWS):
        raws = list(column[start : start + PREPARED_ROWS])
        values[start : start + len(raws)] = prepared_rows(encoder, raws, options, first)
    return Inputs(values, views)


def prepared_rows(
    encoder: type[Encoder],
    raws: Sequence[Any],
    options: EncoderOptions,
    like: torch.Tensor | None = None,
) -> torch.Tensor:
    """What the encoder makes of raw inputs; a ContractError unless it is a tensor with a row for each.

    like: other rows, which must have the same shape. (Torch would repeat a single row or number.)
    """
    rows = encoder.prepare(list(raws), options)
    shape = tuple(rows.shape) if isinstance(rows, torch.Tensor) else None
    if shape and shape[0] == len(raws) and (like is None or shape[1:] == like.shape[1:]):
        return rows
    got = type(rows).__name__ if shape is None else f"a tensor with shape {shape}"
    expected = f"{len(raws)} × {' × '.join(map(str, like.shape[1:]))}" if like is not None else ""
    raise ContractError(
        f"{written_at(encoder, 'prepare')}prepare of --backbone {encoder.name} returned {got} for "
        f"{counted(len(raws), 'input')}; expected a row each{f': {expected}' if expected else ''}"
    )
