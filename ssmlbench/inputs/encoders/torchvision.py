"""Any torchvision classification model without its classifier."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import urlparse

import torch
from torch import Tensor, nn

from ssmlbench.core.errors import UserError
from ssmlbench.core.plain_text import line_of
from ssmlbench.core.suggestions import did_you_mean
from ssmlbench.inputs.encoders.base import Encoder, EncoderOptions
from ssmlbench.inputs.encoders.images import ImageEncoder
from ssmlbench.inputs.encoders.weights import file_digest
from ssmlbench.inputs.torchvision_compat import declare_missing_operators


def model_names() -> list[str]:
    """Every classification model that torchvision has."""
    models = _models()
    return list(models.list_models(module=models))  # the other families are in submodules


@lru_cache
def torchvision_encoder(name: str) -> type[Encoder]:
    """The encoder class of one model."""
    return type(name, (TorchvisionEncoder,), {"name": name})


class TorchvisionEncoder(ImageEncoder):
    """A torchvision classification model without its classifier, on ImageNet-normalised squares."""

    options = {"weights": "pretrained", "image_size": 224, "normalise": True}

    def __init__(self, example: Tensor, options: EncoderOptions | None = None):
        super().__init__(example, options)
        options = options or EncoderOptions(**self.options)
        model = self._build(options)
        for auxiliary in ("aux1", "aux2", "AuxLogits"):  # second classifiers of the Inceptions
            if hasattr(model, auxiliary):
                setattr(model, auxiliary, None)
                model.aux_logits = False  # type: ignore[assignment]
        self.features = _take_off_classifier(model)
        self.model = model
        self.expect(options)

    def forward(self, images: Tensor) -> Tensor:
        """B × 3 × S × S uint8 → B × features."""
        features: Tensor = self.model(self.pixels(images))
        return features.flatten(1)

    @classmethod
    def weights_id(cls, options: EncoderOptions) -> str:
        """The name of the published weights, and the digest of their file as it is now."""
        if options.weights == "none":
            return "none"
        chosen = cls._chosen(options)
        return f"{chosen.name}@{file_digest(_weights_file(cls.name, chosen))[:12]}"

    @classmethod
    def _chosen(cls, options: EncoderOptions) -> Any:
        """The member of torchvision's enumeration of published weights that the options name."""
        known = _models().get_model_weights(cls.name)
        if options.weights in ("pretrained", None):
            return known.DEFAULT
        if options.weights not in known.__members__:
            names = ["pretrained", "none", *known.__members__]
            raise UserError(
                f"--weights {options.weights}: not weights of {cls.name}."
                f"{did_you_mean(options.weights or '', names)}"
            )
        return known[options.weights]

    @classmethod
    def _build(cls, options: EncoderOptions) -> nn.Module:
        arguments: dict[str, Any] = {}
        if cls.name.startswith("vit_"):  # its position embedding is for one size
            arguments["image_size"] = options.image_size
        if cls.name in ("googlenet", "inception_v3"):
            scratch = options.weights == "none"
            # Their published weights were trained on another scale: the model converts.
            arguments |= {
                "aux_logits": True,
                "init_weights": scratch,
                "transform_input": not scratch,
            }
        model: nn.Module = _models().get_model(cls.name, weights=None, **arguments)
        if options.weights != "none":
            file = _weights_file(cls.name, cls._chosen(options))
            state = torch.load(file, map_location="cpu", weights_only=True)
            try:
                model.load_state_dict(state)
            except RuntimeError as error:
                reason = line_of(error, -1)
                raise UserError(f"{file} does not fit {cls.name} as set up: {reason}") from None
        return model


def has_weights(name: str) -> bool:
    """Whether the default weights of a model are on this machine."""
    return _weights_path(_models().get_model_weights(name).DEFAULT).is_file()


def _models() -> Any:
    declare_missing_operators()
    import torchvision

    return torchvision.models


def _take_off_classifier(model: nn.Module) -> int:
    """Remove the last layer, which gives class scores; return the width of its input."""
    layers = [(n, m) for n, m in model.named_modules() if isinstance(m, nn.Linear | nn.Conv2d)]
    name, last = layers[-1]
    parent, _, child = name.rpartition(".")
    setattr(model.get_submodule(parent), child, nn.Identity())
    return last.in_features if isinstance(last, nn.Linear) else last.in_channels


def _weights_path(weights: Any) -> Path:
    folder = Path(str(torch.hub.get_dir())) / "checkpoints"
    return folder / PurePosixPath(urlparse(str(weights.url)).path).name


def _weights_file(model: str, weights: Any) -> Path:
    """The file of published weights in torch's cache, fetched if it is missing."""
    file = _weights_path(weights)
    if not file.is_file():
        try:
            weights.get_state_dict(progress=False, check_hash=True)
        except (OSError, RuntimeError) as error:
            cause = getattr(error, "reason", error)  # of URLError: a text or another error
            reason = line_of(cause if isinstance(cause, BaseException) else error)
            raise UserError(
                f"the weights of {model} are not available ({reason}). Put {weights.url} at {file} "
                "(TORCH_HOME moves that folder), or train from scratch with --weights none"
            ) from None
    return file
