"""Every method against its formulas written a second time: values and gradients of whole steps.

The pools give other numbers for another model or view, so that a method that asks for the wrong one fails.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from ssmlbench.core.paths import builtin_root
from ssmlbench.kit.gradient_step import GradientStep
from ssmlbench.kit.heads import Network
from ssmlbench.kit.method import Method
from ssmlbench.kit.pools import Batch, Forward, Outputs, Pool, Pools
from ssmlbench.plugins.loader import Plugins, load_file
from tests.methods import formulas

PLUGINS = Plugins()


@dataclass(frozen=True)
class Case:
    """Sizes and labels of the pools and batches of a step."""

    labelled: int = 12
    unlabelled: int = 30
    batch: int = 5  # rows of each pool in a step
    labels: int = 4
    positive: tuple[float, ...] = (0.3, 0.5)  # shares of positives, label by label in turn
    levels: int = 0  # distinct outputs; 0: all are distinct
    codes: tuple[int, ...] = (0, 1)  # of labelled rows: -1 makes some of their entries unknown

    def __str__(self) -> str:
        return " ".join(f"{k}={v}" for k, v in vars(self).items() if v != getattr(Case, k))


CASES = [
    Case(),
    Case(positive=(0.0,)),  # no positive at all
    Case(positive=(1.0,)),  # π_k = 1
    Case(positive=(0.0, 1.0, 0.4)),
    Case(positive=(0.01, 0.99)),  # counts that truncate to 0
    Case(labels=1),
    Case(batch=1),
    Case(labelled=1, unlabelled=3, batch=1, labels=2),
    Case(levels=3),  # ties
    Case(levels=1),
    Case(unlabelled=0),  # every row is labelled
]
SOME = [Case(positive=(0.0, 1.0, 0.4)), Case(levels=3)]
PARTIAL = [
    *CASES,
    Case(codes=(-1, 0, 1)),
    Case(codes=(-1, 1)),
    Case(codes=(-1,)),
    Case(codes=(-1,), unlabelled=0, batch=1),
]

MODELS, VIEWS = ("raw", "ema"), ("weak", "strong", "plain")


@dataclass
class Scene:
    """Pools with fixed outputs, and batches of them whose outputs have gradients."""

    case: Case
    cosine: bool = False
    seed: int = 0
    heads: tuple[str, ...] = ("logits",)
    width: int = 3
    epochs: int = 10
    warmup_epochs: int = 3
    pools: Pools = field(init=False)
    leaves: dict[tuple[str, str, str], Tensor] = field(init=False)

    def __post_init__(self) -> None:
        case = self.case
        self.draw = torch.Generator().manual_seed(self.seed)
        shares = torch.tensor([case.positive[k % len(case.positive)] for k in range(case.labels)])
        shape = (case.labelled, case.labels)
        observed = (torch.rand(shape, generator=self.draw) < shares).to(torch.int8)
        if -1 in case.codes:
            seen = torch.tensor([code in case.codes for code in (0, 1)])[observed.long()]
            seen &= torch.rand(shape, generator=self.draw) < 0.5
            observed = torch.where(seen, observed, -1).to(torch.int8)
        self.observed = observed
        self.prior = (observed == 1).double().mean(0)
        nothing = torch.full((case.unlabelled, case.labels), -1, dtype=torch.int8)
        self.all_observed = torch.cat([observed, nothing])
        self.outputs: dict[tuple[str, str, str], Outputs] = {}
        self.new_outputs()
        self.pools = Pools(
            self._pool("labelled", observed),
            self._pool("unlabelled", nothing),
            epochs=self.epochs,
            warmup_epochs=self.warmup_epochs,
            views=frozenset(VIEWS),
        )

    def numbers(self, *shape: int) -> Tensor:
        made = torch.randn(shape, generator=self.draw, dtype=torch.float64)
        if self.cosine:
            made = made.tanh() * 0.95
        if self.case.levels:
            steps = torch.linspace(-0.8, 0.8, self.case.levels, dtype=torch.float64)
            made = steps[torch.randint(0, self.case.levels, shape, generator=self.draw)]
        return made

    def new_outputs(self) -> None:
        """Other outputs, as after an epoch of training."""
        for pool, rows in (("labelled", self.case.labelled), ("unlabelled", self.case.unlabelled)):
            for model in MODELS:
                for view in VIEWS:
                    made = {name: self.numbers(rows, self.case.labels) for name in self.heads}
                    shape = (rows, self.width)
                    features = torch.randn(shape, generator=self.draw, dtype=torch.float64)
                    self.outputs[pool, model, view] = {**made, "features": features}

    def _pool(self, name: str, observed: Tensor) -> Pool:
        def predict(model: str, view: str, names: tuple[str, ...]) -> Outputs:
            made = self.outputs[name, model, view]
            return {key: made[key].clone() for key in {*names, "logits"} if key in made}

        return Pool(observed, self.prior, predict)

    def batches(self) -> tuple[Batch, Batch | None]:
        """The batches of a step, with new leaves: `self.leaves[pool, view, output]`."""
        case = self.case
        rows = {"labelled": torch.randperm(case.labelled, generator=self.draw)[: case.batch]}
        if case.unlabelled:
            rows["unlabelled"] = torch.randperm(case.unlabelled, generator=self.draw)[: case.batch]
        self.rows = rows
        self.leaves = {
            (pool, view, name): self.numbers(len(where), case.labels).requires_grad_()
            for pool, where in rows.items()
            for view in VIEWS
            for name in self.heads
        }
        self.averaged = {key: self.numbers(*leaf.shape) for key, leaf in self.leaves.items()}
        parts = {(pool, view) for pool, view, _ in self.leaves}
        forwards = []
        for source in (self.leaves, self.averaged):
            made = _Fixed({p: {n: source[*p, n] for n in self.heads} for p in parts})
            forwards.append(made)
        found = {
            pool: Batch(pool, where, getattr(self.pools, pool).observed[where], *forwards)
            for pool, where in rows.items()
        }
        self.known = {pool: batch.observed for pool, batch in found.items()}
        return found["labelled"], found.get("unlabelled")

    def leaf(self, pool: str, view: str, name: str = "logits") -> Tensor:
        return self.leaves[pool, view, name]


class _Fixed(Forward):
    """Outputs that are there already."""

    def __init__(self, outputs: dict[tuple[str, str], Outputs]):
        super().__init__(lambda x: {}, {})
        self._given = outputs

    def __getitem__(self, part: tuple[str, str]) -> Outputs:
        return self._given[part]


def built(name: str, labels: int, **options: Any) -> Any:
    cls = PLUGINS.methods[name]
    assert issubclass(cls, Method)
    return cls(cls.Config(**options), labels)


def epochs_of(method: Any, scene: Scene, count: int = 2) -> Iterator[int]:
    """Start some epochs after warm-up, each with other outputs of the network."""
    method.setup(scene.pools)
    for name, state in method.named_buffers():
        if state.is_floating_point():
            setattr(method, name, state.double())
    for epoch in range(scene.warmup_epochs + 1, scene.warmup_epochs + 1 + count):
        scene.new_outputs()
        scene.pools.epoch = epoch
        with torch.no_grad():
            method.start_epoch(scene.pools)
        scene.pools.forget()
        yield epoch


def same(scene: Scene, terms: dict[str, Tensor], expected: Tensor, *more: Tensor) -> None:
    """The summed terms and their gradients are those of the formula. more: other leaves."""
    total = sum(term for term in terms.values())
    torch.testing.assert_close(total.double(), expected, rtol=1e-5, atol=1e-7)
    leaves = [*scene.leaves.values(), *more]
    found = torch.autograd.grad(total, leaves, allow_unused=True)
    wanted = torch.autograd.grad(expected, leaves, allow_unused=True)
    for one, other, leaf in zip(found, wanted, leaves, strict=True):
        zero = torch.zeros_like(leaf)
        torch.testing.assert_close(
            zero if one is None else one, zero if other is None else other, rtol=1e-4, atol=1e-6
        )


def both_pools(scene: Scene, view: str = "strong") -> tuple[Tensor, Tensor]:
    """Logits and observed labels of the step's rows."""
    logits = [scene.leaf(pool, view) for pool in scene.rows]
    return torch.cat(logits), torch.cat(list(scene.known.values()))


