"""The frozen-feature cache: an encoder runs once over each split and view, every later run reads.

Files under <cache>/features/<data set>-<split>-<view>-<key>/: shards of half-precision rows, each
written by an atomic rename, and about.json last. What is trained on the features is not in here.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from filelock import FileLock
from torch import Generator, Tensor

from ssmlbench.core.cpu import core_count
from ssmlbench.core.errors import RunFailed, UserError
from ssmlbench.core.events import Encoding, Notify, Waiting
from ssmlbench.core.files import acquire_telling, temporary_beside, write_atomically
from ssmlbench.core.prefetch import ahead
from ssmlbench.core.seeds import stream, stream_seed
from ssmlbench.core.spec import RunSpec
from ssmlbench.data import Task
from ssmlbench.inputs.encoders import Encoder, EncoderOptions, build_encoder, check_weights
from ssmlbench.inputs.feature_cache import FeatureFolder, features_root
from ssmlbench.inputs.views import PATCHES, RowNumbers, SplitInputs, View, feature_dropout

VERSION = 1
"""Raised when the same encoder, options and rows would give other features."""

SHARD_ROWS = 1024
"""What a kill can cost at the most."""


class CachedInputs:
    """One split's features in memory; the strong view of a row is one of its R cached draws."""

    on_the_fly = False

    def __init__(
        self,
        values: dict[str, Tensor],
        draws: int,
        rare: Mapping[str, Callable[[], Tensor]] | None = None,
    ):
        """values: N × D half-precision features by view, N × 4 × D for views of patches; of strong
        views N · R, a row's draws together.
        rare: views that few methods ask for; they are had at the first question."""
        self.values = values
        self.draws = draws
        self.rare = dict(rare or {})
        self.views: dict[str, View] = dict.fromkeys((*values, *self.rare), _as_cached)

    def __len__(self) -> int:
        return len(self.values["plain"])

    def view(self, rows: RowNumbers, view: str, generator: Generator) -> Tensor:
        if view not in self.values:
            self.values[view] = self.rare.pop(view)()
        strong = view.startswith("strong")
        where = torch.from_numpy(rows)
        if strong and self.draws > 1:
            chosen = torch.randint(0, self.draws, (len(rows),), generator=generator)
            where = where * self.draws + chosen
        features = self.values[view].index_select(0, where).flatten(0, -2).float()
        # A few cached draws are learnt by heart: every step sees another half of their features.
        return feature_dropout(features, generator) if strong else features

    def scaled(self, scale: Callable[[Tensor], Tensor]) -> CachedInputs:
        def apply(features: Tensor) -> Tensor:
            return scale(features.flatten(0, -2)).view_as(features)

        done: dict[int, Tensor] = {}  # two views may be one tensor
        for tensor in self.values.values():
            if id(tensor) not in done:
                done[id(tensor)] = apply(tensor)
        return CachedInputs(
            {view: done[id(tensor)] for view, tensor in self.values.items()},
            self.draws,
            {view: lambda load=load: apply(load()) for view, load in self.rare.items()},  # type: ignore[misc]
        )


def _as_cached(features: Tensor, generator: Generator) -> Tensor:
    return features


