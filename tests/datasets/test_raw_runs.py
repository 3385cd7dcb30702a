"""From the raw files of every layout to a finished run, through the real encoders' code."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file

from ssmlbench.core.events import Done
from ssmlbench.plugins.loader import Plugins
from ssmlbench.runs.context import RunContext
from ssmlbench.runs.execute import execute
from ssmlbench.runs.folder import RunFolder
from ssmlbench.runs.resolve import resolve
from tests.support.raw_layouts import LAYOUTS
from tests.support.tiny_models import save_tiny_bert


@pytest.fixture(scope="module")
def encoders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """The smallest encoder of each kind that goes the way of a large one."""
    bert = save_tiny_bert(tmp_path_factory.mktemp("models") / "tiny-bert")
    return {
        "text": {"backbone": str(bert), "max_tokens": 16},
        "image": {"backbone": "squeezenet1_1", "weights": "none", "image_size": 32},
    }


@pytest.mark.parametrize("freeze", [False, True], ids=["fine-tuned", "frozen"])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_two_epochs_can_be_run_on_every_raw_layout(
    layout: str,
    freeze: bool,
    encoders: dict[str, dict[str, Any]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    name, build, (train, test) = LAYOUTS[layout]
    build(tmp_path / "data" / name)
    monkeypatch.setenv("SSMLBENCH_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("SSMLBENCH_CACHE", str(tmp_path / "cache"))
    plugins = Plugins(())
    spec = resolve(
        plugins,
        {},
        method="cap",
        dataset=name,
        pi=0.5 if len(train) > 1 else 1.0,
        freeze=freeze,
        strong_views=1 if freeze else None,
        epochs=2,
        warmup_epochs=1,
        batch_size=4,
        labelled_batch_size=2,
        **encoders[plugins.datasets[name].kind],
    )
    assert isinstance(execute(spec, plugins, RunContext(tmp_path / "results", "cpu", 1)), Done)
    scores = load_file(RunFolder.of(tmp_path / "results", spec).scores_file)
    assert scores["truth"].sum(axis=1).tolist() == [len(labels) for labels in test]
    assert scores["scores"].shape == scores["truth"].shape
    assert np.isfinite(scores["scores"]).all()
    assert ((scores["scores"] >= 0) & (scores["scores"] <= 1)).all()
