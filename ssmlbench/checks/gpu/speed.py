"""Measures the speed of the trainer on a device, the time it waits for inputs, and its memory.

Weights and inputs are random: nothing is learnt here, and no file is needed.
"""

from __future__ import annotations

import io
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ssmlbench.checks.gpu.page import Differs
from ssmlbench.checks.gpu.subject import Subject, steps_watched
from ssmlbench.core.counts import counted
from ssmlbench.core.cpu import core_count
from ssmlbench.core.spec import Precision, RunSpec
from ssmlbench.inputs.decoding import Shortcuts, SquareDecoder
from ssmlbench.inputs.encoders import Encoder, EncoderOptions
from ssmlbench.inputs.encoders.huggingface import hugging_face_encoder
from ssmlbench.inputs.encoders.torchvision import torchvision_encoder
from ssmlbench.inputs.splits import Inputs
from ssmlbench.kit.contract import build_method
from ssmlbench.kit.method import Method
from ssmlbench.protocol.judge import Judge
from ssmlbench.protocol.observation import observe
from ssmlbench.protocol.sealed import SealedTruth
from ssmlbench.training.device import peak_memory, reset_peak_memory
from ssmlbench.training.repeatable import make_repeatable
from ssmlbench.training.run_data import RunData
from ssmlbench.training.trainer import Trainer, TrainingContext

LABELS = 80
JPEG_SIZE = (640, 480)


@dataclass(frozen=True)
class Workload:
    """An encoder at one size of its inputs, and the number of steps to measure."""

    backbone: str  # a torchvision model, or "bert": BERT-base, unless `bert` says otherwise
    size: int  # pixels, or tokens
    batch: int
    steps: int
    bert: dict[str, Any] | None = None  # fields of its configuration

    @property
    def is_text(self) -> bool:
        """Whether it reads texts."""
        return self.backbone == "bert"

    @property
    def title(self) -> str:
        """Its name on the page."""
        name = "BERT-base" if self.is_text and not self.bert else self.backbone
        return f"{name} at {self.size} {'tokens' if self.is_text else 'px'}"


ON_GPU = (
    Workload("resnet50", 224, 64, 20),
    Workload("resnet101", 448, 32, 10),
    Workload("bert", 256, 32, 10),
)
ON_CPU = (
    Workload("resnet50", 64, 4, 2),
    Workload("resnet101", 64, 4, 2),
    Workload("bert", 16, 4, 2),
)
"""Small sizes: they show that the parts work, not the speed of a GPU."""


@dataclass(frozen=True)
class Speed:
    """The measurements of one workload."""

    trained: float  # rows a second, forward and backward
    scored: float  # rows a second, forward alone
    idle: float  # share of a step in which the device waits for its inputs
    memory: float  # MB at most

    def text(self, rows: str) -> str:
        """The measurements in words. rows: what a row is."""
        return (
            f"{self.trained:,.1f} {rows}/s trained, {self.scored:,.1f} scored, idle "
            f"{self.idle:.0%}, {self.memory:,.0f} MB"
        )


def measure(
    work: Workload,
    method: type[Method],
    subject: Subject,
    precision: Precision,
    fast: bool,
) -> str:
    """Train and score with a workload. Returns a text, which notes a micro-batch after out-of-memory."""
    make_repeatable(None, subject.device, fast)
    with tempfile.TemporaryDirectory() as folder:
        trainer, rows = _trainer(work, method, subject.device, precision, Path(folder))
        trainer.start_phase(0)
        with steps_watched(trainer, subject.waits) as waited:
            trainer.train_epoch(0)
        speed = _speed(trainer, work, rows)
    facts = [speed.text("texts" if work.is_text else "images"), precision, f"batch {work.batch}"]
    if trainer.model.encoding.micro_batch is not None:
        facts.append(f"{trainer.model.encoding.micro_batch} rows at a time after out-of-memory")
    if waited:
        raise Differs(f"a step waits for the device at {', '.join(waited[:3])}; {', '.join(facts)}")
    return ", ".join(facts)


def _trainer(
    work: Workload,
    cls: type[Method],
    device: torch.device,
    precision: Precision,
    folder: Path,
) -> tuple[Trainer, Inputs]:
    random = np.random.default_rng(0)
    count = 4 * work.batch
    encoder, options, values = _encoder(work, count, folder)
    kind = "text" if work.is_text else "image"
    inputs = Inputs(values, encoder.views(kind, True, options), on_the_fly=not work.is_text)
    truth = (random.random((count, LABELS)) < 0.1).astype(np.int8)
    truth[np.arange(count), random.integers(0, LABELS, count)] = 1
    spec = RunSpec(
        method=cls.name,
        dataset="random",
        regime="full",
        epochs=3,
        warmup_epochs=0,
        batch_size=work.batch,
        epoch_steps=work.steps,
        precision=precision,
    )
    judge = Judge(spec, observe(truth, spec), SealedTruth(truth), truth)
    run_data = RunData.beside(judge, inputs, inputs)
    torch.manual_seed(0)
    method = build_method(cls, cls.Config(), LABELS)
    context = TrainingContext(device, workers=core_count())
    return Trainer(spec, method, encoder(values[0], options), run_data, context), inputs


