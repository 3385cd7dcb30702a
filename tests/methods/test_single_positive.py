"""The single-positive baselines: their losses against vectors, and the three codes in each."""

from __future__ import annotations

import dataclasses
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from ssmlbench.checks import methods as conformance
from ssmlbench.checks import toy as checks_toy
from ssmlbench.core.hyperparameters import option
from ssmlbench.core.paths import builtin_root
from ssmlbench.kit.families.label_estimates import adam_rows_, agreement
from ssmlbench.kit.families.partial import PartialMethod
from ssmlbench.kit.gradient_step import GradientStep
from ssmlbench.kit.heads import Network
from ssmlbench.kit.method import Method
from ssmlbench.plugins.loader import load_file
from ssmlbench.protocol.regimes import REGIMES

NAMES = ("an", "wan", "ls", "nls", "l1r", "l2r", "epr", "entmin", "focal", "asl")
LARGE = ("llr", "llct", "llcp")
ROLES = ("role", "role_li")
ALL = NAMES + LARGE + ROLES
TOLERANCE = 2e-5


def module(name: str) -> ModuleType:
    return load_file(builtin_root() / "methods" / f"{name}.py")


def method_class(name: str) -> type[PartialMethod]:
    return next(cls for cls in vars(module(name)).values() if getattr(cls, "name", None) == name)


def build(name: str, labels: int, **options: Any) -> PartialMethod:
    cls = method_class(name)
    return cls(cls.Config(**options), labels)


def pools(labelled: Tensor, unlabelled: Tensor | None = None) -> Any:
    if unlabelled is None:
        unlabelled = labelled[:0]
    prior = (labelled == 1).double().mean(0)
    parts = [Pool(observed, prior) for observed in (labelled, unlabelled)]
    return SimpleNamespace(labelled=parts[0], unlabelled=parts[1], epoch=2, epochs=10)


@dataclasses.dataclass
class Pool:
    observed: Tensor
    prior: Tensor

    def __len__(self) -> int:
        return len(self.observed)


@dataclasses.dataclass
class FixedBatch:
    """A batch whose logits are given."""

    rows: Tensor
    observed: Tensor
    given: Tensor

    def logits(self, view: str) -> Tensor:
        return self.given


def nl(t: Tensor) -> Tensor:
    return -torch.log(t + 1e-5)


def as_logits(probabilities: list[list[float]]) -> Tensor:
    return torch.tensor(probabilities, dtype=torch.float64).logit()


def unobserved_zeros(observed: list[list[float]]) -> Tensor:
    """The vectors' codes (1, and 0 for unobserved) in ours."""
    return torch.where(torch.tensor(observed) == 1, 1, -1)


# ------------------------------------------------------------------------------- vectors


@pytest.mark.parametrize(
    ("vector", "name", "options"),
    [
        ("baseline.an", "an", {}),
        ("baseline.wan", "wan", {}),
        ("baseline.ls", "ls", {"epsilon": 0.1}),
        ("baseline.n_ls", "nls", {"epsilon": 0.1}),
        ("baseline.entmin", "entmin", {"alpha": 0.2}),
        ("baseline.focal_g2", "focal", {"gamma": 2.0}),
    ],
)
def test_entry_losses_agree_with_the_vectors(
    vectors: dict[str, Any], vector: str, name: str, options: dict[str, float]
) -> None:
    inputs, expected = vectors[vector]["inputs"], vectors[vector]["expected"]
    observed = unobserved_zeros(inputs.get("obs") or inputs["y"])
    method = build(name, observed.shape[1], **options)
    entries = method.entry_loss(as_logits(inputs["prob"]), observed)
    wanted = torch.tensor(expected["loss_matrix"], dtype=torch.float64)
    assert torch.allclose(entries, wanted, atol=TOLERANCE)
    terms = method.terms(as_logits(inputs["prob"]), observed)
    assert terms["entries"].item() == pytest.approx(expected["mean"], abs=TOLERANCE)


