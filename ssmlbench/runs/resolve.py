"""Turns a user's request into a full run spec: checks names and fills in every default."""

from __future__ import annotations

import dataclasses
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Any

from ssmlbench.core.backbones import absolute_backbone
from ssmlbench.core.errors import NO_FAULT, Unsupported, UserError
from ssmlbench.core.hyperparameters import parse_config
from ssmlbench.core.plain_text import shorten
from ssmlbench.core.spec import FIELDS, NUMBERS, JudgedOn, RunSpec
from ssmlbench.core.spec_checks import check_spec
from ssmlbench.data import Card, DatasetAdapter, prepare, prepare_whole
from ssmlbench.data.task import share_of_zeros
from ssmlbench.inputs.encoders import (
    Encoder,
    EncoderOptions,
    Vector,
    about_default,
    default_backbone,
    find_encoder,
)
from ssmlbench.inputs.encoders.tuning import LORA_ALPHA, LORA_LR, LORA_RANK, require_peft
from ssmlbench.inputs.prepared import takes_squares
from ssmlbench.kit.estimator import Estimator
from ssmlbench.kit.method import Method
from ssmlbench.plugins.contract import HEADS
from ssmlbench.plugins.digest import code_digest, encoder_code
from ssmlbench.plugins.loader import Plugins
from ssmlbench.plugins.source_lines import defined_at, explain
from ssmlbench.protocol.observation import check_folds, check_held_out
from ssmlbench.protocol.regimes import REGIMES, Regime, check_given, check_share
from ssmlbench.runs.recipes import DataTraits, Request, fitted_to_data, with_recipe

STRONG_VIEWS = 4
"""R: the cached views of a row that its strong view is drawn from under `--freeze`."""
TUNING = ("tune", "lora_rank", "lora_alpha", "layers")
"""Options about what of an encoder is trained."""
FOLDS = 5
"""The number of folds under `--regime given`, for a data set without test rows."""


@dataclass(frozen=True)
class PlannedRun:
    """A run whose options are checked, before its data set is read: a data set may take long to prepare."""

    spec: RunSpec  # the fields that depend on the data have their defaults
    method: type[Method | Estimator]
    config: Any
    adapter: type[DatasetAdapter]
    chosen: Container[str]  # the fields that the user set
    weights: str

    def on_data(self) -> RunSpec:
        """The full spec: the data set is prepared, if it is not, and fingerprinted."""
        spec = _for_data(self.spec, self.method, self.config, self.adapter, self.chosen)
        return dataclasses.replace(spec, weights=self.weights)


def resolve(plugins: Plugins, settings: Mapping[str, str], **fields: Any) -> RunSpec:
    """A full spec: names checked, every default filled in, data fingerprinted.

    settings: the `--set` texts, which go to the method's Config. Fields that are None take the
    default of the method, the data set or the encoder.
    """
    return planned_run(plugins, settings, **fields).on_data()


def planned_run(plugins: Plugins, settings: Mapping[str, str], **fields: Any) -> PlannedRun:
    """The run; a UserError for everything that is wrong whatever the data. Arguments as of `resolve`."""
    chosen = {name: value for name, value in fields.items() if value is not None}
    method = plugins.methods[chosen["method"]]
    adapter = plugins.datasets[chosen["dataset"]]
    typed = {"regime": RunSpec.regime, **chosen}
    _check_regime(method, typed["regime"])
    encoder = _encoder(typed, adapter, plugins)
    _set_freeze(typed, encoder, method)
    _set_tuning(typed, encoder)
    options = _encoder_options(encoder, typed)
    _set_shortcuts(typed, adapter.kind == "image" and takes_squares(encoder, options))
    config, default = _configs(method, _settings_of(method, settings, plugins))
    values, defaults = dataclasses.asdict(config), dataclasses.asdict(default)
    _set_training(typed, method, config, adapter, encoder)
    spec = RunSpec(
        **{**typed, **dataclasses.asdict(options), "weights": ""},
        config=values,
        changed=tuple(sorted(k for k in values if values[k] != defaults[k])),
        code=code_digest(method),
        encoder_code=encoder_code(encoder),
    )
    check_spec(spec)
    return PlannedRun(spec, method, config, adapter, chosen, _weights(encoder, options))


