"""The cache of frozen features: an encoder runs once over each split and view, and later runs read them.

Files under <cache>/features/<data set>-<split>-<view>-<key>/: shards of half-precision rows, each with
a checksum, and about.json last; a damaged shard is computed again. Nothing here is trained.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
from collections import deque
from collections.abc import Callable, Iterator, Sized
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from safetensors.numpy import load_file, save_file
from torch import Tensor

from ssmlbench.core.checksums import FIELD, UNSTAMPED, place_of, stamp
from ssmlbench.core.counts import counted
from ssmlbench.core.cpu import core_count
from ssmlbench.core.errors import ContractError, DamagedFile, RunFailed, UserError
from ssmlbench.core.events import Encoding, Notify
from ssmlbench.core.files import atomic, discard, naming
from ssmlbench.core.freed_memory import freed_memory_kept
from ssmlbench.core.prefetch import ahead
from ssmlbench.core.registry import written_at
from ssmlbench.core.seeds import stream, stream_seed
from ssmlbench.core.spec import RunSpec
from ssmlbench.data import Task
from ssmlbench.inputs.cache_folders import FeatureFolder, features_root
from ssmlbench.inputs.cached import CachedInputs, ViewFeatures
from ssmlbench.inputs.decoding import Shortcuts
from ssmlbench.inputs.encoders import Encoder, EncoderOptions, check_weights, load_encoder
from ssmlbench.inputs.encoders.base import is_plugin
from ssmlbench.inputs.encoders.layout import placed
from ssmlbench.inputs.mapped import MAPPED_BYTES, MappedFeatures, MappedRows, mapped_array
from ssmlbench.inputs.prepared import Reading, prepared_inputs
from ssmlbench.inputs.shards import folder_name
from ssmlbench.inputs.splits import DeferredView, SplitInputs
from ssmlbench.inputs.transfer import Transfer
from ssmlbench.inputs.views import PATCHES, View, is_identity

HalfPrecisionFeatures = npt.NDArray[np.float16]

VERSION = 2
"""Raised when the same encoder, options and rows would give other features, or files of another form."""

SHARD_ROWS = 1024
"""Rows of a shard: a kill loses at most the work on one."""


@dataclass
class FrozenEncoder:
    """A frozen encoder on one task. It is built when a view is not in the cache."""

    spec: RunSpec
    encoder: type[Encoder]
    task: Task
    device: torch.device
    workers: int = 0
    notify: Notify = lambda event: None
    decoded_cache: bool = True
    _loaded: tuple[str, SplitInputs] | None = field(default=None, init=False)
    _built: Encoder | None = field(default=None, init=False)

    def inputs(self, split: str) -> CachedInputs:
        """Every view of the training rows, and the plain view of other splits; computed if missing.

        An estimator has the plain view only. Views of patches are loaded or computed when a method
        uses one.
        """
        views = self.views
        values = {"plain": self._view(split, "plain")}
        if split == "train" and not self.spec.is_estimator:
            values["weak"] = values["plain"] if self._weak_is_plain else self._view(split, "weak")
            values["strong"] = (
                values["plain"] if self._strong_is_plain else self._view(split, "strong")
            )
        patched = [f"{view}-patches" for view in values if f"{view}-patches" in views]
        lazy = {view: partial(self._view, split, view) for view in patched}
        return CachedInputs(values, self.draws, lazy)

    def _view(self, split: str, view: str) -> ViewFeatures:
        """The features of a view; the draws of a row's strong view are consecutive."""
        drawn = self._drawn(view)
        folders = [self.computed(split, name, draw) for name, draw in drawn]
        if sum(folder.bytes for folder in folders) > MAPPED_BYTES:
            mapped = [MappedRows([mapped_array(f) for f in folder.shards()]) for folder in folders]
            return MappedFeatures(mapped, PATCHES if view.endswith("-patches") else None)
        by_draw = [self.features(split, name, draw) for name, draw in drawn]
        if view.endswith("-patches"):
            by_draw = [features.unflatten(0, (-1, PATCHES)) for features in by_draw]
        return torch.stack(by_draw, dim=1).flatten(0, 1) if len(drawn) > 1 else by_draw[0]

    def _drawn(self, view: str) -> list[tuple[str, int]]:
        """The cached views, with the number of their draw, that a view of a row is drawn from."""
        if not view.startswith("strong"):
            return [(view, 0)]
        strong = [(view, draw) for draw in range(self.draws)]
        if not self.spec.mixed_draws:
            return strong
        names = ("plain",) if self._weak_is_plain else ("plain", "weak")
        mixed = [(view.replace("strong", name), 0) for name in names] + strong
        return mixed[: self.draws]

    @property
    def views(self) -> dict[str, View]:
        """The encoder's views of its inputs."""
        return self.encoder.views(self.task.card.kind, self.task.card.flips, self.options)

    @property
    def draws(self) -> int:
        """R, the number of draws of a row's strong view; 1 if every draw is the row itself."""
        return 1 if self._strong_is_plain else self.spec.strong_views or 1

    @property
    def _weak_is_plain(self) -> bool:
        return is_identity(self.views["weak"]) and is_identity(self.views["plain"])

    @property
    def _strong_is_plain(self) -> bool:
        unchanged = is_identity(self.views["strong"]) and is_identity(self.views["plain"])
        return unchanged and self.task.back_translations("train") is None

    @cached_property
    def fitted(self) -> type[Encoder]:
        """The encoder; one that has to be fitted is fitted on the training rows, or read from the cache."""
        if not self.encoder.fitted:
            return self.encoder
        folder = self.folder("train", "plain", 0)
        if not folder.state_file.is_file() or folder.damaged_state():
            with self._locked(folder, "train plain"):
                self._discard(folder.damaged_state(), folder)
                self._fit(folder)
        with naming(folder.state_file):
            state = load_file(folder.state_file)
        return self.encoder.with_state(state)

    def _fit(self, folder: FeatureFolder) -> None:
        """Fit the encoder, unless it is fitted; the caller holds the folder's lock."""
        if folder.state_file.is_file():
            return
        self.notify(Encoding("fitting", 0, self.task.card.rows["train"]))
        state = self.encoder.fit(self.task.inputs("train"), self.options)
        arrays = {name: np.array(value) for name, value in state.items()}
        with atomic(folder.state_file) as unfinished:
            save_file(arrays, unfinished, metadata={FIELD: UNSTAMPED})
            stamp(unfinished, place_of(folder.state_file))

    @property
    def options(self) -> EncoderOptions:
        """The encoder's options."""
        return EncoderOptions.of(self.spec)

    def key(self, split: str, view: str, draw: int) -> dict[str, Any]:
        """Everything that the features depend on. A model counts by its weights, not by its folder."""
        spec, card = self.spec, self.task.card
        return {
            "version": VERSION,
            "encoder": self._encoder_name,
            "weights": spec.weights,
            "code": spec.encoder_code,
            "options": {**dataclasses.asdict(self.options), "weights": None},
            "data": card.fingerprint,
            "flips": card.flips,
            "split": split,
            "view": view,
            "draw": draw,
            **Shortcuts.of(spec).key,
            **self._arithmetic,
        }

    @property
    def _encoder_name(self) -> str:
        """What tells encoders of equal code apart: classes that one function makes share theirs."""
        if is_plugin(self.encoder) or "@" not in self.spec.weights:
            return self.spec.backbone
        return self.encoder.__name__

    @property
    def _arithmetic(self) -> dict[str, Any]:
        """The settings that change the last bits of features; empty for float32 on a CPU."""
        if self.device.type == "cpu":
            return {}
        spec = self.spec
        return {"device": self.device.type, "precision": spec.precision, "fast": spec.fast}

    def folder(self, split: str, view: str, draw: int) -> FeatureFolder:
        """The folder of one view of one split."""
        key = self.key(split, view, draw)
        digest = hashlib.sha256(json.dumps(key, sort_keys=True).encode()).hexdigest()[:16]
        name = f"{view}{draw}" if view.startswith("strong") else view
        return FeatureFolder(
            features_root() / folder_name(self.task.card.name, split, name, digest)
        )

    def plain(self, split: str) -> CachedInputs:
        """The plain view of a split."""
        return CachedInputs({"plain": self._view(split, "plain")}, draws=1)

    def features(self, split: str, view: str, draw: int = 0) -> Tensor:
        """The features of one draw of a view, in memory."""
        return _in_memory(self.computed(split, view, draw))

    def computed(self, split: str, view: str, draw: int = 0) -> FeatureFolder:
        """The folder of one draw of a view; its features are computed if they are missing."""
        folder = self.folder(split, view, draw)
        if not folder.complete or folder.damaged():
            _ = self.fitted  # first: it takes the lock of one of these folders
            with (
                self._locked(folder, _name(split, view, draw)),
                all_cores(),
                freed_memory_kept(),
            ):
                # Another process may have computed them meanwhile.
                if self._discard(folder.damaged(), folder) or not folder.complete:
                    self._compute(folder, split, view, draw)
        return folder

    def _discard(self, damaged: list[DamagedFile], folder: FeatureFolder) -> bool:
        """Delete damaged files, which the caller makes again. Returns whether there were any."""
        return folder.discard(damaged, self.notify, "computed")

    def _locked(self, folder: FeatureFolder, part: str) -> AbstractContextManager[None]:
        """Make the folder, and lock it for this process. part: for the message while waiting."""
        return folder.locked(self.notify, f"waits for features another run computes ({part})")

    def _compute(self, folder: FeatureFolder, split: str, view: str, draw: int) -> None:
        inputs = self._raw(split)
        shards = math.ceil(len(inputs) / SHARD_ROWS)
        missing = [i for i in range(shards) if not folder.shard_file(i).is_file()]
        done = len(inputs) - sum(min(SHARD_ROWS, len(inputs) - i * SHARD_ROWS) for i in missing)
        width = 0
        for shard, features in self._encoded(inputs, view, draw, missing):
            folder.write_shard(shard, features)
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
        folder.write_about(about)

    def _check_weights_again(self, folder: FeatureFolder, shards: int) -> None:
        """Make sure that the weights are still those of the key, before the entry becomes valid.

        An encoder may map its file into memory: a change of the file would then change the features.
        """
        try:
            check_weights(self.encoder, self.spec)
        except UserError:
            for number in range(shards):
                discard(folder.shard_file(number))
            raise

    @torch.inference_mode()
    def _encoded(
        self, inputs: SplitInputs, view: str, draw: int, shards: list[int]
    ) -> Iterator[tuple[int, HalfPrecisionFeatures]]:
        """Yield the features of each shard; a random view depends only on its rows and draw.

        On a GPU a shard is read back while the next one is computed.
        """
        size = min(self.encoder.batch_rows, SHARD_ROWS)
        batches = [
            (shard, start, min(start + size, (shard + 1) * SHARD_ROWS, len(inputs)))
            for shard in shards
            for start in range(shard * SHARD_ROWS, min((shard + 1) * SHARD_ROWS, len(inputs)), size)
        ]

        transfer = Transfer(self.device)

        def load(i: int) -> list[dict[str, Tensor | DeferredView]]:
            _, start, stop = batches[i]
            generator = stream(0, "frozen", view, draw, start)
            return transfer.pinned([{view: inputs.view(np.arange(start, stop), view, generator)}])

        if self._built is None:
            self._built = self._build(inputs)
        encoder = self._built
        parts: list[Tensor] = []
        on_their_way: deque[tuple[int, Callable[[], Tensor]]] = deque()
        threads = self.workers if inputs.on_the_fly else 0
        moved = transfer.ahead(ahead(load, len(batches), threads))
        for (shard, start, stop), (batch,) in zip(batches, moved, strict=True):
            # The kernels for a few rows may sum in an order that depends on the number of threads.
            one_thread = nullcontext() if stop - start == size else torch_threads(1)
            with encoding_precision(self.device, self.spec), one_thread:
                features = half_precision_features(self.encoder, encoder(batch[view]), batch[view])
            parts.append(features)
            if stop < min((shard + 1) * SHARD_ROWS, len(inputs)):
                continue  # nothing is read back before the shard is complete
            on_their_way.append((shard, transfer.fetched(torch.cat(parts))))
            parts = []
            if len(on_their_way) > (0 if self.device.type == "cpu" else 1):
                yield self._checked(*on_their_way.popleft())
        for shard, fetch in on_their_way:
            yield self._checked(shard, fetch)

    def _checked(
        self, shard: int, fetch: Callable[[], Tensor]
    ) -> tuple[int, HalfPrecisionFeatures]:
        """A shard and its features; a RunFailed unless they are finite."""
        whole = fetch()
        if not whole.isfinite().all():
            raise RunFailed(
                f"--freeze: features of --backbone {self.spec.backbone} are not finite in half "
                "precision"
            )
        return shard, whole.numpy()

    def _raw(self, split: str) -> SplitInputs:
        """The encoder's inputs; only one split at a time is in memory."""
        if self._loaded is None or self._loaded[0] != split:
            self._loaded = None  # free the other split's first
            reading = Reading(self.workers, self.decoded_cache, True, self.notify)
            quick = Shortcuts.of(self.spec)
            inputs = prepared_inputs(self.fitted, self.options, self.task, split, reading, quick)
            self._loaded = split, inputs
        return self._loaded[1]

    def _build(self, inputs: SplitInputs) -> Encoder:
        example = inputs.view(np.zeros(1, dtype=np.int64), "plain", stream(0, "example"))[0]
        return placed(frozen_network(self.fitted, self.spec, example), self.device)


