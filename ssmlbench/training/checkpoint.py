"""A run's state on disk between epochs: one safetensors file, replaced by an atomic rename.

Tensors and JSON only; nothing in it can execute when it is read.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor
from torch.optim import Optimizer

from ssmlbench.core.files import temporary_beside


class Checkpoint:
    def __init__(self, file: Path):
        self.file = file

    def write(self, tensors: Mapping[str, Mapping[str, Tensor]], facts: Mapping[str, Any]) -> None:
        """`tensors` by section and name; `facts` is anything JSON can hold."""
        flat = {
            f"{section}/{name}": value.detach().cpu().contiguous().clone()
            for section, values in tensors.items()
            for name, value in values.items()
        }
        unfinished = temporary_beside(self.file)
        save_file(flat, unfinished, metadata={"facts": json.dumps(facts)})
        os.replace(unfinished, self.file)

    def read(self) -> tuple[dict[str, dict[str, Tensor]], dict[str, Any]] | None:
        """What was written last, or None where there is nothing whole to go on from."""
        try:
            with safe_open(self.file, framework="pt") as stored:
                sections: dict[str, dict[str, Tensor]] = {}
                for key in stored.keys():  # noqa: SIM118 (not a dictionary)
                    section, _, name = key.partition("/")
                    sections.setdefault(section, {})[name] = stored.get_tensor(key)
                return sections, json.loads(stored.metadata()["facts"])
        except (FileNotFoundError, SafetensorError, KeyError, TypeError, ValueError):
            return None

    def delete(self) -> None:
        self.file.unlink(missing_ok=True)


def optimiser_tensors(optimiser: Optimizer) -> dict[str, Tensor]:
    state = optimiser.state_dict()["state"]
    return {f"{i}.{name}": value for i, entry in state.items() for name, value in entry.items()}


def optimiser_facts(optimiser: Optimizer) -> list[dict[str, Any]]:
    return optimiser.state_dict()["param_groups"]


def restore_optimiser(
    optimiser: Optimizer, tensors: Mapping[str, Tensor], groups: list[dict[str, Any]]
) -> None:
    parameters = [p for group in optimiser.param_groups for p in group["params"]]
    state: dict[int, dict[str, Tensor]] = {}
    for key, value in tensors.items():
        index, _, name = key.partition(".")
        parameter = parameters[int(index)]
        if value.shape == parameter.shape:
            # A fused step walks the memory of both: the state must lie as its parameter does.
            value = torch.empty_like(parameter).copy_(value)
        state.setdefault(int(index), {})[name] = value
    optimiser.load_state_dict({"state": state, "param_groups": groups})