def test_asl_agrees_with_the_vector(vectors: dict[str, Any]) -> None:
    vector = vectors["baseline.asl_4_1_005"]
    logits = torch.tensor(vector["inputs"]["logits"], requires_grad=True)
    method = build("asl", 2, gamma_negative=4.0, gamma_positive=1.0, clip=0.05)
    entries = method.entry_loss(logits, unobserved_zeros(vector["inputs"]["y"]))
    entries.sum().backward()
    expected = vector["expected"]
    assert torch.allclose(entries, torch.tensor(expected["loss_matrix"]), atol=TOLERANCE)
    assert entries.sum().item() == pytest.approx(expected["sum"], abs=TOLERANCE)
    gradient = torch.tensor(expected["grad_logits_focal_weight_detached"])
    assert torch.allclose(logits.grad, gradient, atol=TOLERANCE)


def test_epr_agrees_with_the_vector(vectors: dict[str, Any]) -> None:
    inputs = vectors["baseline.epr"]["inputs"]
    expected = vectors["baseline.epr"]["expected"]
    observed = unobserved_zeros(inputs["obs"])
    method = build("epr", 3, kappa=inputs["expected_num_pos"])
    method.setup(pools(observed))
    terms = method.terms(as_logits(inputs["prob"]), observed)
    assert terms["expected_positives"].item() == pytest.approx(expected["reg"], abs=TOLERANCE)
    assert sum(terms.values()).item() == pytest.approx(expected["total"], abs=TOLERANCE)


@pytest.mark.parametrize("name", ["l1r", "l2r"])
def test_weight_penalties_agree_with_the_vector(vectors: dict[str, Any], name: str) -> None:
    inputs = vectors["baseline.l1r_l2r"]["inputs"]
    expected = vectors["baseline.l1r_l2r"]["expected"]
    method = build(name, 2, penalty=inputs["lam"])
    penalty = method.weight_penalty(torch.tensor(inputs["W"])).item()
    kind = name[:2]
    assert penalty == pytest.approx(expected[f"{kind}_term"], abs=TOLERANCE)
    total = inputs["an_mean"] + penalty
    assert total == pytest.approx(expected[f"{kind}_total"], abs=TOLERANCE)


def test_role_agrees_with_the_vector(vectors: dict[str, Any]) -> None:
    inputs = vectors["baseline.role"]["inputs"]
    p, e = as_logits(inputs["prob"]), as_logits(inputs["est"])
    observed = unobserved_zeros(inputs["obs"])
    kappa = torch.tensor(inputs["expected_num_pos"])
    total = sum(agreement(p, e, observed, kappa))
    assert total.item() == pytest.approx(
        vectors["baseline.role"]["expected"]["total"], abs=TOLERANCE
    )


def large_loss_step(name: str, inputs: dict[str, Any], rate: float, **options: Any) -> Any:
    """The method after one step on the vector's rows, and the mean of its loss."""
    observed = unobserved_zeros(inputs["obs"])
    method = build(name, observed.shape[1], **options)
    method.setup(pools(observed))
    method.rate = rate
    batch = FixedBatch(torch.arange(len(observed)), observed, torch.tensor(inputs["logits"]))
    return method, method.loss(batch, None)["entries"].item()


@pytest.mark.parametrize(("vector", "name"), [("ll_r", "llr"), ("ll_ct", "llct")])
def test_large_losses_agree_with_the_vectors(
    vectors: dict[str, Any], vector: str, name: str
) -> None:
    inputs = vectors[f"baseline.{vector}"]["inputs"]
    expected = vectors[f"baseline.{vector}"]["expected"]
    method, mean = large_loss_step(name, inputs, 1 - inputs["clean_rate"])
    assert mean == pytest.approx(expected["mean"], abs=TOLERANCE)
    entries = method.entry_loss(torch.tensor(inputs["logits"]), unobserved_zeros(inputs["obs"]))
    assert torch.allclose(entries, torch.tensor(expected["loss_matrix"]), atol=TOLERANCE)


