"""BBAM's formulas against the vectors: the paper's form, and the released code's as options."""

from __future__ import annotations

import dataclasses
import math
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional as F

from ssmlbench.checks.toy import CHECKPOINT, spec_for, toy, train
from ssmlbench.core.events import CheckpointSaved, Event, Warned
from ssmlbench.core.hyperparameters import parse_config
from ssmlbench.core.paths import builtin_root
from ssmlbench.kit.losses import angles
from ssmlbench.kit.pools import Batch, Forward, Pool, Pools
from ssmlbench.kit.pseudo_labels import class_aware_labels
from ssmlbench.plugins.loader import Plugins, load_file
from tests.support.vectors import TOLERANCE, close

bbam = load_file(builtin_root() / "methods" / "bbam.py")


@pytest.mark.parametrize(
    ("name", "margin"), [("bbam.bam_loss_paper", "both"), ("bbam.bam_loss_code", "positives")]
)
def test_the_margin_loss(vectors: dict[str, Any], name: str, margin: str) -> None:
    given_, expected = vectors[name]["inputs"], vectors[name]["expected"]
    cosines, y = torch.tensor(given_["cos"]), torch.tensor(given_["y"])
    found = bbam.margin_loss(cosines, y, given_["s"], given_["m"], margin)
    close(found, expected["loss_matrix"])
    if margin == "both":
        assert float(found.mean()) == pytest.approx(expected["mean_over_BK"], abs=TOLERANCE)
    else:
        assert float(found.sum()) == pytest.approx(expected["sum"], abs=TOLERANCE)


def statistics(vector: dict[str, Any]) -> Tensor:
    return torch.tensor([vector["means_neg_pos"], vector["vars_neg_pos"]])


def test_the_transform_and_its_loss(vectors: dict[str, Any]) -> None:
    given_, expected = vectors["bbam.transform"]["inputs"], vectors["bbam.transform"]["expected"]
    theta = angles(torch.tensor(given_["cos"]))
    targets = torch.tensor(given_["target"])
    psi = bbam.balanced_angles(theta, targets, statistics(given_))
    close(theta, expected["theta"])
    close(psi, expected["psi"])
    close(psi.cos(), expected["cos_psi"])
    released = bbam.margin_loss(psi.cos()[:2], targets[:2], given_["s"], given_["m"], "positives")
    close(released, expected["code_loss_first_two_rows"])


def prototype_angles(features: Tensor, positive: Tensor) -> tuple[Tensor, Tensor]:
    centres = bbam.class_means(features, positive)
    return centres, angles(F.normalize(features, dim=1) @ F.normalize(centres, dim=1).T)


def test_statistics_of_the_paper(vectors: dict[str, Any]) -> None:
    vector = vectors["bbam.angle_stats_paper"]
    features, targets = (torch.tensor(vector["inputs"][k]) for k in ("features", "targets"))
    kept = torch.tensor(vector["inputs"]["beta"]).bool()
    positive = targets == 1
    centres, phi = prototype_angles(features, positive)
    means, variances = bbam.angle_statistics(phi, (targets == 0) & kept, positive)
    close(centres, vector["expected"]["centers"])
    close(means, vector["expected"]["means_neg_pos"])
    close(variances, vector["expected"]["variances_neg_pos"])
    close(variances.mean(0), vector["expected"]["balanced_variance"])


def test_statistics_of_the_released_code_over_two_epochs(vectors: dict[str, Any]) -> None:
    vector, gamma = vectors["bbam.angle_stats"], vectors["bbam.angle_stats"]["inputs"]["gamma"]
    features = torch.tensor(vector["inputs"]["features"])
    targets = torch.tensor(vector["inputs"]["targets_minus1_is_masked"])
    _, phi = prototype_angles(features, targets == 1)
    groups = (targets == 0, targets == 1)
    first = bbam.released_statistics(phi, *groups, torch.zeros(2, 2, 2), gamma)
    second = bbam.released_statistics(phi, *groups, first, gamma)
    for found, expected in (
        (first, vector["expected"]),
        (second, vector["expected"]["second_call_same_data"]),
    ):
        close(found[0], expected["means"])
        close(found[1], expected["variances"])


def test_negative_sampling(vectors: dict[str, Any]) -> None:
    vector = vectors["bbam.negative_sampling_no_mask"]
    features, centres, targets = (
        torch.tensor(vector["inputs"][k]) for k in ("features", "centers", "targets")
    )
    cosines = F.normalize(features, dim=1) @ F.normalize(centres, dim=1).T
    positive = targets == 1
    kept = bbam.nearest_negatives(cosines, targets == 0, positive.sum(0), vector["inputs"]["eta"])
    assert (kept | positive).float().tolist() == vector["expected"]["mask_ns"]


