"""Methods for single positives and partial labels against formulas.py."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn

from ssmlbench.core.paths import builtin_root
from ssmlbench.kit.gradient_step import GradientStep
from ssmlbench.kit.heads import Network
from ssmlbench.plugins.loader import load_file
from tests.methods import formulas
from tests.methods.scenes import (
    PARTIAL,
    Case,
    Scene,
    both_pools,
    built,
    epochs_of,
    same,
    table_rows,
)


def entries_of(name: str, z: Tensor, observed: Tensor, labels: int) -> Tensor:
    """The table of entry losses: observed positive, known negative, unobserved."""
    p = torch.sigmoid(z)
    entropy = formulas.soft(p, p)
    positive, negative = formulas.nl(p), formulas.nl(1 - p)
    unobserved = {
        "an": negative,
        "l1r": negative,
        "l2r": negative,
        "wan": negative / max(labels - 1, 1),
        "ls": 0.9 * negative + 0.1 * positive,
        "nls": 0.9 * negative + 0.1 * positive,
        "epr": 0 * p,
        "entmin": 0.2 * entropy,
        "em": -0.2 * entropy,
    }
    if name in unobserved:
        rest = unobserved[name]
        if name == "ls":
            positive = 0.9 * positive + 0.1 * negative
    elif name == "focal":
        positive, negative = -((1 - p) ** 2) * torch.log(p), -(p**2) * torch.log(1 - p)
        rest = negative
    else:
        y = torch.ones_like(z)
        positive, negative = (formulas.asl(z, t, 4, 1, 0.05) for t in (y, 0 * y))
        rest = negative
    return torch.where(observed == 1, positive, torch.where(observed == 0, negative, rest))


@pytest.mark.parametrize("case", PARTIAL, ids=str)
@pytest.mark.parametrize(
    "name", ["an", "wan", "ls", "nls", "epr", "entmin", "em", "focal", "asl", "l1r", "l2r"]
)
def test_entry_losses(case: Case, name: str) -> None:
    scene = Scene(case)
    method = built(name, case.labels)
    for _ in epochs_of(method, scene, 1):
        terms = method.loss(*scene.batches())
        z, observed = both_pools(scene)
        expected = entries_of(name, z, observed, case.labels).mean()
        if name == "epr":
            kappa = float(scene.prior.sum())
            expected = expected + (torch.sigmoid(z).sum(1).mean() - kappa) ** 2 / case.labels**2
        same(scene, terms, expected)


@pytest.mark.parametrize("case", PARTIAL, ids=str)
@pytest.mark.parametrize("reading", ["an", "lab"])
def test_em_apl(case: Case, reading: str) -> None:
    scene = Scene(case, epochs=6, warmup_epochs=0)
    method = built("em_apl", case.labels, reading=reading, alpha=0.1, beta=0.4)
    rows = len(scene.all_observed) if reading == "an" else case.labelled
    observed = scene.all_observed[:rows]
    counts = [int(0.9 * int(n) / 3) for n in (observed < 0).sum(0)]  # 3 of 6 epochs give labels
    soft = torch.full(observed.shape, math.nan, dtype=torch.float64)
    for epoch in epochs_of(method, scene, 6):
        if epoch > 3:
            pools = [
                scene.outputs[pool, "raw", "weak"]["logits"] for pool in ("labelled", "unlabelled")
            ]
            scores = torch.cat(pools)[:rows].sigmoid()
            unknown = (observed < 0) & soft.isnan()
            soft = scores.where(formulas.lowest_unknown(scores, unknown, counts), soft)
        labelled, unlabelled = scene.batches()
        if reading == "lab":
            unlabelled = None
        terms = method.loss(labelled, unlabelled)
        z, known = both_pools(scene)
        given = soft[table_rows(scene)[: len(known)]] if reading == "an" else None
        if given is None:
            z, known = scene.leaf("labelled", "strong"), labelled.observed
            given = soft[labelled.rows]
        p = torch.sigmoid(z)
        unknown_loss = torch.where(
            given.isnan(), -0.1 * formulas.soft(p, p), 0.4 * formulas.soft(p, given.nan_to_num())
        )
        expected = torch.where(
            known == 1, formulas.nl(p), torch.where(known == 0, formulas.nl(1 - p), unknown_loss)
        )
        same(scene, terms, expected.mean())


@pytest.mark.parametrize("case", PARTIAL, ids=str)
@pytest.mark.parametrize("name", ["llr", "llct"])
def test_large_losses(case: Case, name: str) -> None:
    scene = Scene(case, warmup_epochs=0)
    method = built(name, case.labels, delta=30.0, delta_epochs=None)
    for epoch in epochs_of(method, scene, 4):
        terms = method.loss(*scene.batches())
        z, observed = both_pools(scene)
        k = math.ceil(z.numel() * (epoch - 1) * 0.3 - 1e-9)
        scheme = {"llr": "reject", "llct": "flip"}[name]
        same(scene, terms, formulas.large_loss(z, observed, k, scheme).mean())


@pytest.mark.parametrize("case", PARTIAL, ids=str)
def test_permanent_corrections(case: Case) -> None:
    scene = Scene(case, warmup_epochs=0)
    method = built("llcp", case.labels, delta=30.0, delta_epochs=None)
    now = scene.all_observed.clone()
    for epoch in epochs_of(method, scene, 4):
        terms = method.loss(*scene.batches())
        z, _ = both_pools(scene)
        rows = table_rows(scene)
        observed = now[rows]
        k = math.ceil(z.numel() * 0.3 - 1e-9) if epoch > 1 else 0
        same(scene, terms, formulas.large_loss(z, observed, k, "flip").mean())
        if k:
            u = torch.where(observed < 0, formulas.cross_entropy(z, 0 * z), 0.0).detach()
            t = sorted(u.flatten().tolist(), reverse=True)[min(k, u.numel()) - 1]
            now[rows] = now[rows].masked_fill((observed < 0) & (u > t), 1)


@pytest.mark.parametrize(
    ("kappa", "case"), [*((None, case) for case in PARTIAL), (1.7, Case())], ids=str
)
def test_role(case: Case, kappa: float | None) -> None:
    scene = Scene(case)
    method = built("role", case.labels, kappa=kappa)
    for _ in epochs_of(method, scene, 2):
        labelled, unlabelled = scene.batches()
        rows = table_rows(scene)
        u = method.estimates[rows].double().requires_grad_()
        z, observed = both_pools(scene)
        expected = formulas.role(
            z, u, observed, float(scene.prior.sum()) if kappa is None else kappa
        )
        leaves = list(scene.leaves.values())
        wanted = torch.autograd.grad(expected, leaves, allow_unused=True, retain_graph=True)
        (slope,) = torch.autograd.grad(expected, u)
        moved: list[Tensor] = []
        method.move_estimates = lambda rows, gradient, lr, kept=moved: kept.append(gradient)
        update = GradientStep(Network(*(nn.Identity() for _ in range(3))), [], lr=0.01)
        terms = method.step(labelled, unlabelled, update)
        torch.testing.assert_close(
            sum(terms.values()).double(), expected.detach(), rtol=1e-5, atol=1e-6
        )
        torch.testing.assert_close(moved[0].double(), slope, rtol=1e-3, atol=1e-6)
        for leaf, gradient in zip(leaves, wanted, strict=True):
            zero = torch.zeros_like(leaf)
            torch.testing.assert_close(
                zero if leaf.grad is None else leaf.grad,
                zero if gradient is None else gradient,
                rtol=1e-4,
                atol=1e-6,
            )


@pytest.mark.parametrize("case", PARTIAL, ids=str)
@pytest.mark.parametrize("reading", ["excluded", "an"])
def test_mime(case: Case, reading: str) -> None:
    scene = Scene(case, heads=("logits", "divergence"), warmup_epochs=0)
    method = built("mime", case.labels, reading=reading, theta=0.6, beta=0.1)
    obs = (scene.all_observed == 1).double()
    for epoch in epochs_of(method, scene, 4):
        if reading == "excluded" or epoch > 2:
            pools = [
                scene.outputs[pool, "raw", "weak"]["logits"] for pool in ("labelled", "unlabelled")
            ]
            confident = torch.cat(pools).sigmoid() > 0.6
            obs = torch.clamp(obs + (confident & (scene.all_observed != 0)), max=1)
        terms = method.loss(*scene.batches())
        z, _ = both_pools(scene)
        expected = formulas.soft(torch.sigmoid(z), obs[table_rows(scene)]).mean()
        # The toy's divergence has K numbers a row instead of one: its sum over rows is divided by rows.
        kl = torch.cat([scene.leaf(pool, "strong", "divergence") for pool in scene.rows])
        same(scene, terms, expected + 0.1 * kl.sum() / len(kl))


def test_mimes_head_is_the_bottleneck() -> None:
    mime = load_file(builtin_root() / "methods" / "mime.py")
    torch.manual_seed(0)
    head, x = mime.CodeHead(6, 8, 4, 3).double(), torch.randn(5, 6).double()
    torch.manual_seed(1)
    made = head(x)
    torch.manual_seed(1)
    noise = torch.randn(5, 3, 4, dtype=torch.float64)
    hidden = torch.relu(x @ head.hidden[0].weight.T + head.hidden[0].bias)
    for i in range(5):
        divergence = 0.0
        for k in range(3):
            rows = slice(8 * k, 8 * k + 8)
            code = head.codes.weight[rows] @ hidden[i] + head.codes.bias[rows]
            mu, std = code[:4], torch.log1p(torch.exp(code[4:])) + 1e-6
            z = (mu + std * noise[i, k]) @ head.classify.weight[0] + head.classify.bias[0]
            torch.testing.assert_close(made["logits"][i, k], z)
            divergence = divergence + (-0.5 * (1 + 2 * std.log() - mu**2 - std**2)).sum()
        torch.testing.assert_close(made["divergence"][i], divergence / 12)
