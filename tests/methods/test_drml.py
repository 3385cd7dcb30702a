"""DRML: losses and relation network against vectors, the four steps, and promotion."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from ssmlbench.checks.toy import same_bits, spec_for, toy, train
from ssmlbench.core.paths import builtin_root
from ssmlbench.kit.gradient_step import GradientStep
from ssmlbench.kit.heads import Network
from ssmlbench.kit.pools import Batch, Forward, Outputs, Pool, Pools
from ssmlbench.plugins.loader import load_file
from ssmlbench.training import model

drml = load_file(builtin_root() / "methods" / "drml.py")
TOLERANCE = 2e-5
PARTS = ("encoder", "projector", "first", "second", "relation")


def build(labels: int = 2, **options: Any) -> Any:
    return drml.Drml(drml.Drml.Config(width=6, **options), labels)


def outputs(vector: dict[str, Any]) -> Outputs:
    first, second = (torch.tensor(vector["inputs"][name]) for name in ("f1", "f2"))
    return {"first": first, "second": second}


def test_the_losses_are_the_vectors(vectors: dict[str, Any]) -> None:
    vector = vectors["drml.losses"]
    expected, y = vector["expected"], torch.tensor(vector["inputs"]["y"])
    made, known = outputs(vector), torch.ones(2, 1)
    f1, f2 = made["first"], made["second"]
    assert drml.squared(f1, y, known).item() / 4 == pytest.approx(expected["mse1"], abs=TOLERANCE)
    assert drml.squared(f2, y, known).item() / 4 == pytest.approx(expected["mse2"], abs=TOLERANCE)
    half = drml.classifier_loss(f1, f2, y, known)
    assert half.item() == pytest.approx(expected["LC_paper_half_frobenius"], abs=TOLERANCE)
    for i, gap in enumerate(expected["DA_paper_mean_abs"]):
        alone = torch.zeros(2, 1)
        alone[i] = 1
        assert build().discrepancy(made, alone).item() == pytest.approx(gap, abs=TOLERANCE)
    released = build(losses="released").discrepancy(made, known)
    assert released.item() == pytest.approx(expected["DA_code_1e5_times_total_L1"], abs=1e-9)
    assert drml.disagreement(f1, f2).tolist() == pytest.approx(
        expected["D_l2sq_per_sample"], abs=TOLERANCE
    )
    torch.testing.assert_close(drml.relations(f1, f2), torch.tensor(expected["relation_flat"]))


def test_the_relation_network_is_the_vector(vectors: dict[str, Any]) -> None:
    vector = vectors["drml.relation_network"]
    inputs, expected = vector["inputs"], vector["expected"]
    y, known, made = torch.tensor(inputs["y"]), torch.ones(2, 1), outputs(vector)
    relation = drml.layers(4, 3, 2, nn.ReLU())
    relation[0].weight.data.fill_(0.1)
    relation[0].bias.data.fill_(inputs["b1"])
    relation[2].weight.data = torch.tensor(inputs["W2"]).T
    relation[2].bias.data = torch.tensor(inputs["b2"])
    flat = drml.relations(made["first"], made["second"])
    with torch.no_grad():
        torch.testing.assert_close(
            relation[:2](flat), torch.tensor(expected["hidden"]), atol=TOLERANCE, rtol=0
        )
        made["logits"] = relation(flat)
    torch.testing.assert_close(
        made["logits"].sigmoid(), torch.tensor(expected["out"]), atol=TOLERANCE, rtol=0
    )
    released = build(losses="released").joint_loss(made, y, known)
    assert released.item() == pytest.approx(expected["C_loss_code"], abs=TOLERANCE)
    # Equation 9 is a sum over the two rows; here losses are divided by their rows.
    paper = build(eta=0.5).joint_loss(made, y, known)
    assert 2 * paper.item() == pytest.approx(expected["eq9_eta0_5"], abs=TOLERANCE)


def test_the_head_has_one_layer_a_module_or_the_released_two() -> None:
    paper, released = build(3).build_head(5), build(3, layers="released").build_head(5)
    assert [len(getattr(paper, part)) for part in PARTS[1:]] == [1, 1, 1, 1]
    shapes = [layer.weight.shape for layer in released.relation if isinstance(layer, nn.Linear)]
    assert shapes == [(1000, 9), (3, 1000)]
    big = drml.layers(400, None, 300, nn.ReLU())[0]
    assert big.weight.std().item() == pytest.approx((2 / 400) ** 0.5, rel=0.02)
    assert not big.bias.any()


class Scene:
    """A small network, two labelled and three unlabelled rows, and a step of the method on them."""

    def __init__(self, scaler: Any = None, **options: Any):
        torch.manual_seed(0)
        self.method = build(**options)
        self.network = Network(nn.Linear(4, 5), nn.Identity(), self.method.build_head(5))
        self.method.optimisers = self.method.build_optimisers(self.network)
        self.method.targets, self.method.trust = torch.zeros(3, 2), torch.zeros(3, 1)
        self.x, self.others = torch.randn(2, 4), torch.randn(3, 4)
        self.y = torch.tensor([[1, 0], [0, 1]], dtype=torch.int8)
        self.update = GradientStep(self.network, list(self.network.parameters()), scaler)

    def step(self, unlabelled: bool = True) -> dict[str, Tensor]:
        views = {("labelled", "strong"): self.x, ("unlabelled", "strong"): self.others}
        forward = Forward(self.network, views)
        nothing = torch.full((3, 2), -1, dtype=torch.int8)
        others = Batch("unlabelled", torch.arange(3), nothing, forward, forward)
        labelled = Batch("labelled", torch.arange(2), self.y, forward, forward)
        return self.method.step(labelled, others if unlabelled else None, self.update)

    def weights(self) -> dict[str, list[Tensor]]:
        head = self.network.head
        modules = (self.network.encoder, head.projector, head.first, head.second, head.relation)
        return {
            part: [p.detach().clone() for p in module.parameters()]
            for part, module in zip(PARTS, modules, strict=True)
        }


def changed(before: dict[str, list[Tensor]], after: dict[str, list[Tensor]]) -> set[str]:
    return {
        part
        for part in before
        if any(not torch.equal(a, b) for a, b in zip(before[part], after[part], strict=True))
    }


@pytest.mark.parametrize(
    ("rate", "moved"),
    [
        ("joint_lr", {"projector", "first", "second"}),
        ("discrepancy_lr", {"first", "second"}),
        ("projector_lr", {"projector"}),
        ("relation_lr", {"relation"}),
    ],
)
def test_each_step_moves_its_own_weights(rate: str, moved: set[str]) -> None:
    still = dict.fromkeys(["joint_lr", "discrepancy_lr", "projector_lr", "relation_lr"], 0.0)
    scene = Scene(**{**still, rate: 0.01})
    before = scene.weights()
    scene.step()
    assert changed(before, scene.weights()) == moved


def test_steps_b_and_c_pull_the_discrepancy_apart_and_together() -> None:
    def gap(scene: Scene) -> float:
        with torch.no_grad():
            made = scene.network(scene.others)
        return (made["first"] - made["second"]).abs().mean().item()

    still = dict.fromkeys(["joint_lr", "discrepancy_lr", "projector_lr", "relation_lr"], 0.0)
    apart = Scene(**{**still, "discrepancy_lr": 1e-3}, classifier_weight=0.0)
    together = Scene(**{**still, "projector_lr": 1e-3})
    start = gap(apart)
    for _ in range(5):
        apart.step()
        together.step()
    assert gap(together) < start < gap(apart)


def test_the_encoder_gets_the_gradient_of_step_a_and_the_head_leaves_none() -> None:
    scene = Scene()
    made = scene.network(scene.x)
    loss = scene.method.joint_loss(made, scene.y.float(), torch.ones(2, 1))
    wanted = torch.autograd.grad(loss, list(scene.network.encoder.parameters()))
    scene.step()
    for parameter, gradient in zip(scene.network.encoder.parameters(), wanted, strict=True):
        torch.testing.assert_close(parameter.grad, gradient)
    assert all(parameter.grad is None for parameter in scene.network.head.parameters())


def test_a_scaled_loss_changes_no_step() -> None:
    plain, scaled = Scene(), Scene(torch.amp.GradScaler("cpu", init_scale=1024.0))
    plain.step()
    scaled.step()
    assert not changed(plain.weights(), scaled.weights())
    for a, b in zip(
        plain.network.encoder.parameters(), scaled.network.encoder.parameters(), strict=True
    ):
        torch.testing.assert_close(1024 * a.grad, b.grad)


def test_a_step_whose_scaled_gradients_overflow_leaves_classifiers_and_projector_alone() -> None:
    scene = Scene(
        torch.amp.GradScaler("cpu", init_scale=torch.inf), discrepancy_lr=0, projector_lr=0
    )
    before = scene.weights()
    scene.step()
    assert changed(before, scene.weights()) == {"relation"}


def test_a_head_on_fixed_features_can_be_trained_with_a_scaled_loss(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Vectors leave no weight to the trainer's optimiser, which a scaler refuses to step."""
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0, growth_interval=1)
    plain = train(drml.Drml, toy("vector"), spec_for(drml.Drml, "semi"))
    monkeypatch.setattr(model, "mixed_precision", lambda *_: (nullcontext, scaler))
    scaled = train(drml.Drml, toy("vector"), spec_for(drml.Drml, "semi"))
    assert same_bits(
        plain, scaled
    )  # a power of two goes in and out of the gradients without a trace
    assert scaler.get_scale() > 1024  # steps without overflow were counted


