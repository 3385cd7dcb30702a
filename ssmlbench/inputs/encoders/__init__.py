"""Encoders: modules that turn a batch of inputs into feature vectors. An encoder is a plugin too.

Names that no plugin has are torchvision, timm or Hugging Face models.
"""

from __future__ import annotations

from ssmlbench.inputs.encoders.base import Encoder, EncoderOptions, FittedState
from ssmlbench.inputs.encoders.hog import Hog
from ssmlbench.inputs.encoders.lookup import (
    DEFAULT_BACKBONE,
    about_default,
    default_backbone,
    find_encoder,
)
from ssmlbench.inputs.encoders.small import SmallCnn, Vector
from ssmlbench.inputs.encoders.tfidf import TfIdf
from ssmlbench.inputs.encoders.weights import check_weights, load_encoder

BUILTIN: tuple[type[Encoder], ...] = (Hog, SmallCnn, TfIdf, Vector)

__all__ = [
    "BUILTIN",
    "DEFAULT_BACKBONE",
    "Encoder",
    "EncoderOptions",
    "FittedState",
    "SmallCnn",
    "TfIdf",
    "Vector",
    "about_default",
    "check_weights",
    "default_backbone",
    "find_encoder",
    "load_encoder",
]