def _encoder(
    work: Workload, rows: int, folder: Path
) -> tuple[type[Encoder], EncoderOptions, Tensor]:
    """The encoder's class, its options, and random rows as it takes them."""
    generator = torch.Generator().manual_seed(0)
    if work.is_text:
        _save_bert(folder, work.bert or {})
        cls = hugging_face_encoder(str(folder))
        options = EncoderOptions("none", max_tokens=work.size, pooling="masked")
        words = _words_of(work)
        return cls, options, torch.randint(5, words, (rows, work.size), generator=generator).int()
    cls = torchvision_encoder(work.backbone)
    options = EncoderOptions("none", image_size=work.size, normalise=True)
    shape = (rows, 3, work.size, work.size)
    pixels = torch.randint(0, 256, shape, generator=generator, dtype=torch.uint8)
    return cls, options, pixels


def _words_of(work: Workload) -> int:
    return int((work.bert or {}).get("vocab_size", 30522))


def _save_bert(folder: Path, fields: dict[str, Any]) -> None:
    """Save a BERT's configuration and a tokenizer of its special tokens; weights will be random."""
    from ssmlbench.inputs.torchvision_compat import declare_missing_operators

    declare_missing_operators()
    from tokenizers import Tokenizer, models
    from transformers import BertConfig, PreTrainedTokenizerFast

    words = {"[PAD]": 0, "[UNK]": 1, "[CLS]": 2, "[SEP]": 3, "[MASK]": 4}
    tokenizer = Tokenizer(models.WordPiece(words, unk_token="[UNK]"))
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="[PAD]", unk_token="[UNK]"
    ).save_pretrained(folder)
    BertConfig(**fields).save_pretrained(folder)


def _speed(trainer: Trainer, work: Workload, rows: Inputs) -> Speed:
    """Measure two epochs after a warm-up: one with loading, one with a batch that stays on the device."""
    reset_peak_memory(trainer.context.device)
    fed = _seconds_of_epoch(trainer, 1)
    memory = peak_memory(trainer.context.device)
    batches = trainer.batching.batches
    trainer.batching.batches = lambda plan, workers: _resident(trainer, plan)  # type: ignore[method-assign]
    resident = _seconds_of_epoch(trainer, 2)
    trainer.batching.batches = batches  # type: ignore[method-assign]
    trainer.evaluator.scores(rows, np.arange(min(len(rows), work.batch)))
    began = time.perf_counter()
    trainer.evaluator.scores(rows)
    scored = len(rows) / (time.perf_counter() - began)
    idle = max(0.0, 1 - resident / fed)
    return Speed(work.steps * work.batch / fed, scored, idle, memory)


def _seconds_of_epoch(trainer: Trainer, epoch: int) -> float:
    trainer.train_epoch(epoch)
    return float(trainer.progress.history[-1]["seconds"])


def _resident(trainer: Trainer, plan: Any) -> Iterator[Any]:
    """The first batch of a plan for every step, already on the device."""
    batching = trainer.batching
    (inputs,) = batching.transfer.ahead(iter([batching.step_inputs(plan, 0)]))
    for _ in range(len(plan)):
        yield batching.step_batches(inputs)


def measure_decoding(size: int, images: int = 128, workers: int | None = None) -> str:
    """Decode photographs of 640 × 480 pixels to squares, with the threads that a run has."""
    threads = core_count() if workers is None else workers
    decoder = SquareDecoder(_Jpegs(images), size, shortcuts=Shortcuts(fast_resize=True))  # type: ignore[arg-type]
    began = time.perf_counter()
    for _ in decoder.ranges([(0, images)], threads):
        pass
    rate = images / (time.perf_counter() - began)
    size_text = " × ".join(map(str, JPEG_SIZE))
    return (
        f"{rate:,.0f} images/s (JPEG, {size_text} px) with {counted(threads, 'thread')}; only the first "
        "epoch decodes"
    )


class _Jpegs:
    """Files of noisy gradients, which compress about as photographs do."""

    def __init__(self, count: int):
        from PIL import Image

        width, height = JPEG_SIZE
        random = np.random.default_rng(0)
        ramp = np.linspace(0, 200, width)[None, :, None] + np.zeros((height, 1, 3))
        pixels = (ramp + random.normal(0, 12, ramp.shape)).clip(0, 255).astype(np.uint8)
        file = io.BytesIO()
        Image.fromarray(pixels).save(file, "JPEG", quality=90)
        self.content, self.count = file.getvalue(), count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, row: int) -> bytes:
        return self.content
