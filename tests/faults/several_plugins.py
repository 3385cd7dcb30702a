"""Small images, and a method whose last process can be made to fail.

FLOAT64_EXCEPT in the environment: processes that train compute in float64, not the one with this number.
"""

import os
import signal
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist

from ssmlbench.api import DatasetAdapter, Method, Row, bce
from ssmlbench.kit.heads import Network
from ssmlbench.training import recording


def train_in_float64():
    """Compute in float64 in this process; the judge still gets float32."""
    single, build = torch.Tensor.float, Network.__init__

    def build_in_double(self, *parts):
        build(self, *parts)
        self.double()

    torch.set_default_dtype(torch.float64)
    torch.Tensor.float = torch.Tensor.double
    Network.__init__ = build_in_double
    recording._array = lambda tensor: single(tensor.detach()).numpy()


if os.environ.get("FLOAT64_EXCEPT", str(os.getpid())) != str(os.getpid()):
    train_in_float64()


class Strips(DatasetAdapter):
    """Bright strips in noise: label k is the k-th strip."""

    name, kind, backbone = "strips", "image", "small-cnn"

    def label_names(self):
        return ["a", "b", "c", "d"]

    def rows(self, split):
        random = np.random.default_rng(len(split))
        for _ in range({"train": 61, "test": 30}[split]):
            labels = random.random(4) < 0.4
            image = random.integers(0, 90, (8, 12)) + 150 * labels.repeat(3)
            yield Row(image.astype(np.uint8), tuple(np.flatnonzero(labels).tolist()))


class Unlucky(Method):
    """Learns from labelled rows; what happens to its last process is told by a file."""

    name = "unlucky"

    @dataclass(frozen=True)
    class Config(Method.Config):
        told_by: str = ""

    def loss(self, labelled, unlabelled):
        file = Path(self.config.told_by)
        told = file.read_text() if file.is_file() else ""
        is_last = not dist.is_initialized() or dist.get_rank() == dist.get_world_size() - 1
        if unlabelled is not None and is_last:
            match told:
                case "killed":
                    os.kill(os.getpid(), signal.SIGKILL)
                case "raises":
                    raise ValueError("only here")
                case "steals":
                    (folder,) = (Path(os.environ["SSMLBENCH_CACHE"]) / "tasks").glob("strips-*[!k]")
                    (folder / "labels" / "test.arrow").read_bytes()
        return {"labelled": bce(labelled.logits("strong"), labelled.observed).mean()}
