"""The cores and GPUs of this machine, and their division among runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ssmlbench.core.errors import UserError
from ssmlbench.core.spec import RunSpec

if TYPE_CHECKING:
    from ssmlbench.plugins.loader import Plugins
    from ssmlbench.runs.context import RunContext

MOST_GAIN = 6
"""The largest speed-up of a head on fixed features on a GPU: 2 to 6 (benchmarks/bench_heads.py).

With more cores than that per GPU, heads finish sooner on the cores, one on each.
"""


@dataclass(frozen=True)
class Machine:
    """The resources of this machine."""

    device: str  # cpu, cuda or mps
    cores: int
    gpus: int  # that may be used; 0 if the device is not cuda
    first_gpu: int = 0  # of those that this process sees

    @classmethod
    def here(cls, device: str) -> Machine:
        """This machine with a device, which may be auto; a UserError if it is not available."""
        import torch

        from ssmlbench.core.cpu import core_count
        from ssmlbench.training.device import pick_device

        picked = pick_device(device)
        if picked.type != "cuda":
            return cls(picked.type, core_count(), 0)
        if picked.index is not None:
            return cls("cuda", core_count(), 1, picked.index)
        return cls("cuda", core_count(), torch.cuda.device_count())

    def jobs(self, threads: Sequence[int | None]) -> int:
        """Runs to make at a time. threads: CPU threads of each run; None: all cores.

        One for each GPU; on a CPU as many as the cores allow, by the run with the most threads.
        """
        runs = max(1, len(threads))
        if self.device != "cpu":
            return min(runs, max(1, self.gpus))
        widest = max((wanted or self.cores for wanted in threads), default=1)
        return min(runs, max(1, self.cores // widest))

    @property
    def heads_on_cores(self) -> bool:
        """Whether heads on fixed features train faster on the cores than on the GPUs."""
        return self.gpus > 0 and self.cores >= MOST_GAIN * self.gpus

    def gpu(self, slot: int, visible: str | None) -> str | None:
        """The CUDA_VISIBLE_DEVICES with which a run sees one GPU only; None: leave it as it is.

        visible: the present value. slot: the number of the run among those made at a time.
        """
        if not self.gpus:
            return None
        number = self.first_gpu + slot % self.gpus
        return visible.split(",")[number] if visible else str(number)


@dataclass(frozen=True)
class Lane:
    """Runs of one kind, which share the same resources of the machine."""

    specs: Sequence[RunSpec]
    context: RunContext
    jobs: int  # at a time


def threads_wanted(
    specs: Sequence[RunSpec], plugins: Plugins, context: RunContext
) -> list[int | None]:
    """CPU threads of each run; None for one that takes its share of the cores."""
    from ssmlbench.runs.train import threads_of

    return [threads_of(spec, plugins, context) for spec in specs]


def check_encoder_options(specs: Sequence[RunSpec], plugins: Plugins, context: RunContext) -> None:
    """Raise a UserError for options of trained encoders that no run reads, or that a run cannot follow."""
    from ssmlbench.runs.train import on_fixed_features

    fixed = [on_fixed_features(spec, plugins) for spec in specs]
    if context.gpus > 1 and any(fixed):
        raise UserError("--gpus: heads on fixed features train on one device; leave it out")
    given = {
        "--micro-batch": context.micro_batch is not None,
        "--checkpoint-activations": context.checkpoint_activations,
    }
    for option, is_given in given.items():
        if is_given and fixed and all(fixed):
            raise UserError(f"{option}: heads on fixed features train no encoder; leave it out")


def lanes(
    machine: Machine,
    specs: Sequence[RunSpec],
    plugins: Plugins,
    context: RunContext,
    jobs_per_gpu: int | None = None,
) -> list[Lane]:
    """The runs by kind, with the number that is made at a time.

    With `--device auto` on a machine with GPUs, heads on fixed features and estimators are trained on
    the cores if that is faster; a GPU encodes their inputs. jobs_per_gpu: makes all runs on GPUs.
    """
    from ssmlbench.runs.train import on_fixed_features

    heads: list[RunSpec] = []
    if context.device == "auto" and machine.heads_on_cores and jobs_per_gpu is None:
        heads = [spec for spec in specs if on_fixed_features(spec, plugins)]
    chosen = {spec.hash for spec in heads}
    others = [spec for spec in specs if spec.hash not in chosen]
    shared = []
    if others or not heads:
        jobs = machine.jobs(threads_wanted(others, plugins, context))
        if jobs_per_gpu is not None:
            jobs = min(max(1, len(others)), machine.gpus * jobs_per_gpu)
        shared.append(Lane(others, context, jobs))
    if heads:
        # A run on a GPU keeps one core busy.
        free = max(1, machine.cores - sum(lane.jobs for lane in shared))
        on_cores = replace(context, device="cpu", encoding_device=context.device)
        threads = threads_wanted(heads, plugins, on_cores)
        shared.append(Lane(heads, on_cores, Machine("cpu", free, 0).jobs(threads)))
    return shared
