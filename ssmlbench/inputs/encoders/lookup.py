"""Finds the encoder class of a --backbone name."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ssmlbench.core.backbones import TIMM
from ssmlbench.core.errors import UserError
from ssmlbench.core.paths import from_home
from ssmlbench.core.suggestions import did_you_mean
from ssmlbench.inputs.encoders.base import Encoder

if TYPE_CHECKING:
    from ssmlbench.core.registry import Registry

DEFAULT_BACKBONE = {"image": "resnet50", "text": "bert-base-uncased", "vector": "vector"}

WITHOUT_WEIGHTS = {"image": "hog", "text": "tfidf"}
"""The encoder that needs no files, by kind of data."""
ABOUT_WITHOUT_WEIGHTS = {
    "hog": "histograms of gradients and colours: nothing learnt, far below a pretrained network",
    "tfidf": "TF-IDF and an SVD of the training texts: no weights, always frozen",
}


def default_backbone(kind: str, preferred: str | None) -> str:
    """The default encoder: `preferred`, or the default of the kind, if its weights are on this machine.

    Otherwise it is the encoder that needs no weights.
    """
    name = preferred or DEFAULT_BACKBONE[kind]
    if name in WITHOUT_WEIGHTS.values() or kind not in WITHOUT_WEIGHTS:
        return name
    if kind == "image":
        from ssmlbench.inputs.encoders import BUILTIN
        from ssmlbench.inputs.encoders import torchvision as image

        if name in {encoder.name for encoder in BUILTIN}:  # torchvision takes a second to import
            return name
        known = name in image.model_names()
        return name if not known or image.has_weights(name) else WITHOUT_WEIGHTS[kind]
    from ssmlbench.inputs.encoders.model_folders import has_model

    return name if has_model(name) else WITHOUT_WEIGHTS[kind]


def about_default(dataset: str, kind: str, backbone: str, preferred: str | None) -> str | None:
    """A note if an encoder without weights is used because those of the default are not available."""
    wanted = preferred or DEFAULT_BACKBONE[kind]
    if backbone == wanted or backbone != WITHOUT_WEIGHTS.get(kind):
        return None
    return (
        f"{dataset}: the weights of {wanted} are not on this machine; its {kind}s are encoded by "
        f"{backbone} ({ABOUT_WITHOUT_WEIGHTS[backbone]}). --backbone {wanted} downloads and uses them"
    )


def names_a_library_model(name: str) -> bool:
    """Whether `--backbone NAME` means a model of torchvision, or the default of texts."""
    from ssmlbench.inputs.encoders.torchvision import model_names

    # torchvision's names are those of functions: for others it is not imported
    return name in DEFAULT_BACKBONE.values() or (name.isidentifier() and name in model_names())


def find_encoder(
    plugins: Registry[Encoder], name: str, kind: str, dataset: str = "the data set"
) -> type[Encoder]:
    """A plugin's encoder, else a timm or torchvision model for images, or a Hugging Face model."""
    if name in plugins:
        if kind in plugins[name].kinds:
            return plugins[name]
        fitting = [n for n in plugins if kind in plugins[n].kinds] + [DEFAULT_BACKBONE[kind]]
        raise UserError(
            f"--backbone {name} reads {'/'.join(sorted(plugins[name].kinds))}, {dataset} is "
            f"{kind}.{did_you_mean('', set(fitting))}"
        )
    if name.startswith(TIMM):
        if kind != "image":
            raise UserError(f"--backbone {name} reads images, {dataset} is {kind}")
        from ssmlbench.inputs.encoders.timm import timm_encoder

        return timm_encoder(name)
    if kind == "image":
        from ssmlbench.inputs.encoders import torchvision as image

        known = image.model_names()
        if name in known:
            return image.torchvision_encoder(name)
        if "/" in name or from_home(name).is_dir():
            from ssmlbench.inputs.encoders.huggingface_images import hugging_face_image_encoder

            return hugging_face_image_encoder(name)
        fitting = [n for n in plugins if kind in plugins[n].kinds]
        raise UserError(f"unknown encoder {name!r}.{did_you_mean(name, [*fitting, *known])}")
    if kind == "text":
        from ssmlbench.inputs.encoders import huggingface as text

        return text.hugging_face_encoder(name)
    return plugins[name]  # the registry's own error
