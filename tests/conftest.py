"""What all tests share: a cache of prepared data that is theirs alone, and the built-in plugins."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

torch.set_num_threads(1)
os.environ.setdefault("SSMLBENCH_FSYNC", "0")  # no test cuts the power

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="session", autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("cache")
    os.environ["SSMLBENCH_CACHE"] = str(folder)
    return folder


@pytest.fixture(scope="session")
def vectors() -> dict[str, Any]:
    return json.loads((Path(__file__).parent / "vectors.json").read_text())


@pytest.fixture(scope="session")
def plugins(cache: Path) -> Any:
    from ssmlbench.plugins.loader import Plugins

    return Plugins()


@pytest.fixture
def in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make runs in the process of the tests, judge and training together: it can be patched."""
    from ssmlbench.grid import run_one
    from ssmlbench.grid.engines import local

    for module in (run_one, local):
        monkeypatch.setattr(module, "can_be_sealed", lambda plugins: False)
    monkeypatch.setattr(run_one, "get_ready", lambda: None)


@pytest.fixture
def ssmlbench(tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Run the command line in a process of its own, in an empty folder."""

    def call(*arguments: object, **options: Any) -> subprocess.CompletedProcess[str]:
        environment = {**os.environ, "COLUMNS": "200", "OMP_NUM_THREADS": "1"}
        return subprocess.run(
            [sys.executable, "-m", "ssmlbench", *map(str, arguments)],
            capture_output=True,
            text=True,
            cwd=options.pop("cwd", tmp_path),
            env=environment,
            timeout=300,
            **options,
        )

    return call
