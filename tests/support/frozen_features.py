"""Frozen encoders of the miniature data sets, which the tests of features and of their cache share."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch

from ssmlbench.core.spec import RunSpec
from ssmlbench.data import prepare
from ssmlbench.inputs.cache_folders import FeatureFolder
from ssmlbench.inputs.frozen import FrozenEncoder
from ssmlbench.plugins.loader import Plugins
from ssmlbench.runs.resolve import resolve
from ssmlbench.runs.train import encoder_class

BACKBONES: dict[str, dict[str, Any]] = {
    "tiny-text": {"max_tokens": 24},
    "tiny-images": {"backbone": "squeezenet1_1", "weights": "none", "image_size": 32},
    "tiny-vectors": {},
}


def frozen_spec(plugins: Plugins, dataset: str, bert: Path | None = None, **fields: Any) -> RunSpec:
    short: dict[str, Any] = {"method": "bce", "pi": 0.3, "epochs": 4, "freeze": True}
    short |= {"batch_size": 16, "labelled_batch_size": 8, "strong_views": 2, **BACKBONES[dataset]}
    if bert:
        short["backbone"] = str(bert)
    return resolve(plugins, {}, dataset=dataset, **{**short, **fields})


def frozen(plugins: Plugins, spec: RunSpec, notify: Any = lambda event: None) -> FrozenEncoder:
    task = prepare(plugins.datasets[spec.dataset]())
    return FrozenEncoder(
        spec, encoder_class(spec, plugins), task, torch.device("cpu"), notify=notify
    )


def rows_of(folder: FeatureFolder) -> torch.Tensor:
    return torch.cat([torch.from_numpy(np.load(file)) for file in folder.shards()])
