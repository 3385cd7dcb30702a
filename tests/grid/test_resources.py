"""Runs share a machine with GPUs: heads on fixed features take the cores, encoders the GPUs."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch

from ssmlbench.core.errors import UserError
from ssmlbench.core.events import Done, Event
from ssmlbench.core.spec import RunSpec
from ssmlbench.grid.dispatch import Dispatch
from ssmlbench.grid.engines import local
from ssmlbench.grid.resources import MOST_GAIN, Lane, Machine, check_encoder_options, lanes
from ssmlbench.plugins.loader import Plugins
from ssmlbench.runs.context import RunContext
from ssmlbench.runs.resolve import resolve
from ssmlbench.training.device import gpu_number

PLUGINS = Plugins(())


def specs(heads: int, encoders: int) -> list[RunSpec]:
    """Runs on frozen features, and runs that train an encoder."""
    base = {"method": "bce", "dataset": "multidigits", "pi": 0.1}
    made = [resolve(PLUGINS, {}, **base, freeze=True, seed=seed) for seed in range(heads)]
    return made + [resolve(PLUGINS, {}, **base, seed=seed) for seed in range(encoders)]


def shares(machine: Machine, runs: list[RunSpec], device: str = "auto", **typed: Any) -> list[Any]:
    """(device, device that encodes, runs at a time, runs) of each lane."""
    context = RunContext(Path("unused"), device, cores=machine.cores)
    return [
        (lane.context.device, lane.context.encoding_device, lane.jobs, len(lane.specs))
        for lane in lanes(machine, runs, PLUGINS, context, **typed)
    ]


def test_heads_take_every_core_of_a_machine_with_one_gpu() -> None:
    assert shares(Machine("cuda", 16, 1), specs(20, 0)) == [("cpu", "auto", 16, 20)]


def test_beside_encoders_a_core_is_left_to_each_gpu() -> None:
    found = shares(Machine("cuda", 16, 2), specs(20, 3))
    assert found == [("auto", None, 2, 3), ("cpu", "auto", 14, 20)]


def test_with_few_cores_heads_stay_on_the_gpu() -> None:
    few = Machine("cuda", MOST_GAIN - 1, 1)
    assert shares(few, specs(4, 0)) == [("auto", None, 1, 4)]
    assert not Machine("cuda", 2 * MOST_GAIN - 1, 2).heads_on_cores
    assert Machine("cuda", 2 * MOST_GAIN, 2).heads_on_cores


@pytest.mark.parametrize("device", ["cuda", "cuda:0"])
def test_a_typed_device_is_where_all_runs_are_made(device: str) -> None:
    assert shares(Machine("cuda", 16, 1), specs(4, 1), device) == [(device, None, 1, 5)]


def test_typed_jobs_per_gpu_are_for_all_runs() -> None:
    machine = Machine("cuda", 16, 2)
    assert shares(machine, specs(9, 1), jobs_per_gpu=3) == [("auto", None, 6, 10)]
    assert shares(machine, specs(2, 0), jobs_per_gpu=3) == [("auto", None, 2, 2)]


def test_without_a_gpu_nothing_is_divided() -> None:
    (lane,) = shares(Machine("cpu", 4, 0), specs(9, 0))
    assert lane == ("auto", None, 4, 9)
    assert shares(Machine("cpu", 4, 0), []) == [("auto", None, 1, 0)]


@pytest.mark.parametrize("heads", [0, 1])
def test_several_gpus_for_heads_are_refused_before_a_run_starts(heads: int) -> None:
    context = RunContext(Path("unused"), "auto", gpus=2)
    if not heads:
        check_encoder_options(specs(0, 1), PLUGINS, context)
        return
    with pytest.raises(UserError, match="--gpus: heads on fixed features train on one device"):
        check_encoder_options(specs(heads, 1), PLUGINS, context)


@pytest.mark.parametrize("option", [{"micro_batch": 8}, {"checkpoint_activations": True}])
def test_options_of_trained_encoders_are_refused_where_none_is_trained(
    option: dict[str, Any],
) -> None:
    context = RunContext(Path("unused"), "cpu", **option)
    check_encoder_options(specs(1, 1), PLUGINS, context)  # one run reads it
    check_encoder_options([], PLUGINS, context)
    with pytest.raises(UserError, match=r"--.*: heads on fixed features train no encoder"):
        check_encoder_options(specs(2, 0), PLUGINS, context)


def test_there_is_nothing_to_compile_for_a_head_on_fixed_features() -> None:
    base: dict[str, Any] = {"method": "bce", "dataset": "multidigits", "pi": 0.1, "compile": True}
    assert resolve(PLUGINS, {}, **base).compile
    with pytest.raises(UserError, match="--compile: heads on fixed features have no encoder"):
        resolve(PLUGINS, {}, **base, freeze=True)


def test_each_run_sees_one_gpu_of_those_there_are() -> None:
    two = Machine("cuda", 8, 2)
    assert [two.gpu(slot, None) for slot in range(3)] == ["0", "1", "0"]
    assert [two.gpu(slot, "5,GPU-7") for slot in range(2)] == ["5", "GPU-7"]
    second = Machine("cuda", 8, 1, first_gpu=1)
    assert [second.gpu(slot, None) for slot in range(2)] == ["1", "1"]
    assert second.gpu(0, "5,GPU-7") == "GPU-7"
    assert Machine("cpu", 8, 0).gpu(0, None) is None


def test_the_gpu_is_recorded_as_the_machine_numbers_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert gpu_number(torch.device("cuda:1")) == "1"
    assert gpu_number(torch.device("cuda")) == "0"
    assert gpu_number(torch.device("cpu")) == ""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "5,GPU-7")
    assert gpu_number(torch.device("cuda:1")) == "GPU-7"


# ------------------------------------------------------------------------- the local engine


class FakeRun:
    """A run that is over at once; notes which device and GPU it was given."""

    started: list[tuple[str, str | None, str | None]] = []
    open, most = 0, Counter[str]()

    def __init__(self, spec: RunSpec, plugins: Plugins, context: RunContext, gpu: str | None):
        self.spec, self.pipe, self.device = spec, None, context.device
        self.started.append((context.device, context.encoding_device, gpu))
        now = sum(one == context.device for one, _, _ in self.started[FakeRun.open :])
        FakeRun.most[context.device] = max(FakeRun.most[context.device], now)

    def next_event(self) -> Event:
        return Done(0.5, 1.0)

    def stop(self) -> None:
        FakeRun.open += 1


@pytest.fixture
def fake_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """16 cores and two GPUs."""
    FakeRun.started, FakeRun.open, FakeRun.most = [], 0, Counter()
    monkeypatch.setattr(local, "SealedRun", FakeRun)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr("ssmlbench.core.cpu.core_count", lambda: 16)


def made(tmp_path: Path, runs: list[RunSpec], device: str = "auto", **typed: Any) -> Dispatch:
    dispatch = Dispatch(RunContext(tmp_path, device), **typed)
    plan = dispatch.plan(runs, PLUGINS)
    summary = dispatch.run(plan)
    assert summary.done == len(runs)  # type: ignore[union-attr]
    return dispatch


@pytest.mark.usefixtures("fake_machine")
def test_the_engine_gives_encoders_a_gpu_and_heads_a_core(tmp_path: Path) -> None:
    made(tmp_path, specs(20, 3))
    on_gpus = [(device, gpu) for device, encodes, gpu in FakeRun.started if encodes is None]
    assert on_gpus == [("auto", "0"), ("auto", "1"), ("auto", "0")]
    heads = [(device, gpu) for device, encodes, gpu in FakeRun.started if encodes == "auto"]
    assert set(heads) == {("cpu", "0"), ("cpu", "1")}  # the GPU encodes, the core trains
    assert len(heads) == 20
    assert FakeRun.most == {"auto": 2, "cpu": 14}


@pytest.mark.usefixtures("fake_machine")
def test_a_named_gpu_is_the_only_one_that_its_runs_see(tmp_path: Path) -> None:
    made(tmp_path, specs(1, 3), "cuda:1")
    assert set(FakeRun.started) == {("cuda", None, "1")}
    assert FakeRun.most == {"cuda": 1}


@pytest.mark.usefixtures("fake_machine")
@pytest.mark.parametrize(
    ("typed", "most"), [({"jobs": 3}, 3), ({"options": {"jobs-per-gpu": "4"}}, 8)]
)
def test_typed_numbers_of_runs_hold(tmp_path: Path, typed: dict[str, Any], most: int) -> None:
    made(tmp_path, specs(0, 9), **typed)
    assert FakeRun.most == {"auto": most}


@pytest.mark.usefixtures("fake_machine")
@pytest.mark.parametrize("value", ["0", "two", "-1", "1.5"])
def test_jobs_per_gpu_is_a_number(tmp_path: Path, value: str) -> None:
    with pytest.raises(UserError, match=f"--jobs-per-gpu {value}: must be a number"):
        Dispatch(RunContext(tmp_path), options={"jobs-per-gpu": value}).check()


@pytest.mark.usefixtures("fake_machine")
def test_jobs_and_jobs_per_gpu_exclude_each_other(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="both given"):
        Dispatch(RunContext(tmp_path), jobs=2, options={"jobs-per-gpu": "2"}).check()


def test_jobs_per_gpu_needs_gpus(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="--jobs-per-gpu 2: the runs are not made on GPUs here"):
        Dispatch(RunContext(tmp_path, "cpu"), options={"jobs-per-gpu": "2"}).check()


@pytest.mark.parametrize("engine", ["ray", "slurm"])
def test_a_cluster_chooses_the_gpu_itself(tmp_path: Path, engine: str) -> None:
    pytest.importorskip({"ray": "ray", "slurm": "submitit"}[engine])
    with pytest.raises(UserError, match=f"--device cuda:1: --engine {engine} gives each run"):
        Dispatch(RunContext(tmp_path, "cuda:1"), engine).check()


def test_jobs_may_be_more_than_the_memory_has_room_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`--jobs 100000000` made a set of all slots, for one run."""
    monkeypatch.setattr(local, "SealedRun", lambda spec, *_: spec)
    context = RunContext(tmp_path, "cpu", 1)
    two = [Lane([RunSpec("bce", "x", seed=seed) for seed in range(2)], context, 10**15)]
    pool = local.RunPool(PLUGINS, Machine("cpu", 2, 0), two, 10**15)
    assert pool._start_more()
    assert [each.slot for each in pool.running] == [0, 1]
