"""A run's state after an epoch, in memory and on disk: one safetensors file, replaced by an atomic rename.

Tensors and JSON only; nothing in it can execute when it is read.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from ssmlbench.core.checksums import FIELD, UNSTAMPED, stamp, verify_stamp
from ssmlbench.core.errors import ContractError, DamagedFile, DamageWarning
from ssmlbench.core.files import atomic, discard, naming
from ssmlbench.kit.method import Method
from ssmlbench.training.evaluation import Progress
from ssmlbench.training.model import Model


@dataclass(frozen=True)
class StoredState:
    """The content of a checkpoint file."""

    tensors: Mapping[str, Mapping[str, Tensor]]  # section → name → tensor
    facts: Mapping[str, Any]  # all other values, as JSON has them

    @property
    def epochs(self) -> int:
        """Epochs that were finished when it was written."""
        return int(self.facts["epoch"])


@dataclass(frozen=True)
class Snapshot:
    """A copy of a state in memory: training can go on while it waits to be written."""

    tensors: Mapping[str, Tensor]  # "section/name" → tensor
    facts: str  # JSON
    epochs: int  # finished epochs

    @classmethod
    def of(cls, tensors: Mapping[str, Mapping[str, Tensor]], facts: Mapping[str, Any]) -> Snapshot:
        """Copy a state. tensors: section → name → tensor; facts: anything JSON can hold."""
        flat = {
            f"{section}/{name}": value.detach().cpu().contiguous().clone()
            for section, values in tensors.items()
            for name, value in values.items()
        }
        return cls(flat, json.dumps(facts), int(facts["epoch"]))


class Checkpoint:
    """The file of a run's state."""

    def __init__(self, file: Path, run: str = "", *, shared_folder: bool = False):
        """run: the hash of its run; the state of another run counts as damaged.

        shared_folder: other runs write to the folder of the file too.
        """
        self.file = file
        self.run = run
        self.shared_folder = shared_folder

    def write(self, tensors: Mapping[str, Mapping[str, Tensor]], facts: Mapping[str, Any]) -> None:
        """Replace the file by a state, given as in `Snapshot.of`."""
        self.publish(Snapshot.of(tensors, facts))

    def publish(self, state: Snapshot) -> None:
        """Replace the file by a state that was copied before."""
        owner = {"run": self.run} if self.run else {}
        metadata = {**owner, "facts": state.facts, FIELD: UNSTAMPED}
        with atomic(self.file, in_folder=self.shared_folder) as unfinished:
            save_file(dict(state.tensors), unfinished, metadata=metadata)
            stamp(unfinished)

    def read(self) -> StoredState | None:
        """The last state that was written; None if there is none.

        A damaged file is deleted with a DamageWarning: the run starts from its beginning.
        """
        if not self.file.exists():
            return None
        try:
            return self.load()
        except DamagedFile as damaged:
            text = f"{damaged}; the run starts from its beginning"
            warnings.warn(text, DamageWarning, stacklevel=2)
            self.delete()
            return None

    def load(self) -> StoredState:
        """The stored state; DamagedFile if the file is missing or damaged. The file is never deleted."""
        verify_stamp(self.file)
        try:
            with naming(self.file), safe_open(self.file, framework="pt") as stored:
                owner = (stored.metadata() or {}).get("run", self.run)  # older files have none
                if self.run and owner != self.run:
                    raise DamagedFile(self.file, f"it is the state of another run, {owner}")
                sections: dict[str, dict[str, Tensor]] = {}
                for key in stored.keys():  # noqa: SIM118 (not a dictionary)
                    section, _, name = key.partition("/")
                    sections.setdefault(section, {})[name] = stored.get_tensor(key)
                return StoredState(sections, json.loads(stored.metadata()["facts"]))
        except (SafetensorError, KeyError, TypeError, ValueError, RecursionError) as error:
            raise DamagedFile(self.file, f"not a state of ssmlbench ({error})") from None

    def delete(self) -> None:
        """Delete the file, if it exists."""
        discard(self.file)


@dataclass
class TrainingState:
    """Everything that is saved and restored, so that a run can resume."""

    model: Model
    method: Method
    optimiser: Optimizer
    scheduler: LRScheduler
    progress: Progress

    def snapshot(self) -> Snapshot:
        """A copy of the state after the present epoch."""
        model, progress, optimisers = self.model, self.progress, self._optimisers()
        schedule = self.scheduler.state_dict()
        return Snapshot.of(
            {
                "network": self._changed(model.network),
                "ema": self._changed(model.ema.network),
                "method": self._method_state(),
                **{f"optimiser {k}": _optimiser_tensors(o) for k, o in optimisers.items()},
            },
            {
                "epoch": progress.epoch + 1,
                "steps": progress.steps,
                "history": progress.history,
                "ema_updates": model.ema.updates,
                "optimisers": {k: o.state_dict()["param_groups"] for k, o in optimisers.items()},
                "scheduler": {k: v for k, v in schedule.items() if not callable(v)},
                "scaler": model.scaler.state_dict() if model.scaler else None,
            },
        )

    def restore(self, stored: StoredState) -> None:
        """Set everything to a stored state."""
        tensors, facts, model = stored.tensors, stored.facts, self.model
        for name, network in (("network", model.network), ("ema", model.ema.network)):
            network.load_state_dict({**network.state_dict(), **tensors[name]})
        model.ema.updates = facts["ema_updates"]
        self.method.load_state(dict(tensors.get("method", {})))
        self.method.to(model.device)
        for name, optimiser in self._optimisers().items():
            _restore_optimiser(
                optimiser, tensors.get(f"optimiser {name}", {}), facts["optimisers"][name]
            )
        self.scheduler.load_state_dict(facts["scheduler"])
        if model.scaler:
            model.scaler.load_state_dict(facts["scaler"])
        self.progress.steps, self.progress.history = facts["steps"], facts["history"]

    def _method_state(self) -> dict[str, Tensor]:
        """The method's tensors by name; a ContractError if its own `state_dict` has other values."""
        state = self.method.state_dict()
        for name, value in state.items():
            if not isinstance(value, Tensor):
                raise ContractError(
                    f"state_dict: {name!r} is a {type(value).__name__}, expected a tensor; leave "
                    "state_dict out: every tensor on self is saved",
                    "state_dict",
                )
        return state

    def _changed(self, network: nn.Module) -> dict[str, Tensor]:
        """The state of a network, without the fixed weights that every start loads from a file."""
        left_out = self.model.unchanged_names()
        state = network.state_dict()
        return {name: value for name, value in state.items() if name not in left_out}

    def _optimisers(self) -> dict[str, Optimizer]:
        return {"trainer": self.optimiser, **self.method.optimisers}


def _optimiser_tensors(optimiser: Optimizer) -> dict[str, Tensor]:
    state = optimiser.state_dict()["state"]
    return {f"{i}.{name}": value for i, entry in state.items() for name, value in entry.items()}


def _restore_optimiser(
    optimiser: Optimizer, tensors: Mapping[str, Tensor], groups: list[dict[str, Any]]
) -> None:
    parameters = [p for group in optimiser.param_groups for p in group["params"]]
    state: dict[int, dict[str, Tensor]] = {}
    for key, value in tensors.items():
        index, _, name = key.partition(".")
        parameter = parameters[int(index)]
        if value.shape == parameter.shape:
            # A fused optimiser reads both in memory order: the state needs its parameter's layout.
            value = torch.empty_like(parameter).copy_(value)
        state.setdefault(int(index), {})[name] = value
    optimiser.load_state_dict({"state": state, "param_groups": groups})
