"""Where and with what a run is made. Free of torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from ssmlbench.core.commands import Sources


@dataclass(frozen=True)
class RunContext:
    """Where and with what a run is made; nothing here is part of its spec."""

    results: Path
    device: str = "auto"
    threads: int | None = None  # CPU threads of a run; None: the number its encoder declares
    workers: int | None = 0  # threads that read and decode inputs; None: the cores of its machine
    time_limit: float | None = None  # seconds that a run may train; None: no limit
    cores: int | None = None  # the run's share of the cores, for an encoder that declares no number
    decoded_cache: bool = True  # decoded images are kept on disk, for all runs
    keep_model: bool | None = None  # whether its model is stored; None: unless it is large
    keep_features: bool = False  # whether the judge's last sample of features is stored
    micro_batch: int | None = None  # rows in the encoder at a time; None: all of a step
    checkpoint_activations: bool = False  # recompute the activations of the encoder's blocks
    gpus: int = 1  # devices that share one run; on a CPU, processes
    encoding_device: str | None = None  # of frozen encoders; None: the run's
    typed: tuple[str, ...] = ()  # options of the command that its runs share, for `sources`
    sources: Mapping[str, Sources] = field(default_factory=dict)  # by data set, for result.json
