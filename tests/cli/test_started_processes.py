"""What a command does not start or import before it knows what is to do."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from ssmlbench.cli import app
from ssmlbench.grid import run_one
from ssmlbench.inputs.encoders import default_backbone


@pytest.mark.parametrize(("methods", "started"), [("bce", 0), ("bce,cap", 1), ("cap", 1)])
def test_a_process_is_started_beforehand_only_where_runs_are_left_for_sure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, methods: str, started: int
) -> None:
    calls = []
    monkeypatch.setattr(run_one, "start_fork_server", lambda: calls.append(methods))
    (tmp_path / "toy" / "semi-0.1" / "bce" / "0-abc").mkdir(parents=True)
    words = ["run", "--method", methods, "--dataset", "no-such-data", "--results", str(tmp_path)]
    assert CliRunner().invoke(app, words).exit_code != 0
    assert len(calls) == started


def test_torchvision_is_not_asked_for_an_encoder_of_our_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked = []
    listing = "ssmlbench.inputs.encoders.torchvision.model_names"
    monkeypatch.setattr(listing, lambda: asked.append(1) or [])
    assert default_backbone("image", "small-cnn") == "small-cnn"
    assert not asked
    assert default_backbone("image", "somebodys-net") == "somebodys-net"
    assert asked
