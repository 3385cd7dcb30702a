"""Runs repeat their bits by default; what keeps one from it is chosen with --fast, or recorded."""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from ssmlbench.checks.toy import same_bits, spec_for, toy, train
from ssmlbench.core.errors import UserError
from ssmlbench.kit.losses import bce
from ssmlbench.kit.method import Method
from ssmlbench.kit.pools import Batch
from ssmlbench.training.repeatable import (
    check_fast,
    cpu_kernels,
    make_repeatable,
    nondeterminism_text,
    record_nondeterminism,
)

CUDA, CPU = torch.device("cuda"), torch.device("cpu")


def flags() -> dict[str, Any]:
    """Every setting of torch that decides whether CUDA repeats its bits."""
    return {
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        "autotuning": torch.backends.cudnn.benchmark,
        "TF32 convolutions": torch.backends.cudnn.allow_tf32,
        "TF32 products": torch.backends.cuda.matmul.allow_tf32,
        "flash": torch.backends.cuda.flash_sdp_enabled(),
        "memory-efficient": torch.backends.cuda.mem_efficient_sdp_enabled(),
        "cudnn attention": torch.backends.cuda.cudnn_sdp_enabled(),
        "math": torch.backends.cuda.math_sdp_enabled(),
    }


@pytest.fixture(autouse=True)
def _restored() -> Iterator[None]:
    """Leave torch as it was."""
    kept = flags()
    yield
    make_repeatable(None)
    torch.use_deterministic_algorithms(kept["deterministic"], warn_only=True)
    torch.backends.cudnn.allow_tf32 = kept["TF32 convolutions"]
    torch.backends.cuda.matmul.allow_tf32 = kept["TF32 products"]
    torch.backends.cuda.enable_flash_sdp(kept["flash"])
    torch.backends.cuda.enable_mem_efficient_sdp(kept["memory-efficient"])
    torch.backends.cuda.enable_cudnn_sdp(kept["cudnn attention"])


def test_on_cuda_only_kernels_that_repeat_themselves_are_left() -> None:
    make_repeatable(None, CUDA)
    assert {name for name, on in flags().items() if on} == {"deterministic", "math"}


def test_cublas_gets_a_workspace_of_fixed_size_unless_one_was_chosen(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Without it, torch's deterministic algorithms warn of every matrix product on CUDA."""
    monkeypatch.delenv("CUBLAS_WORKSPACE_CONFIG", raising=False)
    for chosen, expected in ((None, ":4096:8"), (":16:8", ":16:8")):
        if chosen:
            monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", chosen)
        make_repeatable(None, CUDA)
        assert os.environ["CUBLAS_WORKSPACE_CONFIG"] == expected


def test_fast_allows_every_kernel() -> None:
    make_repeatable(None, CUDA, fast=True)
    assert {name for name, on in flags().items() if not on} == {"deterministic"}


def test_the_cpu_keeps_its_own_attention_kernel() -> None:
    """Its fused kernel repeats itself, and cached features were made with it."""
    before = flags()
    make_repeatable(None, CPU)
    after = flags()
    assert {name for name in after if after[name] != before[name]} <= {"deterministic"}
    assert after["flash"]


@pytest.mark.parametrize("kind", ["cpu", "mps"])
def test_fast_is_refused_where_it_would_change_nothing(kind: str) -> None:
    check_fast(CUDA, True)
    check_fast(torch.device(kind), False)
    with pytest.raises(
        UserError, match=f"--fast: chooses kernels of CUDA, and this run is on {kind}"
    ):
        check_fast(torch.device(kind), True)


@pytest.mark.parametrize("filtered", [False, True])
def test_operations_that_torch_calls_not_deterministic_are_recorded(filtered: bool) -> None:
    make_repeatable(None)
    with warnings.catch_warnings():
        if filtered:  # as the command line does with torch's warnings
            warnings.filterwarnings("ignore", category=UserWarning)
        for _ in range(2):  # a second run in the same process is told too
            with record_nondeterminism() as recorded:
                for _ in range(3):
                    torch.zeros(3).put_(torch.tensor([1, 1]), torch.tensor([1.0, 2.0]))
            assert recorded == ["put_"]
    assert "put_ has no deterministic form" in nondeterminism_text(recorded)


def test_other_warnings_pass_through() -> None:
    told = "Memory Efficient attention defaults to a non-deterministic algorithm. More."
    with warnings.catch_warnings(record=True) as shown, record_nondeterminism() as recorded:
        warnings.simplefilter("always")
        warnings.warn("something else", UserWarning, stacklevel=1)
        warnings.warn(told, UserWarning, stacklevel=1)
    assert [str(one.message) for one in shown] == ["something else"]
    assert recorded == ["Memory Efficient attention defaults to a non-deterministic algorithm"]


def test_fast_is_named_first() -> None:
    with record_nondeterminism(fast=True) as recorded:
        pass
    assert recorded == ["--fast"]
    assert nondeterminism_text(recorded).startswith("made with --fast")


class Scatters(Method):
    """Uses an operation without a deterministic form, on every device."""

    name = "scatters"
    unlabelled_views = ()

    def loss(self, labelled: Batch, unlabelled: Batch | None) -> dict[str, Tensor]:
        """Cross-entropy, with a detour."""
        self.seen = torch.zeros(9).put_(torch.tensor([1, 2]), torch.tensor([1.0, 2.0]))
        return {"labelled": bce(labelled.logits("strong"), labelled.observed).mean()}


def test_a_result_says_what_may_not_repeat(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from ssmlbench import run

    monkeypatch.setenv("SSMLBENCH_CACHE", str(tmp_path / "cache"))
    results = {
        name: run(
            method, "multidigits", pi=0.1, epochs=1, epoch_steps=1, results=tmp_path / "results"
        )
        for name, method in (("plain", "bce"), ("scattering", Scatters))
    }
    found = {
        name: json.loads((Path(result.folder) / "result.json").read_text())["made_with"]
        for name, result in results.items()
    }
    assert found["plain"]["nondeterministic"] == []
    assert found["plain"]["cpu_kernels"] == cpu_kernels()
    assert found["scattering"]["nondeterministic"] == ["put_"]


def test_kernels_are_named_by_library_and_each_once(monkeypatch: pytest.MonkeyPatch) -> None:
    libraries = [
        {"internal_api": "openblas", "architecture": "SkylakeX"},
        {"internal_api": "openmp"},
        {"internal_api": "openblas", "architecture": "SkylakeX"},
        {"internal_api": "blis", "architecture": "zen"},
    ]
    monkeypatch.setattr("ssmlbench.training.repeatable.threadpool_info", lambda: libraries)
    chosen_by_torch = torch.backends.cpu.get_cpu_capability()
    assert cpu_kernels() == f"torch {chosen_by_torch}, openblas SkylakeX, blis zen"


def test_a_run_is_the_same_with_the_noting_around_it() -> None:
    spec, data = spec_for(Scatters, "semi"), toy("vector")
    plain = train(Scatters, data, spec)
    with record_nondeterminism():
        assert same_bits(plain, train(Scatters, data, spec))
