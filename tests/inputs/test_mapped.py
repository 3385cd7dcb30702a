"""Vectors and features that stay on disk: what is read is what memory would hold, bit by bit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from ssmlbench.core.events import Done
from ssmlbench.data.prepare import prepare
from ssmlbench.inputs import frozen, prepared
from ssmlbench.inputs.cached import CachedInputs
from ssmlbench.inputs.encoders import EncoderOptions, Vector
from ssmlbench.inputs.mapped import MappedFeatures, MappedRows, mapped_array
from ssmlbench.inputs.scaling import Scale
from ssmlbench.inputs.splits import Inputs, StoredInputs
from ssmlbench.plugins.loader import Plugins
from ssmlbench.runs.context import RunContext
from ssmlbench.runs.execute import execute
from ssmlbench.runs.folder import RunFolder
from ssmlbench.runs.resolve import resolve
from tests.support.tiny_models import write_data_plugin

ROWS = {
    "none": np.zeros(0, dtype=np.int64),
    "in order": np.arange(3, 17),
    "shuffled": np.random.default_rng(0).permutation(20),
    "repeated": np.array([19, 0, 0, 7, 7, 6]),
}


@pytest.fixture
def tiny(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Plugins:
    monkeypatch.setenv("SSMLBENCH_CACHE", str(tmp_path / "cache"))
    return Plugins([write_data_plugin(tmp_path)])


def everything_mapped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frozen, "MAPPED_BYTES", 0)
    monkeypatch.setattr(prepared, "MAPPED_BYTES", 0)


def open_files() -> int:
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


def pieces(values: torch.Tensor) -> MappedRows:
    return MappedRows(np.split(values.numpy(), [1, 8, 8, 15]))


@pytest.mark.parametrize("which", ROWS)
def test_rows_of_pieces_are_the_rows_of_the_whole(which: str) -> None:
    values = torch.randn(20, 3, generator=torch.Generator().manual_seed(0))
    found = pieces(values).take(ROWS[which])
    assert torch.equal(found, values[torch.from_numpy(ROWS[which])])
    assert len(pieces(values)) == 20


@pytest.mark.parametrize("scaled", [False, True])
def test_features_on_disk_are_seen_as_those_in_memory(scaled: bool) -> None:
    generator = torch.Generator().manual_seed(0)
    plain, first, second = (torch.randn(20, 6, generator=generator).half() for _ in range(3))
    patches = torch.randn(5, 4, 6, generator=generator).half()
    strong = torch.stack([first, second], dim=1).flatten(0, 1)
    memory = CachedInputs({"plain": plain, "strong": strong}, 2, {"plain-patches": lambda: patches})
    disk = CachedInputs(
        {
            "plain": MappedFeatures([pieces(plain)]),
            "strong": MappedFeatures([pieces(first), pieces(second)]),
        },
        2,
        {"plain-patches": lambda: MappedFeatures([pieces(patches.flatten(0, 1))], 4)},
    )
    if scaled:
        scale = Scale.of(memory)
        memory, disk = memory.scaled(scale), disk.scaled(scale)
    assert len(disk) == len(memory)
    for view, rows in (("plain", 20), ("strong", 20), ("plain-patches", 5)):
        for which in ROWS.values():
            chosen = which[which < rows]
            seen = [i.view(chosen, view, torch.Generator().manual_seed(1)) for i in (memory, disk)]
            assert torch.equal(*seen), view


def test_a_mapped_file_stays_readable_without_being_open(tmp_path: Path) -> None:
    values = np.random.default_rng(0).normal(size=(7, 5)).astype(np.float16)
    np.save(tmp_path / "a.npy", values)
    with (tmp_path / "a.npy").open("ab") as file:
        file.write(b"a trailer")
    before = open_files()
    arrays = [mapped_array(tmp_path / "a.npy") for _ in range(20)]
    assert open_files() == before
    assert all((array == values).all() for array in arrays)


def test_only_large_vectors_stay_on_disk(tiny: Plugins, monkeypatch: pytest.MonkeyPatch) -> None:
    task = prepare(tiny.datasets["tiny-vectors"]())

    def inputs() -> Any:
        return prepared.prepared_inputs(Vector, EncoderOptions(), task, "train")

    small = inputs()
    assert isinstance(small, Inputs)
    monkeypatch.setattr(prepared, "MAPPED_BYTES", small.values.nbytes - 1)
    large = inputs()
    assert isinstance(large, StoredInputs)
    assert not large.on_the_fly
    rows = np.arange(len(small))[::-1].copy()
    assert torch.equal(large.prepared(rows), small.prepared(rows))


@pytest.mark.parametrize("method", ["cap", "logistic"])
@pytest.mark.parametrize("dataset", ["tiny-vectors", "tiny-images"])
def test_a_run_gives_the_same_bits_from_disk_and_from_memory(
    method: str, dataset: str, tiny: Plugins, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fields: dict[str, Any] = {"epochs": 3, "batch_size": 16, "labelled_batch_size": 8, "pi": 0.3}
    if dataset == "tiny-images":
        fields |= {"backbone": "squeezenet1_1", "weights": "none", "image_size": 32, "freeze": True}
        fields |= {"strong_views": 2} if method == "cap" else {}
    spec = resolve(tiny, {}, method=method, dataset=dataset, **fields)
    found = []
    for place in ("memory", "disk"):
        context = RunContext(tmp_path / place, "cpu", 1)
        assert isinstance(execute(spec, tiny, context), Done)
        found.append(RunFolder.of(context.results, spec).scores_file.read_bytes())
        everything_mapped(monkeypatch)
    assert found[0] == found[1]
