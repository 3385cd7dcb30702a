"""Encoders: modules that turn a batch of inputs into feature vectors. An encoder is a plugin too."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor, nn


class Encoder(nn.Module):
    """Inputs → B × `features`. `kinds` are the kinds of data it can read."""

    name: ClassVar[str]
    kinds: ClassVar[frozenset[str] | set[str]]
    lr: ClassVar[float] = 1e-3  # the learning rate used when the command line names none
    features: int

    def __init__(self, example: Tensor):
        """example: one input as a network takes it, without the batch dimension."""
        super().__init__()


class SmallCnn(Encoder):
    """Three 3 × 3 convolutions and a global max pool, for images of some tens of pixels."""

    name = "small-cnn"
    kinds = {"image"}
    lr = 3e-3
    features = 64

    def __init__(self, example: Tensor):
        super().__init__(example)
        # Pooling straight after the first convolution leaves a quarter of the pixels to the rest.
        self.layers = nn.Sequential(
            nn.Conv2d(example.shape[0], 8, 3, bias=False),
            nn.MaxPool2d(2),
            nn.BatchNorm2d(8),
            nn.ReLU(inplace=True),
            nn.Conv2d(8, 16, 3, padding=1, bias=False),
            nn.BatchNorm2d(16),
            nn.ReLU(inplace=True),
            nn.Conv2d(16, self.features, 3, bias=False),
            nn.BatchNorm2d(self.features),
        )
        # The faster layout of small convolutions on a CPU.
        self.to(memory_format=torch.channels_last)

    def forward(self, images: Tensor) -> Tensor:
        return self.layers(images).amax(dim=(2, 3)).relu()


class Vector(Encoder):
    """Feature vectors as they are: the projection and the head do the learning."""

    name = "vector"
    kinds = {"vector"}

    def __init__(self, example: Tensor):
        super().__init__(example)
        self.features = example.shape[0]

    def forward(self, vectors: Tensor) -> Tensor:
        return vectors


BUILTIN: tuple[type[Encoder], ...] = (SmallCnn, Vector)
