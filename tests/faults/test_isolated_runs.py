"""What a plugin does to its process reaches no judge and no other run, and leaves nothing behind."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.numpy import load_file

from ssmlbench.core.events import Done, Warned
from ssmlbench.grid.run_one import run_one
from ssmlbench.inputs.cache_folders import features_root
from ssmlbench.plugins.loader import Plugins
from ssmlbench.runs.context import RunContext
from ssmlbench.runs.folder import RunFolder
from ssmlbench.runs.resolve import resolve
from tests.faults.sealed_runs import CHEATS, Make, make
from tests.support.tiny_models import save_tiny_bert, write_data_plugin

__all__ = ["make"]  # a fixture


def test_what_a_plugin_does_to_its_modules_reaches_no_judge(make: Make) -> None:
    last, folder, _ = make("changes modules")
    assert folder.finished == isinstance(last, Done)
    assert isinstance(make(method="bce")[0], Done)


def test_what_a_plugin_does_to_its_process_reaches_no_other_run(make: Make) -> None:
    _, alone, _ = make(method="bce")
    before = alone.scores_file.read_bytes()
    for file in alone.path.iterdir():
        file.unlink()
    make("changes the process")
    assert isinstance(make(method="bce")[0], Done)
    assert alone.scores_file.read_bytes() == before


def test_a_plugin_file_changes_no_run_of_another_method_or_encoder(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever its code does when it is imported: it is not imported there."""
    monkeypatch.setattr(torch.optim.AdamW, "step", torch.optim.AdamW.step)  # put back afterwards
    _, alone, _ = make(method="bce")
    file = tmp_path / "sabotage.py"
    file.write_text(SABOTAGE)
    plugins, results = Plugins([CHEATS, file]), tmp_path / "beside"
    fields: dict[str, Any] = {"dataset": "noise", "epochs": 3, "pi": 0.5, "seed": 0}
    last = {}
    for method in ("bce", "saboteur"):
        spec = resolve(plugins, {}, method=method, **fields)
        last[method] = run_one(spec, plugins, RunContext(results, "cpu", 1), lambda event: None)
        if method == "bce":
            beside = RunFolder.of(results, spec)
    assert isinstance(last["bce"], Done)
    assert beside.scores_file.read_bytes() == alone.scores_file.read_bytes()
    assert "its own run" in getattr(last["saboteur"], "text", ""), "its own file is imported"


def test_features_that_other_runs_read_are_computed_before_a_method_file_is_imported(
    tmp_path: Path, empty_cache: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its code may change libraries; the cache has the features of every method."""
    norm = torch.nn.LayerNorm
    monkeypatch.setattr(norm, "forward", norm.forward)  # put back afterwards
    bert, file = save_tiny_bert(tmp_path / "bert"), tmp_path / "no_norm.py"
    file.write_text(NO_NORM)
    plugins = Plugins([write_data_plugin(tmp_path), file])
    fields: dict[str, Any] = {"dataset": "tiny-text", "epochs": 2, "pi": 0.5, "freeze": True}
    fields |= {"backbone": str(bert), "max_tokens": 16}
    scores, features = {}, {}
    for order in (("bce",), ("no_norm", "bce")):
        shutil.rmtree(features_root(), ignore_errors=True)
        for method in order:
            spec = resolve(plugins, {}, method=method, **fields)
            results = tmp_path / "-".join(order)
            last = run_one(spec, plugins, RunContext(results, "cpu", 1), lambda event: None)
            assert isinstance(last, Done), last
        scores[order] = RunFolder.of(results, spec).scores_file.read_bytes()
        files = sorted(features_root().rglob("*.npy"))
        features[order] = [(file.parent.name, file.read_bytes()) for file in files]
    assert len({*scores.values()}) == 1
    alone, after = features.values()
    assert alone
    assert alone == after


NO_NORM = """
import torch
from ssmlbench.api import Method

torch.nn.LayerNorm.forward = lambda self, values: values

class NoNorm(Method):
    \"\"\"Changes a library when its file is imported.\"\"\"

    name = "no_norm"

    def loss(self, labelled, unlabelled):
        return {"labelled": labelled.logits("strong").square().mean()}
"""


SABOTAGE = """
import torch
from ssmlbench.api import Method

def step(*rest, **more):
    raise RuntimeError("its own run")

torch.optim.AdamW.step = step

class Saboteur(Method):
    \"\"\"Learns nothing, and wants no other to learn.\"\"\"

    name = "saboteur"

    def loss(self, labelled, unlabelled):
        return {"labelled": labelled.logits("strong").square().mean()}
"""


def test_a_sealed_run_has_the_bits_of_a_run_in_one_process(make: Make, tmp_path: Path) -> None:
    from ssmlbench.runs.execute import execute

    plugins = Plugins([CHEATS])
    for fields in ({}, {"selection": "val"}, {"selection": "oracle"}):
        _, folder, _ = make(method="cap", fields=fields)
        spec = resolve(
            plugins, {}, method="cap", dataset="noise", epochs=3, pi=0.5, seed=0, **fields
        )
        execute(spec, plugins, RunContext(tmp_path / "together", "cpu", 1))
        other = RunFolder.of(tmp_path / "together", spec)
        one, two = load_file(folder.scores_file), load_file(other.scores_file)
        assert one.keys() == two.keys()
        assert all((one[name] == two[name]).all() for name in one)
        columns = [f.history_file.read_text().splitlines()[0] for f in (folder, other)]
        assert columns[0] == columns[1]
        results = [json.loads(f.result_file.read_text()) for f in (folder, other)]
        assert results[0].keys() == results[1].keys()
        for part in ("spec", "metrics", "data", "observation"):
            assert results[0][part] == results[1][part]
        assert results[0]["data"]["unlike_published"] == ["train rows: 80 here, 800 published"]


def test_nothing_of_a_run_outlives_it(make: Make) -> None:
    _, folder, _ = make(method="bce")
    left = {file.name for file in folder.path.iterdir()}
    assert folder.result_file.name in left
    assert not any(name.startswith((".", "checkpoint", "judgements", "progress")) for name in left)


def test_a_run_that_is_made_again_says_which_file_was_damaged(make: Make) -> None:
    _, folder, _ = make(method="bce")
    folder.history_file.write_text("")
    _, again, events = make(method="bce")
    assert again.finished
    (warned,) = (event for event in events if isinstance(event, Warned) and "damaged" in event.text)
    assert "history.csv" in warned.text
