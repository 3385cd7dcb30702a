"""Precision is part of what a run is: asked for, with a default per device, refused where it is missing."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from ssmlbench.checks.toy import same_bits, spec_for, toy, train
from ssmlbench.core.errors import UserError
from ssmlbench.plugins.loader import Plugins
from ssmlbench.training.device import default_precision, mixed_precision, precisions_of


def pretend_cuda(monkeypatch: pytest.MonkeyPatch, bfloat16: bool) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda: bfloat16)


@pytest.mark.parametrize(("bfloat16", "expected"), [(True, "bfloat16"), (False, "float16")])
def test_a_gpu_trains_in_the_shortest_precision_that_it_has(
    monkeypatch: pytest.MonkeyPatch, bfloat16: bool, expected: str
) -> None:
    pretend_cuda(monkeypatch, bfloat16)
    assert default_precision("auto") == default_precision("cuda") == expected
    assert default_precision("cpu") == "float32"


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
