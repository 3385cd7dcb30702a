"""Raw rows of a data set → the inputs of a split, as an encoder takes them."""

from __future__ import annotations

from typing import Any

import torch

from ssmlbench.data import Task
from ssmlbench.inputs.encoders import Encoder, EncoderOptions
from ssmlbench.inputs.splits import BackTranslated, Inputs, SplitInputs, StoredInputs
from ssmlbench.inputs.views import View

IN_MEMORY_BYTES = 512 * 2**20
"""A split whose prepared inputs are larger is read and prepared row by row."""
PREPARED_ROWS = 1000
"""Rows prepared in one call."""


def prepared_inputs(
    encoder: type[Encoder], options: EncoderOptions, task: Task, split: str
) -> SplitInputs:
    """A split prepared for an encoder, with its back-translations if it has any."""
    views = encoder.views(task.card.kind, task.card.flips, options)
    inputs = _prepared(encoder, options, task.inputs(split), views)
    translations = task.back_translations(split)
    if translations is None:
        return inputs
    return BackTranslated(inputs, _prepared(encoder, options, translations, views))


def _prepared(
    encoder: type[Encoder], options: EncoderOptions, column: Any, views: dict[str, View]
) -> SplitInputs:
    """Prepare a small column now, in memory; a large one row by row, in each call of `view`."""
    count = len(column)
    first = encoder.prepare([column[0]], options)
    if first.nbytes * count > IN_MEMORY_BYTES:
        return StoredInputs(column, lambda raws: encoder.prepare(raws, options), views)
    values = torch.empty((count, *first.shape[1:]), dtype=first.dtype)
    for start in range(0, count, PREPARED_ROWS):
        raws = list(column[start : start + PREPARED_ROWS])
        values[start : start + len(raws)] = encoder.prepare(raws, options)
    return Inputs(values, views)