@dataclass
class FrozenEncoder:
    """An encoder that is not trained, on one task. It is built when something is not cached yet."""

    spec: RunSpec
    encoder: type[Encoder]
    task: Task
    load: Callable[[str], SplitInputs]  # split → its prepared inputs
    device: torch.device
    workers: int = 0
    notify: Notify = lambda event: None
    _inputs: dict[str, SplitInputs] = field(default_factory=dict, init=False)

    def inputs(self, split: str) -> CachedInputs:
        """All views of the training rows, the plain one of the others, computed where missing;
        views of patches only when a method asks for one."""
        names = self.encoder.views(self.task.card.kind, self.task.card.flips, self.options)
        values = {"plain": self._view(split, "plain")}
        if split == "train":
            # A weak view that is the row itself (text, vectors) is not computed twice.
            same = names["weak"] is names["plain"]
            values["weak"] = values["plain"] if same else self._view(split, "weak")
            values["strong"] = self._view(split, "strong")
        patched = [f"{view}-patches" for view in values if f"{view}-patches" in names]
        rare = {view: partial(self._view, split, view) for view in patched}
        return CachedInputs(values, self.draws, rare)

    def _view(self, split: str, view: str) -> Tensor:
        """The features of a view, a row's draws together where it has several."""
        draws = self.draws if view.startswith("strong") else 1
        found = [self._features(split, view, draw) for draw in range(draws)]
        if view.endswith("-patches"):
            found = [features.unflatten(0, (-1, PATCHES)) for features in found]
        return torch.stack(found, dim=1).flatten(0, 1) if draws > 1 else found[0]

    @property
    def draws(self) -> int:
        """R: how often the strong view of a row is drawn."""
        return self.spec.strong_views or 1

    @property
    def options(self) -> EncoderOptions:
        return EncoderOptions.of(self.spec)

    def key(self, split: str, view: str, draw: int) -> dict[str, Any]:
        """Everything the features depend on. A model is known by its weights, not by its folder."""
        spec, card = self.spec, self.task.card
        return {
            "version": VERSION,
            "encoder": self.encoder.__name__ if "@" in spec.weights else spec.backbone,
            "weights": spec.weights,
            "code": spec.encoder_code,
            "options": {**dataclasses.asdict(self.options), "weights": None},
            "data": card.fingerprint,
            "flips": card.flips,
            "split": split,
            "view": view,
            "draw": draw,
        }

    def folder(self, split: str, view: str, draw: int) -> FeatureFolder:
        key = self.key(split, view, draw)
        digest = hashlib.sha256(json.dumps(key, sort_keys=True).encode()).hexdigest()[:16]
        name = f"{view}{draw}" if view.startswith("strong") else view
        stem = "".join(c if c.isalnum() or c in "-_" else "_" for c in self.task.card.name)
        return FeatureFolder(features_root() / f"{stem}-{split}-{name}-{digest}")

    def _features(self, split: str, view: str, draw: int) -> Tensor:
        folder = self.folder(split, view, draw)
        if not folder.complete:
            try:
                folder.path.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise UserError(
                    f"cannot write to {folder.path}: {error.strerror}; set SSMLBENCH_CACHE to a "
                    "folder that can be written to"
                ) from None
            lock = FileLock(folder.lock_file)
            what = f"waits for features another run computes ({_name(split, view, draw)})"
            acquire_telling(lock, lambda: self.notify(Waiting(what)))
            try:
                if not folder.complete:  # whoever had to wait finds it complete
                    with all_cores():
                        self._compute(folder, split, view, draw)
            finally:
                lock.release()
        return torch.cat([torch.from_numpy(np.load(file)) for file in folder.shards()])

    def _compute(self, folder: FeatureFolder, split: str, view: str, draw: int) -> None:
        inputs = self._loaded(split)
        shards = math.ceil(len(inputs) / SHARD_ROWS)
        missing = [i for i in range(shards) if not folder.shard_file(i).is_file()]
        done = len(inputs) - sum(min(SHARD_ROWS, len(inputs) - i * SHARD_ROWS) for i in missing)
        width = 0
        for shard, features in self._encoded(inputs, view, draw, missing):
            _write_shard(folder.shard_file(shard), features)
            width = features.shape[1]
            done += min(SHARD_ROWS, len(inputs) - shard * SHARD_ROWS)
            self.notify(Encoding(_name(split, view, draw), done, len(inputs)))
        about = {
            **self.key(split, view, draw),
            "dataset": self.task.card.name,
            "backbone": self.spec.backbone,
            "rows": len(inputs),
            "features": width or np.load(folder.shard_file(0), mmap_mode="r").shape[1],
            "shards": shards,
        }
        self._check_weights_again(folder, shards)
        write_atomically(folder.about_file, json.dumps(about, indent=1))

    def _check_weights_again(self, folder: FeatureFolder, shards: int) -> None:
        """Make sure that the weights are still those of the key, before the entry becomes valid.

        An encoder may map its file into memory: then a change of the file has reached the features.
        """
        try:
            check_weights(self.encoder, self.spec)
        except UserError:
            for number in range(shards):
                folder.shard_file(number).unlink(missing_ok=True)
            raise

    @torch.inference_mode()
    def _encoded(
        self, inputs: SplitInputs, view: str, draw: int, shards: list[int]
    ) -> Iterator[tuple[int, np.ndarray]]:
        """The features of each shard; random views depend on rows and draw, not on who asks."""
        size = min(self.encoder.batch_rows, SHARD_ROWS)
        batches = [
            (shard, start, min(start + size, (shard + 1) * SHARD_ROWS, len(inputs)))
            for shard in shards
            for start in range(shard * SHARD_ROWS, min((shard + 1) * SHARD_ROWS, len(inputs)), size)
        ]

        def load(i: int) -> Tensor:
            _, start, stop = batches[i]
            return inputs.view(np.arange(start, stop), view, stream(0, "frozen", view, draw, start))

        encoder = self._built
        parts: list[Tensor] = []
        threads = self.workers if inputs.on_the_fly else 0
        for (shard, _, stop), batch in zip(
            batches, ahead(load, len(batches), threads), strict=True
        ):
            features = encoder(batch.to(self.device)).float()
            parts.append(features.half().cpu())
            if not parts[-1].isfinite().all():
                raise RunFailed(
                    f"--freeze: features of --backbone {self.spec.backbone} are not finite in half "
                    "precision"
                )
            if stop == min((shard + 1) * SHARD_ROWS, len(inputs)):
                yield shard, torch.cat(parts).numpy()
                parts = []

    def _loaded(self, split: str) -> SplitInputs:
        if split not in self._inputs:
            self._inputs.clear()  # one split's inputs in memory at a time
            self._inputs[split] = self.load(split)
        return self._inputs[split]

    @cached_property
    def _built(self) -> Encoder:
        (inputs,) = self._inputs.values()
        example = inputs.view(np.zeros(1, dtype=np.int64), "plain", stream(0, "example"))[0]
        # One start for all runs, whatever their seed: they share the features. A view asked for in
        # the middle of a run must not change what that run draws.
        with torch.random.fork_rng(devices=()):
            torch.manual_seed(stream_seed(0, "frozen network"))
            return build_encoder(self.encoder, self.spec, example).eval().to(self.device)


def _name(split: str, view: str, draw: int) -> str:
    return f"{split} {view}" + (f" {draw + 1}" if view.startswith("strong") else "")


def _write_shard(file: Path, features: np.ndarray) -> None:
    unfinished = temporary_beside(file)
    with unfinished.open("wb") as out:
        np.save(out, features)
    os.replace(unfinished, file)


@contextmanager
def all_cores() -> Iterator[None]:
    """For work that is done once and that others wait for, whatever threads a run has."""
    threads = torch.get_num_threads()
    torch.set_num_threads(core_count())
    try:
        yield
    finally:
        torch.set_num_threads(threads)
