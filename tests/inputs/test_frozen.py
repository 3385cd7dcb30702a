"""Frozen features: what is computed, and how methods train on it."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file

from ssmlbench.core.errors import RunFailed
from ssmlbench.core.events import Done, Encoding, Event
from ssmlbench.core.spec import RunSpec
from ssmlbench.inputs import frozen as features
from ssmlbench.inputs.cache_folders import cached_features
from ssmlbench.inputs.cached import CachedInputs
from ssmlbench.inputs.encoders import find_encoder
from ssmlbench.inputs.prepared import prepared_inputs
from ssmlbench.inputs.transfer import Transfer
from ssmlbench.plugins.loader import Plugins
from ssmlbench.runs.context import RunContext
from ssmlbench.runs.execute import execute
from ssmlbench.runs.folder import RunFolder
from tests.support.frozen_features import BACKBONES, frozen, frozen_spec, rows_of
from tests.support.simulated_device import SimulatedDevice

pytestmark = pytest.mark.usefixtures("empty_cache")


@pytest.mark.parametrize("method", ["bce", "cap"])
@pytest.mark.parametrize("dataset", BACKBONES)
def test_methods_train_on_cached_features_of_every_kind(
    method: str, dataset: str, tiny: Plugins, bert: Path, tmp_path: Path
) -> None:
    spec = frozen_spec(tiny, dataset, bert if dataset == "tiny-text" else None, method=method)
    events: list[Event] = []
    context = RunContext(tmp_path / "results", "cpu", 1)
    assert isinstance(execute(spec, tiny, context, events.append), Done)
    result = json.loads(RunFolder.of(context.results, spec).result_file.read_text())
    assert 0 <= result["metrics"]["threshold"]["default"]["map"] <= 1
    done = {e.part: e.done for e in events if isinstance(e, Encoding)}
    wanted = {"train plain": 60, "test plain": 20}
    if dataset == "tiny-images":
        wanted["train weak"] = 60  # with the plain view it makes up R = 2
    else:  # the weak view is the row itself
        wanted |= {"train strong 1": 60, "train strong 2": 60}
    assert done == wanted


def test_features_are_read_back_once_a_shard(
    tiny: Plugins, monkeypatch: pytest.MonkeyPatch
) -> None:
    encoder = frozen(tiny, frozen_spec(tiny, "tiny-images"))
    monkeypatch.setattr(features, "SHARD_ROWS", 24)
    monkeypatch.setattr(encoder.encoder, "batch_rows", 8)
    read, cpu = [], torch.Tensor.cpu
    monkeypatch.setattr(torch.Tensor, "cpu", lambda self: read.append(len(self)) or cpu(self))
    encoder.computed("train", "plain")
    assert read == [24, 24, 12]


def test_a_smaller_batch_is_computed_by_one_thread_on_any_number_of_cores(
    tiny: Plugins, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its bits could depend on their number: EfficientNet's did for 8 rows, not for 16 or 64."""
    encoder = frozen(tiny, frozen_spec(tiny, "tiny-images"))
    monkeypatch.setattr(features, "core_count", lambda: 2)
    monkeypatch.setattr(encoder.encoder, "batch_rows", 16)
    forward, seen, before = encoder.encoder.forward, [], torch.get_num_threads()

    def recorded(self: Any, images: torch.Tensor) -> torch.Tensor:
        seen.append((len(images), torch.get_num_threads()))
        return forward(self, images)

    monkeypatch.setattr(encoder.encoder, "forward", recorded)
    encoder.computed("train", "plain")
    assert seen == [(16, 2), (16, 2), (16, 2), (12, 1)]
    assert torch.get_num_threads() == before


