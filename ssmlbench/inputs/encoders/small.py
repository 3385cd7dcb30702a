"""The encoders that need nothing but torch: a small CNN from scratch, and feature vectors as is."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ssmlbench.inputs.encoders.base import Encoder, EncoderOptions


class SmallCnn(Encoder):
    """Three 3 × 3 convolutions and a global max pool, for images of some tens of pixels."""

    name = "small-cnn"
    kinds = {"image"}
    lr = 1e-2
    threads = 1  # two runs of one thread are faster than one of two
    features = 64

    def __init__(self, example: Tensor, options: EncoderOptions | None = None):
        super().__init__(example, options)
        # Pooling straight after the first convolution leaves a quarter of the pixels to the rest.
        self.layers = nn.Sequential(
            nn.Conv2d(example.shape[0], 16, 3, bias=False),
            nn.MaxPool2d(2),
            nn.BatchNorm2d(16),
            nn.ReLU(inplace=True),
            nn.Conv2d(16, 32, 3, padding=1, bias=False),
            nn.BatchNorm2d(32),
            nn.ReLU(inplace=True),
            nn.Conv2d(32, self.features, 3, bias=False),
            nn.BatchNorm2d(self.features),
        )
        # The faster layout of small convolutions on a CPU.
        self.to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    def forward(self, images: Tensor) -> Tensor:
        """B × C × H × W → B × 64."""
        maps: Tensor = self.layers(images)
        return maps.amax(dim=(2, 3)).relu()


class Vector(Encoder):
    """Feature vectors as they are: the projection and the head do the learning."""

    name = "vector"
    kinds = {"vector"}
    lr = 1e-3
    threads = 1

    def __init__(self, example: Tensor, options: EncoderOptions | None = None):
        super().__init__(example, options)
        self.features = example.shape[0]

    def forward(self, vectors: Tensor) -> Tensor:
        """Return the vectors."""
        return vectors
