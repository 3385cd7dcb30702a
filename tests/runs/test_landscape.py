"""The loss landscape of a kept model: directions, loss and mAP by hand, and the command."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.metrics import average_precision_score, log_loss
from typer.testing import CliRunner

from ssmlbench.cli import app
from ssmlbench.core.errors import UserError
from ssmlbench.data import prepare
from ssmlbench.plugins.loader import Plugins
from ssmlbench.protocol.observation import observe
from ssmlbench.runs.context import RunContext
from ssmlbench.runs.execute import execute
from ssmlbench.runs.folder import RunFolder
from ssmlbench.runs.landscape import cross_entropy, filter_normalised, moved, surface_around
from ssmlbench.runs.resolve import resolve
from ssmlbench.runs.saved_model import SavedModel
from tests.support.analysed_runs import write_run
from tests.support.tiny_models import write_data_plugin

LINE = np.array([-0.5, 0.0, 0.5])


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Plugins]:
    """A results folder with one short run that keeps its model."""
    root = tmp_path_factory.mktemp("landscape")
    plugins = Plugins([write_data_plugin(root)])
    fields = {"epochs": 2, "warmup_epochs": 1, "batch_size": 16, "labelled_batch_size": 8}
    spec = resolve(plugins, {}, method="bce", dataset="tiny-vectors", pi=0.3, **fields)
    execute(spec, plugins, RunContext(root / "results", "cpu", keep_model=True))
    return RunFolder.of(root / "results", spec).path, plugins


def test_the_surface_is_the_loss_and_the_map_of_the_moved_network(
    made: tuple[Path, Plugins],
) -> None:
    folder, plugins = made
    model = SavedModel(folder, plugins, device="cpu")
    found = surface_around(model, LINE, LINE, rows=10_000, seed=0)
    task = prepare(plugins.datasets["tiny-vectors"]())
    observation = observe(task.truth("train"), model.spec)
    train, test = task.inputs("train"), task.inputs("test")
    scorer, ours = model.scorer([train[int(row)] for row in observation.labelled])
    _, theirs = model.scorer(list(test))
    first, second = (filter_normalised(scorer.model, 0, number) for number in (1, 2))
    known, truth = observation.labels[observation.labelled], task.truth("test") == 1

    def by_hand(a: float, b: float) -> tuple[float, float]:
        network = copy.deepcopy(scorer.model.averaged_network).eval()
        state = network.state_dict()
        for name in first:
            state[name] = state[name] + a * first[name] + b * second[name]
        network.load_state_dict(state)
        every = [torch.arange(len(inputs)).numpy() for inputs in (ours, theirs)]
        generator = torch.Generator()
        with torch.no_grad():
            p, q = (
                network(inputs.view(rows, "plain", generator))["logits"].sigmoid().double().numpy()
                for inputs, rows in zip((ours, theirs), every, strict=True)
            )
        precisions = [average_precision_score(truth[:, k], q[:, k]) for k in range(truth.shape[1])]
        return log_loss(known.ravel(), p.ravel()), float(np.mean(precisions))

    for i, offset in enumerate(LINE):
        assert (found.loss[i], found.map[i]) == pytest.approx(by_hand(offset, 0), abs=1e-5)
    here = (found.grid_loss[0, 2], found.grid_map[0, 2])  # second direction −0.5, first 0.5
    assert here == pytest.approx(by_hand(0.5, -0.5), abs=1e-5)
    assert found.rows == (len(known), len(truth))


def test_directions_have_filters_as_long_as_the_network_and_leave_vectors(
    made: tuple[Path, Plugins],
) -> None:
    folder, plugins = made
    model = SavedModel(folder, plugins, device="cpu")
    inputs = prepare(plugins.datasets["tiny-vectors"]()).inputs("test")
    network = model.scorer([inputs[0]])[0].model
    direction = filter_normalised(network, 3, 1)
    weights = dict(network.averaged_network.named_parameters())
    assert direction
    for name, change in direction.items():
        lengths = [tensor.flatten(1).norm(dim=1) for tensor in (change, weights[name])]
        assert torch.allclose(*lengths, rtol=1e-4)
    assert all(name in direction for name, weight in weights.items() if weight.ndim > 1)
    assert not any(weights[name].ndim < 2 for name in direction)
    again = filter_normalised(network, 3, 1)
    assert all(torch.equal(again[name], direction[name]) for name in direction)
    before = {name: weight.clone() for name, weight in weights.items()}
    with moved(network, [direction], [0.5]):
        assert any(not torch.equal(weights[name], before[name]) for name in direction)
    assert all(torch.equal(weights[name], before[name]) for name in weights)


def test_unknown_entries_count_as_negative_only_where_no_negative_is_known() -> None:
    scores = np.array([[0.8, 0.4], [0.6, 0.1]], np.float32)
    some = np.array([[1, -1], [-1, 0]], np.int8)
    assert cross_entropy(scores, some) == pytest.approx(-(np.log(0.8) + np.log(0.9)) / 2)
    positives = np.array([[1, -1], [-1, -1]], np.int8)
    expected = -(np.log(0.8) + np.log(0.6) + np.log(0.4) + np.log(0.9)) / 4
    assert cross_entropy(scores, positives) == pytest.approx(expected)


def said(*words: object) -> Any:
    return CliRunner().invoke(app, ["analyse", "landscape", *map(str, words)])


def test_the_command_writes_both_figures_and_their_numbers(
    made: tuple[Path, Plugins], tmp_path: Path
) -> None:
    results = made[0].parents[3]
    small = ("--points", 3, "--grid", 3, "--device", "cpu")
    found = said("--results", results, *small, "--out", tmp_path)
    assert found.exit_code == 0, found.output
    assert {file.suffix for file in tmp_path.iterdir()} == {".pdf", ".png", ".svg", ".csv", ".json"}
    assert len(list(tmp_path.iterdir())) == 10
    only = said("--results", results, "--points", 3, "--grid", 0, "--out", tmp_path / "line")
    assert only.exit_code == 0, only.output
    assert len(list((tmp_path / "line").iterdir())) == 5


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), "keeps a model"),
        (("--points", 4), "--points 4: an odd number"),
        (("--grid", 2), "--grid 2: an odd number"),
        (("--radius", 0), "--radius 0"),
        (("--rows", 0), "--rows 0"),
    ],
    ids=str,
)
def test_what_has_no_landscape_is_one_line(
    tmp_path: Path, words: tuple[object, ...], message: str
) -> None:
    write_run(tmp_path / "results", 0.5)
    error = said(*words, "--results", tmp_path / "results", "--out", tmp_path / "out").exception
    assert isinstance(error, UserError)
    assert message in str(error)
    assert "\n" not in str(error)
