"""FlatMatch: one step against its vector, with and without a scaled loss; what it leaves alone."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from ssmlbench.core.paths import builtin_root
from ssmlbench.kit.gradient_step import GradientStep
from ssmlbench.kit.pools import Batch, Forward
from ssmlbench.kit.pseudo_labels import moved_thresholds
from ssmlbench.plugins.loader import load_file

flatmatch = load_file(builtin_root() / "methods" / "flatmatch.py")
TOLERANCE = 2e-5


class FakeScaler:
    """A GradScaler's arithmetic without a GPU."""

    def __init__(self, factor: float):
        self.factor = factor

    def scale(self, loss: Tensor) -> Tensor:
        return loss * self.factor

    def get_scale(self) -> float:
        return self.factor


def build(labels: int, threshold: float = 0.0, **options: Any) -> Any:
    """A method whose thresholds stay where they are put."""
    config = flatmatch.FlatMatch.Config(momentum=1.0, averages="paper", **options)
    method = flatmatch.FlatMatch(config, labels)
    method.tau, method.updates = torch.full((labels,), threshold), torch.zeros(())
    return method


def take_step(
    method: Any,
    network: nn.Module,
    labelled: tuple[Tensor, Tensor],
    weak: Tensor,
    strong: Tensor,
    scaler: Any = None,
) -> dict[str, Tensor]:
    """One step; the gradients are left in `.grad`."""
    x, y = labelled
    views = {
        ("labelled", "weak"): x,
        ("unlabelled", "weak"): weak,
        ("unlabelled", "strong"): strong,
    }
    forward = Forward(lambda inputs: {"logits": network(inputs)}, views)
    update = GradientStep(network, list(network.parameters()), scaler, forward=forward)
    nothing = torch.full((len(weak), y.shape[1]), -1, dtype=torch.int8)
    return method.step(
        Batch("labelled", torch.arange(len(x)), y.to(torch.int8), forward, forward),
        Batch("unlabelled", torch.arange(len(weak)), nothing, forward, forward),
        update,
    )


def vector_network(inputs: dict[str, Any]) -> nn.Linear:
    network = nn.Linear(2, 2)
    network.weight.data = torch.tensor(inputs["W"])
    network.bias.data = torch.tensor(inputs["b"])
    return network


@pytest.mark.parametrize("scaler", [None, FakeScaler(1024.0)], ids=["plain", "scaled"])
def test_the_released_step_is_the_vector(vectors: dict[str, Any], scaler: Any) -> None:
    inputs, expected = (vectors["flatmatch.ml_step"][part] for part in ("inputs", "expected"))
    network = vector_network(inputs)
    labelled = torch.tensor(inputs["x_lab"]), torch.tensor(inputs["y_lab"])
    x = torch.tensor(inputs["x_unl"])
    method = build(2, objective="released", radius=inputs["rho"])
    terms = take_step(method, network, labelled, x, x, scaler)
    assert terms["labelled"].item() == pytest.approx(expected["L_lab_clean"], abs=TOLERANCE)
    assert terms["perturbed"].item() == pytest.approx(expected["L_lab_worst"], abs=TOLERANCE)
    assert terms["unlabelled"].item() == pytest.approx(expected["L_unl_worst"], abs=TOLERANCE)
    scale = scaler.factor if scaler else 1.0
    for gradient, name in (
        (network.weight.grad, "final_grad_W"),
        (network.bias.grad, "final_grad_b"),
    ):
        wanted = torch.tensor(expected[name])
        torch.testing.assert_close(gradient / scale, wanted, atol=TOLERANCE, rtol=0)
    # The weights themselves are where they were, to the bit.
    assert network.weight.tolist() == torch.tensor(inputs["W"]).tolist()
    assert network.bias.tolist() == torch.tensor(inputs["b"]).tolist()


def test_the_step_uphill_is_the_vector(vectors: dict[str, Any]) -> None:
    inputs, expected = (vectors["flatmatch.ml_step"][part] for part in ("inputs", "expected"))
    network = vector_network(inputs)
    logits = network(torch.tensor(inputs["x_lab"]))
    loss = flatmatch.bce(logits, torch.tensor(inputs["y_lab"])).mean()
    gradients = torch.autograd.grad(loss, list(network.parameters()))
    norm = torch.cat([g.flatten() for g in gradients]).norm()
    assert norm.item() == pytest.approx(expected["grad_norm"], abs=TOLERANCE)
    weight, bias = flatmatch.ascent(gradients, inputs["rho"])
    for moved, name in ((network.weight + weight, "W_worst"), (network.bias + bias, "b_worst")):
        torch.testing.assert_close(
            moved.detach(), torch.tensor(expected[name]), atol=TOLERANCE, rtol=0
        )


