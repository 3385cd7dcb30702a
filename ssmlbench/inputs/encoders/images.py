"""The common part of image encoders with pretrained weights: uint8 squares in, normalised floats out.

The models and their weights are in torchvision.py, huggingface_images.py and timm.py.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ssmlbench.core.errors import UserError
from ssmlbench.inputs.encoders.base import Encoder, EncoderOptions

IMAGENET_MEAN, IMAGENET_DEVIATION = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


class ImageEncoder(Encoder):
    """An encoder of squares whose weights expect channels of one mean and deviation."""

    kinds = {"image"}
    batch_rows = 64
    mean: Tensor
    deviation: Tensor

    def expect(
        self,
        options: EncoderOptions,
        mean: Sequence[float] = IMAGENET_MEAN,
        deviation: Sequence[float] = IMAGENET_DEVIATION,
    ) -> None:
        """Set the mean and deviation by which `pixels` normalises, for pixels in 0..1."""
        self.normalise = bool(options.normalise)
        self.register_buffer("mean", torch.tensor(mean)[:, None, None], persistent=False)
        self.register_buffer("deviation", torch.tensor(deviation)[:, None, None], persistent=False)

    def pixels(self, images: Tensor) -> Tensor:
        """B × 3 × S × S uint8 → floats as the weights expect them."""
        floats = images.float() / 255
        return (floats - self.mean) / self.deviation if self.normalise else floats

    def measured_width(self, example: Tensor, size: int | None) -> int:
        """The number of features of a row; a UserError if the model cannot read the example's size."""
        modes = [(module, module.training) for module in self.modules()]
        try:
            with torch.no_grad():
                width = int(self.eval()(example[None]).shape[1])
        except (AssertionError, ValueError, RuntimeError) as error:
            reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
            raise UserError(
                f"--image-size {size}: --backbone {self.name} does not take it ({reason}); its own is "
                f"{self.options['image_size']}"
            ) from None
        for module, mode in modes:
            module.training = mode
        return width
