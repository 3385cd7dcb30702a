"""Any Hugging Face image encoder (ViT, DINOv2, ConvNeXt, CLIP's and SigLIP's image tower).

By hub id or local folder, with its own processor's size and normalisation. No code from a hub is run.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from torch import Tensor

from ssmlbench.core.errors import UserError
from ssmlbench.inputs.encoders.base import Encoder, EncoderOptions
from ssmlbench.inputs.encoders.huggingface import check_complete, load_model
from ssmlbench.inputs.encoders.images import ImageEncoder
from ssmlbench.inputs.encoders.model_folders import model_digest, model_folder

PROCESSOR = "preprocessor_config.json"
WHOLE_PROCESSOR = "processor_config.json"
"""The file of transformers 5 for models of images and texts, which contains the image processor."""
SIDES = ("height", "shortest_edge", "longest_edge", "max_height")
"""Names of a size in a processor's file."""


@lru_cache
def hugging_face_image_encoder(name: str) -> type[Encoder]:
    """The encoder class of one model."""
    processor = _processor(name)
    normalised = bool(processor.get("do_normalize", True))
    options = {"weights": "pretrained", "image_size": _side(processor), "normalise": normalised}
    return type("HuggingFaceImages", (HuggingFaceImages,), {"name": name, "options": options})


class HuggingFaceImages(ImageEncoder):
    """A Hugging Face image encoder: its pooled output, or its class token where nothing pools."""

    def __init__(self, example: Tensor, options: EncoderOptions | None = None):
        super().__init__(example, options)
        options = options or EncoderOptions(**self.options)
        self.model = _load(self.name, options.weights != "none")
        processor = _processor(self.name)
        middle = [0.5, 0.5, 0.5]
        self.expect(
            options, processor.get("image_mean", middle), processor.get("image_std", middle)
        )
        self.features = self.measured_width(example, options.image_size)

    def forward(self, images: Tensor) -> Tensor:
        """B × 3 × S × S uint8 → B × features."""
        outputs = self.model(pixel_values=self.pixels(images))
        pooled: Tensor | None = getattr(outputs, "pooler_output", None)
        if pooled is None:
            hidden: Tensor = outputs.last_hidden_state
            pooled = hidden.mean(dim=(2, 3)) if hidden.ndim == 4 else hidden[:, 0]
        return pooled.flatten(1)

    @classmethod
    def weights_id(cls, options: EncoderOptions) -> str:
        """The digest of the model's and the processor's files, as they are now."""
        if options.weights not in ("pretrained", "none"):
            raise UserError(f"--weights {options.weights}: {cls.name} has pretrained or none")
        files = (_processor_file(cls.name),)
        return f"{options.weights}@{model_digest(cls.name, options.weights != 'none', files)}"


def _processor_file(name: str) -> str:
    """The file of the image processor: its own, or the one of the whole model."""
    folder = model_folder(name)
    both = not (folder / PROCESSOR).is_file() and (folder / WHOLE_PROCESSOR).is_file()
    return WHOLE_PROCESSOR if both else PROCESSOR


def _processor(name: str) -> dict[str, Any]:
    file = _processor_file(name)
    try:
        found = json.loads((model_folder(name) / file).read_text(encoding="utf-8"))
        if file == WHOLE_PROCESSOR:
            found = found["image_processor"]
        processor: dict[str, Any] = {**found}
        _side(processor)
        for key in ("image_mean", "image_std"):
            if len(list(map(float, processor.get(key) or [0.5]))) not in (1, 3):
                raise ValueError(f"{key} is for other than three channels")
    except (OSError, ValueError, KeyError, TypeError):
        raise UserError(
            f"--backbone {name}: no {PROCESSOR} that can be read; expected an image model with its "
            "processor, both saved in Hugging Face's format (save_pretrained)"
        ) from None
    return processor


def _side(processor: Mapping[str, Any]) -> int:
    """The image size that the model was trained on: its crop, else its size."""
    chosen = processor.get("crop_size") if processor.get("do_center_crop") else None
    size = chosen or processor.get("size") or 224
    if isinstance(size, dict):
        size = next((size[key] for key in SIDES if size.get(key)), 224)
    return int(size)


def _load(name: str, pretrained: bool) -> Any:
    model, missing = load_model(name, pretrained)
    model = getattr(model, "vision_model", model)  # of CLIP and SigLIP: the text tower is not used
    if any(key.startswith("pooler.") for key in missing) and hasattr(model, "pooler"):
        model.pooler = None  # it was never trained: the class token is taken
    check_complete(name, {key for key in missing if not key.startswith("pooler.")})
    return model