def test_without_unlabelled_rows_only_known_labels_are_fitted() -> None:
    assert set(Scene().step(unlabelled=False)) == {"joint"}


def test_promoted_rows_count_as_labelled_and_no_longer_as_disagreeing() -> None:
    scene = Scene()
    scene.method.trust[:] = 1
    scene.method.targets[:] = 1
    features = torch.cat([scene.x, scene.others])
    targets = torch.cat([scene.y.float(), torch.ones(3, 2)])
    wanted = scene.method.joint_loss(scene.network(features), targets, torch.ones(5, 1))
    terms = scene.step()
    torch.testing.assert_close(terms["joint"], wanted)
    assert terms["discrepancy"].item() == 0


def pools_of(f1: Tensor, f2: Tensor, g: Tensor, epochs: int = 9) -> Pools:
    made = {"disagreement": drml.disagreement(f1, f2), "logits": g.logit()}
    nothing = torch.full(f1.shape, -1, dtype=torch.int8)
    unlabelled = Pool(nothing, torch.zeros(2), lambda model, view, names: made)
    labelled = Pool(nothing[:0], torch.zeros(2), lambda model, view, names: made)
    return Pools(labelled, unlabelled, epochs=epochs)


F1 = torch.tensor([[0.1, 0.1], [0.5, 0.5], [0.3, 0.3], [0.2, 0.2]])
G = torch.tensor([[0.9, 0.2], [0.1, 0.6], [0.7, 0.8], [0.4, 0.3]])