def half_precision_features(encoder: type[Encoder], given: object, inputs: Sized) -> Tensor:
    """What the encoder returned; a ContractError unless it has a row of real numbers for each input."""
    rows = len(inputs)
    if isinstance(given, Tensor) and given.shape[:1] == (rows,) and not given.is_complex():
        return given.float().half()
    got = type(given).__name__
    if isinstance(given, Tensor):
        got = f"{given.dtype} of shape {tuple(given.shape)}".removeprefix("torch.")
    raise ContractError(
        f"{written_at(encoder, 'forward')}forward of --backbone {encoder.name} returned {got} for "
        f"{counted(rows, 'input')}; expected a row of real numbers each"
    )


def frozen_network(encoder: type[Encoder], spec: RunSpec, example: Tensor) -> Encoder:
    """The encoder with the weights that the spec names, in eval mode."""
    # A fixed seed, since all runs share the features; forked, so that encoding in the middle of a
    # run does not change the run's random numbers.
    with torch.random.fork_rng(devices=()):
        torch.manual_seed(stream_seed(0, "frozen network"))
        return load_encoder(encoder, spec, example).eval()


def _in_memory(folder: FeatureFolder) -> Tensor:
    return torch.cat([torch.from_numpy(np.load(file)) for file in folder.shards()])


def encoding_precision(device: torch.device, spec: RunSpec) -> AbstractContextManager[Any]:
    """The autocast context of a frozen encoder: the spec's precision, and float32 on a CPU."""
    if device.type == "cpu" or spec.precision == "float32":
        return nullcontext()
    kind = {"bfloat16": torch.bfloat16, "float16": torch.float16}[spec.precision]
    return torch.autocast(device.type, kind)


def _name(split: str, view: str, draw: int) -> str:
    return f"{split} {view}" + (f" {draw + 1}" if view.startswith("strong") else "")


def all_cores() -> AbstractContextManager[None]:
    """Use every core inside the block, whatever the run's threads: other runs wait for the features."""
    return torch_threads(core_count())


@contextmanager
def torch_threads(count: int) -> Iterator[None]:
    """Let torch use this number of threads inside the block."""
    threads = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
