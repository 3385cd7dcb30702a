"""The run spec: everything that can change a run's number, and the hash that names its folder.

It says nothing about where or how fast a run happens (device, workers, results folder). Each field
is declared once: options of the command line, keys of a grid file, bounds, and what must be equal
for two runs to share a table are read from here.
"""

from __future__ import annotations

import copy
import dataclasses
import functools
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from ssmlbench.core.backbones import portable_backbone
from ssmlbench.core.hyperparameters import as_typed
from ssmlbench.core.run_options import (
    RunOption,
    encoder_option,
    measured_option,
    read_options,
    run_option,
    training_option,
)

PROTOCOL_VERSION = 2
"""Raised when the engine changes in a way that changes numbers; boards never mix two versions."""
MOST_ROWS_IN_A_STEP = 2**20
MOST_STEPS_IN_AN_EPOCH = 10**6
"""What the plan of an epoch holds: a larger number is a mistake, and would fill the memory."""

Split = Literal["random", "stratified"]
Selection = Literal["last", "val", "oracle"]
EpochCount = Literal["unlabelled", "labelled"]
Projection = Literal["none", "mlp", "skip", "residual"]
HeadStart = Literal["random", "zero"]
RecipeName = Literal["paper", "features"]
Pooling = Literal["masked", "all", "own"]
JudgedOn = Literal["test", "held-out", "nothing"]
Scaling = Literal["standard", "none"]
Precision = Literal["float32", "bfloat16", "float16"]
Tune = Literal["full", "lora"]
Learner = Literal["method", "estimator"]