def test_the_rows_of_least_disagreement_are_promoted_for_good() -> None:
    # D = 2 (0.1², 0.5², 0.3², 0.2²): rows 0, 3, 2, 1 from the least on.
    pools = pools_of(F1, torch.zeros_like(F1), G)
    method = build(promoted_rows=2)
    method.setup(pools)
    pools.epoch = 4  # three of nine epochs are done: a third, not more
    method.start_epoch(pools)
    assert not method.trust.any()
    pools.epoch = 5
    method.start_epoch(pools)
    assert method.trust[:, 0].tolist() == [1, 0, 0, 1]
    assert method.targets.tolist() == [[1, 0], [0, 0], [0, 0], [0, 0]]
    later = pools_of(F1, torch.zeros_like(F1), 1 - G)
    later.epoch = 6
    method.start_epoch(later)
    assert method.trust.all()
    assert method.targets.tolist() == [[1, 0], [1, 0], [0, 0], [0, 0]]  # rows 0 and 3 as before
    method.start_epoch(later)  # nothing is left to promote
    assert method.trust.all()


def test_the_released_rule_promotes_every_row_below_a_threshold_with_soft_labels() -> None:
    pools = pools_of(F1, torch.zeros_like(F1), G)
    pools.epoch = 9
    # d K / 312 = 0.1: the rows with D = 0.02 and 0.08.
    method = build(promotion="threshold", promoted="soft", threshold=0.1 * 312 / 2)
    method.setup(pools)
    method.start_epoch(pools)
    assert method.trust[:, 0].tolist() == [1, 0, 0, 1]
    torch.testing.assert_close(method.targets[[0, 3]], G[[0, 3]])


@pytest.mark.parametrize(
    "options",
    [
        {"losses": "released", "layers": "released"},
        {"promotion": "threshold", "promoted": "soft"},
    ],
    ids=str,
)
def test_every_option_trains(options: dict[str, Any]) -> None:
    config = {**spec_for(drml.Drml, "semi").config, **options}
    outcome = train(drml.Drml, toy("image"), spec_for(drml.Drml, "semi", config=config))
    assert outcome.history[-1]["pseudo_trusted"] >= 0


@settings(max_examples=25, deadline=None)
@given(
    rows=st.integers(1, 4),
    labels=st.integers(1, 4),
    size=st.sampled_from([0.0, 1.0, 1e4]),
    seed=st.integers(0, 999),
    label=st.sampled_from([0.0, 1.0]),
    losses=st.sampled_from(["paper", "released"]),
    dtype=st.sampled_from([torch.float32, torch.bfloat16]),
)
def test_losses_and_gradients_are_finite(
    rows: int, labels: int, size: float, seed: int, label: float, losses: str, dtype: torch.dtype
) -> None:
    torch.manual_seed(seed)
    method = build(labels, losses=losses)
    head = method.build_head(3).to(dtype)
    x = (size * torch.randn(rows, 3)).to(dtype).requires_grad_()
    made = head(x)
    known = torch.ones(rows, 1, dtype=dtype)
    targets = torch.full((rows, labels), label, dtype=dtype)
    total = method.joint_loss(made, targets, known) + method.classifier_loss(made, targets, known)
    total = total - method.discrepancy(made, known) + method.discrepancy(made, 0 * known)
    total.backward()
    assert total.isfinite()
    for tensor in (x, *head.parameters()):
        assert tensor.grad.isfinite().all()
