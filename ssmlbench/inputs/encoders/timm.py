"""Any timm image model without its classifier: by name, hub id, local folder or checkpoint file.

timm is an optional extra. Images get the size, interpolation and normalisation of timm's own data
configuration; they are squashed to a square, as for every encoder, so its crop is not used.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

from torch import Tensor

from ssmlbench.core.backbones import TIMM, split_backbone
from ssmlbench.core.errors import UserError
from ssmlbench.core.paths import from_home
from ssmlbench.core.suggestions import did_you_mean
from ssmlbench.inputs.encoders.base import Encoder, EncoderOptions
from ssmlbench.inputs.encoders.images import ImageEncoder
from ssmlbench.inputs.encoders.model_folders import WEIGHT_FILES, model_folder
from ssmlbench.inputs.encoders.weights import file_digest
from ssmlbench.inputs.torchvision_compat import declare_missing_operators

SHARED = ("input_size", "interpolation", "mean", "std", "fixed_input_size", "classifier")
"""Fields of timm's configuration that are used here."""


@dataclass(frozen=True)
class TimmModel:
    """The model of a name: its architecture, and the location of its weights."""

    architecture: str
    config: Mapping[str, Any]  # timm's `pretrained_cfg`
    arguments: Mapping[str, Any] = field(default_factory=dict)  # of the architecture
    file: Path | None = None  # of the weights, if it was named
    hub: str = ""  # the id or folder with the weights otherwise


@lru_cache
def timm_encoder(name: str) -> type[Encoder]:
    """The encoder class of one model."""
    source = find_timm_model(name)
    data = _timm(name).data.resolve_data_config(pretrained_cfg=dict(source.config))
    options = {"weights": "pretrained", "image_size": data["input_size"][1], "normalise": True}
    own = {"name": name, "options": options, "interpolation": data["interpolation"], "data": data}
    return type("TimmEncoder", (TimmEncoder,), own)


class TimmEncoder(ImageEncoder):
    """A timm model without its classifier."""

    data: Mapping[str, Any]

    def __init__(self, example: Tensor, options: EncoderOptions | None = None):
        super().__init__(example, options)
        options = options or EncoderOptions(**self.options)
        self.model = self._build(options)
        self.expect(options, self.data["mean"], self.data["std"])
        self.features = self.measured_width(example, options.image_size)

    def forward(self, images: Tensor) -> Tensor:
        """B × 3 × S × S uint8 → B × features."""
        features: Tensor = self.model(self.pixels(images))
        return features.flatten(1)

    @classmethod
    def weights_id(cls, options: EncoderOptions) -> str:
        """The digest of the architecture, its data configuration and the weights' file as it is now."""
        if options.weights not in ("pretrained", "none"):
            raise UserError(
                f"--weights {options.weights}: {cls.name} has pretrained or none; a checkpoint "
                f"of your own is --backbone {TIMM}ARCHITECTURE@FILE"
            )
        source = find_timm_model(cls.name)
        facts = [source.architecture, dict(source.arguments), dict(cls.data)]
        digest = hashlib.sha256(json.dumps(facts, sort_keys=True).encode())
        if options.weights != "none":
            digest.update(bytes.fromhex(file_digest(_weights_file(cls.name, source))))
        return f"{options.weights}@{digest.hexdigest()[:12]}"

    @classmethod
    def _build(cls, options: EncoderOptions) -> Any:
        timm, source = _timm(cls.name), find_timm_model(cls.name)
        arguments = dict(source.arguments)
        config = {key: source.config[key] for key in SHARED if key in source.config}
        if config.get("fixed_input_size") and options.image_size != cls.options["image_size"]:
            arguments["img_size"] = options.image_size
        if options.weights == "none":
            arguments["num_classes"] = 0
        else:
            file = _weights_file(cls.name, source)
            state = _read(cls.name, file)
            # With the number of classes of the file, timm checks that no weight is missing.
            config |= {"state_dict": state, "num_classes": _classes(state, config)}
            arguments["num_classes"] = config["num_classes"]
        try:
            model = timm.create_model(
                source.architecture,
                pretrained=options.weights != "none",
                pretrained_cfg=config,
                **arguments,
            )
        except (AssertionError, KeyError, TypeError, ValueError, RuntimeError) as error:
            reason = (str(error).strip().splitlines() or [type(error).__name__])[-1].strip()
            raise UserError(
                f"--backbone {cls.name} does not load: its weights do not fit {source.architecture} "
                f"({reason})"
            ) from None
        model.reset_classifier(0)
        model.pretrained_cfg = model.default_cfg = {}  # they hold the file's tensors
        return model