def test_permanent_corrections_agree_with_the_vector(vectors: dict[str, Any]) -> None:
    inputs = vectors["baseline.ll_cp"]["inputs"]
    expected = vectors["baseline.ll_cp"]["expected"]
    method, mean = large_loss_step("llcp", inputs, inputs["delta_rel"], kept="above")
    assert mean == pytest.approx(expected["mean"], abs=TOLERANCE)
    assert method.corrected.nonzero().tolist() == expected["permanently_flipped_row_col"]


# ------------------------------------------------------------------------------- the three codes


@pytest.mark.parametrize("name", [n for n in NAMES if n not in ("focal", "asl")])
def test_a_known_negative_has_the_ordinary_loss_whatever_an_unobserved_entry_has(name: str) -> None:
    logits = torch.tensor([[0.3, -1.2, 2.0]])
    entries = build(name, 3).entry_loss(logits, torch.zeros(1, 3))
    assert torch.allclose(entries, nl(1 - logits.sigmoid()), atol=1e-6)


@pytest.mark.parametrize("name", ["focal", "asl", *LARGE[:2]])
def test_losses_of_true_labels_take_an_unobserved_entry_for_a_known_negative(name: str) -> None:
    method = build(name, 3)
    method.rate = 0.0
    logits = torch.tensor([[0.3, -1.2, 2.0]])
    known, unknown = torch.zeros(1, 3), torch.full((1, 3), -1)
    assert torch.equal(method.entry_loss(logits, known), method.entry_loss(logits, unknown))


@pytest.mark.parametrize("name", LARGE)
def test_the_first_epoch_doubts_nothing(name: str) -> None:
    method = build(name, 3)
    method.start_epoch(SimpleNamespace(epoch=1, epochs=40))
    assert method.rate == 0
    method.start_epoch(SimpleNamespace(epoch=2, epochs=40))
    assert method.rate == pytest.approx(0.002 * 9 / 39)


def test_llcp_doubts_equally_many_each_epoch_and_the_others_ever_more() -> None:
    rates = {name: build(name, 3).doubted_share(40, 40) for name in LARGE}
    assert rates["llr"] == rates["llct"] == pytest.approx(0.018)
    assert rates["llcp"] == pytest.approx(0.018 / 39)


def test_llcp_keeps_its_corrections_in_the_row_they_were_made_in() -> None:
    labelled, unlabelled = torch.tensor([[1, 0], [0, 1]]), torch.full((3, 2), -1)
    method = build("llcp", 2, kept="reached")
    method.setup(pools(labelled, unlabelled))
    method.rate = 0.1  # ⌈0.1 × 6⌉ = 1 of 6 entries
    some = FixedBatch(torch.tensor([1]), labelled[1:], torch.tensor([[9.0, -9.0]]))
    other = FixedBatch(torch.tensor([2, 0]), unlabelled[:2], torch.tensor([[0.0, 3.0], [1.0, 2.0]]))
    method.loss(some, other)
    assert method.corrected.nonzero().tolist() == [[2 + 2, 1]]  # two labelled rows come before
    made, _ = method.pseudo_labels()
    assert made.nonzero().tolist() == [[2, 1]]
    method.rate = 0.0
    before = method.loss(some, other)["entries"]
    method.corrected.zero_()
    # Learnt as a positive, a logit of 3 costs 3 less than as a negative; the mean is over 6.
    assert (method.loss(some, other)["entries"] - before).item() == pytest.approx(3 / 6, rel=1e-5)


def test_released_corrections_are_lost_where_one_entry_is_doubted() -> None:
    inputs = {"logits": [[1.0, 2.0]], "obs": [[0.0, 0.0]]}
    kept = {k: large_loss_step("llcp", inputs, 0.5, kept=k)[0] for k in ("reached", "above")}
    assert kept["reached"].corrected.tolist() == [[False, True]]
    assert not kept["above"].corrected.any()


# ------------------------------------------------------------------------------- the two readings


@pytest.mark.parametrize("name", ALL)
def test_every_regime_and_both_readings_are_offered(name: str) -> None:
    cls = method_class(name)
    assert set(cls.regimes) == {name for name in REGIMES if not REGIMES[name].as_given}
    assert not cls.warm_up
    assert build(name, 3).unlabelled_views == ("strong",)
    assert build(name, 3, reading="lab").unlabelled_views == ()