def _weights(encoder: type[Encoder], options: EncoderOptions) -> str:
    """The weights that the encoder starts from; a UserError unless they are a line of text."""
    weights: object = encoder.weights_id(options)
    if not isinstance(weights, str) or not weights.isprintable():
        raise UserError(
            f"{defined_at(encoder, 'weights_id')}: weights_id returned {shorten(repr(weights))}; "
            'expected one line of text: "name@digest", or "" for a random start'
        )
    return weights


def _set_training(
    typed: dict[str, Any],
    method: type[Method | Estimator],
    config: Any,
    adapter: type[DatasetAdapter],
    encoder: type[Encoder],
) -> None:
    """Fill in the fields about training: its length, the scaling of vectors, and the recipe's."""
    epochs = typed.setdefault("epochs", RunSpec.epochs)
    typed.setdefault("warmup_epochs", round(epochs * RunSpec.warmup_epochs / RunSpec.epochs))
    freeze, images = typed["freeze"], adapter.kind == "image"
    on_vectors = freeze or adapter.kind == "vector"
    _set_scaling(typed, encoder, on_vectors)
    unread = [number.name for number in NUMBERS if typed["regime"] not in number.regimes]
    typed |= dict.fromkeys(unread)
    if not issubclass(method, Estimator):
        lr = encoder.lr * (LORA_LR if typed.get("tune") == "lora" else 1.0)
        head = method.head_of(config)
        if head not in HEADS and method.build_head is Method.build_head:
            raise UserError(
                f"{defined_at(method, 'head_of')}: head_of returned {shorten(repr(head))}; expected "
                f"one of {', '.join(HEADS)}"
            )
        request = Request(method.projection, head, on_vectors, freeze, images, lr)
        typed |= with_recipe(typed, request)


def _for_data(
    spec: RunSpec,
    method: type[Method | Estimator],
    config: Any,
    adapter: type[DatasetAdapter],
    chosen: Container[str],
) -> RunSpec:
    """The spec with the fields that depend on the prepared data set. chosen: the user's fields."""
    scaled_vectors = spec.scaling == "standard" and not spec.freeze
    task = prepare_whole(adapter()) if scaled_vectors else prepare(adapter())
    card = task.card
    check_labels(card, REGIMES[spec.regime])
    labelled = _labelled_rows(spec, card)
    _check_labelled(spec, card)
    check_label_count(method, config, card, labelled)
    spec = _as_given(dataclasses.replace(spec, data=card.fingerprint), method, card)
    if issubclass(method, Estimator):
        return spec.for_estimator()
    zeros = share_of_zeros(task.folder, card.fingerprint) if scaled_vectors else 0.0
    return fitted_to_data(spec, DataTraits(labelled, zeros), chosen)


def _check_regime(method: type[Method | Estimator], regime: str) -> None:
    # Every method for `semi` can train on labels as they are given.
    if regime not in method.regimes and not (REGIMES[regime].as_given and "semi" in method.regimes):
        raise Unsupported(
            f"method {method.name} does not support --regime {regime}; it supports "
            f"{', '.join(sorted(method.regimes))}"
        )


def _encoder(
    typed: dict[str, Any], adapter: type[DatasetAdapter], plugins: Plugins
) -> type[Encoder]:
    """The encoder of the request, or the data set's; its name goes to `typed["backbone"]`."""
    default = default_backbone(adapter.kind, getattr(adapter, "backbone", None))
    backbone = typed.get("backbone", default)
    if adapter.kind != "vector":
        # Relative paths of model folders would mean another folder in other processes.
        backbone = absolute_backbone(backbone)
    typed["backbone"] = backbone
    return find_encoder(plugins.encoders, backbone, adapter.kind, adapter.name)


def _set_freeze(
    typed: dict[str, Any], encoder: type[Encoder], method: type[Method | Estimator]
) -> None:
    """Fill in whether the encoder is frozen; check and fill in the fields that depend on it."""
    freeze: bool = typed.setdefault("freeze", encoder.always_frozen)
    if encoder.always_frozen and not freeze:
        raise UserError(f"--no-freeze: --backbone {encoder.name} has nothing that can be trained")
    if encoder.fitted and not freeze:
        raise UserError(
            f"--backbone {encoder.name} is fitted on the training rows, and is not trained; add --freeze"
        )
    if issubclass(method, Estimator) and not freeze and encoder is not Vector:
        raise Unsupported(
            f"method {method.name} is an estimator, which learns from fixed features; add --freeze, or "
            "take a data set of vectors"
        )
    if typed.get("compile") and (freeze or encoder is Vector):
        raise UserError(
            "--compile: heads on fixed features have no encoder to compile; leave it out"
        )
    if freeze:
        typed.setdefault("strong_views", STRONG_VIEWS)
    for name in ("strong_views", "mixed_draws"):
        if name in typed and not freeze:
            raise UserError(
                f"{FIELDS[name].flag} is for --freeze: without it every step draws a new view"
            )


