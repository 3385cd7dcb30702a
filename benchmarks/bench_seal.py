"""What a sealed run costs over the same run in one process, and what a fresh process costs."""

from __future__ import annotations

import statistics
import tempfile
import time
from pathlib import Path

from ssmlbench.core.events import Done
from ssmlbench.grid.run_one import run_here, run_one
from ssmlbench.plugins.loader import Plugins
from ssmlbench.runs.context import RunContext
from ssmlbench.runs.fork_server import fork_server
from ssmlbench.runs.resolve import resolve

REPEATS = 5
RUN_SECONDS = 120  # the bar is a share of a run of two minutes


def seconds(make, plugins: Plugins, folder: Path, epochs: int, seed: int) -> float:  # type: ignore[no-untyped-def]
    spec = resolve(
        plugins, {}, method="cap", dataset="multidigits", pi=0.05, epochs=epochs, seed=seed
    )
    began = time.perf_counter()
    last = make(spec, plugins, RunContext(folder, "cpu", 1), lambda event: None)
    assert isinstance(last, Done), last
    return time.perf_counter() - began


def main() -> None:
    plugins = Plugins()
    fork_server()
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        seconds(run_here, plugins, root / "warm", 1, 0)  # data prepared, server ready
        seconds(run_one, plugins, root / "warm", 1, 1)
        extra = []
        for epochs in (1, 6):
            pairs = [
                (
                    seconds(run_one, plugins, root / "sealed", epochs, seed),
                    seconds(run_here, plugins, root / "here", epochs, seed),
                )
                for seed in range(REPEATS)
            ]
            extra.append(statistics.median(sealed - here for sealed, here in pairs))
    start, of_six = extra
    per_epoch = (of_six - start) / 5
    print(f"a run in fresh, sealed processes: {start:.2f} s more than in one process (bar: 0.3 s)")
    share = max(of_six, start) / RUN_SECONDS
    print(f"of a run of two minutes: {100 * share:.2f} % (bar: 2 %); per epoch {per_epoch:+.3f} s")


if __name__ == "__main__":
    main()
