"""What all tests share: a cache of prepared data that is theirs alone, and the built-in plugins."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

torch.set_num_threads(1)
os.environ.setdefault("SSMLBENCH_FSYNC", "0")  # no test cuts the power
os.environ.setdefault("SSMLBENCH_CHECKPOINT_SECONDS", "0")  # runs of tests take less than a minute
# Python writes bytecode beside plugins on users' machines: tests do not depend on the variable.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="session", autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("cache")
    os.environ["SSMLBENCH_CACHE"] = str(folder)
    return folder


@pytest.fixture
def empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cache that no other test has written to."""
    monkeypatch.setenv("SSMLBENCH_CACHE", str(tmp_path / "cache"))


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
    monkeypatch.setattr(run_one, "start_fork_server", lambda: None)


def _imported_since(before: frozenset[str]) -> frozenset[str]:
    from ssmlbench.plugins import watch

    return frozenset(watch._files) - before


@pytest.fixture
def ssmlbench(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Type a command in an empty folder: what it prints and its exit code. It runs in this process."""
    from ssmlbench.cli import main
    from ssmlbench.plugins import watch

    def call(*arguments: object) -> subprocess.CompletedProcess[str]:
        typed = ["ssmlbench", *map(str, arguments)]
        out, err, code = io.StringIO(), io.StringIO(), 0
        with monkeypatch.context() as patch, redirect_stdout(out), redirect_stderr(err):
            patch.setattr(sys, "argv", typed)
            patch.setenv("COLUMNS", "200")
            patch.chdir(tmp_path)
            # Other tests of this process have imported plugin files.
            patch.setattr(watch, "imported_files", partial(_imported_since, watch.imported_files()))
            try:
                main()
            except SystemExit as ended:
                code = int(ended.code or 0)
        return subprocess.CompletedProcess(typed, code, out.getvalue(), err.getvalue())

    return call


@pytest.fixture
def ssmlbench_process(tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """The same in a process of its own, which takes seconds: for what must start from nothing."""

    def call(*arguments: object) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "ssmlbench", *map(str, arguments)],
            capture_output=True,
            text=True,
            cwd=tmp_path,
            env={**os.environ, "COLUMNS": "200", "OMP_NUM_THREADS": "1"},
            timeout=900,
        )

    return call
