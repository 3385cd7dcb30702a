"""Any Hugging Face image encoder (ViT, DINOv2, ConvNeXt, CLIP's and SigLIP's image tower).

By hub id or local folder, with its own processor's size and normalisation. No code from a hub is run.
"""

from __future__ import annotations

import json
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from ssmlbench.core.errors import UserError
from ssmlbench.inputs.encoders.base import Encoder, EncoderOptions
from ssmlbench.inputs.encoders.huggingface import (
    check_complete,
    load_model,
    model_digest,
    model_folder,
)

PROCESSOR = "preprocessor_config.json"


@lru_cache
def hugging_face_image_encoder(name: str) -> type[Encoder]:
    """The class of one model, as a plugin file would have written it."""
    options = {"weights": "pretrained", "image_size": _size(name), "normalise": True}
    return type("HuggingFaceImages", (HuggingFaceImages,), {"name": name, "options": options})


class HuggingFaceImages(Encoder):
    """A Hugging Face image encoder: its pooled output, or its class token where nothing pools."""

    kinds = {"image"}
    batch_rows = 64
    mean: Tensor
    deviation: Tensor

    def __init__(self, example: Tensor, options: EncoderOptions | None = None):
        super().__init__(example, options)
        options = options or EncoderOptions(**self.options)
        self.model = _load(self.name, options.weights != "none")
        self.normalise = bool(options.normalise)
        processor = _processor(self.name)
        mean = processor.get("image_mean", [0.5, 0.5, 0.5])
        deviation = processor.get("image_std", [0.5, 0.5, 0.5])
        self.register_buffer("mean", torch.tensor(mean)[:, None, None], persistent=False)
        self.register_buffer("deviation", torch.tensor(deviation)[:, None, None], persistent=False)
        was_training = self.model.training
        try:
            with torch.no_grad():
                self.features = int(self.eval()(example[None]).shape[1])
        except (ValueError, RuntimeError) as error:
            raise UserError(
                f"--image-size {options.image_size}: --backbone {self.name} does not take it "
                f"({str(error).strip().splitlines()[0]}); its own is {self.options['image_size']}"
            ) from None
        self.train(was_training)

    def forward(self, images: Tensor) -> Tensor:
        """B × 3 × S × S uint8 → B × features."""
        floats = images.float() / 255
        if self.normalise:
            floats = (floats - self.mean) / self.deviation
        outputs = self.model(pixel_values=floats)
        pooled: Tensor | None = getattr(outputs, "pooler_output", None)
        if pooled is None:
            hidden: Tensor = outputs.last_hidden_state
            pooled = hidden.mean(dim=(2, 3)) if hidden.ndim == 4 else hidden[:, 0]
        return pooled.flatten(1)

    @classmethod
    def weights_id(cls, options: EncoderOptions) -> str:
        """The digest of the model's and the processor's files, as they are now."""
        if options.weights not in ("pretrained", "none"):
            raise UserError(
                f"--weights {options.weights}: of {cls.name} there are pretrained or none"
            )
        return (
            f"{options.weights}@{model_digest(cls.name, options.weights != 'none', (PROCESSOR,))}"
        )


def _processor(name: str) -> dict[str, Any]:
    file = model_folder(name) / PROCESSOR
    try:
        found: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        raise UserError(
            f"--backbone {name}: no {PROCESSOR} that can be read; expected an image model with its "
            "processor, both saved in Hugging Face's format (save_pretrained)"
        ) from None
    return found


def _size(name: str) -> int:
    """The side of the squares that the model was made for: its crop's, else its size."""
    processor = _processor(name)
    chosen = processor.get("crop_size") if processor.get("do_center_crop") else None
    size = chosen or processor.get("size", 224)
    if isinstance(size, dict):
        size = size.get("height") or size.get("shortest_edge") or 224
    return int(size)


def _load(name: str, pretrained: bool) -> Any:
    model, missing = load_model(name, pretrained)
    model = getattr(model, "vision_model", model)  # of CLIP and SigLIP: the text tower is not used
    if any(key.startswith("pooler.") for key in missing) and hasattr(model, "pooler"):
        model.pooler = None  # it was never trained: the class token is taken
    check_complete(name, {key for key in missing if not key.startswith("pooler.")})
    return model