@pytest.mark.parametrize("name", ALL)
def test_labelled_rows_alone_can_be_learnt_from(name: str) -> None:
    config = {**dataclasses.asdict(method_class(name).Config()), "reading": "lab"}
    cls = method_class(name)
    spec = checks_toy.spec_for(cls, "semi", config=config)
    outcome = checks_toy.train(cls, checks_toy.toy("vector"), spec)
    assert outcome.history[-1]["samples_per_second"] > 0
    assert outcome.steps > 0


def test_unlabelled_rows_are_assumed_negative_beside_fully_labelled_ones() -> None:
    labelled = FixedBatch(torch.tensor([0]), torch.tensor([[1, 0]]), torch.tensor([[2.0, 1.0]]))
    unlabelled = FixedBatch(torch.tensor([0]), torch.full((1, 2), -1), torch.tensor([[0.5, -1.0]]))
    loss = build("an", 2).loss(labelled, unlabelled)["entries"]
    p = torch.tensor([2.0, -1.0, -0.5, 1.0]).sigmoid()  # of being what it is taken for
    assert loss.item() == pytest.approx(nl(p).mean().item(), rel=1e-6)


def test_the_classifier_is_looked_at_and_not_owned() -> None:
    method = build("l1r", 3)
    assert not list(method.parameters())
    assert not method.state_dict()


# ------------------------------------------------------------------------------- ROLE


def role_history(name: str, kind: str, **options: Any) -> Any:
    """A short run, with the encoder's weights and the estimates after each epoch."""
    snapshots: list[dict[str, Any]] = []

    class Watched(method_class(name)):  # type: ignore[misc]
        def step(self, labelled: Any, unlabelled: Any, update: Any) -> Any:
            self.network = (update.network,)
            return super().step(labelled, unlabelled, update)

        def start_epoch(self, pools: Any) -> None:
            super().start_epoch(pools)
            if hasattr(self, "network"):
                state = self.network[0].state_dict()
                snapshots.append({k: v.clone() for k, v in state.items()})
                snapshots[-1]["estimates"] = self.estimates.clone()

    Watched.name = name
    config = {**dataclasses.asdict(method_class(name).Config()), **options}
    spec = checks_toy.spec_for(Watched, "semi", epochs=7, config=config)
    checks_toy.train(Watched, checks_toy.toy(kind), spec)
    return snapshots


def test_the_encoder_is_frozen_for_25_of_35_epochs() -> None:
    after = role_history("role_li", "image")  # after epochs 1 to 6 of 7; 5 of them frozen
    encoder = [k for k in after[0] if k.startswith("encoder")]
    assert any("running_mean" in k for k in encoder)
    for key in encoder:
        assert all(torch.equal(after[0][key], after[epoch][key]) for epoch in range(1, 5))
    assert any(not torch.equal(after[4][key], after[5][key]) for key in encoder)
    assert not torch.equal(after[0]["head.weight"], after[1]["head.weight"])
    assert not torch.equal(after[0]["estimates"], after[1]["estimates"])


def test_role_trains_the_encoder_from_the_start() -> None:
    after = role_history("role", "image")
    assert any(not torch.equal(after[0][k], after[1][k]) for k in after[0] if "encoder" in k)


def test_role_moves_the_estimates_of_the_rows_it_saw_and_no_others() -> None:
    labelled, unlabelled = torch.tensor([[1, 0], [0, 1]]), torch.full((3, 2), -1)
    method = build("role", 2)
    method.setup(pools(labelled, unlabelled))
    before = method.estimates.clone()
    update = SimpleNamespace(lr=0.01, backward=lambda loss: loss.backward())
    logits = torch.zeros(1, 2, requires_grad=True)
    method.step(
        FixedBatch(torch.tensor([1]), labelled[1:], logits),
        FixedBatch(torch.tensor([2]), unlabelled[2:], logits),
        update,
    )
    moved = (method.estimates != before).any(1)
    assert moved.tolist() == [False, True, False, False, True]
    # The first step of Adam is one learning rate long: 10 × 0.01.
    assert (method.estimates - before)[4].abs().tolist() == pytest.approx([0.1, 0.1], rel=1e-3)


