"""Pieces and recomputation: the same loss of the whole batch, in less memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from ssmlbench.checks.toy import LABELS, spec_for, toy
from ssmlbench.core.errors import RunFailed, UserError
from ssmlbench.core.events import Event, Warned
from ssmlbench.core.seeds import stream_seed
from ssmlbench.inputs.encoders import Encoder, SmallCnn, layout
from ssmlbench.kit.contract import build_method
from ssmlbench.kit.heads import Network
from ssmlbench.kit.method import Method
from ssmlbench.plugins.loader import Plugins
from ssmlbench.protocol.judge import Judge
from ssmlbench.training.encoding import EncoderPass, interleaved, recompute_blocks
from ssmlbench.training.evaluation import Trained
from ssmlbench.training.out_of_memory import StepBackup, suppress_out_of_memory
from ssmlbench.training.processes import Processes, SharedPass
from ssmlbench.training.run_data import RunData
from ssmlbench.training.trainer import Trainer, TrainingContext

TOLERANCE = 1e-5
"""Of gradients, relative to the largest: other sums of the same numbers in single precision."""
METHODS = ("bbam", "flatmatch", "d2l_mat")
"""Whole-pool quotas, two backward passes, an averaged network."""

SEMI = sorted(
    name
    for name in Plugins().methods
    if issubclass(cls := Plugins().methods[name], Method) and "semi" in cls.regimes
)


class Block(nn.Module):
    """A residual block that treats every row by itself."""

    def __init__(self, norm: type[nn.Module] = nn.Identity):
        super().__init__()
        self.inner = nn.Conv2d(8, 8, 3, padding=1)
        self.norm = norm(8) if norm is not nn.Identity else norm()

    def forward(self, maps: Tensor) -> Tensor:
        return maps + self.norm(self.inner(maps)).tanh()


class Stack(Encoder):
    """A stack of blocks."""

    name = "stack"
    kinds = {"image"}
    features = 8
    norm: type[nn.Module] = nn.Identity
    count = 4

    def __init__(self, example: Tensor, options: Any = None):
        super().__init__(example, options)
        self.first = nn.Conv2d(example.shape[0], 8, 3, padding=1)
        self.layers = nn.Sequential(*[Block(self.norm) for _ in range(self.count)])

    def forward(self, images: Tensor) -> Tensor:
        maps: Tensor = self.layers(self.first(images))
        return maps.mean(dim=(2, 3))


class NormalisedStack(Stack):
    """The same with batch normalisation."""

    name = "normalised-stack"
    norm = nn.BatchNorm2d


def trainer_for(name: str, encoder: type[Encoder] = Stack, **context: Any) -> Trainer:
    data, cls = toy("image"), Plugins().methods[name]
    assert issubclass(cls, Method)
    spec = spec_for(cls, "semi", epochs=3, warmup_epochs=1)
    run_data = RunData.beside(Judge.of(spec, data.truth, data.test_truth), data.train, data.test)
    torch.manual_seed(stream_seed(0, "method"))
    method = build_method(cls, cls.Config(), LABELS)
    torch.manual_seed(stream_seed(0, "network"))
    example = data.train.view(np.zeros(1, dtype=np.int64), "plain", torch.Generator())[0]
    return Trainer(spec, method, encoder(example), run_data, TrainingContext(**context))


def weights_after(trainer: Trainer) -> tuple[Tensor, Trained]:
    trained = trainer.train()
    values = [value.flatten().float() for value in trainer.model.network.state_dict().values()]
    return torch.cat(values), trained


def gradients(call: Callable[[Tensor], Tensor], encoder: Encoder, inputs: Tensor) -> Tensor:
    """Of a loss that no part of the batch can compute alone."""
    encoder.zero_grad()
    features = call(inputs)
    (features.softmax(dim=0) @ features.T).square().mean().backward()
    return torch.cat([p.grad.flatten() for p in encoder.parameters() if p.grad is not None])


def saved_bytes(call: Callable[[], Tensor]) -> int:
    """Of the activations that a pass keeps for its backward pass, weights left out."""
    seen: dict[int, int] = {}

    def pack(tensor: Tensor) -> Tensor:
        if not isinstance(tensor, nn.Parameter):
            seen[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        call()
    return sum(seen.values())


@pytest.fixture
def images() -> Tensor:
    return torch.rand(23, 1, 8, 10, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("pieces", [1, 2, 5, 23])
def test_rows_come_back_in_their_order(pieces: int) -> None:
    rows = torch.arange(46.0).view(23, 2)
    assert torch.equal(interleaved([rows[i::pieces] for i in range(pieces)]), rows)


@pytest.mark.parametrize("micro_batch", [1, 4, 22])
def test_the_gradient_in_pieces_is_that_of_the_whole_batch(
    images: Tensor, micro_batch: int
) -> None:
    encoder = Stack(images[0])
    whole = gradients(encoder, encoder, images)
    passes = EncoderPass(micro_batch)
    found = gradients(lambda x: passes(encoder, x), encoder, images)
    assert (found - whole).abs().max() <= TOLERANCE * whole.abs().max()


@pytest.mark.parametrize("passes", [EncoderPass(), EncoderPass(4), SharedPass(Processes(1, 2))])
def test_a_pool_without_rows_has_no_features(images: Tensor, passes: EncoderPass) -> None:
    """As the unlabelled one in every regime but semi: compiled encoders and processes see it too."""
    assert passes(Stack(images[0]), images[:0]).shape == (0, Stack.features)


def test_dropout_above_the_encoder_is_that_of_the_whole_batch(images: Tensor) -> None:
    outputs = []
    for micro_batch in (None, 4):
        trainer = trainer_for("bce", micro_batch=micro_batch)
        trainer.model.network.dropout = nn.Dropout(0.5)
        torch.manual_seed(1)
        outputs.append(trainer.model.run(images)["features"])
    assert 0.3 < (outputs[0] == 0).float().mean() < 0.7
    assert torch.allclose(*outputs, atol=1e-6)


def test_dropout_inside_the_encoder_is_the_same_when_a_piece_is_recomputed(images: Tensor) -> None:
    class Scale(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.ones(()))

        def forward(self, inputs: Tensor) -> Tensor:
            return nn.functional.dropout(inputs.flatten(1) * self.weight, training=True)

    scale = Scale()
    features = EncoderPass(4)(scale, images)
    features.sum().backward()
    # With a weight of 1, its gradient is the sum of what was kept.
    assert scale.weight.grad is not None
    assert torch.allclose(scale.weight.grad, features.sum())


def test_pieces_keep_less_for_the_backward_pass(images: Tensor) -> None:
    encoder = Stack(images[0])
    whole = saved_bytes(lambda: encoder(images))
    in_pieces = saved_bytes(lambda: EncoderPass(4)(encoder, images))
    assert in_pieces < whole / 5


def test_recomputed_blocks_keep_less_and_give_the_gradient_of_the_whole_batch(
    images: Tensor,
) -> None:
    encoder = NormalisedStack(images[0])
    assert len(encoder.blocks()) == Stack.count
    state = {name: value.clone() for name, value in encoder.state_dict().items()}
    whole, kept = gradients(encoder, encoder, images), saved_bytes(lambda: encoder(images))
    statistics = {name: value.clone() for name, value in encoder.state_dict().items()}
    encoder.load_state_dict(state)
    recompute_blocks(encoder)
    found = gradients(encoder, encoder, images)
    assert torch.equal(found, whole)
    assert saved_bytes(lambda: encoder(images)) < kept / 2
    encoder.load_state_dict(state)
    gradients(encoder, encoder, images)
    encoder(images)  # as often as above
    counted = encoder.state_dict()
    assert counted.keys() == statistics.keys()
    for name, value in statistics.items():  # running means, variances and counters
        assert torch.equal(counted[name], value), name


def test_an_encoder_without_blocks_says_so(images: Tensor) -> None:
    with pytest.raises(UserError, match="--micro-batch N"):
        recompute_blocks(SmallCnn(images[0]))


@pytest.mark.parametrize("name", METHODS)
def test_a_run_in_pieces_ends_with_the_weights_of_the_whole_run(name: str) -> None:
    whole, plain = weights_after(trainer_for(name))
    found, trained = weights_after(trainer_for(name, micro_batch=7))
    assert torch.allclose(found, whole, atol=2e-4)
    assert (plain.micro_batch, trained.micro_batch) == (None, 7)
    assert trained.notes == plain.notes  # nothing of it depends on other rows
    recomputed, _ = weights_after(trainer_for(name, checkpoint_activations=True))
    assert torch.allclose(recomputed, whole, atol=2e-4)


@pytest.mark.slow
@pytest.mark.parametrize("name", SEMI)
def test_every_method_in_pieces(name: str) -> None:
    whole, _ = weights_after(trainer_for(name))
    found, _ = weights_after(trainer_for(name, micro_batch=7))
    assert torch.allclose(found, whole, atol=5e-3)


def test_batch_normalisation_in_pieces_is_said() -> None:
    _, trained = weights_after(trainer_for("bce", NormalisedStack, micro_batch=7))
    assert "batch normalisation saw at most 7 rows at a time (--micro-batch)" in trained.notes


def test_fixed_features_know_no_pieces() -> None:
    passes = EncoderPass(4)
    assert not passes.is_whole(torch.zeros(5, 2))
    assert passes.is_whole(torch.zeros(4, 2))


# ------------------------------------------------------------------------------ out of memory


class Small(Stack):
    """A stack on a device with room for a few rows, as long as gradients are wanted of them."""

    name = "small-device"
    most_rows = 6
    refused: list[int]

    def forward(self, images: Tensor) -> Tensor:
        if torch.is_grad_enabled() and len(images) > self.most_rows:
            super().forward(images).sum().backward()  # what was computed by then must not count
            torch.rand(3)
            self.refused.append(len(images))
            raise torch.OutOfMemoryError("simulated: out of memory")
        return super().forward(images)


class NormalisedSmall(Small):
    """The same with batch normalisation, whose statistics a failed step has moved."""

    norm = nn.BatchNorm2d


def short_of_memory(name: str, encoder: type[Small] = Small) -> tuple[Trainer, list[Event]]:
    events: list[Event] = []
    encoder.refused = []
    trainer = trainer_for(name, encoder, notify=events.append)
    trainer.retries = True
    return trainer, events


@pytest.mark.parametrize("name", ["fixmatch", "flatmatch"])
def test_a_step_without_memory_is_taken_again_in_smaller_pieces(name: str) -> None:
    whole, _ = weights_after(trainer_for(name))
    trainer, events = short_of_memory(name)
    found, trained = weights_after(trainer)
    assert torch.allclose(found, whole, atol=2e-4)
    assert trained.micro_batch is not None
    assert trained.micro_batch <= Small.most_rows
    said = [event.text for event in events if isinstance(event, Warned) and "memory" in event.text]
    assert said == [
        f"out of memory: {trained.micro_batch} rows at a time go through the encoder from now on"
    ]
    assert said[0] in trained.notes
    assert Small.refused == sorted(set(Small.refused), reverse=True)  # each size once in the run


def test_a_failed_step_leaves_no_statistics_behind() -> None:
    found, _ = weights_after(short_of_memory("bce", NormalisedSmall)[0])
    expected, _ = weights_after(trainer_for("bce", NormalisedStack, micro_batch=4))
    assert torch.allclose(found, expected, atol=1e-6)


def test_a_step_that_is_taken_again_draws_the_same_random_numbers() -> None:
    trainer = trainer_for("bce")
    backup = StepBackup(trainer.model.network, trainer.method, torch.device("cpu"))
    drawn = torch.rand(3)
    backup.restore()
    assert torch.equal(torch.rand(3), drawn)


@pytest.mark.parametrize("how", ["changed self.prior in place", "has its own optimisers"])
def test_a_step_that_cannot_be_repeated_says_what_to_type(how: str) -> None:
    trainer = trainer_for("bce")
    method = trainer.method
    method.prior = torch.ones(2)
    before = StepBackup(trainer.model.network, method, torch.device("cpu"))
    method.prior = torch.zeros(2)
    method.later = torch.zeros(1)
    before.restore()
    assert method.prior.tolist() == [1, 1]
    assert not hasattr(method, "later")
    if "place" in how:
        method.prior.add_(1)  # type: ignore[operator]
    else:
        method.optimisers = {"own": torch.optim.SGD(trainer.model.network.parameters())}
    with pytest.raises(RunFailed, match=rf"{how}.*--micro-batch N"):
        before.restore()


def test_one_row_that_does_not_fit_ends_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Small, "most_rows", 0)
    with pytest.raises(RunFailed, match="out of memory with one row"):
        short_of_memory("bce")[0].train()


def test_a_pass_without_gradients_is_made_again_too() -> None:
    trainer = trainer_for("bce")
    sizes = []

    class Refusing(nn.Module):
        def forward(self, images: Tensor) -> Tensor:
            sizes.append(len(images))
            if len(images) > 5:
                raise RuntimeError("MPS backend out of memory")
            return images.flatten(1)[:, :8]

    network = Network(Refusing(), nn.Identity(), trainer.model.network.head)
    outputs = trainer.model.predict(network, torch.rand(9, 1, 8, 10))
    assert len(outputs["logits"]) == 9
    assert sizes == [9, 5, 4]


def test_other_errors_are_not_taken_for_a_lack_of_memory() -> None:
    with pytest.raises(RuntimeError, match="sizes"), suppress_out_of_memory(torch.device("cpu")):
        raise RuntimeError("sizes do not fit")


def test_convolutions_have_channels_last_on_a_gpu_and_stay_as_they_are_on_a_cpu(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def encoder() -> nn.Module:
        torch.manual_seed(0)
        return nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Conv2d(4, 5, 3))

    there = torch.channels_last
    images, cpu = torch.rand(2, 3, 8, 8), torch.device("cpu")
    plain = layout.placed(encoder(), cpu)
    assert not any(w.is_contiguous(memory_format=there) for w in plain.parameters() if w.ndim == 4)
    monkeypatch.setattr(layout, "CHANNELS_LAST", ("cpu",))
    moved = layout.placed(encoder(), cpu)
    assert all(w.is_contiguous(memory_format=there) for w in moved.parameters() if w.ndim == 4)
    assert torch.allclose(moved(images), plain(images), atol=1e-6)
    linear = layout.placed(nn.Linear(3, 4), cpu)
    assert linear.weight.is_contiguous()