def table_rows(scene: Scene) -> list[int]:
    """The step's rows in a table of both pools."""
    first = {"labelled": 0, "unlabelled": scene.case.labelled}
    return [first[pool] + int(row) for pool, rows in scene.rows.items() for row in rows]


# ------------------------------------------------------------------------------- CAP


@pytest.mark.parametrize("case", CASES, ids=str)
@pytest.mark.parametrize(
    ("loss", "shares"), [("asl", (1.0, 0.998)), ("bce", (0.5, 0.5)), ("asl", (0.0, 0.0))]
)
def test_cap(case: Case, loss: str, shares: tuple[float, float]) -> None:
    scene = Scene(case)
    method = built(
        "cap", case.labels, loss=loss, positive_share=shares[0], negative_share=shares[1]
    )

    def entries(z: Tensor, y: Tensor) -> Tensor:
        return formulas.cross_entropy(z, y) if loss == "bce" else formulas.asl(z, y, 4, 0, 0.05)

    for _ in epochs_of(method, scene):
        labelled, unlabelled = scene.batches()
        terms = method.loss(labelled, unlabelled)
        expected = entries(scene.leaf("labelled", "strong"), labelled.observed.double()).sum()
        if unlabelled is not None:
            scores = scene.outputs["unlabelled", "ema", "weak"]["logits"].sigmoid()
            labels, mask = formulas.class_aware(scores, scene.prior.tolist(), *shares)
            rows = unlabelled.rows
            z = scene.leaf("unlabelled", "strong")
            expected = expected + (mask[rows] * entries(z, labels[rows])).sum()
        same(scene, terms, expected)