def test_negative_sampling_as_released_counts_masked_entries_against_the_positives(
    vectors: dict[str, Any],
) -> None:
    vector = vectors["bbam.negative_sampling"]
    features, centres, targets = (
        torch.tensor(vector["inputs"][k]) for k in ("features", "centers", "targets")
    )
    cosines = F.normalize(features, dim=1) @ F.normalize(centres, dim=1).T
    known = targets >= 0
    counts = (targets == 1).sum(0) - (~known).sum(0)
    assert counts.tolist() == vector["expected"]["num_pos"]
    kept = bbam.nearest_negatives(cosines, targets == 0, counts, vector["inputs"]["eta"])
    found = (kept | (targets == 1)).float()
    # The released mask is 1 at the masked entry too; its loss is masked away elsewhere.
    expected = torch.tensor(vector["expected"]["mask_ns"]) * known
    assert found.tolist() == expected.tolist()


def test_no_label_independent_transform_changes_the_pseudo_labels(vectors: dict[str, Any]) -> None:
    vector = vectors["bbam.pseudo_label_leak"]
    given_ = vector["inputs"]
    cosines, prior = torch.tensor(given_["cos"]), torch.tensor(given_["pos_freq"]).double()
    raw, _ = class_aware_labels(cosines, prior)
    halves = torch.full_like(cosines, 0.5)
    psi = bbam.balanced_angles(angles(cosines), halves, statistics(given_))
    transformed, _ = class_aware_labels(psi.cos(), prior)
    assert raw.tolist() == vector["expected"]["pseudo_labels_raw_cos"]
    assert transformed.tolist() == raw.tolist()
    assert raw.tolist() != vector["expected"]["pseudo_labels_released_code_epoch13"]


@settings(max_examples=25, deadline=None)
@given(
    st.integers(1, 12),
    st.integers(1, 4),
    st.integers(0, 2**31),
    st.sampled_from(["both", "positives"]),
    st.sampled_from([0.0, 0.5, 1.0]),
)
def test_the_balanced_loss_is_finite_whatever_the_groups(
    n: int, labels: int, seed: int, margin: str, frequency: float
) -> None:
    torch.manual_seed(seed)
    cosines = torch.empty(n, labels).uniform_(-1, 1).sign().requires_grad_()  # exactly ±1
    targets = (torch.rand(n, labels) < frequency).float()
    phi = torch.rand(n, labels).round(decimals=1)
    found = bbam.angle_statistics(phi, targets == 0, targets == 1)
    loss = bbam.margin_loss(
        bbam.balanced_angles(angles(cosines), targets, found).cos(), targets, 20, 0.4, margin
    )
    loss.sum().backward()
    assert loss.isfinite().all()
    assert cosines.grad is not None
    assert cosines.grad.isfinite().all()


# ------------------------------------------------------------------- factors that run away


def test_the_factors_and_their_bound() -> None:
    """By hand: variances .04 and .01, v = .025, a = √(.025 / .04) and √(.025 / .01)."""
    variances = torch.tensor([[0.04, 0.02], [0.01, 0.0]])  # negatives, positives
    close(bbam.factors(variances), [[0.790569, 1.0], [1.581139, 1.0]])
    close(bbam.factors(variances, 1.2), [[0.790569, 1.0], [1.2, 1.0]])
    theta = torch.tensor([[1.0, 1.0]])
    stats = torch.stack([torch.tensor([[0.5, 0.5], [0.8, 0.8]]), variances])
    psi = bbam.balanced_angles(theta, torch.ones_like(theta), stats, 1.2)
    close(psi, [[1.2 * 1.0 + (1 - 1.2) * 0.8, 1.0]])


@pytest.fixture
def early_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    """The toy's factors are near 2: here that is too much."""
    monkeypatch.setattr(bbam, "RUNAWAY_FACTOR", 1.5)


@pytest.mark.usefixtures("early_warning")
@pytest.mark.parametrize("bound", [None, 1.3])
def test_a_runaway_factor_is_in_the_history_and_warned_of_once(bound: float | None) -> None:
    cls, said = bbam.Bbam, []
    spec = spec_for(cls, "semi")
    spec = dataclasses.replace(spec, config={**spec.config, "factor_bound": bound})
    outcome = train(cls, toy("vector"), spec, notify=said.append)
    largest = [row["largest_factor"] for row in outcome.history[spec.warmup_epochs :]]
    warned = [event.text for event in said if isinstance(event, Warned)]
    if bound is None:
        first = 1 + spec.warmup_epochs + [f > bbam.RUNAWAY_FACTOR for f in largest].index(True)
        assert len(warned) == 1
        assert f"in epoch {first} " in warned[0]
        assert outcome.notes == warned
    else:
        assert max(largest) == pytest.approx(bound)
        assert warned == outcome.notes == []


@pytest.mark.usefixtures("early_warning")
def test_the_warning_names_settings_that_exist_and_without_rescaling_there_is_none() -> None:
    warning = bbam.Bbam.warning(None, {"epoch": 5, "largest_factor": 34.0})
    config = bbam.Bbam.Config()
    for name, value in re.findall(r"--set (\w+)=(\w+)", warning):
        config = parse_config(type(config), {name: value}, "bbam")
        assert config != bbam.Bbam.Config()
    assert not config.balance
    spec = dataclasses.replace(spec_for(bbam.Bbam, "semi"), config=dataclasses.asdict(config))
    assert train(bbam.Bbam, toy("vector"), spec).notes == []