@pytest.mark.filterwarnings("ignore:.*copying from a non-meta parameter:UserWarning")
def test_on_a_device_no_batch_waits_and_a_shard_is_read_while_the_next_one_is_computed(
    tiny: Plugins, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = frozen(tiny, frozen_spec(tiny, "tiny-images"))
    monkeypatch.setattr(features, "SHARD_ROWS", 24)
    monkeypatch.setattr(here.encoder, "batch_rows", 8)
    expected = rows_of(here.computed("train", "weak"))
    log: list[str] = []
    fetched = Transfer.fetched

    def logged(self: Transfer, tensor: torch.Tensor) -> Callable[[], torch.Tensor]:
        log.append(f"{len(tensor)} rows are done")
        fetch = fetched(self, tensor)
        return lambda: log.append(f"{len(tensor)} rows are read") or fetch()

    monkeypatch.setattr(Transfer, "fetched", logged)
    with SimulatedDevice() as sim:
        there = dataclasses.replace(here, device=sim.device)
        there._built = there._build(there._raw("train"))
        before = sim.traffic.copied()
        found = rows_of(there.computed("train", "weak"))
        traffic = sim.traffic.since(before)
    assert torch.equal(found, expected)
    assert not traffic.waits
    assert not traffic.unpinned
    assert traffic.to_device.total() == 8  # batches
    assert traffic.to_host.total() == 3  # shards
    assert log == [
        *("24 rows are done", "24 rows are done", "24 rows are read"),
        *("12 rows are done", "24 rows are read", "12 rows are read"),
    ]


@pytest.mark.filterwarnings("ignore:.*CUDA is not available:UserWarning")  # torch disables it here
def test_a_frozen_encoder_computes_in_the_precision_asked_for_except_on_a_cpu() -> None:
    spec = RunSpec(method="bce", dataset="any", precision="bfloat16")
    with features.encoding_precision(torch.device("cpu"), spec):
        assert not torch.is_autocast_enabled("cpu")
    there = features.encoding_precision(torch.device("cuda"), spec)
    assert isinstance(there, torch.autocast)
    assert (there.device, there.fast_dtype) == ("cuda", torch.bfloat16)


def test_cached_features_are_what_the_encoder_gives(tiny: Plugins, bert: Path) -> None:
    spec = frozen_spec(tiny, "tiny-text", bert)
    maker = frozen(tiny, spec)
    found = maker.inputs("test").view(np.arange(20), "plain", torch.Generator())
    cls = find_encoder(tiny.encoders, str(bert), "text")
    raw = prepared_inputs(cls, maker.options, maker.task, "test")
    ids = raw.view(np.arange(20), "plain", torch.Generator())
    with torch.no_grad():
        expected = cls(ids[0], maker.options).eval()(ids)
    assert found.dtype == torch.float32
    assert torch.allclose(found, expected, atol=2e-3)  # half precision


def test_a_strong_view_is_one_of_the_rows_cached_draws_with_features_dropped() -> None:
    plain = torch.arange(5.0).half()[:, None].repeat(1, 40)  # equal features: no spread, no noise
    strong = torch.stack([plain * 10, plain * 10 + 1, plain * 10 + 2], dim=1).flatten(0, 1)
    inputs = CachedInputs({"plain": plain, "weak": plain, "strong": strong}, draws=3)
    rows = np.array([4, 0, 2] * 40)
    seen = inputs.view(rows, "strong", torch.Generator().manual_seed(0))
    draw = seen.amax(dim=1) / 2 - 10 * torch.from_numpy(rows)  # what is kept is twice as large
    assert set(draw.tolist()) == {0.0, 1.0, 2.0}
    assert 0.45 < float((seen[rows > 0] == 0).float().mean()) < 0.55
    again = inputs.view(rows, "strong", torch.Generator().manual_seed(0))
    assert torch.equal(seen, again)
    assert torch.equal(
        inputs.view(rows, "weak", torch.Generator()).flatten(), plain[rows].flatten()
    )


def test_patches_of_a_row_stay_together_and_are_had_when_asked_for() -> None:
    plain = torch.arange(3.0)[:, None].repeat(1, 8).half()
    patches = torch.arange(24.0).reshape(6, 4, 1).repeat(1, 1, 8).half()  # 3 rows × 2 draws × 4
    asked: list[str] = []

    def load() -> torch.Tensor:
        asked.append("strong-patches")
        return patches

    inputs = CachedInputs({"plain": plain}, 2, {"strong-patches": load})
    assert set(inputs.views) == {"plain", "strong-patches"}
    inputs.view(np.array([0]), "plain", torch.Generator())
    assert asked == []
    for _ in range(2):
        seen = inputs.view(np.array([2, 0]), "strong-patches", torch.Generator().manual_seed(3))
    assert asked == ["strong-patches"]
    assert seen.shape == (8, 8)
    kept = seen.amax(1) / 2  # half of the features are kept, at twice their size
    # Row 2's draws are patches 16..19 and 20..23, row 0's are 0..3 and 4..7.
    assert kept[:4].tolist() in ([16, 17, 18, 19], [20, 21, 22, 23])
    assert kept[4:].tolist() in ([0, 1, 2, 3], [4, 5, 6, 7])


def test_frozen_patches_are_cached_for_the_method_that_looks_at_them(
    tiny: Plugins, tmp_path: Path
) -> None:
    context = RunContext(tmp_path / "results", "cpu", 1)
    execute(frozen_spec(tiny, "tiny-images", epochs=2, strong_views=3), tiny, context)
    names = {folder.about["view"] for folder in cached_features()}
    assert names == {"plain", "weak", "strong"}
    spec = frozen_spec(tiny, "tiny-images", method="d2l_mat", epochs=2, strong_views=3)
    execute(spec, tiny, context)
    names = {folder.about["view"] for folder in cached_features()}
    assert names == {f"{v}{p}" for v in ("plain", "weak", "strong") for p in ("", "-patches")}
    scores = load_file(RunFolder.of(context.results, spec).scores_file)["scores"]
    again = RunContext(tmp_path / "again", "cpu", 1)
    execute(spec, tiny, again)  # now that every view is cached
    expected = load_file(RunFolder.of(again.results, spec).scores_file)["scores"]
    np.testing.assert_array_equal(scores, expected)


def test_frozen_patches_are_what_the_encoder_gives(tiny: Plugins) -> None:
    maker = frozen(tiny, frozen_spec(tiny, "tiny-images"))
    found = maker.inputs("test").view(np.arange(5), "plain-patches", torch.Generator())
    raw = prepared_inputs(maker.encoder, maker.options, maker.task, "test")
    with torch.no_grad():
        assert maker._built is not None
        expected = maker._built(raw.view(np.arange(5), "plain-patches", torch.Generator()))
    assert found.shape == expected.shape
    assert torch.allclose(found, expected, atol=5e-3)  # half precision


def test_features_that_are_not_finite_are_refused(
    tiny: Plugins, monkeypatch: pytest.MonkeyPatch
) -> None:
    from ssmlbench.inputs.encoders import Vector

    monkeypatch.setattr(Vector, "forward", lambda self, rows: rows * 1e9)
    with pytest.raises(RunFailed, match="half precision"):
        frozen(tiny, frozen_spec(tiny, "tiny-vectors")).inputs("test")


@pytest.mark.parametrize(
    ("fields", "views"),
    [
        ({}, ["plain", "weak", "strong", "strong"]),
        ({"mixed_draws": False}, ["strong"] * 4),
        ({"recipe": "paper"}, ["strong"] * 4),
        ({"strong_views": 1}, ["plain"]),
    ],
)
@pytest.mark.parametrize("patches", ["", "-patches"])
def test_the_strong_view_of_an_image_is_drawn_from_clean_views_too(
    fields: dict[str, Any], views: list[str], patches: str, tiny: Plugins
) -> None:
    maker = frozen(tiny, frozen_spec(tiny, "tiny-images", **{"strong_views": 4, **fields}))
    inputs = maker.inputs("train")
    assert inputs.draws == len(views)
    generator = torch.Generator()
    _ = inputs.view(np.arange(1), f"strong{patches}", generator)  # loads patches
    strong = inputs.values[f"strong{patches}"].unflatten(0, (-1, len(views)))
    for number, view in enumerate(views):
        draw = views[:number].count("strong") if view == "strong" else 0
        cached = rows_of(maker.folder("train", f"{view}{patches}", draw))
        assert torch.equal(strong[:, number].flatten(0, -2), cached)


def test_one_clean_view_where_the_weak_view_is_the_plain_one(tiny: Plugins) -> None:
    inputs = frozen(tiny, frozen_spec(tiny, "tiny-vectors", strong_views=3, mixed_draws=True))
    strong = inputs.inputs("train").values["strong"].unflatten(0, (-1, 3))
    for number, (view, draw) in enumerate([("plain", 0), ("strong", 0), ("strong", 1)]):
        assert torch.equal(strong[:, number], rows_of(inputs.folder("train", view, draw)))