# ------------------------------------------------------------------------------- BBAM

BBAM_OPTIONS: list[dict[str, Any]] = [
    {"margin": "positives"},
    {"balance": False},
    {"statistics": "released", "smoothing": 0.1},
    {"negatives_per_positive": None},
    {"negatives_per_positive": 1.5},
    {"sampling": "released", "negative_share": 0.9},
    {"labelled_sampling": "once"},
    {"labelled_sampling": "never"},
    {"reduction": "sum", "unlabelled_weight": 0.3},
    {"scale": 10.0, "margin_size": 0.2, "positive_share": 0.5, "negative_share": 0.8},
]


@pytest.mark.parametrize(
    ("options", "case"),
    [
        *(({}, case) for case in CASES),
        *((options, case) for options in BBAM_OPTIONS for case in SOME),
    ],
    ids=str,
)
def test_bbam(case: Case, options: dict[str, Any]) -> None:
    scene = Scene(case, cosine=True)
    method = built("bbam", case.labels, **options)
    config, found, once = method.config, None, None
    s, m, margin = config.scale, config.margin_size, config.margin

    def reduced(entries: Tensor) -> Tensor:
        return entries.mean() if config.reduction == "mean" else entries.sum()

    method.setup(scene.pools)
    labelled, _ = scene.batches()  # warm-up: neither statistics nor sampling
    entries = formulas.bbam_entries(
        scene.leaf("labelled", "strong"), labelled.observed, None, s, m, margin
    )
    same(scene, method.loss(labelled, None), reduced(entries))
    for _ in epochs_of(method, scene):
        scores = scene.outputs["unlabelled", "ema", "weak"]["logits"]
        labels, mask = formulas.class_aware(
            scores, scene.prior.tolist(), config.positive_share, config.negative_share
        )
        targets = torch.cat([scene.observed.double(), labels.where(mask > 0, -1.0)])
        pools = [
            scene.outputs[pool, "raw", "weak"]["features"] for pool in ("labelled", "unlabelled")
        ]
        kept, found = formulas.bbam_epoch(
            torch.cat(pools),
            targets,
            config.negatives_per_positive,
            config.smoothing if config.statistics == "released" else None,
            found,
            config.sampling == "released",
        )
        once = kept if once is None else once
        of_labelled = {"always": kept, "once": once, "never": torch.ones_like(kept)}
        of_labelled = of_labelled[config.labelled_sampling][: case.labelled]
        used = found if config.balance else None
        labelled, unlabelled = scene.batches()
        terms = method.loss(labelled, unlabelled)
        entries = formulas.bbam_entries(
            scene.leaf("labelled", "strong"), labelled.observed, used, s, m, margin
        )
        expected = reduced(of_labelled[labelled.rows] * entries)
        if unlabelled is not None:
            rows = unlabelled.rows
            entries = formulas.bbam_entries(
                scene.leaf("unlabelled", "strong"), labels[rows], used, s, m, margin
            )
            term = reduced(kept[case.labelled :][rows] * entries)
            expected = expected + config.unlabelled_weight * term
        same(scene, terms, expected)


