"""Digests of encoder weights, and the check that a run uses the weights that its spec names."""

from __future__ import annotations

import hashlib
import os
import time
from pathlib import Path

from torch import Tensor

from ssmlbench.core.errors import UserError
from ssmlbench.core.spec import RunSpec
from ssmlbench.inputs.encoders.base import Encoder, EncoderOptions

SETTLED_SECONDS = 2.0
"""The age from which a file's times show on every file system whether it was written again."""

FileVersion = tuple[int, int, int, int]
_known: dict[Path, tuple[FileVersion, str]] = {}


def file_digest(file: Path) -> str:
    """The SHA-256 of a file's bytes, read again only if the file was written to since."""
    with file.open("rb") as opened:
        before = os.fstat(opened.fileno())
        version = _version(before)
        if file in _known and _known[file][0] == version:
            return _known[file][1]
        digest = hashlib.file_digest(opened, "sha256").hexdigest()
        unchanged = _version(os.fstat(opened.fileno())) == version
    age = time.time() - max(before.st_mtime, before.st_ctime)
    if unchanged and age > SETTLED_SECONDS:
        _known[file] = version, digest
    return digest


def _version(stat: os.stat_result) -> FileVersion:
    return stat.st_ino, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns


def check_weights(encoder: type[Encoder], spec: RunSpec) -> None:
    """Raise a UserError if the encoder's weights are no longer those that the spec names."""
    present = encoder.weights_id(EncoderOptions.of(spec))
    if present != spec.weights:
        raise UserError(
            f"--backbone {spec.backbone}: its weights have changed since this run was planned "
            f"({spec.weights} then, {present} now); give the same command again"
        )


def load_encoder(encoder: type[Encoder], spec: RunSpec, example: Tensor) -> Encoder:
    """Build an encoder from exactly the weights that the spec names.

    The weights are checked before and after loading: files that are replaced in between are noticed.
    """
    check_weights(encoder, spec)
    built = encoder(example, EncoderOptions.of(spec))
    check_weights(encoder, spec)
    return built
