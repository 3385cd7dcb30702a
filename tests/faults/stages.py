"""Each kind of file that a command leaves for a later one, and the two commands: a table for faults."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ssmlbench.core.events import Event, Warned
from ssmlbench.data import Task, prepare
from ssmlbench.inputs.decoded import DecodedImages
from ssmlbench.inputs.decoding import SquareDecoder
from ssmlbench.inputs.encoders import find_encoder
from ssmlbench.inputs.frozen import FrozenEncoder
from ssmlbench.runs import finished
from ssmlbench.runs.diagnostics import SAMPLE_FILE, Diagnostics
from ssmlbench.runs.finished import read_finished
from ssmlbench.runs.folder import RunFolder
from ssmlbench.runs.predict import predict_rows
from ssmlbench.runs.saved_model import SavedModel
from tests.faults.world import FINISHED, TEXTS, Said, World, attempt

SIZE = 16


@dataclass(frozen=True)
class Stage:
    """Files of one kind, the command that reads them back, and the one that makes them."""

    files: str  # a pattern below the root
    use: Callable[[World], Said]
    make: Callable[[World], Said] | None = None  # None: `use` makes what is missing
    named: bool = True  # False: a copy that is left out without a word
    gone: str = ""  # a pattern of folders that are deleted with the files, to have all made anew

    def again(self, world: World) -> Said:
        """Make what is missing, then use it."""
        if self.make is None:
            return self.use(world)
        made = self.make(world)
        return self.use(world) if made.value is not None else made


def features(world: World) -> Said:
    """The frozen features of the finished run's data."""
    spec, task = world.spec(FINISHED), _task(world, "tiny-text")
    encoder = find_encoder(world.plugins.encoders, spec.backbone, "text")

    def read(notify: Any) -> bytes:
        frozen = FrozenEncoder(spec, encoder, task, _cpu(), notify=notify)
        shards = frozen.computed("train", "plain").shards()
        return b"".join(np.load(shard).tobytes() for shard in shards)

    return _heard(read)


def fitted_encoder(world: World) -> Said:
    """What the encoder of the finished run has learnt from its texts."""
    spec, task = world.spec(FINISHED), _task(world, "tiny-text")
    encoder = find_encoder(world.plugins.encoders, spec.backbone, "text")

    def read(notify: Any) -> bytes:
        frozen = FrozenEncoder(spec, encoder, task, _cpu(), notify=notify)
        assert frozen.fitted is not encoder
        return frozen.folder("train", "plain", 0).state_file.read_bytes()

    return _heard(read)


def images(world: World) -> Said:
    """The decoded images of a data set."""
    task = _task(world, "tiny-images")

    def read(notify: Any) -> bytes:
        files = task.image_files("train")
        assert files is not None
        decoded = DecodedImages(SquareDecoder(files, SIZE), task.card, "train", 0, notify)
        if not decoded.available():
            return decoded.decoder.decode(np.arange(len(files))).tobytes()
        return decoded.read(np.arange(len(files))).numpy().tobytes()

    return _heard(read)


def diagnostics(world: World) -> Said:
    """What `analyse` reads of the finished run."""

    def read() -> str:
        diagnostics = Diagnostics.read(_folder(world).path)
        return (
            ""
            if diagnostics is None
            else repr(sorted((k, v.tobytes()) for k, v in diagnostics.arrays.items()))
        )

    return attempt(read)


def kept_features(world: World) -> Said:
    """The features that were kept of the finished run, as `doctor` reads them."""

    def read() -> bytes:
        _folder(world).verify(SAMPLE_FILE)
        return (_folder(world).path / SAMPLE_FILE).read_bytes()

    return attempt(read)


def predictions(world: World) -> Said:
    """`ssmlbench predict --out labels.csv`: what is in that file afterwards."""
    out = world.root / "labels.csv"

    def predict() -> bytes:
        model = SavedModel(_folder(world).path, world.plugins, device="cpu")
        predict_rows(model, [(str(row), text) for row, text in enumerate(TEXTS)], out)
        return out.read_bytes()

    return attempt(predict)


def results(world: World) -> Said:
    """All finished runs, read through the index."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(finished, "INDEXED_RUNS", 0)
        return attempt(lambda: repr([run.result for run in read_finished([world.results])[0]]))


def finished_run(world: World) -> Said:
    """`ssmlbench run` of the finished run."""
    return world.run(FINISHED)


RUN = "results/tiny-text/*/cap/*"
STAGES = {
    "frozen features": Stage("cache/features/*-train-plain-*/0*.npy", features),
    "about features": Stage("cache/features/*-train-plain-*/about.json", features),
    "a fitted encoder": Stage("cache/features/*-train-plain-*/*.safetensors", fitted_encoder),
    "decoded images": Stage("cache/decoded/*/0*.npy", images),
    "about images": Stage("cache/decoded/*/about.json", images),
    "the arrays of a model": Stage(
        f"{RUN}/model.safetensors", World.predict, finished_run, gone=RUN
    ),
    "a model's card": Stage(f"{RUN}/model.json", World.predict, finished_run, gone=RUN),
    "diagnostics": Stage(f"{RUN}/diagnostics.safetensors", diagnostics, finished_run, gone=RUN),
    "kept features": Stage(f"{RUN}/{SAMPLE_FILE}", kept_features, finished_run, gone=RUN),
    "a study": Stage("results/.tune/*/*/*/studies/*.json", World.tuned, World.close_study),
    "the index of results": Stage("cache/index/*.sqlite", results, named=False),
    "predictions": Stage("labels.csv", predictions, named=False),
}


def _heard(read: Callable[[Any], Any]) -> Said:
    lines: list[str] = []

    def listen(event: Event) -> None:
        if isinstance(event, Warned):
            lines.append(event.text)

    said = attempt(lambda: read(listen))
    return Said(said.value, lines + said.lines)


def _task(world: World, name: str) -> Task:
    return prepare(world.plugins.datasets[name]())


def _folder(world: World) -> RunFolder:
    return RunFolder.of(world.results, world.spec(FINISHED))


def _cpu() -> Any:
    import torch

    return torch.device("cpu")


def files_of(world: World, stage: Stage) -> list[Path]:
    """The stage's files in a world."""
    return sorted(world.root.glob(stage.files))