@dataclass(frozen=True)
class RunSpec:
    """One cell of a grid, with every default filled in."""

    method: str = run_option(
        help="Method name, several (cap,bbam), or all.", axis=True, example="bbam"
    )
    dataset: str = run_option(
        help="Data set name, or the path of your own data; or several.",
        axis=True,
        example="multidigits",
    )
    # Its choices are the table in protocol/regimes.py. A regime's number is the field below that
    # names the regime; it is None in all other regimes.
    regime: str = run_option("semi", "Which labels are observed", axis=True, example="full")
    pi: float | None = run_option(
        None,
        "π, the labelled fraction, or several: 0.05,0.1.",
        axis=True,
        above=0,
        most=1,
        regimes=("semi",),
        symbol="π",
        example=0.3,
    )
    share: float | None = run_option(
        None,
        "partial, partial-positive: share of entries or of positives kept, or several.",
        axis=True,
        above=0,
        most=1,
        regimes=("partial-positive", "partial"),
        symbol="share",
        example=0.5,
    )
    seed: int = run_option(
        0, "Seed, or several: 0,3.", axis=True, least=0, most=2**32 - 1, example=0
    )

    split: Split = measured_option("random", "How labelled rows are drawn: random or stratified.")
    selection: Selection = measured_option(
        "last",
        "Epoch that is scored: last, val (best on held-out labelled rows), oracle† (best on the test "
        "set).",
        training=True,
    )
    folds: int | None = measured_option(
        None,
        "given: judged by this many folds of the labelled rows, a fold for each seed; 0: train on all.",
        default_text="5; none if the data set has test rows",
        least=0,
        added_later=True,
    )
    # held-out: a trial of `tune`, on labelled rows it did not train on; nothing: no row is left to judge
    judged_on: JudgedOn = run_option("test", setting=True, added_later=True)
    # given: the method learns from rows of which some labels are known
    partial_labels: bool = run_option(False, added_later=True)

    backbone: str = encoder_option(
        "small-cnn",
        "Encoder: a plugin's, a torchvision model, a Hugging Face id or folder, timm:NAME.",
        default_text="the data set's",
    )
    projection: Projection = run_option("none", training=True)
    head_start: HeadStart = run_option("random", training=True, added_later=True)
    freeze: bool = encoder_option(False, "Encode once, cache, train on the features.")
    # In a resolved spec: "name@digest", or "none" for scratch.
    weights: str = encoder_option(
        "",
        "pretrained, none (from scratch), or a torchvision weights name.",
        default_text="pretrained",
    )
    # None where the encoder has no such choice.
    strong_views: int | None = encoder_option(
        None,
        "--freeze: views of a row that its strong view is drawn from (R).",
        default_text="4",
        least=1,
        training=True,
    )
    mixed_draws: bool = encoder_option(
        False,
        "--freeze: the plain and the weak view are two of these R.",
        default_text="the recipe's",
        training=True,
        added_later=True,
    )
    image_size: int | None = encoder_option(
        None, "Images are squashed to this many pixels.", default_text="224", least=1
    )
    scaled_decoding: bool = encoder_option(
        False,
        "Decode JPEG files at a half, a quarter or an eighth where that is enough: quicker, other pixels.",
        added_later=True,
    )
    fast_resize: bool = encoder_option(
        False,
        "Squash images by PyTorch's filter: quicker than Pillow's, and within one level of 256.",
        default_text="yes, unless frozen",
        added_later=True,
    )
    normalise: bool | None = encoder_option(
        None, "Normalise images as the weights expect.", default_text="--normalise"
    )
    max_tokens: int | None = encoder_option(
        None,
        "Texts are cut after this many tokens.",
        default_text="256, or as many as the model reads",
        least=1,
    )
    pooling: Pooling | None = encoder_option(
        None,
        "Pooling of tokens: masked (mean), all (padding too, as released), own (sentence-transformers).",
        default_text="masked; own if that is no mean",
    )
    layers: int | None = encoder_option(
        None,
        "Train only the last N blocks of the encoder, and what follows them.",
        default_text="all",
        least=1,
        training=True,
        added_later=True,
    )
    tune: Tune = encoder_option(
        "full",
        "What is trained in the encoder: full, or lora (low-rank weights beside linear layers).",
        training=True,
        added_later=True,
    )
    lora_rank: int | None = encoder_option(
        None, "--tune lora: the rank.", default_text="8", least=1, training=True, added_later=True
    )
    lora_alpha: float | None = encoder_option(
        None,
        "--tune lora: the weights' scale, × 1 / rank.",
        default_text="16",
        above=0,
        training=True,
        added_later=True,
    )
    scaling: Scaling | None = encoder_option(
        None,
        "Feature vectors: standard (columns standardised, rows of one length), or none.",
        default_text="standard",
        added_later=True,
    )
    rotate_columns: bool = encoder_option(
        False,
        "Feature vectors: rotate the scaled columns, so that none of them matters alone.",
        default_text="the recipe's",
        training=True,
        added_later=True,
    )
    encoder_code: str = run_option("", setting=True)  # digest of an encoder plugin's file

    # Its choices are the table in runs/recipes.py. It gives the fields below, and the projection,
    # their defaults, and says whether an epoch is counted in rows or in steps.
    recipe: RecipeName = training_option(
        "paper",
        "Defaults of training: features (heads on fixed features), or paper (as published).",
        default_text="features for fixed features, else paper",
        added_later=True,
    )
    epochs: int = training_option(40, "Number of epochs, warm-up included.", least=1)
    warmup_epochs: int = training_option(
        12, "Epochs on labelled rows only.", default_text="30 % of --epochs", least=0
    )
    epoch_count: EpochCount = training_option(
        "unlabelled",
        "Warm-up epochs are counted over: unlabelled, or labelled rows (as released).",
        key="epoch",
        number_flag="--epochs",
    )
    epoch_steps: int | None = training_option(
        None,
        "Gradient steps of an epoch, whatever the number of rows.",
        default_text="the recipe's",
        least=1,
        most=MOST_STEPS_IN_AN_EPOCH,
        added_later=True,
    )
    batch_size: int = training_option(
        64, "Unlabelled rows in a step (B_u).", least=1, most=MOST_ROWS_IN_A_STEP
    )
    labelled_batch_size: int = training_option(
        32, "Labelled rows in a step (B_l).", least=1, most=MOST_ROWS_IN_A_STEP
    )
    lr: float = training_option(1e-3, "Peak learning rate.", default_text="the encoder's", above=0)
    weight_decay: float = training_option(
        1e-4, "AdamW's decoupled decay, on every weight.", default_text="the recipe's", least=0
    )
    relative_decay: float = training_option(
        0.0,
        "Further decay of weight matrices, × features / training rows (not for cosine heads).",
        default_text="the recipe's",
        least=0,
        added_later=True,
    )
    input_dropout: float = training_option(
        0.0,
        "Features dropped before the projection in training.",
        default_text="the recipe's",
        least=0,
        below=1,
        added_later=True,
    )
    # What the recipe multiplies input_dropout by, for the number of labelled rows.
    dropout_factor: float = run_option(1.0, training=True, added_later=True)
    hidden_dropout: float = training_option(
        0.0,
        "Units dropped inside the projection in training.",
        default_text="the recipe's",
        least=0,
        below=1,
        added_later=True,
    )
    ema_decay: float = run_option(0.9997, setting=True, training=True)
    precision: Precision = training_option(
        "float32",
        "Precision of the network: auto, float32, bfloat16 or float16 (mixed precision).",
        default_text="auto: float32; for encoders trained with CUDA bfloat16, on old GPUs float16; on a "
        "cluster with --device auto float32",
        automatic=True,
        added_later=True,
    )
    fast: bool = training_option(
        False,
        "CUDA: the quickest kernels (fused attention, TF32, autotuning); the last bits then vary.",
        added_later=True,
    )

    compile: bool = training_option(
        False,
        "Compile a fine-tuned encoder for passes over whole pools (torch.compile); the last bits change.",
        training=True,
        added_later=True,
    )

    # the exact method and data
    learner: Learner = run_option("method", added_later=True)
    config: Mapping[str, Any] = run_option(dict)
    changed: tuple[str, ...] = run_option(())  # hyper-parameters set to other than their defaults
    # Set by tuning: {trial, trials, seed, centre: the untuned values of the searched fields above}.
    tuned: Mapping[str, Any] = run_option(dict, added_later=True)
    code: str = run_option("")  # digest of the method's code
    data: str = run_option("", setting=True)  # fingerprint of the prepared data set
    protocol: int = run_option(PROTOCOL_VERSION, setting=True)

    def as_dict(self) -> dict[str, Any]:
        """The spec as a JSON object."""
        values = {name: getattr(self, name) for name in FIELDS}
        copies = {
            name: copy.deepcopy(value) for name, value in values.items() if type(value) is dict
        }
        return {**values, **copies, "changed": list(self.changed)}

    def portable(self) -> dict[str, Any]:
        """The spec without paths of this machine."""
        return {**self.as_dict(), "backbone": self.backbone_name}

    @property
    def backbone_name(self) -> str:
        """The backbone; of a path its last part only, since `weights` has its digest."""
        return portable_backbone(self.backbone)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> RunSpec:
        """The spec that `as_dict` wrote; fields that it lacks have their defaults.

        Ten times as fast as calling the class, which sets the fields of a frozen spec one by one.
        """
        if values.keys() - FIELDS.keys() or not values.keys() >= REQUIRED:
            return cls(**values)  # raises the error that names the field
        spec = object.__new__(cls)
        fields = {**DEFAULTS, "config": {}, "tuned": {}, **values}
        fields["changed"] = tuple(fields["changed"])
        spec.__dict__.update(fields)
        return spec

    @functools.cached_property
    def hash(self) -> str:
        """Twelve hex digits of everything that can change the run's number."""
        values = self.portable()
        for option in FIELDS.values():
            unread = self.is_estimator and option.of_training
            if unread or (option.added_later and values[option.name] == option.default):
                del values[option.name]
        text = json.dumps(values, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()[:12]

    @property
    def counts_steps(self) -> bool:
        """Whether an epoch is a number of gradient steps, and not a pass over rows."""
        return self.epoch_steps is not None or self.recipe == "features"

    @property
    def is_estimator(self) -> bool:
        """Whether it is fitted in one call: it reads no field about training."""
        return self.learner == "estimator"

    def for_estimator(self) -> RunSpec:
        """The spec of an estimator's run: fields about training have their defaults, one epoch."""
        defaults = {option.name: option.default for option in FIELDS.values() if option.of_training}
        defaults |= {"epochs": 1, "warmup_epochs": 0}
        return dataclasses.replace(self, learner="estimator", **defaults)

    @property
    def regime_number(self) -> float | None:
        """The number of its regime, e.g. π in `semi`; None where the regime has none."""
        number = REGIME_NUMBERS.get(self.regime)
        return getattr(self, number.name) if number else None

    @property
    def regime_label(self) -> str:
        """`semi-0.1`, `partial-positive-0.5`, `full`: the regime with the number that belongs to it."""
        return f"{self.regime}-{self.level}" if self.level else self.regime

    @property
    def level(self) -> str:
        """The regime's number as it is typed, with all its digits; empty if the regime has none.

        Runs of one level share a cell of a table: two numbers may not become one text.
        """
        return "" if self.regime_number is None else as_typed(self.regime_number)

    @property
    def variant(self) -> str:
        """The method's name with the hyper-parameters that were set, and how it was tuned."""
        parts = [f"{name}={as_typed(self.config[name])}" for name in self.changed]
        if self.tuned and self.judged_on == "held-out":
            parts.append(f"trial {self.tuned['trial']}")
        elif self.tuned:
            parts.append(f"tuned, {self.tuned['trials']} trials")
            parts += [f"study seed {self.tuned['seed']}"] if self.tuned["seed"] else []
        return f"{self.method} ({', '.join(parts)})" if parts else self.method

    def __str__(self) -> str:
        return f"{self.variant} {self.dataset} {self.regime_label} seed {self.seed}"


FIELDS: dict[str, RunOption] = read_options(RunSpec)
"""The declaration of every field, by its name."""

DEFAULTS = {n: o.default for n, o in FIELDS.items() if o.default is not dataclasses.MISSING}
REQUIRED = FIELDS.keys() - DEFAULTS.keys()

OPTIONS = {name: option for name, option in FIELDS.items() if option.help}
"""The fields that are options of `run`."""

SETTING = tuple(name for name, option in FIELDS.items() if option.setting)
"""The fields that must be equal for two runs to share a table."""

NUMBERS = tuple(option for option in FIELDS.values() if option.regimes)
"""The fields that hold the number of a regime; two regimes may share one."""

REGIME_NUMBERS = {regime: option for option in NUMBERS for regime in option.regimes}
"""The field that holds a regime's number, by regime; a regime without a number is not here."""
