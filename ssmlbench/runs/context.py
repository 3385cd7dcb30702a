"""Where and with what a run is made. Free of torch."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class RunContext:
    """Where and with what a run is made; nothing here changes its number."""

    results: Path
    device: str = "auto"
    threads: int | None = None  # CPU threads of a run; None: what its encoder says
    workers: int = 0  # threads that read inputs which are too many for memory
    cores: int | None = None  # its share of them, for an encoder that can use several
