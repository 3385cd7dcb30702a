# ruff: noqa: E501 (one line for each mistake)
"""Each mistake in an encoder is one line of `ssmlbench check`."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.plugin_mistakes import assert_one_line, checked, mistaken

ENCODER = '''
import torch
from torch import nn

from ssmlbench.api import Encoder


class Mine(Encoder):
    """Mine."""

    name = "mine"
    kinds = {"vector"}
    features = 8
    options = {}

    def __init__(self, example, options=None):
        super().__init__(example, options)
        self.layer = nn.Linear(example.shape[0], 8)

    def forward(self, inputs):
        return self.layer(inputs)
'''

# fmt: off
ENCODER_MISTAKES = {
    "kinds-misspelt": ('kinds = {"vectors"}  #!', 'kinds = {"vector"}', "there is no 'vectors'. Did you mean vector?"),
    "kind": ('kind = {"vector"}  #!', 'kinds = {"vector"}', "Did you mean kinds?"),
    "options": ('options = {"image_sise": 32}  #!', "options = {}", "there is no 'image_sise'. Did you mean image_size"),
    "forward-missing": ("def encode(self, inputs):", "def forward(self, inputs):", "it must define forward", "class Mine"),
    "features-text": ('features = "8"  #!', "features = 8", "features is '8'; expected a whole number"),
    "features-wrong": ("features = 9", "features = 8", "expected B × self.features: (6, 9)", "def forward("),
    "no-super-init": ("        self.layer = nn.Linear(example.shape[0], 8)  #!", "        super().__init__(example, options)\n        self.layer = nn.Linear(example.shape[0], 8)", "before Module.__init__"),
    "forward-nothing": ("        self.layer(inputs)", "        return self.layer(inputs)", "forward returned nothing", "def forward("),
    "wrong-shape": ("        return self.layer(inputs.T)  #!", "        return self.layer(inputs)", "mat1 and mat2 shapes"),
    "batch-rows": ("batch_rows, options = 0, {}  #!", "options = {}", "batch_rows is 0; expected a number above 0"),
    "threads": ("threads, options = -1, {}  #!", "options = {}", "threads is -1; expected a number above 0"),
    "name-of-torchvision": ('name = "resnet18"  #!', 'name = "mine"', "'resnet18', which --backbone reads as a model of a library"),
    "name-of-hugging-face": ('name = "bert-base-uncased"  #!', 'name = "mine"', "a model of a library; rename it"),
    "forward-of-two": ("    def forward(self, inputs, mask):  #!", "    def forward(self, inputs):", "forward takes (self, inputs, mask); expected (self, inputs)"),
    "bytes-of-pixels": ("        return self.layer(inputs.to(torch.uint8))  #!", "        return self.layer(inputs)", "mages are uint8: write inputs.to(torch.float32)"),
    "lr": ("lr, options = float('nan'), {}  #!", "options = {}", "lr is nan; expected a number above 0"),
    "weights-id": ("    def weights_id(self, options):  #!\n        return ''\n\n    def forward(self, inputs):", "    def forward(self, inputs):", "weights_id must be a classmethod"),
}
# fmt: on


@pytest.mark.parametrize("mistake", ENCODER_MISTAKES.values(), ids=ENCODER_MISTAKES)
def test_a_mistake_in_an_encoder_is_one_line(tmp_path: Path, mistake: tuple[str, ...]) -> None:
    new, old, expected, *marker = mistake
    file = mistaken(tmp_path, ENCODER, new, old)
    assert_one_line(file, checked(file), expected, *marker)