def test_the_papers_objective_has_the_labelled_loss_at_the_clean_weights_only() -> None:
    torch.manual_seed(0)
    network, x, y = nn.Linear(3, 2), torch.randn(4, 3), torch.randint(0, 2, (4, 2))
    weak, strong = torch.randn(5, 3), torch.randn(5, 3)
    take_step(build(2), network, (x, y), weak, strong)
    found = [p.grad.clone() for p in network.parameters()]

    # By hand: ∇L(w) + ∇U(w + ρ ∇L(w) / ‖∇L(w)‖).
    old = [p.detach().clone() for p in network.parameters()]
    bce = nn.BCEWithLogitsLoss()
    clean = torch.autograd.grad(bce(network(x), y.float()), list(network.parameters()))
    targets = (network(weak) >= 0).float().detach()
    norm = torch.cat([g.flatten() for g in clean]).norm()
    for p, g in zip(network.parameters(), clean, strict=True):
        p.data += 0.05 * g / norm
    worst = torch.autograd.grad(bce(network(strong), targets), list(network.parameters()))
    for mine, a, b in zip(found, clean, worst, strict=True):
        torch.testing.assert_close(mine, a + b)
    for p, before in zip(network.parameters(), old, strict=True):
        p.data = before


def test_thresholds_follow_confidence_as_in_the_vectors(vectors: dict[str, Any]) -> None:
    vector = vectors["freematch.ml_adapted"]
    q = torch.tensor(vector["inputs"]["weak_prob"])
    tau = moved_thresholds(
        torch.tensor(vector["inputs"]["tau_prev"]), torch.maximum(q, 1 - q), vector["inputs"]["ema"]
    )
    torch.testing.assert_close(
        tau, torch.tensor(vector["expected"]["tau_new"]), atol=TOLERANCE, rtol=0
    )
    # The released single-label τ is the same running mean, of the largest softmax probability.
    # (What it does with it, a modulation between classes and a fairness term, has no place here.)
    vector = vectors["flatmatch.official_sat_saf"]
    confidence = torch.tensor(vector["inputs"]["weak_logits"]).softmax(1).amax(1)
    tau = moved_thresholds(
        torch.tensor(vector["inputs"]["tau"]), confidence, vector["inputs"]["ema"]
    )
    assert tau.item() == pytest.approx(vector["expected"]["tau_new"], abs=TOLERANCE)


def test_entries_below_their_threshold_do_not_count() -> None:
    network = nn.Linear(2, 2)
    labelled = torch.ones(1, 2), torch.tensor([[1, 0]])
    x = torch.randn(3, 2)
    terms = take_step(build(2, threshold=1.1), network, labelled, x, x)
    assert terms["unlabelled"].item() == 0


def test_warm_up_is_plain_training() -> None:
    network, x = nn.Linear(2, 2), torch.randn(3, 2)
    y = torch.tensor([[1, 0], [0, 0], [1, 1]], dtype=torch.int8)
    forward = Forward(lambda inputs: {"logits": network(inputs)}, {("labelled", "weak"): x})
    batch = Batch("labelled", torch.arange(3), y, forward, forward)
    build(2).step(batch, None, GradientStep(network, list(network.parameters()), None))
    wanted = torch.autograd.grad(
        nn.functional.binary_cross_entropy_with_logits(network(x), y.float()),
        list(network.parameters()),
    )
    for p, gradient in zip(network.parameters(), wanted, strict=True):
        torch.testing.assert_close(p.grad, gradient)


def normalised() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(2, 4), nn.BatchNorm1d(4), nn.Linear(4, 2))


def test_normalisation_statistics_see_the_rows_once() -> None:
    x, y = torch.randn(4, 2), torch.randint(0, 2, (4, 2))
    once, flat = normalised(), normalised()
    once(torch.cat([x, x, x]))
    take_step(build(2), flat, (x, y), x, x)
    torch.testing.assert_close(flat[1].running_mean, once[1].running_mean)
    torch.testing.assert_close(flat[1].running_var, once[1].running_var)


def test_an_overflowing_loss_scale_spoils_nothing_that_stays() -> None:
    network = normalised()
    before = {name: value.clone() for name, value in network.state_dict().items()}
    x, y = torch.randn(4, 2), torch.randint(0, 2, (4, 2))
    method = build(2)
    take_step(method, network, (x, y), x, x, FakeScaler(1e39))
    # The scaler skips the update for these gradients; the statistics must have survived.
    assert not all(p.grad.isfinite().all() for p in network.parameters())
    assert all(value.isfinite().all() for value in network.state_dict().values())
    for name, parameter in network.named_parameters():
        assert torch.equal(parameter, before[name])
    assert method.tau.isfinite().all()


@settings(max_examples=25, deadline=None)
@given(
    size=st.sampled_from([0.0, 1.0, 1e4]),
    rows=st.integers(1, 4),
    labels=st.integers(1, 4),
    seed=st.integers(0, 999),
    label=st.sampled_from([0, 1]),
    dtype=st.sampled_from([torch.float32, torch.bfloat16]),
)
def test_losses_and_gradients_are_finite(
    size: float, rows: int, labels: int, seed: int, label: int, dtype: torch.dtype
) -> None:
    torch.manual_seed(seed)
    network = nn.Linear(3, labels, bias=False).to(dtype)
    x = (size * torch.randn(rows, 3)).to(dtype)
    y = torch.full((rows, labels), label)
    method = build(labels, objective="released")
    terms = take_step(method, network, (x, y), x, x)
    assert all(term.isfinite() for term in terms.values())
    assert network.weight.grad.isfinite().all()
