"""The two commands of the README install what they need and no more."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.conftest import ROOT


@pytest.mark.skipif(shutil.which("make") is None, reason="needs make")
@pytest.mark.parametrize(("target", "with_tools"), [("demo", False), ("test", True)])
def test_only_the_tests_install_test_tools(tmp_path: Path, target: str, with_tools: bool) -> None:
    planned = subprocess.run(
        ["make", "-n", target, f"VENV={tmp_path / 'venv'}"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert "--editable ." in planned
    assert (".[dev]" in planned) == with_tools
