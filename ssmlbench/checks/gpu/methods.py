"""Short runs of a method on the device: no step waits, scores are the CPU's, and they repeat."""

from __future__ import annotations

import numpy as np
import torch

from ssmlbench.checks.gpu.page import Differs
from ssmlbench.checks.gpu.subject import Subject, steps_watched
from ssmlbench.checks.toy import same_bits, spec_for, toy, toy_trainer, train
from ssmlbench.core.spec import Precision
from ssmlbench.kit.method import Method
from ssmlbench.training.device import precisions_of
from ssmlbench.training.evaluation import Outcome
from ssmlbench.training.repeatable import record_nondeterminism

TOLERANCE = 0.01
"""The largest difference of scores after a short run in float32, from sums in another order."""
SHORT_TOLERANCE = 0.1
"""The largest difference of scores after a short run whose encoder computes in half precision."""
KINDS = ("vector", "image")


def check_on_device(cls: type[Method], subject: Subject) -> str:
    """Compare runs of a method on toy vectors and images with the CPU's, and with themselves."""
    results = [f"{kind}s: {_compared(cls, kind, subject)}" for kind in KINDS]
    return "; ".join(results)


def _compared(cls: type[Method], kind: str, subject: Subject) -> str:
    spec = spec_for(cls, regime_of(cls), epochs=3, warmup_epochs=1)
    data = toy(kind)
    trainer, judge = toy_trainer(cls, data, spec, device=subject.device)
    with record_nondeterminism() as recorded, steps_watched(trainer, subject.waits) as waited:
        found = Outcome.of(trainer.train(), judge.judgements)
    draws = subject.draws()
    if waited:
        raise Differs(f"{kind}s: a step waits for the device at {', '.join(waited[:3])}")
    if not np.isfinite(found.scores).all():
        raise Differs(f"{kind}s: scores are not finite")
    if not same_bits(found, train(cls, data, spec, device=subject.device)):
        by = f" ({', '.join(recorded)})" if recorded else ""
        raise Differs(f"{kind}s: two runs on the device have different bits{by}")
    if subject.is_cpu:
        return "trains, repeats its bits"
    apart = largest_difference(train(cls, data, spec), found)
    if draws:
        return f"{apart:.1e} from the CPU (no limit: the device may draw random numbers), repeats its bits"
    if apart > TOLERANCE:
        raise Differs(f"{kind}s: scores are {apart:.1e} from the CPU's, more than {TOLERANCE:g}")
    return f"{apart:.1e} from the CPU, repeats its bits"


def check_precision_of(cls: type[Method], subject: Subject, precision: Precision) -> str:
    """Compare a run of a method in one precision with its run in float32, on the device."""
    if precision not in precisions_of(subject.device):
        raise Differs(f"the device has no {precision}")
    data, found = toy("image"), {}
    for kind in ("float32", precision):
        spec = spec_for(cls, regime_of(cls), epochs=3, warmup_epochs=1, precision=kind)
        found[kind] = train(cls, data, spec, device=subject.device)
    apart = largest_difference(found["float32"], found[precision])
    text = f"{cls.name} on toy images: {apart:.1e} from float32"
    if not apart <= SHORT_TOLERANCE:
        raise Differs(f"{text}, more than {SHORT_TOLERANCE:g}")
    return text


def check_heads(subject: Subject, precision: Precision, rows: int = 100_000) -> str:
    """Check that logits inside autocast take as many values as in float32: ranks need them."""
    from ssmlbench.kit.heads import CosineHead, Network

    torch.manual_seed(0)
    network = Network(torch.nn.Identity(), torch.nn.Linear(32, 64), CosineHead(64, 3))
    network = network.to(subject.device).eval()
    inputs = torch.randn(rows, 32, generator=torch.Generator().manual_seed(1)).to(subject.device)
    kind = {"bfloat16": torch.bfloat16, "float16": torch.float16}[precision]
    with torch.no_grad():
        exact = network(inputs)["logits"]
        with torch.autocast(subject.device.type, kind):
            short = network(inputs)["logits"]
    values = [int(logits[:, 0].cpu().unique().numel()) for logits in (exact, short)]
    text = f"logits of {rows:,} rows: {values[1]:,} distinct values, in float32 {values[0]:,}"
    if values[1] < 0.9 * values[0]:
        raise Differs(text)
    return text


def largest_difference(a: Outcome, b: Outcome) -> float:
    """The largest difference between the scores of two runs."""
    return float(np.abs(a.scores - b.scores).max())


def regime_of(cls: type[Method]) -> str:
    """The regime in which a method is checked: semi, if it supports it."""
    return "semi" if "semi" in cls.regimes else min(cls.regimes)
