"""One gradient step of a method: weights that are moved for a second pass."""

from __future__ import annotations

import torch
from torch import nn

from ssmlbench.kit.gradient_step import GradientStep
from ssmlbench.kit.pools import Forward
from tests.support.simulated_device import SimulatedDevice


def test_a_pass_with_moved_weights_leaves_weights_and_statistics_as_they_were() -> None:
    network = nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2, momentum=0.3))
    rows = torch.randn(6, 3)
    network(rows)
    before = [value.clone() for value in (*network.parameters(), *network.buffers())][:-1]
    parameters = list(network.parameters())
    update = GradientStep(network, parameters, None)
    with update.moved([torch.ones_like(p) for p in parameters]):
        assert not torch.equal(parameters[0], before[0])
        network(rows + 1)
    after = [*network.parameters(), *network.buffers()][:-1]  # without the count of batches
    assert all(torch.equal(a, b) for a, b in zip(after, before, strict=True))
    network(rows + 1)
    assert not torch.equal(network[1].running_mean, before[-2])  # counted again  # type: ignore[arg-type]


def scaled_step(
    *weights: nn.Parameter, scale: float = 8.0
) -> tuple[GradientStep, torch.amp.GradScaler]:
    """A step with a scaled loss, as in float16; the scale doubles after two steps."""
    scaler = torch.amp.GradScaler("cpu", init_scale=scale, growth_interval=2)
    return GradientStep(nn.Identity(), weights, scaler), scaler  # type: ignore[arg-type]


def test_gradients_are_true_ones_whatever_the_scale_of_the_loss() -> None:
    used, unused = nn.Parameter(torch.tensor([3.0])), nn.Parameter(torch.tensor([1.0]))
    update, _ = scaled_step(used, unused)
    found = update.gradients(used.square().sum())
    assert found[0] is not None
    assert (found[0].item(), found[1]) == (6.0, None)
    assert used.grad is None

    update.add([torch.tensor([1.0]), None])
    update.backward(used.square().sum())
    assert used.grad is not None
    assert used.grad.item() == 8 * (1 + 6)  # in one scale
    update.apply(torch.optim.SGD([used, unused], lr=0.25))
    assert used.item() == 3 - 0.25 * 7


def test_the_scale_is_not_read_back_from_the_device() -> None:
    with SimulatedDevice() as sim:
        weight = nn.Parameter(torch.tensor([3.0]).to(sim.device))
        update, _ = scaled_step(weight)
        before = sim.traffic.copied()
        update.add(update.gradients(weight.square().sum()))
        traffic = sim.traffic.since(before)
        assert weight.grad is not None
        gradient = weight.grad.cpu()
    assert not traffic.waits
    assert not traffic.to_host
    assert gradient.item() == 8 * 6


def test_true_gradients_are_added_to_those_that_are_there() -> None:
    weight = nn.Parameter(torch.tensor([3.0]))
    update = GradientStep(nn.Identity(), [weight])  # type: ignore[arg-type]
    update.backward(weight.square().sum())
    update.add([torch.tensor([0.5])])
    assert weight.grad is not None
    assert weight.grad.item() == 6.5


def test_the_scale_is_updated_once_in_a_step_of_several_optimisers() -> None:
    weights = [nn.Parameter(torch.ones(1)) for _ in range(2)]
    optimisers = [torch.optim.SGD([weight], lr=0.1) for weight in weights]
    _, scaler = scaled_step()
    for scale in (8, 16, 16):  # it doubles after the second step
        update = GradientStep(nn.Identity(), weights, scaler)  # type: ignore[arg-type]
        update.backward((weights[0] * weights[1]).sum())
        for optimiser in optimisers:
            update.apply(optimiser)
        update.finish()
        assert scaler.get_scale() == scale


def test_a_step_without_gradients_leaves_the_scale_as_it_is() -> None:
    weight = nn.Parameter(torch.ones(1))
    update, scaler = scaled_step(weight)
    update.apply(torch.optim.SGD([weight], lr=0.1))
    update.finish()
    assert scaler.get_scale() == 8


def test_outputs_inside_the_block_are_those_of_the_moved_weights() -> None:
    network, rows = nn.Linear(2, 1, bias=False), torch.ones(3, 2)
    forward = Forward(lambda inputs: {"logits": network(inputs)}, {("labelled", "weak"): rows})
    parameters = list(network.parameters())
    update = GradientStep(network, parameters, forward=forward)  # type: ignore[arg-type]
    before = forward["labelled", "weak"]["logits"]
    with update.moved([torch.ones_like(p) for p in parameters]):
        assert torch.allclose(forward["labelled", "weak"]["logits"], before + 2)
