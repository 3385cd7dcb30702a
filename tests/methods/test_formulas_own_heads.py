"""D2L + MAT and DRML, which have heads of their own, against formulas.py."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from ssmlbench.kit.gradient_step import GradientStep
from ssmlbench.kit.heads import Network
from ssmlbench.kit.pools import Batch, Forward, Outputs, Pool, Pools
from tests.methods import formulas
from tests.methods.scenes import CASES, VIEWS, Case, FixedForward, Scene, built, epochs_of, same


@pytest.mark.parametrize("case", CASES, ids=str)
@pytest.mark.parametrize("f_score", ["standard", "released"])
def test_d2l_mat(case: Case, f_score: str) -> None:
    heads = ("logits", "patch", "pseudo_logits", "pseudo_patch")
    scene = Scene(case, heads=heads)
    method = built("d2l_mat", case.labels, f_score=f_score)
    for _ in epochs_of(method, scene, 2):
        scores = scene.outputs["labelled", "ema", "weak"]["logits"].sigmoid()
        weight = 0.5 if f_score == "released" else 0.25
        thresholds = [
            formulas.best_threshold(
                scores[:, k].tolist(), scene.observed[:, k].tolist(), 0.5, weight
            )
            for k in range(case.labels)
        ]
        labelled, unlabelled = scene.batches()
        terms = method.loss(labelled, unlabelled)
        z, y = scene.leaf("labelled", "strong"), labelled.observed.double()
        expected = formulas.asl(z, y, 4, 0, 0.05).sum()
        if unlabelled is not None:
            p = scene.averaged["unlabelled", "weak", "logits"].sigmoid()
            pseudo = (p >= torch.tensor(thresholds)).double()
            z = scene.leaf("unlabelled", "strong", "pseudo_logits")
            expected = expected + formulas.asl(z, pseudo, 4, 0, 0.05).sum()
        same(scene, terms, expected)


PATCHED = ("strong-patches", "weak-patches", "plain-patches")


@pytest.mark.parametrize("rows", [1, 3])
def test_d2l_mat_on_images(rows: int) -> None:
    """Four terms; pseudo-labels from the mean of the whole row's logits and its patches' weighted sum."""
    draw = torch.Generator().manual_seed(0)
    method = built("d2l_mat", 2)
    empty = Pool(torch.zeros(0, 2, dtype=torch.int8), torch.zeros(2), lambda *_: {})
    method.setup(Pools(empty, empty, views=frozenset((*VIEWS, *PATCHED))))
    method.thresholds = torch.tensor([0.5, 0.6])
    made: dict[str, dict[tuple[str, str], Outputs]] = {"raw": {}, "ema": {}}
    for outputs in made.values():
        for pool in ("labelled", "unlabelled"):
            for view in (*VIEWS, *PATCHED):
                count = 4 * rows if view in PATCHED else rows
                names = ("logits", "patch", "pseudo_logits", "pseudo_patch")
                outputs[pool, view] = {
                    name: torch.randn(count, 2, generator=draw, dtype=torch.float64)
                    for name in names
                }
    forwards = [FixedForward(made["raw"]), FixedForward(made["ema"])]
    y = torch.randint(0, 2, (rows, 2), generator=draw).to(torch.int8)
    labelled = Batch("labelled", torch.arange(rows), y, *forwards)
    unlabelled = Batch("unlabelled", torch.arange(rows), -torch.ones_like(y), *forwards)
    terms = method.loss(labelled, unlabelled)

    def joined(patches: Tensor) -> Tensor:
        whole = []
        for i in range(rows):
            four = patches[4 * i : 4 * i + 4]
            weights = torch.exp(four) / torch.exp(four).sum(0)
            whole.append((weights * four).sum(0))
        return torch.stack(whole)

    whole = made["ema"]["unlabelled", "weak"]["logits"]
    patches = joined(made["ema"]["unlabelled", "weak-patches"]["patch"])
    pseudo = (torch.sigmoid((whole + patches) / 2) >= torch.tensor([0.5, 0.6])).double()
    raw = made["raw"]
    expected = {
        "labelled": (raw["labelled", "strong"]["logits"], y),
        "labelled_patches": (joined(raw["labelled", "strong-patches"]["patch"]), y),
        "unlabelled": (raw["unlabelled", "strong"]["pseudo_logits"], pseudo),
        "unlabelled_patches": (joined(raw["unlabelled", "strong-patches"]["pseudo_patch"]), pseudo),
    }
    assert terms.keys() == expected.keys()
    for name, (z, targets) in expected.items():
        torch.testing.assert_close(
            terms[name], formulas.asl(z, targets.double(), 4, 0, 0.05).sum(), rtol=1e-6, atol=1e-9
        )


class Adam:
    """Adam as it is printed, of a list of weights."""

    def __init__(self, count: int, lr: float):
        self.lr, self.t = lr, 0
        self.m, self.v = [0.0] * count, [0.0] * count

    def moved(self, weights: list[Tensor], gradients: tuple[Tensor, ...]) -> list[Tensor]:
        self.t += 1
        after = []
        for i, (w, g) in enumerate(zip(weights, gradients, strict=True)):
            self.m[i] = 0.9 * self.m[i] + 0.1 * g
            self.v[i] = 0.999 * self.v[i] + 0.001 * g**2
            m, v = self.m[i] / (1 - 0.9**self.t), self.v[i] / (1 - 0.999**self.t)
            after.append((w - self.lr * m / (v.sqrt() + 1e-8)).detach().requires_grad_())
        return after


def layered(x: Tensor, weights: list[Tensor], activation: Callable[[Tensor], Tensor]) -> Tensor:
    for i in range(0, len(weights), 2):
        x = x @ weights[i].T + weights[i + 1]
        if i + 2 < len(weights):
            x = activation(x)
    return x


@pytest.mark.parametrize("losses", ["paper", "released"])
@pytest.mark.parametrize(
    ("layers", "promoted", "labels"),
    [("paper", 0, 3), ("paper", 2, 3), ("paper", 4, 1), ("released", 2, 3)],
)
def test_drml(losses: str, layers: str, promoted: int, labels: int) -> None:
    """The four steps A to D, three times, with 3 labelled and 4 unlabelled rows."""
    torch.manual_seed(0)
    drml = built(
        "drml", labels, losses=losses, layers=layers, width=6, eta=0.3, classifier_weight=0.7
    )
    network = Network(nn.Linear(4, 5), nn.Identity(), drml.build_head(5)).double()
    # Network computes in single precision at its output; here the head is read in double.
    network.forward = lambda x: {  # type: ignore[method-assign]
        "features": (h := network.encoder(x)),
        **network.head(h),
    }
    drml.optimisers = drml.build_optimisers(network)
    drml.trust = (torch.arange(4) < promoted).double()[:, None]
    drml.targets = torch.randint(0, 2, (4, labels)).double() * drml.trust
    y = torch.randint(0, 2, (3, labels)).to(torch.int8)
    head = network.head
    parts = (head.projector, head.first, head.second, head.relation)
    p, c1, c2, r = ([w.detach().clone().requires_grad_() for w in m.parameters()] for m in parts)
    adams = [Adam(len([*p, *c1, *c2]), 1e-4), Adam(len([*c1, *c2]), 1e-5), Adam(len(p), 1e-5)]
    adams.append(Adam(len(r), 1e-3))
    k, known = labels, torch.cat([torch.ones(3, 1), drml.trust]).double()
    targets = torch.cat([y.double(), drml.targets])
    rows = float(known.sum())

    def answers(h: Tensor) -> tuple[Tensor, Tensor]:
        return torch.sigmoid(layered(h, c1, torch.relu)), torch.sigmoid(layered(h, c2, torch.relu))

    def projected(x: Tensor) -> Tensor:
        return layered(x, p, lambda z: torch.where(z > 0, z, 0.1 * z))

    def related(f1: Tensor, f2: Tensor) -> Tensor:
        outer = torch.stack([torch.outer(a, b).reshape(-1) for a, b in zip(f1, f2, strict=True)])
        return torch.sigmoid(layered(outer, r, torch.relu))

    def error(f: Tensor) -> Tensor:
        return (known * (f - targets) ** 2).sum() / rows

    def joint(f1: Tensor, f2: Tensor, g: Tensor) -> Tensor:
        if losses == "released":
            return (error(f1) + error(f2) + 0.2 * error(g)) / k
        return 0.3 / 2 * (error(f1) + error(f2)) / 2 + 0.7 * error(g)

    def apart(f1: Tensor, f2: Tensor) -> Tensor:
        gap = ((1 - drml.trust) * (f1[3:] - f2[3:]).abs()).sum()
        return 1e-5 * gap if losses == "released" else gap / k / max(4 - promoted, 1)

    for _ in range(3):
        x, others = torch.randn(3, 4).double(), torch.randn(4, 4).double()
        forward = Forward(network, {("labelled", "strong"): x, ("unlabelled", "strong"): others})
        labelled = Batch("labelled", torch.arange(3), y, forward, forward)
        unlabelled = Batch("unlabelled", torch.arange(4), y[:1], forward, forward)
        network.zero_grad()
        drml.step(labelled, unlabelled, GradientStep(network, list(network.parameters())))

        encoder = [w.detach().clone().requires_grad_() for w in network.encoder.parameters()]
        features = layered(torch.cat([x, others]), encoder, torch.relu)
        f1, f2 = answers(projected(features))
        own = [*c1, *c2, *p]
        gradients = torch.autograd.grad(joint(f1, f2, related(f1, f2)), [*own, *encoder])
        for weight, gradient in zip(
            network.encoder.parameters(), gradients[len(own) :], strict=True
        ):
            torch.testing.assert_close(weight.grad, gradient)
        moved = adams[0].moved(own, gradients[: len(own)])  # A
        c1, c2, p = moved[: len(c1)], moved[len(c1) : -len(p)], moved[-len(p) :]
        features = features.detach()
        f1, f2 = answers(projected(features))
        fit = (
            joint(f1, f2, related(f1, f2))
            if losses == "released"
            else 0.7 * (error(f1) + error(f2)) / 2
        )
        both = [*c1, *c2]
        moved = adams[1].moved(both, torch.autograd.grad(fit - apart(f1, f2), both))  # B
        c1, c2 = moved[: len(c1)], moved[len(c1) :]
        p = adams[2].moved(p, torch.autograd.grad(apart(*answers(projected(features))), p))  # C
        f1, f2 = answers(projected(features))
        r = adams[3].moved(r, torch.autograd.grad(joint(f1, f2, related(f1, f2)), r))  # D
        for part, wanted in zip(parts, (p, c1, c2, r), strict=True):
            for weight, value in zip(part.parameters(), wanted, strict=True):
                torch.testing.assert_close(weight.detach(), value.detach(), rtol=1e-6, atol=1e-8)