def _set_scaling(typed: dict[str, Any], encoder: type[Encoder], on_vectors: bool) -> None:
    """Fill in the scaling of vectors; a UserError for options of vectors where there are none."""
    if on_vectors:
        typed.setdefault("scaling", encoder.scaling)
    for name in ("scaling", "rotate_columns"):
        if name in typed and not on_vectors:
            raise UserError(
                f"{FIELDS[name].flag} is for feature vectors: add --freeze, or leave it out, as an "
                "encoder that is trained finds its own scale"
            )
    if typed.get("rotate_columns") and typed["scaling"] != "standard":
        raise UserError("--rotate-columns rotates scaled columns; add --scaling standard")


def _check_labelled(spec: RunSpec, card: Card) -> None:
    """Raise a UserError if too few training rows are labelled: a run would fail after it has begun."""
    regime, rows = REGIMES[spec.regime], card.rows["train"]
    try:
        if regime.as_given:
            check_given(card.labelled["train"])
        if regime.splits_rows:
            check_share(spec.regime_number or 0.0, rows)
            if spec.selection == "val":
                check_held_out(regime.labelled_count(rows, spec.regime_number))
    except UserError as error:
        raise UserError(f"data set {card.name}: {error}") from None


def _labelled_rows(spec: RunSpec, card: Card) -> int:
    regime = REGIMES[spec.regime]
    if regime.as_given:
        return card.rows["train"] - card.unlabelled.get("train", 0)
    return regime.labelled_count(card.rows["train"], spec.regime_number)


def _set_shortcuts(typed: dict[str, Any], squashed: bool) -> None:
    """Fill in `--fast-resize`; a UserError for options of decoding where ssmlbench does not resize.

    A frozen encoder reads an image a few times only, and its features are kept: they are of exact pixels.
    """
    if squashed:
        typed.setdefault("fast_resize", not typed["freeze"])
    for name in ("scaled_decoding", "fast_resize"):
        if typed.get(name) and not squashed:
            raise UserError(
                f"{FIELDS[name].flag} is for image files that are squashed to --image-size; "
                f"--backbone {typed['backbone']} takes its inputs as they are; leave it out"
            )


def check_label_count(
    method: type[Method | Estimator], config: Any, card: Card, labelled: int
) -> None:
    """Raise a UserError if the data set has more labels than the method can handle.

    labelled: the number of training rows with known labels.
    """
    if issubclass(method, Method):
        _check_most(method, "most_labels", method.most_labels(config))
        try:
            method.check_labels(config, len(card.label_names))
        except UserError as error:
            raise Unsupported(str(error)) from None
        return
    rows, labels = card.rows["train"], len(card.label_names)
    most = method.most_labels_of(config, labelled, rows - labelled)
    _check_most(method, "most_labels_of", most)
    if most is not None and labels > most:
        raise Unsupported(
            f"method {method.name}: the data set has {labels:,} labels, and with {labelled:,} labelled "
            f"and {rows - labelled:,} unlabelled rows it can handle {most:,}; choose another method"
        )


def _check_most(method: type[Method | Estimator], function: str, most: object) -> None:
    """Raise a UserError unless the most labels of a method are a number, or None for no bound."""
    if most is not None and (isinstance(most, bool) or not isinstance(most, Real)):
        raise UserError(
            f"{defined_at(method, function)}: {function} returned {shorten(repr(most))}; expected a "
            "whole number, or None"
        )


def _as_given(spec: RunSpec, method: type[Method | Estimator], card: Card) -> RunSpec:
    """The spec of a run on labels as they are given, with the rows that it is judged on filled in."""
    if not REGIMES[spec.regime].as_given:
        return spec
    partial = "partial-positive" in method.regimes and bool(card.partly_labelled.get("train"))
    spec = dataclasses.replace(spec, partial_labels=partial)
    if spec.judged_on == "held-out" or (spec.folds is None and "test" in card.rows):
        return spec
    if spec.folds == 0:
        judged_on: JudgedOn = "test" if "test" in card.rows else "nothing"
        if spec.selection == "oracle" and judged_on == "nothing":
            raise UserError("--selection oracle needs test rows; with --folds 0 take last or val")
        return dataclasses.replace(spec, folds=None, judged_on=judged_on)
    folds = spec.folds or FOLDS
    check_folds(folds, card.labelled["train"])
    return dataclasses.replace(spec, folds=folds)


