"""`--compile`: passes over whole pools go through a compiled encoder, steps do not."""

from __future__ import annotations

import dataclasses
import logging
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from ssmlbench.checks.toy import same_bits, spec_for, toy, train
from ssmlbench.core.errors import UserError
from ssmlbench.core.events import Event, Warned
from ssmlbench.core.spec import SETTING
from ssmlbench.plugins.loader import Plugins
from ssmlbench.training.compiled import CompiledEncoders

CAP: Any = Plugins().methods["cap"]


def spec(**changes: Any) -> Any:
    return spec_for(CAP, "semi", epochs=2, warmup_epochs=1, **changes)


class Wrapped(nn.Module):
    """What a compiler returns, without compiling: it counts its calls."""

    made: list[Wrapped] = []

    def __init__(self, encoder: nn.Module):
        super().__init__()
        self.encoder, self.calls = encoder, 0
        self.made.append(self)

    def forward(self, inputs: Tensor) -> Any:
        assert not torch.is_grad_enabled()
        self.calls += 1
        return self.encoder(inputs)


def test_passes_over_pools_go_through_the_compiled_encoder(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = train(CAP, toy("image"), spec())
    monkeypatch.setattr(Wrapped, "made", [])
    monkeypatch.setattr(torch, "compile", Wrapped)
    found = train(CAP, toy("image"), spec(compile=True))
    assert [one.calls > 1 for one in Wrapped.made] == [
        True
    ]  # the averaged network's, compiled once
    assert same_bits(plain, found)


def test_warnings_of_the_compiler_are_not_shown() -> None:
    CompiledEncoders()
    log = logging.getLogger("torch._dynamo.variables.tensor")
    assert not log.isEnabledFor(logging.WARNING)
    assert log.isEnabledFor(logging.ERROR)


def test_where_it_cannot_be_compiled_the_run_says_so_once_and_goes_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def compile_(encoder: nn.Module) -> nn.Module:
        raise RuntimeError("no C++ compiler\nand a long text")

    monkeypatch.setattr(torch, "compile", compile_)
    events: list[Event] = []
    found = train(CAP, toy("image"), spec(compile=True), notify=events.append)
    said = [event.text for event in events if isinstance(event, Warned)]
    assert [text for text in said if "--compile" in text] == [
        "--compile: not available here, the encoder runs as it is (RuntimeError: no C++ compiler)"
    ]
    assert same_bits(train(CAP, toy("image"), spec()), found)


def test_a_lack_of_memory_is_no_reason_to_run_uncompiled() -> None:
    """The pass is made again in smaller pieces, by the compiled encoder."""

    def without_memory(encoder: nn.Module) -> Tensor:
        raise torch.OutOfMemoryError("simulated: out of memory")

    compiled, encoder = CompiledEncoders(pytest.fail), nn.Identity()
    compiled._compiled[encoder] = encoder  # as after a first pass
    with pytest.raises(torch.OutOfMemoryError):
        compiled.run(encoder, without_memory)
    assert compiled._works


def test_heads_on_fixed_features_have_nothing_to_compile() -> None:
    with pytest.raises(UserError, match="no encoder to compile"):
        train(CAP, toy("vector"), spec(compile=True))


def test_it_is_part_of_what_a_board_compares_by_and_of_the_hash() -> None:
    assert "compile" in SETTING
    assert dataclasses.replace(spec(), compile=True).hash != spec().hash
