"""Images per second of one core, beside torchvision v2 in a DataLoader on the same JPEG files.

    python benchmarks/bench_images.py [FOLDER OF .jpg FILES]

Times are of the processes' own work, whatever else the machine does; each figure is the median of
several rounds in which all paths take turns. A first epoch decodes, writes the cache and reads it;
`exact` and `scaled` are first epochs with --no-fast-resize and with --scaled-decoding.
Batches are uint8: the encoder normalises them, on its device.
"""

from __future__ import annotations

import io
import os
import resource
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset

from ssmlbench.core.freed_memory import freed_memory_kept
from ssmlbench.data import Card
from ssmlbench.inputs.decoded import DecodedImages, DecodedInputs
from ssmlbench.inputs.decoding import Shortcuts, SquareDecoder
from ssmlbench.inputs.encoders.images import IMAGENET_DEVIATION as DEVIATION
from ssmlbench.inputs.encoders.images import IMAGENET_MEAN as MEAN
from ssmlbench.inputs.torchvision_compat import declare_missing_operators
from ssmlbench.inputs.views import natural_views

IMAGES, BATCH, SIZE, ROUNDS = 192, 64, 224, 3
FAST = Shortcuts(fast_resize=True)
FIRST_EPOCHS = {"first": FAST, "exact": Shortcuts(), "scaled": Shortcuts(True, True)}
BARS = {"first": "1.5", "exact": "", "scaled": "", "later": "5.0"}


def photographs(count: int) -> list[bytes]:
    """JPEG files of 640 × 480 with the detail of photographs: about 100 kB each."""
    draw = np.random.default_rng(0)
    files = []
    for _ in range(count):
        coarse = Image.fromarray(draw.integers(0, 256, (30, 40, 3)).astype(np.uint8))
        smooth = np.asarray(coarse.resize((640, 480), Image.Resampling.BICUBIC)).astype(int)
        detail = smooth + draw.integers(-8, 8, (480, 640, 1))
        content = io.BytesIO()
        Image.fromarray(detail.clip(0, 255).astype(np.uint8)).save(content, "JPEG", quality=90)
        files.append(content.getvalue())
    return files


class Photographs(Dataset[torch.Tensor]):
    """The files as torchvision's own examples read them."""

    def __init__(self, files: list[bytes], transform: Callable[[Any], torch.Tensor]):
        self.files = files
        self.transform = transform

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, row: int) -> torch.Tensor:
        return self.transform(Image.open(io.BytesIO(self.files[row])).convert("RGB"))


def transforms() -> dict[str, Callable[[Any], torch.Tensor]]:
    """torchvision's pipelines as its examples end, in floats, and as ours ends, in uint8."""
    declare_missing_operators()
    from torchvision.transforms import v2

    mirror, squash, pixels = v2.RandomHorizontalFlip(), v2.Resize((SIZE, SIZE)), v2.PILToTensor()
    floats = [v2.ToDtype(torch.float32, scale=True), v2.Normalize(MEAN, DEVIATION)]
    return {
        "weak": v2.Compose([squash, mirror, pixels, *floats]),
        "weak, uint8": v2.Compose([squash, mirror, pixels]),
        "strong": v2.Compose([squash, mirror, v2.RandAugment(), pixels, *floats]),
        "strong, uint8": v2.Compose([squash, mirror, v2.RandAugment(), pixels]),
    }


def epoch(inputs: DecodedInputs, view: str) -> None:
    draw = torch.Generator().manual_seed(0)
    order = np.random.default_rng(0).permutation(len(inputs))
    for start in range(0, len(order), BATCH):
        inputs.view(order[start : start + BATCH], view, draw)


def work() -> float:
    """CPU seconds of this process and of its children that have ended."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


def paths(files: list[bytes]) -> Iterator[tuple[str, Callable[[], None]]]:
    """What is measured, by name."""
    card = Card("bench", "image", 1, ["a"], {}, {}, "bench", True)
    views = natural_views(flips=True)

    def opened(shortcuts: Shortcuts = FAST) -> DecodedInputs:
        decoder = SquareDecoder(files, SIZE, shortcuts=shortcuts)  # type: ignore[arg-type]
        images = DecodedImages(decoder, card, "train")
        assert images.available()
        return DecodedInputs(images, views)

    def first(view: str, shortcuts: Shortcuts) -> None:
        with tempfile.TemporaryDirectory() as folder:
            os.environ["SSMLBENCH_CACHE"] = folder
            with freed_memory_kept():  # as a run loads its inputs
                inputs = opened(shortcuts)
            epoch(inputs, view)

    def loader(transform: Callable[[Any], torch.Tensor]) -> None:
        for _ in DataLoader(Photographs(files, transform), BATCH, shuffle=True, num_workers=1):
            pass

    for name, transform in transforms().items():
        yield f"v2 {name}", partial(loader, transform)
    for view in ("weak", "strong"):
        for name, shortcuts in FIRST_EPOCHS.items():
            yield f"{name} {view}", partial(first, view, shortcuts)
    with tempfile.TemporaryDirectory() as folder:
        os.environ["SSMLBENCH_CACHE"] = folder
        kept = opened()
        epoch(kept, "weak")  # compares the checksums
        for view in ("weak", "strong"):
            yield f"later {view}", partial(epoch, kept, view)


def measure(files: list[bytes]) -> dict[str, float]:
    """Milliseconds of one core for an image, by path."""
    measured: dict[str, list[float]] = {}
    for _ in range(ROUNDS):
        for name, run in paths(files):
            began = work()
            run()
            measured.setdefault(name, []).append((work() - began) / len(files) * 1e3)
    return {name: statistics.median(values) for name, values in measured.items()}


def main() -> None:
    torch.set_num_threads(1)
    if len(sys.argv) > 1 and Path(sys.argv[-1]).is_dir():
        found = sorted(Path(sys.argv[-1]).glob("*.jpg"))[:IMAGES]
        if not found:
            sys.exit(f"{sys.argv[-1]}: there is no .jpg file in this folder")
        files, what = [file.read_bytes() for file in found], f"files of {sys.argv[-1]}"
    else:
        files, what = photographs(IMAGES), "files of 640 × 480"
    kilobytes = statistics.mean(map(len, files)) / 1e3
    print(f"{len(files)} JPEG {what}, {kilobytes:.0f} kB each, squashed to {SIZE} px")
    cost = measure(files)
    print("view     epoch   ms an image   × v2   × v2 to uint8   bar")
    for view in ("weak", "strong"):
        print(
            f"{view:8} {'v2':6} {cost[f'v2 {view}']:9.2f}  (to uint8 {cost[f'v2 {view}, uint8']:.2f})"
        )
        for when, bar in BARS.items():
            own = cost[f"{when} {view}"]
            ratios = [cost[f"v2 {view}{kind}"] / own for kind in ("", ", uint8")]
            print(f"{view:8} {when:6} {own:9.2f} {ratios[0]:10.1f} {ratios[1]:12.1f} {bar:>9}")


if __name__ == "__main__":
    main()
