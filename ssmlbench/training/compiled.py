"""Encoders compiled by torch, for passes over whole pools (`--compile`); steps stay as they are."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import cast

import torch
from torch import Tensor, nn

from ssmlbench.training.out_of_memory import is_out_of_memory


class CompiledEncoders:
    """Compiles an encoder before its first pass; after a failure, encoders run uncompiled."""

    def __init__(self, warn: Callable[[str], None] = lambda text: None):
        """warn: called once if an encoder cannot be compiled."""
        self.warn = warn
        # Its warnings are tracebacks about the encoder's code; what fails is said by `warn`.
        logging.getLogger("torch._dynamo").setLevel(logging.ERROR)
        self._compiled: dict[nn.Module, nn.Module] = {}
        self._works = True

    def run(self, encoder: nn.Module, run: Callable[[nn.Module], Tensor]) -> Tensor:
        """The result of `run` on the compiled encoder."""
        if not self._works:
            return run(encoder)
        try:
            if encoder not in self._compiled:
                self._compiled[encoder] = cast(nn.Module, torch.compile(encoder))
            return run(self._compiled[encoder])
        except Exception as error:  # torch's compiler, a C++ compiler and Triton raise their own
            if is_out_of_memory(error):
                raise
            self._works = False
            text = f"--compile: not available here, the encoder runs as it is ({_summary(error)})"
            self.warn(text)
            return run(encoder)


def _summary(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0][:120]}" if lines else type(error).__name__
