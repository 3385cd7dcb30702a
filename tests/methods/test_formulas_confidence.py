"""FixMatch, FreeMatch, SoftMatch and FlatMatch, which trust confident scores, against formulas.py."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from ssmlbench.kit.gradient_step import GradientStep
from ssmlbench.kit.pools import Batch, Forward
from tests.methods import formulas
from tests.methods.scenes import CASES, Case, Scene, built, epochs_of, same

MOMENTA: dict[str, Callable[[int], float]] = {
    "fitted": lambda t: min(0.999, (1 + t) / (10 + t)),
    "paper": lambda t: 0.999,
}


@pytest.mark.parametrize("case", CASES, ids=str)
@pytest.mark.parametrize(
    ("name", "averages"),
    [("fixmatch", "paper"), *((name, a) for name in ("freematch", "softmatch") for a in MOMENTA)],
)
def test_confidence(case: Case, averages: str, name: str) -> None:
    scene = Scene(case)
    options = {"threshold": 0.7} if name == "fixmatch" else {"averages": averages}
    method = built(name, case.labels, **options)
    tau = torch.full((case.labels,), 0.5, dtype=torch.float64)
    mu, var, t = tau.clone(), torch.ones_like(tau), 0
    for _ in epochs_of(method, scene, 1):
        for _ in range(3):
            labelled, unlabelled = scene.batches()
            terms = method.loss(labelled, unlabelled)
            z = scene.leaf("labelled", "weak")
            expected = formulas.cross_entropy(z, labelled.observed.double()).mean()
            if unlabelled is not None:
                q = torch.sigmoid(scene.leaf("unlabelled", "weak")).detach()
                conf = torch.maximum(q, 1 - q)
                m = MOMENTA[averages](t)
                tau, t = m * tau + (1 - m) * conf.mean(0), t + 1
                mu = m * mu + (1 - m) * conf.mean(0)
                if len(conf) > 1:
                    var = m * var + (1 - m) * conf.var(0)
                weight = {
                    "fixmatch": ((q >= 0.7) | (q <= 0.3)).double(),
                    "freematch": (conf >= tau - 1e-7).double(),
                    "softmatch": torch.exp(
                        -(torch.clamp(conf - mu, max=0) ** 2) / (2 * var.clamp(min=1e-12) / 4)
                    ),
                }[name]
                strong = scene.leaf("unlabelled", "strong")
                target = (q >= 0.5).double()
                expected = expected + (weight * formulas.cross_entropy(strong, target)).mean()
            same(scene, terms, expected)


def network_of(width: int, hidden: int, labels: int) -> nn.Sequential:
    layers = [nn.Linear(width, hidden), nn.Tanh(), nn.Linear(hidden, labels)]
    return nn.Sequential(*layers).double()


@pytest.mark.parametrize(("objective", "averages"), [("paper", "fitted"), ("released", "paper")])
@pytest.mark.parametrize(
    "case", [Case(), Case(batch=1), Case(labels=1), Case(positive=(0.0,))], ids=str
)
def test_flatmatch(case: Case, averages: str, objective: str) -> None:
    draw = torch.Generator().manual_seed(0)
    torch.manual_seed(0)
    network = network_of(3, 4, case.labels)
    weights = list(network.parameters())
    scene = Scene(case)
    method = built("flatmatch", case.labels, averages=averages, objective=objective)
    method.setup(scene.pools)
    tau = torch.full((case.labels,), 0.5, dtype=torch.float64)

    def at(moved: list[Tensor], x: Tensor) -> Tensor:
        w1, b1, w2, b2 = moved
        return torch.tanh(x @ w1.T + b1) @ w2.T + b2

    for t in range(4):
        x, weak, strong = torch.randn(3, case.batch, 3, generator=draw, dtype=torch.float64)
        y = scene.observed[torch.arange(case.batch) % case.labelled]
        views = {
            ("labelled", "weak"): x,
            ("unlabelled", "weak"): weak,
            ("unlabelled", "strong"): strong,
        }
        forward = Forward(lambda rows: {"logits": network(rows)}, views)
        rows = torch.arange(case.batch)
        labelled = Batch("labelled", rows, y, forward, forward)
        unlabelled = Batch("unlabelled", rows, -torch.ones_like(y), forward, forward)
        network.zero_grad()
        method.step(labelled, unlabelled, GradientStep(network, weights, forward=forward))

        now = [w.detach().clone().requires_grad_() for w in weights]
        q = torch.sigmoid(at(now, weak)).detach()
        conf, target = torch.maximum(q, 1 - q), (q >= 0.5).double()
        m = MOMENTA[averages](t)
        tau = m * tau + (1 - m) * conf.mean(0)
        mask = (conf >= tau - 1e-7).double()
        clean = torch.autograd.grad(formulas.cross_entropy(at(now, x), y.double()).mean(), now)
        length = math.sqrt(sum(float((g**2).sum()) for g in clean))
        worst = [
            (w + 0.05 * g / length).detach().requires_grad_()
            for w, g in zip(now, clean, strict=True)
        ]
        loss = (mask * formulas.cross_entropy(at(worst, strong), target)).mean()
        if objective == "released":
            loss = loss + formulas.cross_entropy(at(worst, x), y.double()).mean()
        sharp = torch.autograd.grad(loss, worst)
        for weight, a, b in zip(weights, clean, sharp, strict=True):
            torch.testing.assert_close(weight.grad, a + b, rtol=1e-5, atol=1e-8)
