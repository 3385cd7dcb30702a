"""model.json: the description of a run's model; its arrays and its encoder's weights are other files."""

from __future__ import annotations

import math
import platform
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

import ssmlbench
from ssmlbench.core.errors import DamagedFile, UserError
from ssmlbench.core.files import read_own_json, write_json
from ssmlbench.core.spec import RunSpec
from ssmlbench.data import Task
from ssmlbench.data.adapter import InputColumns, Kind
from ssmlbench.protocol.decisions import RULES, Parameters
from ssmlbench.runs.folder import RunFolder
from ssmlbench.runs.schema import is_of_folder, parse_spec
from ssmlbench.training.evaluation import Outcome

MODEL_FORMAT = 1
"""Raised when a field of model.json changes its meaning."""
USABLE_RULES = tuple(name for name, rule in RULES.items() if not rule.mark)
"""Decision rules that need no true labels."""

MAKE_AGAIN = "the same `ssmlbench run` makes the run and its model again"
"""The remedy for a damaged model."""


@dataclass(frozen=True)
class ModelCard:
    """The content of model.json."""

    spec: RunSpec
    run: str  # its hash
    labels: list[str]
    kind: Kind  # of the inputs
    rule_parameters: Parameters = field(default_factory=dict)
    made_with: dict[str, str] = field(default_factory=dict)
    columns: InputColumns = field(default_factory=InputColumns)  # of its training data


def write_model_card(spec: RunSpec, folder: RunFolder, task: Task, outcome: Outcome) -> None:
    """Write model.json beside the arrays."""
    card = task.card
    content = {
        "format": MODEL_FORMAT,
        "hash": spec.hash,
        "spec": spec.as_dict(),
        "epoch": outcome.selected_epoch,
        "kind": card.kind,
        "labels": card.label_names,
        "columns": card.columns,
        "data": {"name": card.name, "fingerprint": card.fingerprint},
        "rules": {
            name: {p: _listed(outcome.rule_parameters[p]) for p in RULES[name].parameters}
            for name in USABLE_RULES
        },
        "bytes": folder.weights_file.stat().st_size,
        "made_with": versions(),
    }
    write_json(folder.model_file, content)


def read_model_card(folder: Path) -> ModelCard:
    """Read model.json; a UserError if the run keeps no model, a damaged one or one of a newer version."""
    file = RunFolder(folder).model_file
    try:
        RunFolder(folder).verify(file.name)
        values = read_own_json(file)
        if values["format"] > MODEL_FORMAT:
            raise UserError(f"{file}: written by a newer ssmlbench; update this one")
        if not is_of_folder(values, folder.name):
            raise DamagedFile(file, "it is the model of another run")
        parameters = {
            name: np.array([math.inf if v is None else v for v in row], dtype=np.float32)
            for rule in values["rules"].values()
            for name, row in rule.items()
        }
        spec = parse_spec(values["spec"])
        columns = {name: _tuples(value) for name, value in values.get("columns", {}).items()}
        return ModelCard(
            spec=spec,
            run=values["hash"],
            labels=values["labels"],
            kind=values["kind"],
            rule_parameters=parameters,
            made_with=values["made_with"],
            columns=InputColumns(**columns),
        )
    except DamagedFile as damaged:
        raise DamagedFile(damaged.file, damaged.reason, MAKE_AGAIN) from None
    except FileNotFoundError:
        raise UserError(
            f"{folder} keeps no model: it was made with --no-keep-model, by an older version, or its model "
            "is large; delete that folder and run it again with --keep-model"
        ) from None
    except (ArithmeticError, LookupError, TypeError, ValueError, AttributeError) as error:
        reason = f"not a model of ssmlbench ({type(error).__name__}: {error})"
        raise DamagedFile(file, reason, MAKE_AGAIN) from None


def versions() -> dict[str, str]:
    """The versions that a model's scores may depend on."""
    from importlib.metadata import version

    libraries = {name: version(name) for name in ("torch", "scikit-learn", "numpy")}
    return {"ssmlbench": ssmlbench.__version__, "python": platform.python_version(), **libraries}


def _tuples(value: Any) -> Any:
    """A list of JSON as a tuple; other values as they are."""
    return tuple(value) if isinstance(value, list) else value


def _listed(values: np.ndarray[Any, Any]) -> list[float | None]:
    """Numbers for JSON; None for a threshold that no score reaches."""
    return [float(v) if math.isfinite(v) else None for v in values]