@pytest.mark.usefixtures("early_warning")
def test_a_resumed_run_keeps_its_warning_and_does_not_repeat_it(tmp_path: Path) -> None:
    cls, kept = bbam.Bbam, {}

    def keep(event: Event) -> None:
        if isinstance(event, CheckpointSaved):
            kept[event.epoch] = (tmp_path / CHECKPOINT).read_bytes()

    spec = spec_for(cls, "semi")
    whole = train(cls, toy("vector"), spec, folder=tmp_path, notify=keep)
    assert whole.notes
    (tmp_path / CHECKPOINT).write_bytes(kept[spec.epochs - 1])
    said: list[Event] = []
    resumed = train(cls, toy("vector"), spec, folder=tmp_path, notify=said.append)
    assert resumed.notes == whole.notes
    assert not any(isinstance(event, Warned) for event in said)


# ------------------------------------------------------------------- options of the releases


def test_the_released_evaluation_scores_the_average_of_both_transforms() -> None:
    """By hand: ψ⁺ = 1.581139 θ - .581139 · .8 and ψ⁻ = .790569 θ + .209431 · 1.2 at θ = π/3."""
    method = bbam.Bbam(bbam.Bbam.Config(scoring="averaged"), 1)
    method.statistics = torch.tensor([[[1.2], [0.8]], [[0.04], [0.01]]])
    theta = math.pi / 3
    psi = (1.581139 * theta - 0.581139 * 0.8 + 0.790569 * theta + 0.209431 * 1.2) / 2
    expected = 1 / (1 + math.exp(-20 * (math.cos(psi) - 0.4)))
    close(method.scores(torch.tensor([[0.5]])), [[expected]])
    plain = bbam.Bbam(bbam.Bbam.Config(), 1)
    close(plain.scores(torch.tensor([[0.5]])), [[1 / (1 + math.exp(-2))]])


def test_before_there_are_statistics_both_scorings_are_one() -> None:
    cosines = torch.linspace(-0.9, 0.9, 7)[:, None]
    made = []
    for scoring in ("cosine", "averaged"):
        method = bbam.Bbam(bbam.Bbam.Config(scoring=scoring), 1)
        method.statistics = torch.zeros(2, 2, 1)
        made.append(method.scores(cosines))
    torch.testing.assert_close(*made)


def test_labelled_negatives_need_not_be_sampled() -> None:
    cls = Plugins().methods["bbam"]
    for choice, all_kept in (("always", False), ("never", True)):
        method = cls(cls.Config(labelled_sampling=choice), 3)
        pools = toy_pools()
        method.setup(pools)
        with torch.no_grad():
            method.start_epoch(pools)
        labelled, unlabelled = method.kept.split([100, 400])
        assert bool(labelled.all()) is all_kept
        assert not unlabelled.all()


def toy_pools() -> Pools:
    torch.manual_seed(0)
    prior = torch.tensor([0.05, 0.1, 0.2]).double()

    def pool(rows: int, known: bool) -> Pool:
        outputs = {"logits": torch.rand(rows, 3) * 2 - 1, "features": torch.randn(rows, 4)}
        observed = (torch.rand(rows, 3) < prior).to(torch.int8)
        return Pool(observed if known else observed * 0 - 1, prior, lambda *asked: outputs)

    return Pools(pool(100, True), pool(400, False), epoch=1, epochs=1)


@pytest.mark.parametrize("name", ["cap", "bbam", "d2l_mat"])
def test_the_ratio_weighs_the_pools_of_summed_losses(name: str) -> None:
    """4 + 6 rows with one and the same loss each: the unlabelled term is ratio times the labelled one."""
    cls = Plugins().methods[name]
    options = {"reduction": "sum"} if name == "bbam" else {}
    for ratio, expected in ((None, 6 / 4), (15.0, 15.0)):
        method = cls(cls.Config(pool_ratio=ratio, **options), 2)
        labelled, unlabelled = (
            batch_of(pool, rows) for pool, rows in (("labelled", 4), ("unlabelled", 6))
        )
        if name == "d2l_mat":
            method.patched, method.thresholds = False, torch.full((2,), 0.01)
        else:
            method.targets, method.trust = torch.ones(6, 2), torch.ones(6, 2)
            method.balancing, method.kept, method.n_labelled = False, torch.ones(10, 2), 4
        terms = method.loss(labelled, unlabelled)
        torch.testing.assert_close(terms["unlabelled"], expected * terms["labelled"])


def batch_of(pool: str, rows: int) -> Batch:
    logits = torch.full((rows, 2), 0.3)
    forward = Forward(
        lambda x: {"logits": x, "pseudo_logits": x},
        {(pool, "strong"): logits, (pool, "weak"): logits},
    )
    observed = torch.ones(rows, 2, dtype=torch.int8)
    return Batch(pool, torch.arange(rows), observed, forward, forward)
