"""D2L + MAT: four heads, patches where there are images, thresholds fitted on labelled rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from ssmlbench.checks.toy import spec_for, toy, train
from ssmlbench.core.paths import builtin_root
from ssmlbench.kit.pools import Pool, Pools
from ssmlbench.plugins.loader import load_file
from tests.support.vectors import close

d2l = load_file(builtin_root() / "methods" / "d2l_mat.py")
D2lMat = d2l.D2lMat


# ------------------------------------------------------------------------------- vectors


def test_patches_are_joined_by_their_softmax(vectors: dict[str, Any]) -> None:
    vector = vectors["d2l.patch_aggregation"]
    patch_major = torch.tensor(vector["inputs"]["patch_logits_4x2rows_patch_major"])
    row_major = patch_major.reshape(4, 2, 2).transpose(0, 1).flatten(0, 1)
    close(d2l.joined_patches(row_major), vector["expected"]["joint"])


def test_the_released_threshold_search(vectors: dict[str, Any]) -> None:
    vector = vectors["mat.threshold_search"]
    scores, targets = (torch.tensor(vector["inputs"][n])[:, None] for n in ("scores", "targets"))
    beta = vector["inputs"]["beta"]
    threshold, value = d2l.best_thresholds(scores, targets, beta, released=True)
    close(threshold, [vector["expected"]["threshold"]])
    close(value, [vector["expected"]["metric_value"]])


# ------------------------------------------------------------------------------- thresholds


def plain_f_score(truth: np.ndarray, answer: np.ndarray, beta: float) -> float:
    hits, misses, alarms = (truth & answer).sum(), (truth & ~answer).sum(), (~truth & answer).sum()
    return (1 + beta**2) * hits / max((1 + beta**2) * hits + beta**2 * misses + alarms, 1e-9)


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 2**16), rows=st.integers(1, 30), beta=st.sampled_from([0.5, 1.0, 2.0]))
@example(seed=2465, rows=29, beta=1.0)  # .16 and .27 are equally good, by other precisions
def test_thresholds_are_those_of_a_plain_search(seed: int, rows: int, beta: float) -> None:
    """Against F_β from counts of true and false answers at each threshold, label by label."""
    random = np.random.default_rng(seed)
    scores = random.random((rows, 3)).astype(np.float32)
    targets = (random.random((rows, 3)) < 0.4).astype(np.int8)
    found, values = d2l.best_thresholds(torch.from_numpy(scores), torch.from_numpy(targets), beta)
    grid = np.arange(100, dtype=np.float32) / np.float32(100)
    for k in range(3):
        f_scores = [plain_f_score(targets[:, k] == 1, scores[:, k] >= t, beta) for t in grid]
        assert np.isclose(values[k], max(f_scores), atol=1e-6)
        first_best = np.flatnonzero(np.isclose(f_scores, max(f_scores), atol=1e-9))[0]
        assert found[k] == (grid[first_best] if max(f_scores) > 0 else np.inf)


def test_a_label_without_labelled_positives_gets_no_pseudo_positive() -> None:
    threshold, _ = d2l.best_thresholds(torch.rand(5, 1), torch.zeros(5, 1), 0.5)
    assert (torch.ones(1) < threshold).all()


def test_a_score_on_the_threshold_is_positive() -> None:
    """Scores .25 (no) and .75 (yes): every t in (.25, .75] is perfect, and .26 is the smallest."""
    threshold, value = d2l.best_thresholds(
        torch.tensor([[0.25], [0.75]]), torch.tensor([[0], [1]]), 0.5
    )
    close(threshold, [0.26])
    close(value, [1.0])


# ------------------------------------------------------------------------------- the method


def method_for(views: set[str]) -> Any:
    method = D2lMat(D2lMat.Config(), 2)
    empty = Pool(torch.zeros(0, 2, dtype=torch.int8), torch.zeros(2), lambda *_: {})
    method.setup(Pools(empty, empty, views=frozenset(views)))
    return method


def test_patches_are_asked_for_where_the_data_has_them() -> None:
    whole, patched = method_for({"weak", "strong"}), method_for(set(toy("image").train.views))
    assert (whole.labelled_views, whole.unlabelled_ema_views) == (("strong",), ("weak",))
    assert patched.labelled_views == ("strong", "strong-patches")
    assert patched.unlabelled_views == ("strong", "strong-patches")
    assert patched.unlabelled_ema_views == ("weak", "weak-patches")


def test_images_train_four_terms_and_vectors_two() -> None:
    terms = {
        kind: {
            key
            for key in train(D2lMat, toy(kind), spec_for(D2lMat, "semi")).history[-1]
            if key.startswith("loss_")
        }
        for kind in ("image", "vector")
    }
    assert terms["vector"] == {"loss_labelled", "loss_unlabelled"}
    assert terms["image"] == terms["vector"] | {"loss_labelled_patches", "loss_unlabelled_patches"}


def test_heads_of_pseudo_labels_start_from_those_of_labels_in_both_networks() -> None:
    """Seen at the first epoch after warm-up, where the averaged weights are the raw ones anew."""
    seen = []

    class Watched(D2lMat):  # type: ignore[misc, valid-type]
        def start_epoch(self, pools: Pools) -> None:
            super().start_epoch(pools)
            if not seen:
                for model in ("raw", "ema"):
                    rows = pools.labelled
                    seen.append(
                        [
                            rows.output(name, model, "plain")
                            for name in ("logits", "pseudo_logits", "patch", "pseudo_patch")
                        ]
                    )

    train(Watched, toy("vector"), spec_for(Watched, "semi"))
    assert len(seen) == 2
    for fc1, fc3, fc2, fc4 in seen:
        assert torch.equal(fc1, fc3)
        assert torch.equal(fc2, fc4)
        assert not torch.equal(fc1, fc2)


def test_labels_and_pseudo_labels_move_heads_of_their_own() -> None:
    torch.manual_seed(0)
    head = d2l.FourHeads(3, 2)
    outputs = head(torch.randn(4, 3))
    outputs["pseudo_logits"].sum().backward()
    moved = {name for name, p in head.named_parameters() if p.grad is not None}
    assert moved == {"pseudo_whole.weight", "pseudo_whole.bias"}


def test_scores_are_the_sigmoid_of_the_mean_of_whole_and_patches() -> None:
    """Equal patches join to themselves: σ((1 + 3) / 2)."""
    whole, patches = torch.tensor([[1.0]]), torch.full((4, 1), 3.0)
    close(d2l.joint_probabilities(whole, patches), [[torch.tensor(2.0).sigmoid().item()]])
    close(d2l.joint_probabilities(whole, None), [[torch.tensor(1.0).sigmoid().item()]])


@settings(max_examples=25, deadline=None)
@given(
    size=st.sampled_from([0.0, 1.0, 100.0, 1e4]),
    positive=st.sampled_from([0.0, 0.5, 1.0]),
    rows=st.integers(1, 4),
    labels=st.integers(1, 3),
    dtype=st.sampled_from([torch.float32, torch.bfloat16]),
    seed=st.integers(0, 2**16),
)
def test_loss_and_gradients_are_finite(
    size: float, positive: float, rows: int, labels: int, dtype: torch.dtype, seed: int
) -> None:
    draw = torch.Generator().manual_seed(seed)
    logits = (size * torch.randn(4 * rows, labels, generator=draw)).to(dtype).requires_grad_()
    targets = (torch.rand(rows, labels, generator=draw) < positive).to(dtype)
    loss = D2lMat(D2lMat.Config(), labels).summed_loss(d2l.joined_patches(logits), targets)
    loss.backward()
    assert loss.isfinite()
    assert logits.grad is not None
    assert logits.grad.isfinite().all()