def check_labels(card: Card, regime: Regime) -> None:
    """Raise a UserError if the regime hides labels and the data set does not know them all."""
    if regime.as_given:
        return
    if card.has_unknown:
        raise UserError(
            f"data set {card.name}: {card.unlabelled['train']:,} training rows are unlabelled and "
            f"{card.partly_labelled['train']:,} partly labelled; --regime {regime.name} needs data "
            "whose labels are all known; type --regime given, which trains on labels as they are"
        )
    if "test" not in card.rows:
        raise UserError(
            f"data set {card.name} has no test rows, which --regime {regime.name} is judged on; add a "
            "test file, or type --regime given, which is judged by folds over the labelled rows"
        )


def encoder_notes(
    specs: Sequence[RunSpec], plugins: Plugins, typed: Container[str] = ()
) -> list[str]:
    """Notes on encoders: a default that stands in for a better one, inputs that are cut.

    typed: the fields that the user has set.
    """
    notes: list[str | None] = []
    chosen = {(spec.dataset, spec.backbone, EncoderOptions.of(spec)): None for spec in specs}
    for name, backbone, options in chosen:
        adapter = plugins.datasets[name]
        if "backbone" not in typed:
            preferred = getattr(adapter, "backbone", None)
            notes.append(about_default(name, adapter.kind, backbone, preferred))
        notes.append(find_encoder(plugins.encoders, backbone, adapter.kind, name).note(options))
    return list(dict.fromkeys(note for note in notes if note))


def _configs(method: type[Method | Estimator], texts: Mapping[str, str]) -> tuple[Any, Any]:
    """The hyper-parameters of a run, and the method's defaults."""
    try:
        return parse_config(method.Config, texts, f"method {method.name}"), method.Config()
    except (UserError, *NO_FAULT):
        raise
    except BaseException as error:  # a Config may check its values
        raise UserError(explain(error, method)) from error


def _settings_of(
    method: type[Method | Estimator], settings: Mapping[str, str], plugins: Plugins
) -> dict[str, str]:
    """The settings meant for this method: `key=…`, and `method.key=…`, which wins, without the name."""
    for_all, own = {}, {}
    for key, text in settings.items():
        owner, dot, rest = key.rpartition(".")
        if not dot:
            for_all[rest] = text
        elif plugins.methods[owner] is method:
            own[rest] = text
    return {**for_all, **own}


def _set_tuning(typed: dict[str, Any], encoder: type[Encoder]) -> None:
    """Fill in what of the encoder is trained; a UserError for options that conflict."""
    flags = [FIELDS[name].flag for name in TUNING if typed.get(name) not in (None, "full")]
    if flags and (typed["freeze"] or encoder is Vector):
        raise UserError(
            f"{flags[0]} is for an encoder that is trained: leave out --freeze, or {flags[0]}"
            if typed["freeze"] and not encoder.always_frozen
            else f"{flags[0]}: --backbone {encoder.name} has nothing that can be trained"
        )
    if typed.get("tune") == "lora":
        require_peft()
        typed.setdefault("lora_rank", LORA_RANK)
        typed.setdefault("lora_alpha", LORA_ALPHA)
    elif flags and flags[0] != FIELDS["layers"].flag:
        raise UserError(f"{flags[0]} is for --tune lora")


def _encoder_options(encoder: type[Encoder], typed: Mapping[str, Any]) -> EncoderOptions:
    """The encoder's options: the user's or its defaults; a UserError for one that it does not have."""
    for name in (field.name for field in dataclasses.fields(EncoderOptions)):
        # `--weights none` is allowed for encoders without pretrained weights.
        harmless = name == "weights" and typed.get(name) == "none"
        if name in typed and name not in encoder.options and not harmless:
            raise UserError(
                f"{FIELDS[name].flag}: --backbone {encoder.name} has no such choice; it has "
                f"{', '.join(sorted(encoder.options)) or 'none'}"
            )
    return EncoderOptions(**{n: typed.get(n, v) for n, v in encoder.options.items()})
