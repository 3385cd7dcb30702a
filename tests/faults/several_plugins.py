"""Small images, and a method whose second process can be made to fail."""

import os
import signal
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch.distributed as dist

from ssmlbench.api import DatasetAdapter, Method, Row, bce


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
    """Learns from labelled rows; what happens to its second process is told by a file."""

    name = "unlucky"

    @dataclass(frozen=True)
    class Config(Method.Config):
        told_by: str = ""

    def loss(self, labelled, unlabelled):
        told = Path(self.config.told_by)
        if unlabelled is not None and dist.is_initialized() and dist.get_rank() == 1:
            match told.read_text() if told.is_file() else "":
                case "killed":
                    os.kill(os.getpid(), signal.SIGKILL)
                case "raises":
                    raise ValueError("only here")
                case "steals":
                    (folder,) = (Path(os.environ["SSMLBENCH_CACHE"]) / "tasks").glob("strips-*[!k]")
                    (folder / "labels" / "test.arrow").read_bytes()
        return {"labelled": bce(labelled.logits("strong"), labelled.observed).mean()}
