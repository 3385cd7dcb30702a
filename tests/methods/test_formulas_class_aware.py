"""CAP, BBAM and HML, whose pseudo-labels follow the class distribution, against formulas.py."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.methods import formulas
from tests.methods.scenes import CASES, PARTIAL, SOME, Case, Scene, built, epochs_of, same


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
