"""Per-epoch statistics and pseudo-labels of CAP and BBAM at 80,000 rows × 80 labels, in seconds."""

from __future__ import annotations

import time

import torch

from ssmlbench.kit.pools import Pool, Pools
from ssmlbench.plugins.loader import Plugins

ROWS, LABELED, LABELS, WIDTH = 80_000, 4_000, 80, 256


def pools() -> Pools:
    torch.manual_seed(0)
    prior = torch.linspace(0.001, 0.3, LABELS, dtype=torch.float64)

    def pool(rows: int, known: bool) -> Pool:
        outputs = {
            "logits": torch.rand(rows, LABELS) * 2 - 1,
            "features": torch.randn(rows, WIDTH),
        }
        observed = (torch.rand(rows, LABELS) < prior).to(torch.int8)
        return Pool(
            observed if known else torch.full_like(observed, -1), prior, lambda *asked: outputs
        )

    return Pools(pool(LABELED, True), pool(ROWS - LABELED, False), epoch=1, epochs=1)


def main() -> None:
    plugins, made, total = Plugins(), pools(), 0.0
    for name in ("cap", "bbam"):
        cls = plugins.methods[name]
        method = cls(cls.Config(), LABELS)
        method.setup(made)
        began = time.perf_counter()
        with torch.no_grad():
            method.start_epoch(made)
        total += time.perf_counter() - began
        print(f"start_epoch of {name}: {time.perf_counter() - began:.2f} s")
    print(f"together {total:.2f} s (bar: under 3 s on two cores)")


if __name__ == "__main__":
    main()
