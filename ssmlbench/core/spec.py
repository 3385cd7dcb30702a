"""The run spec: everything that can change a run's number, and the hash that names its folder.

It says nothing about where or how fast a run happens (device, workers, results folder).
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import typing
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from ssmlbench.core.errors import UserError

PROTOCOL_VERSION = 1
"""Raised when the engine changes in a way that changes numbers; boards never mix two versions."""

Regime = Literal["semi", "single-positive", "partial-positive", "full"]
Split = Literal["random", "stratified"]
Selection = Literal["last", "val", "oracle"]
EpochCount = Literal["unlabelled", "labelled"]
Projection = Literal["none", "mlp"]
Pooling = Literal["masked", "all"]
JudgedOn = Literal["test", "held-out"]
Scaling = Literal["standard", "none"]


@dataclass(frozen=True)
class RunSpec:
    """One cell of a grid, with every default filled in."""

    # what is asked
    method: str
    dataset: str
    regime: Regime = "semi"
    pi: float | None = None  # π: labelled fraction, `semi` only
    share: float | None = None  # probability that a positive is kept, `partial-positive` only
    seed: int = 0
    # how it is measured
    split: Split = "random"
    selection: Selection = "last"
    judged_on: JudgedOn = (
        "test"  # held-out: a trial of `tune`, on labelled rows it did not train on
    )
    # what is trained
    backbone: str = "small-cnn"
    projection: Projection = "none"
    # how the encoder is used; None where it has no such choice
    freeze: bool = False  # encode once, train on the cached features
    weights: str = ""  # what the encoder starts from: "name@digest", or "none" for scratch
    strong_views: int | None = None  # R, drawn strong views a row, `freeze` only
    image_size: int | None = None  # pixels
    normalise: bool | None = None  # images, as the weights expect
    max_tokens: int | None = None
    pooling: Pooling | None = None  # of a text's tokens
    scaling: Scaling | None = None  # of feature vectors, cached or given; None for other inputs
    # how long and how fast
    epochs: int = 40
    warmup_epochs: int = 12
    epoch_count: EpochCount = "unlabelled"
    batch_size: int = 64  # B_u, rows of the unlabelled pool in a step
    labelled_batch_size: int = 32  # B_l
    lr: float = 1e-3
    weight_decay: float = 1e-4
    ema_decay: float = 0.9997
    # which method, exactly, on which data, exactly
    config: Mapping[str, Any] = field(default_factory=dict)
    changed: tuple[str, ...] = ()  # hyper-parameters that were set, and not to their defaults
    # where lr and config come from, if from a study: trial, trials (of a finished one), seed, and lr,
    # the one the study was made around
    tuned: Mapping[str, Any] = field(default_factory=dict)
    code: str = ""  # digest of the method's file
    encoder_code: str = ""  # digest of the encoder's file, if it is a plugin's
    data: str = ""  # fingerprint of the prepared data set
    protocol: int = PROTOCOL_VERSION

    def as_dict(self) -> dict[str, Any]:
        return {**dataclasses.asdict(self), "changed": list(self.changed)}

    def portable(self) -> dict[str, Any]:
        """The spec as it reads on every machine."""
        return {**self.as_dict(), "backbone": self.backbone_name}

    @property
    def backbone_name(self) -> str:
        """A model's folder goes by its name, and by the digest in `weights`; not by where it lies."""
        folder = Path(self.backbone)
        return folder.name if folder.is_absolute() else self.backbone

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> RunSpec:
        return cls(**{**values, "changed": tuple(values.get("changed", ()))})

    @property
    def hash(self) -> str:
        values = self.portable()
        for name, default in ADDED_LATER.items():
            if values[name] == default:
                del values[name]
        text = json.dumps(values, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()[:12]

    @property
    def regime_label(self) -> str:
        """`semi-0.1`, `partial-positive-0.5`, `full`: the regime with the number that belongs to it."""
        number = {"semi": self.pi, "partial-positive": self.share}.get(self.regime)
        return self.regime if number is None else f"{self.regime}-{number:g}"

    @property
    def variant(self) -> str:
        """The method's name with the hyper-parameters that were set, and how it was tuned."""
        said = [f"{k}={_short(self.config[k])}" for k in self.changed]
        if self.tuned and self.judged_on == "held-out":
            said.append(f"trial {self.tuned['trial']}")
        elif self.tuned:
            said.append(f"tuned, {self.tuned['trials']} trials")
            said += [f"study seed {self.tuned['seed']}"] if self.tuned["seed"] else []
        return f"{self.method} ({', '.join(said)})" if said else self.method

    def __str__(self) -> str:
        return f"{self.variant} {self.dataset} {self.regime_label} seed {self.seed}"


ADDED_LATER: dict[str, Any] = {"judged_on": "test", "tuned": {}, "scaling": None}
"""Fields that came later, with the value all runs before had: left at it they are not hashed, so
that runs made before are still found."""


def _short(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else f"{value}"


def check_spec(spec: RunSpec) -> None:
    """Raise a UserError for numbers no run can be made with."""
    if spec.regime == "semi" and not (spec.pi is not None and 0 < spec.pi <= 1):
        raise UserError(f"--pi {spec.pi}: the labelled fraction must lie in (0, 1], e.g. --pi 0.05")
    if spec.regime == "partial-positive" and not (spec.share is not None and 0 < spec.share <= 1):
        raise UserError(f"--share {spec.share}: must lie in (0, 1], e.g. --share 0.5")
    for name in ("epochs", "batch_size", "labelled_batch_size"):
        if getattr(spec, name) < 1:
            raise UserError(f"--{name.replace('_', '-')} {getattr(spec, name)}: must be at least 1")
    if not 0 <= spec.warmup_epochs <= spec.epochs:
        raise UserError(
            f"--warmup-epochs {spec.warmup_epochs}: must lie between 0 and --epochs {spec.epochs}"
        )
    for name in ("strong_views", "image_size", "max_tokens"):
        if (number := getattr(spec, name)) is not None and number < 1:
            raise UserError(f"--{name.replace('_', '-')} {number}: must be at least 1")
    if spec.pooling not in (None, *typing.get_args(Pooling)):
        raise UserError(
            f"--pooling {spec.pooling}: must be one of {', '.join(typing.get_args(Pooling))}"
        )
    if spec.judged_on == "held-out" and spec.selection == "oracle":
        raise UserError("tune never looks at the test set: --selection must be last or val")
    if spec.scaling not in (None, *typing.get_args(Scaling)):
        raise UserError(
            f"--scaling {spec.scaling}: must be one of {', '.join(typing.get_args(Scaling))}"
        )
    if not spec.lr > 0:
        raise UserError(f"--lr {spec.lr}: must be above 0")
    if not spec.weight_decay >= 0:
        raise UserError(f"--weight-decay {spec.weight_decay}: must be 0 or above")
