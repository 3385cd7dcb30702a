"""The cache of decoded images: every row of a split is decoded once, all runs and views read the pixels.

Files under <cache>/decoded/<data set>-<split>-<size>-<key>/: shards that are mapped into memory, each
with a checksum that is compared before its first row is used, and about.json last. The pixels are those
that decoding anew gives: results do not depend on whether the cache is there.
"""

from __future__ import annotations

import errno
import hashlib
import json
import math
import shutil
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ssmlbench.core.checksums import failures, verify_trailer
from ssmlbench.core.events import Decoding, Notify, Warned
from ssmlbench.core.paths import cache_root
from ssmlbench.data import Card
from ssmlbench.inputs.cache_folders import DecodedFolder, decoded_root
from ssmlbench.inputs.decoding import SquareDecoder, Squares
from ssmlbench.inputs.shards import folder_name
from ssmlbench.inputs.splits import PreparedRows, RowNumbers
from ssmlbench.inputs.views import View

VERSION = 1
"""Raised when the same files and size would give other pixels, or files of another form."""

SHARD_BYTES = 64 * 2**20
"""The size of a shard: a kill loses at most the work on one."""

FREE_SHARE = 0.9
"""The share of the free disk space that decoded images may take."""

NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EPERM)


@dataclass
class DecodedImages:
    """The decoded images of one split."""

    decoder: SquareDecoder
    card: Card
    split: str
    workers: int = 0
    notify: Notify = lambda event: None
    _maps: dict[int, Squares] = field(default_factory=dict, init=False)
    _opening: threading.Lock = field(default_factory=threading.Lock, init=False)

    @property
    def key(self) -> dict[str, Any]:
        """Everything the pixels depend on."""
        data = self.card.fingerprint
        return {"version": VERSION, "data": data, "split": self.split, **self.decoder.key}

    @property
    def folder(self) -> DecodedFolder:
        """Where the images are kept."""
        digest = hashlib.sha256(json.dumps(self.key, sort_keys=True).encode()).hexdigest()[:16]
        size = str(self.decoder.size)
        return DecodedFolder(decoded_root() / folder_name(self.card.name, self.split, size, digest))

    @property
    def bytes(self) -> int:
        """The size of all rows."""
        return len(self.decoder) * self.decoder.row_bytes

    @property
    def shard_rows(self) -> int:
        """Rows of a shard."""
        return max(1, SHARD_BYTES // self.decoder.row_bytes)

    @property
    def shards(self) -> int:
        """How many there are."""
        return math.ceil(len(self.decoder) / self.shard_rows)

    def available(self) -> bool:
        """Decode what is missing. False, and a warning, if the disk has no room for it."""
        folder = self.folder
        if folder.complete:
            return True
        try:
            with folder.locked(self.notify, f"waits for images another run decodes ({self.split})"):
                if not folder.complete:  # another process may have decoded them meanwhile
                    return self._decode_missing(folder)
        except OSError as error:
            if error.errno not in NO_ROOM:
                raise
            self._decline(str(error.strerror))
            return False
        return True

    def _decode_missing(self, folder: DecodedFolder) -> bool:
        """Decode and write the shards that are missing; the caller holds the folder's lock."""
        folder.discard(folder.damaged(), self.notify, "decoded")
        missing = [i for i in range(self.shards) if not folder.shard_file(i).is_file()]
        parts = [self._range(shard) for shard in missing]
        wanted = sum(stop - start for start, stop in parts) * self.decoder.row_bytes
        free = shutil.disk_usage(folder.path).free
        if wanted > FREE_SHARE * free:
            self._decline(f"{wanted / 2**30:.1f} GB are needed, {free / 2**30:.1f} GB are free")
            return False
        done = len(self.decoder) - sum(stop - start for start, stop in parts)
        self._tell(done)
        for shard, squares in zip(missing, self.decoder.ranges(parts, self.workers), strict=True):
            folder.write_shard(shard, squares)
            done += len(squares)
            self._tell(done)
        about = {
            **self.key,
            "dataset": self.card.name,
            "rows": len(self.decoder),
            "shards": self.shards,
            "shard_rows": self.shard_rows,
        }
        folder.write_about(about)
        return True

    def _range(self, shard: int) -> tuple[int, int]:
        start = shard * self.shard_rows
        return start, min(start + self.shard_rows, len(self.decoder))

    def _tell(self, done: int) -> None:
        self.notify(Decoding(self.split, done, len(self.decoder), self.bytes))

    def _decline(self, why: str) -> None:
        self.notify(
            Warned(
                f"decoded images are not kept in {cache_root()} ({why}): every view decodes its "
                "files again; --no-decoded-cache does the same without this warning",
                of_data=True,
            )
        )

    def read(self, rows: RowNumbers) -> Tensor:
        """The rows, n × 3 × S × S, copied from the map."""
        together = torch.empty((len(rows), *self.decoder.shape), dtype=torch.uint8)
        squares = together.numpy()
        for square, row in zip(squares, rows.tolist(), strict=True):
            shard, place = divmod(row, self.shard_rows)
            square[...] = self._map(shard)[place]
        return together

    def _map(self, shard: int) -> Squares:
        """The rows of a shard, compared with their checksum when they are first asked for."""
        if shard not in self._maps:
            with self._opening:
                if shard not in self._maps:
                    self._maps[shard] = self._open(shard)
        return self._maps[shard]

    def _open(self, shard: int) -> Squares:
        file = self.folder.shard_file(shard)
        for damage in failures(verify_trailer, file):
            self.notify(Warned(f"{damage}; it is decoded again"))
            start, stop = self._range(shard)
            rows = self.decoder.decode(np.arange(start, stop))
            try:
                self.folder.path.mkdir(parents=True, exist_ok=True)
                self.folder.write_shard(shard, rows)
            except OSError:  # no room: this run keeps them in memory
                return rows
        mapped: Squares = np.load(file, mmap_mode="r")
        return mapped


class DecodedInputs(PreparedRows):
    """One split of decoded images on disk, read through memory maps."""

    on_the_fly = True

    def __init__(self, images: DecodedImages, views: dict[str, View]):
        self.images = images
        self.views = views

    def __len__(self) -> int:
        return len(self.images.decoder)

    def prepared(self, rows: RowNumbers) -> Tensor:
        """The rows as the encoder's `prepare` gives them."""
        return self.images.read(rows)

    def scaled(self, scale: Callable[[Tensor], Tensor]) -> DecodedInputs:
        """Return the same rows: images are not scaled."""
        return self
