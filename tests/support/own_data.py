"""Own data, prepared as the command line does."""

from __future__ import annotations

from pathlib import Path

from ssmlbench.core.data_options import DataOptions
from ssmlbench.data import Task, prepare
from ssmlbench.data.user_data import data_class, own_address


def read(home: Path, **options: str) -> Task:
    return prepare(data_class(own_address(str(home), DataOptions(**options)))())
