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

from ssmlbench.checks import toy as checks_toy
from ssmlbench.core.paths import builtin_root
from ssmlbench.kit.families.label_estimates import agreement
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


@pytest.mark.parametrize(
    ("name", "term", "sum_"), [("l1r", "l1_term", "l1_total"), ("l2r", "l2_term", "l2_total")]
)
def test_weight_penalties_agree_with_the_vector(
    vectors: dict[str, Any], name: str, term: str, sum_: str
) -> None:
    inputs = vectors["baseline.l1r_l2r"]["inputs"]
    expected = vectors["baseline.l1r_l2r"]["expected"]
    method = build(name, 2, penalty=inputs["lam"])
    penalty = method.weight_penalty(torch.tensor(inputs["W"])).item()
    assert penalty == pytest.approx(expected[term], abs=TOLERANCE)
    assert inputs["an_mean"] + penalty == pytest.approx(expected[sum_], abs=TOLERANCE)


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
