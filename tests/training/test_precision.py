"""Precision is part of what a run is: asked for, with a default per device, refused where it is missing."""

from __future__ import annotations

import dataclasses
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from ssmlbench.checks.toy import same_bits, spec_for, toy, train
from ssmlbench.core.errors import UserError
from ssmlbench.core.spec_checks import check_spec
from ssmlbench.grid.dispatch import Dispatch
from ssmlbench.grid.request import GridRequest, requested_specs
from ssmlbench.plugins.loader import Plugins
from ssmlbench.runs.context import RunContext
from ssmlbench.training import model
from ssmlbench.training.device import (
    check_device_name,
    default_precision,
    mixed_precision,
    pick_device,
    precisions_of,
)
from tests.training.test_simulated_device import Killed, killed_after


def pretend_cuda(monkeypatch: pytest.MonkeyPatch, bfloat16: bool) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    # As on a T4, which torch says to support bfloat16: it emulates it.
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation=True: True)
    about = SimpleNamespace(major=8 if bfloat16 else 7)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: about)


@pytest.mark.parametrize(("bfloat16", "expected"), [(True, "bfloat16"), (False, "float16")])
def test_a_gpu_trains_in_the_shortest_precision_that_it_has(
    monkeypatch: pytest.MonkeyPatch, bfloat16: bool, expected: str
) -> None:
    pretend_cuda(monkeypatch, bfloat16)
    assert default_precision("auto") == default_precision("cuda") == expected
    assert default_precision("cpu") == "float32"


@pytest.mark.parametrize("typed", [{}, {"precision": "auto"}])
def test_auto_is_the_precision_of_the_device_for_encoders_alone(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, typed: dict[str, str]
) -> None:
    """Heads on fixed features stay in float32: the same spec, and the same folder, on every machine."""
    pretend_cuda(monkeypatch, bfloat16=True)
    dispatch = Dispatch(RunContext(tmp_path))
    chosen = {}
    for freeze in (False, True):
        values = {"method": ("bce",), "dataset": ("multidigits",), "pi": (0.1,), "freeze": freeze}
        request = GridRequest({**values, **typed})
        specs = requested_specs(request, Plugins(()), dispatch, lambda adapter: None)
        chosen[freeze] = [spec.precision for spec in specs]
    assert chosen == {False: ["bfloat16"], True: ["float32"]}


def test_a_typed_precision_holds_for_all_runs_and_auto_is_no_value_of_a_spec(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    pretend_cuda(monkeypatch, bfloat16=True)
    values = {"method": ("bce",), "dataset": ("multidigits",), "pi": (0.1,), "freeze": True}
    request = GridRequest({**values, "precision": "float16"})
    (spec,) = requested_specs(
        request, Plugins(()), Dispatch(RunContext(tmp_path)), lambda adapter: None
    )
    assert spec.precision == "float16"
    with pytest.raises(UserError, match="--precision auto: no such choice"):
        check_spec(dataclasses.replace(spec, precision="auto"))


def test_one_gpu_of_several_is_named_by_its_number(monkeypatch: pytest.MonkeyPatch) -> None:
    pretend_cuda(monkeypatch, bfloat16=True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert pick_device("cuda:1") == torch.device("cuda", 1)
    assert default_precision("cuda:1") == default_precision("cuda:1", here=False) == "bfloat16"
    with pytest.raises(UserError, match="--device cuda:2: this machine has cuda:0 to cuda:1"):
        pick_device("cuda:2")
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    with pytest.raises(UserError, match="--device cuda:1: this machine has only cuda:0"):
        pick_device("cuda:1")


@pytest.mark.parametrize(
    "name", ["gpu", "cuda:", "cuda:-1", "cuda:a", "cpu:0", "mps:1", "", "auto:0"]
)
def test_a_name_of_no_device_is_refused_on_every_engine(name: str) -> None:
    for check in (pick_device, check_device_name):
        with pytest.raises(UserError, match="must be one of auto, cpu, cuda, mps, or one GPU"):
            check(name)


def test_each_gpu_has_its_own_precisions(monkeypatch: pytest.MonkeyPatch) -> None:
    pretend_cuda(monkeypatch, bfloat16=True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    kinds = {0: SimpleNamespace(major=9), 1: SimpleNamespace(major=7)}
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: kinds[device.index])
    assert default_precision("cuda:0") == "bfloat16"
    assert default_precision("cuda:1") == "float16"


def test_on_a_cluster_only_a_named_gpu_means_bfloat16() -> None:
    assert default_precision("auto", here=False) == "float32"
    assert default_precision("cpu", here=False) == "float32"
    assert default_precision("cuda", here=False) == "bfloat16"


def test_a_precision_that_a_device_lacks_is_refused_in_one_line(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with pytest.raises(UserError, match="--precision float16: not available on cpu") as refused:
        mixed_precision(torch.device("cpu"), "float16")
    assert "--precision float32 or bfloat16" in str(refused.value)
    with pytest.raises(UserError, match="bfloat16: not available on mps"):
        mixed_precision(torch.device("mps"), "bfloat16")
    pretend_cuda(monkeypatch, bfloat16=False)
    with pytest.raises(UserError, match="bfloat16: not available on cuda"):
        mixed_precision(torch.device("cuda"), "bfloat16")


def test_only_float16_scales_its_loss(monkeypatch: pytest.MonkeyPatch) -> None:
    pretend_cuda(monkeypatch, bfloat16=True)
    cuda = torch.device("cuda")
    scaled = {kind for kind in precisions_of(cuda) if mixed_precision(cuda, kind)[1] is not None}
    assert scaled == {"float16"}


def test_the_scale_of_float16_follows_the_steps_also_across_a_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scalers: list[torch.amp.GradScaler] = []

    def scaled(device: torch.device, precision: str) -> tuple[Any, torch.amp.GradScaler]:
        scalers.append(torch.amp.GradScaler("cpu", init_scale=1.0, growth_interval=2))
        return nullcontext, scalers[-1]

    monkeypatch.setattr(model, "mixed_precision", scaled)
    bce, data = Plugins(()).methods["bce"], toy("vector")
    spec = spec_for(bce, "semi", epochs=3, warmup_epochs=1)
    whole = train(bce, data, spec)
    expected = 2.0 ** (whole.steps // 2)  # it doubles after every two steps without an overflow
    assert scalers[-1].get_scale() == expected
    with pytest.raises(Killed):
        train(bce, data, spec, folder=tmp_path, notify=killed_after(3))
    assert same_bits(whole, train(bce, data, spec, folder=tmp_path))
    assert scalers[-1].get_scale() == expected


def test_bfloat16_gives_other_numbers_than_float32_and_repeats_itself() -> None:
    bce = Plugins(()).methods["bce"]
    exact = spec_for(bce, "semi", projection="mlp")  # the head alone is always in float32
    short = dataclasses.replace(exact, precision="bfloat16")
    data = toy("vector")
    first, again = train(bce, data, short), train(bce, data, short)
    assert same_bits(first, again)
    assert first.precision == "bfloat16"
    difference = abs(first.scores - train(bce, data, exact).scores).max()
    assert 0 < difference < 0.05  # bfloat16 has 8 bits of mantissa
    assert short.hash != exact.hash