def find_timm_model(name: str) -> TimmModel:
    """The model of a --backbone name; a UserError if there is no such model."""
    timm = _timm(name)
    prefix, path = split_backbone(name)
    architecture = prefix.removeprefix(TIMM).removesuffix("@")
    if architecture:
        config = _registered(timm, name, architecture)
        return TimmModel(architecture, config, file=from_home(path))
    if "/" in path or from_home(path).is_dir():
        return _described(timm, name, path)
    config = _registered(timm, name, path)
    return TimmModel(path.partition(".")[0], config, hub=config.get("hf_hub_id") or "")


def _registered(timm: Any, name: str, model: str) -> dict[str, Any]:
    """The configuration that timm has for a model, `architecture` or `architecture.tag`."""
    config = (
        timm.get_pretrained_cfg(model, allow_unregistered=False) if _known(timm, model) else None
    )
    if config is None:
        tagged = timm.list_pretrained(f"{model.partition('.')[0]}*")
        names = [f"{TIMM}{known}" for known in (*timm.list_models(), *tagged)]
        raise UserError(f"--backbone {name}: timm has no such model.{did_you_mean(name, names)}")
    return dict(config.to_dict(remove_null=True))


def _known(timm: Any, model: str) -> bool:
    architecture, _, tag = model.partition(".")
    return timm.is_model(architecture) and (not tag or timm.is_model_pretrained(model))


def _described(timm: Any, name: str, path: str) -> TimmModel:
    """The model that the config.json of a folder, here or on the hub, describes."""
    folder = model_folder(path)
    try:
        described = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        architecture = described["architecture"]
    except (OSError, ValueError, KeyError, TypeError):
        raise UserError(
            f"--backbone {name}: its config.json names no timm architecture; expected a model saved "
            "by timm.models.save_for_hf, or type timm:ARCHITECTURE@FILE"
        ) from None
    config = {**described, **described.get("pretrained_cfg", {})}
    arguments = dict(described.get("model_args") or {})
    registered = _registered(timm, name, architecture)
    return TimmModel(architecture, {**registered, **config}, arguments, hub=path)


def _weights_file(name: str, source: TimmModel) -> Path:
    if source.file is not None:
        if not source.file.is_file():
            raise UserError(f"--backbone {name}: there is no file {source.file}")
        return source.file
    if not source.hub:
        raise UserError(
            f"--backbone {name}: timm has no weights of it on the Hugging Face hub; train from scratch "
            f"with --weights none, or name a checkpoint: {TIMM}{source.architecture}@FILE"
        )
    folder = model_folder(source.hub)
    found = [file for kind in WEIGHT_FILES for file in sorted(folder.glob(kind))]
    if not found:
        raise UserError(
            f"--backbone {name}: no weights in {folder} ({' or '.join(WEIGHT_FILES)}); put them "
            "there, or train from scratch with --weights none"
        )
    return found[0]


def _read(name: str, file: Path) -> dict[str, Tensor]:
    """The tensors of a checkpoint. Nothing in it is executed."""
    import pickle

    try:
        state: dict[str, Tensor] = _timm(name).models.load_state_dict(file, weights_only=True)
    except (OSError, ValueError, KeyError, RuntimeError, EOFError, pickle.UnpicklingError) as error:
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise UserError(
            f"--backbone {name}: {file} holds no tensors that can be read ({reason}); expected "
            "safetensors, or a state_dict that torch.save wrote"
        ) from None
    return state


def _classes(state: Mapping[str, Tensor], config: Mapping[str, Any]) -> int:
    """The number of classes of a checkpoint's classifier; 0 if it has none."""
    names = config.get("classifier") or ()
    for name in (names,) if isinstance(names, str) else names:
        if f"{name}.weight" in state:
            return int(state[f"{name}.weight"].shape[0])
    return 0


def _timm(name: str) -> Any:
    declare_missing_operators()
    try:
        import timm
        import timm.data
        import timm.models
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "timm":
            raise
        raise UserError(f"--backbone {name} needs timm: pip install 'ssmlbench[timm]'") from None
    return timm