def test_the_released_optimiser_is_one_adam_over_the_whole_matrix() -> None:
    labelled, unlabelled = torch.tensor([[1, 0], [0, 1]]), torch.full((3, 2), -1)
    method = build("role", 2, optimiser="released")
    method.setup(pools(labelled, unlabelled))
    assert method.parameter_groups(0.01) == []
    network = Network(nn.Identity(), nn.Identity(), method.build_head(4))
    method.optimisers = method.build_optimisers(network)
    table = method.estimates.clone().requires_grad_()
    adam = torch.optim.Adam([table], lr=10 * 0.01)
    logits = torch.tensor([[0.3, -0.2]], requires_grad=True)
    for row in (1, 0, 1):
        batch: Any = FixedBatch(torch.tensor([row]), labelled[row : row + 1], logits)
        method.step(batch, None, GradientStep(network, [], lr=0.01))
        adam.zero_grad()
        agreement(logits.detach(), table[row : row + 1], batch.observed, method.kappa)[1].backward()
        adam.step()
    torch.testing.assert_close(method.estimates.detach(), table.detach())
    # A row that is not seen again drifts on with its momentum, as in the released code.
    assert method.estimates.grad is None


@pytest.mark.parametrize("regime", ["semi", "single-positive"])
def test_the_released_optimisers_state_survives_a_kill(regime: str) -> None:
    role = method_class("role")

    class Released(role):  # type: ignore[misc, valid-type]
        name = "released"

        @dataclasses.dataclass(frozen=True)
        class Config(role.Config):  # type: ignore[name-defined, misc]
            optimiser: str = option("released", "as released")

    conformance.survives_a_kill(Released, regime, "vector")


def test_a_table_of_many_rows_costs_a_step_what_a_table_of_few_does() -> None:
    # Nothing of the whole table's size is made: the step touches the batch's rows in place.
    sizes = []

    class Counting(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            out = func(*args, **(kwargs or {}))
            if isinstance(out, Tensor) and not func._schema.is_mutable:
                sizes.append(out.numel())
            return out

    n, k = 80_000, 80
    table, squares, seen = torch.zeros(n, k), torch.zeros(n, k), torch.zeros(n)
    with Counting():
        rows, gradient = torch.arange(64), torch.ones(64, k)
        adam_rows_(table, squares, seen, rows, gradient, torch.tensor(1.0), 0.01)
    assert max(sizes) <= 64 * k


# ------------------------------------------------------------------------------- any numbers at all


@settings(max_examples=25, deadline=None)
@given(
    name=st.sampled_from(ALL),
    shape=st.tuples(st.integers(1, 5), st.integers(1, 6)),
    codes=st.sampled_from([(-1, 2), (-1, 0), (0, 1), (1, 2)]),
    seed=st.integers(0, 2**16),
    size=st.sampled_from([0.0, 1.0, 1e4]),
    dtype=st.sampled_from([torch.float32, torch.bfloat16]),
)
def test_losses_and_gradients_are_finite(
    name: str,
    shape: tuple[int, int],
    codes: tuple[int, int],
    seed: int,
    size: float,
    dtype: torch.dtype,
) -> None:
    generator = torch.Generator().manual_seed(seed)
    observed = torch.randint(*codes, shape, generator=generator)
    values = (size * torch.randn(shape, generator=generator)).clamp(-1e4, 1e4).to(dtype)
    logits = values.requires_grad_()
    method: Method = build(name, shape[1])
    method.setup(pools(observed))
    method.rate = 0.3
    batch: Any = FixedBatch(torch.arange(shape[0]), observed, logits)
    network = Network(nn.Identity(), nn.Identity(), method.build_head(4))
    update = GradientStep(network, list(network.parameters()), lr=0.01)
    terms = method.step(batch, None, update)
    assert all(term.isfinite() for term in terms.values())
    assert logits.grad.isfinite().all()
    assert all(state.isfinite().all() for state in method.state_dict().values())
