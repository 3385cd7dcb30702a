"""The cores and GPUs of this machine, and how many runs it makes at the same time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ssmlbench.core.spec import RunSpec

if TYPE_CHECKING:
    from ssmlbench.plugins.loader import Plugins
    from ssmlbench.runs.context import RunContext


@dataclass(frozen=True)
class Machine:
    """The resources of this machine."""

    device: str  # cpu, cuda or mps
    cores: int
    gpus: int  # 0 if the device is not cuda

    @classmethod
    def here(cls, device: str) -> Machine:
        """This machine with the device typed, which may be auto; a UserError if it is not available."""
        import torch

        from ssmlbench.core.cpu import core_count
        from ssmlbench.training.device import pick_device

        kind = pick_device(device).type
        return cls(kind, core_count(), torch.cuda.device_count() if kind == "cuda" else 0)

    def jobs(self, threads: Sequence[int | None]) -> int:
        """Runs to make at a time. threads: CPU threads of each run; None: all cores.

        One for each GPU; on a CPU as many as the cores allow, by the run with the most threads.
        """
        runs = max(1, len(threads))
        if self.device != "cpu":
            return min(runs, max(1, self.gpus))
        widest = max((wanted or self.cores for wanted in threads), default=1)
        return min(runs, max(1, self.cores // widest))


def threads_wanted(
    specs: Sequence[RunSpec], plugins: Plugins, context: RunContext
) -> list[int | None]:
    """CPU threads of each run; None for one that takes its share of the cores."""
    from ssmlbench.runs.train import threads_of

    return [threads_of(spec, plugins, context) for spec in specs]
