"""VDFD and the Wasserstein distance by the documented lines, from the files of a run alone."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file

from ssmlbench.boards.analyses.scores import distances
from ssmlbench.plugins.loader import Plugins
from ssmlbench.runs.context import RunContext
from ssmlbench.runs.execute import execute
from ssmlbench.runs.folder import RunFolder
from ssmlbench.runs.resolve import resolve
from tests.conftest import ROOT
from tests.runs.test_execute import DATASET


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("outside")
    (root / "tiny.py").write_text(DATASET)
    plugins = Plugins([root / "tiny.py"])
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SSMLBENCH_CACHE", str(root / "cache"))
        spec = resolve(plugins, {}, method="cap", dataset="tiny", pi=0.3, epochs=3)
        context = RunContext(root / "results", "cpu", 1, keep_features=True)
        execute(spec, plugins, context)
    return RunFolder.of(context.results, spec).path


@pytest.fixture(scope="module")
def outside(folder: Path) -> Mapping[str, Any]:
    """What the lines of docs/analyses.md compute for this run."""
    text = (ROOT / "docs" / "analyses.md").read_text()
    (code,) = re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL)
    changed, count = re.subn(r'run = ".*"', f"run = {str(folder)!r}", code)
    assert count == 1
    found: dict[str, Any] = {}
    exec(changed, found)
    return found


@pytest.mark.parametrize(
    ("manner", "name"), [("supervised", "supervised"), ("trained_on", "semi_supervised")]
)
def test_vdfd_of_the_last_epoch_is_that_of_the_kept_features(
    folder: Path, outside: Mapping[str, Any], manner: str, name: str
) -> None:
    diagnostics = load_file(folder / "diagnostics.safetensors")
    ours = diagnostics[manner][-1, 0] - diagnostics[manner][-1, 1]
    assert np.isfinite(ours).all()
    assert outside[name] == pytest.approx(ours, abs=1e-6)


def test_the_kept_rows_are_all_training_rows_with_what_was_known_of_them(folder: Path) -> None:
    sample = load_file(folder / "features.safetensors")
    assert sorted(sample["rows"]) == list(range(120))
    known = sample["observed"] >= 0
    assert known.all(axis=1).sum() == 36  # π = 0.3 of 120 rows
    assert (sample["observed"][known] == sample["truth"][known]).all()
    decided = (sample["trained_on"] >= 0) & ~known
    assert decided.any()


def test_the_wasserstein_distance_is_that_of_the_stored_scores(
    folder: Path, outside: Mapping[str, Any]
) -> None:
    stored = load_file(folder / "scores.safetensors")
    ours = distances(stored["scores"], stored["truth"] == 1)
    assert outside["distances"] == pytest.approx(ours, nan_ok=True)
    assert np.isnan(ours[3])  # no test row has this label


def test_the_sums_of_scores_are_those_of_the_kept_rows(folder: Path) -> None:
    sample = load_file(folder / "features.safetensors")
    diagnostics = load_file(folder / "diagnostics.safetensors")
    positive, observed = sample["truth"] == 1, sample["observed"] == 1
    groups = (positive & observed, positive & ~observed, ~positive)
    sums = [sample["scores"][group].sum() for group in groups]
    assert diagnostics["score_sums"][-1] == pytest.approx(sums, rel=1e-5)
