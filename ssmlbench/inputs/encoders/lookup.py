"""From a name typed as --backbone to the encoder class behind it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ssmlbench.core.errors import UserError
from ssmlbench.core.suggestions import did_you_mean
from ssmlbench.inputs.encoders.base import Encoder

if TYPE_CHECKING:
    from ssmlbench.core.registry import Registry

DEFAULT_BACKBONE = {"image": "resnet50", "text": "bert-base-uncased", "vector": "vector"}


def find_encoder(
    plugins: Registry[Encoder], name: str, kind: str, dataset: str = "the data set"
) -> type[Encoder]:
    """A plugin's encoder, else a torchvision model for images or a Hugging Face model for text."""
    if name in plugins:
        if kind in plugins[name].kinds:
            return plugins[name]
        fitting = [n for n in plugins if kind in plugins[n].kinds] + [DEFAULT_BACKBONE[kind]]
        raise UserError(
            f"--backbone {name} reads {'/'.join(sorted(plugins[name].kinds))}, {dataset} is "
            f"{kind}.{did_you_mean('', set(fitting))}"
        )
    if kind == "image":
        from ssmlbench.inputs.encoders import torchvision as image

        known = image.model_names()
        if name in known:
            return image.torchvision_encoder(name)
        fitting = [n for n in plugins if kind in plugins[n].kinds]
        raise UserError(f"unknown encoder {name!r}.{did_you_mean(name, [*fitting, *known])}")
    if kind == "text":
        from ssmlbench.inputs.encoders import huggingface as text

        return text.hugging_face_encoder(name)
    return plugins[name]  # the registry's own error