# ------------------------------------------------------------------------------- HML


@pytest.mark.parametrize(
    ("pseudo", "side", "case"),
    [
        *(("none", "both", case) for case in PARTIAL),
        *(("cap", "both", case) for case in CASES),
        *(("cap", side, case) for side in ("positives", "negatives") for case in SOME),
    ],
    ids=str,
)
def test_hml(case: Case, pseudo: str, side: str) -> None:
    scene = Scene(case, cosine=True)
    method = built("hml", case.labels, adaptive=True, scale=6.0, pseudo=pseudo, margin_on=side)
    method.double()
    s = torch.tensor(6.0, dtype=torch.float64, requires_grad=True)
    m = torch.tensor(0.3, dtype=torch.float64, requires_grad=True)

    def logits(c: Tensor, y: Tensor) -> Tensor:
        shifted = {"both": 1.0, "positives": y, "negatives": 1 - y}[side]
        return s * torch.cos(torch.acos(c) + m * shifted)

    for _ in epochs_of(method, scene, 1):
        labelled, unlabelled = scene.batches()
        unlabelled = unlabelled if pseudo == "cap" else None
        parts = [(labelled, (labelled.observed == 1).double(), torch.ones(case.labels))]
        if unlabelled is not None:
            c = scene.outputs["unlabelled", "ema", "weak"]["logits"]
            at_test = torch.cos(torch.acos(c) + (0.3 if side == "both" else 0.0))
            made = formulas.class_aware(at_test, scene.prior.tolist(), 1.0, 0.998)
            parts.append((unlabelled, *(part[unlabelled.rows] for part in made)))
        expected, balance = torch.zeros((), dtype=torch.float64), torch.zeros(())
        for batch, y, trust in parts:
            c = scene.leaf(batch.pool, "strong")
            p = torch.sigmoid(logits(c.detach(), y))
            balance = balance + (trust * (y * (1 - p) - (1 - y) * p)).sum()
            entries = formulas.cross_entropy(logits(c, y), y)
            expected = expected + (trust * entries).sum(1).mean()
        terms = method.loss(labelled, unlabelled)
        # Scale and margin learn from the adaptive loss alone, the network from the rest alone.
        same(scene, {"rest": sum(v for k, v in terms.items() if k != "adaptive")}, expected)
        free = [method.free_scale, method.free_margin]
        found = torch.autograd.grad(terms["adaptive"], free)
        wanted = torch.autograd.grad(balance.abs(), [s, m])
        slopes = [wanted[0] * (1 - math.exp(-6)), wanted[1]]  # the first: of the softplus
        pairs = [(terms["adaptive"], balance.abs().detach()), *zip(found, slopes, strict=True)]
        for one, other in pairs:  # the angles are in single precision
            torch.testing.assert_close(one.double(), other, rtol=1e-4, atol=1e-5)
        others = torch.autograd.grad(
            sum(method.loss(labelled, unlabelled).values()), free, allow_unused=True
        )
        torch.testing.assert_close(others, found)


# ------------------------------------------------------------------------------- single positives


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


# ------------------------------------------------------------------------------- confidence

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


# ------------------------------------------------------------------------------- D2L + MAT


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
    forwards = [_Fixed(made["raw"]), _Fixed(made["ema"])]
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


# ------------------------------------------------------------------------------- FlatMatch


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


# ------------------------------------------------------------------------------- DRML


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
