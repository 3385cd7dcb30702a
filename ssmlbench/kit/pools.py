"""The data of a method: pools of training rows, and batches of them with lazy network outputs.

Nothing here has ever held a hidden label.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from ssmlbench.core.errors import ContractError
from ssmlbench.core.suggestions import did_you_mean

Outputs = dict[str, Tensor]


class Forward:
    """One pass of the network over every view a step needs, labelled and unlabelled rows together.

    It runs once, when the first output is read: the parts are slices of one pass.
    """

    def __init__(
        self,
        network: Callable[[Tensor], Outputs],
        inputs: dict[tuple[str, str], Tensor],
        declared_in: str = "views",
        known: Collection[str] = (),
    ):
        """Keep the inputs by (pool, view).

        declared_in: "views" or "ema_views", the end of the attribute's name that declares them.
        known: the views that the data have.
        """
        self._network = network
        self._inputs = inputs
        self._declared_in = declared_in
        self._known = known
        self._outputs: dict[tuple[str, str], Outputs] | None = None

    def __getitem__(self, part: tuple[str, str]) -> Outputs:
        if part not in self._inputs:
            raise self._undeclared(*part)
        if self._outputs is None:
            sizes = [len(x) for x in self._inputs.values()]
            together = self._network(torch.cat(list(self._inputs.values())))
            pieces = {name: value.split(sizes) for name, value in together.items()}
            self._outputs = {
                part: {name: piece[i] for name, piece in pieces.items()}
                for i, part in enumerate(self._inputs)
            }
        return self._outputs[part]

    def _undeclared(self, pool: str, view: str) -> ContractError:
        if self._known and view not in self._known:
            return no_such_view(view, self._known)
        if pool == "labelled" and self._declared_in == "ema_views":
            return ContractError(
                "ema_outputs of labelled rows: the averaged network reads unlabelled rows only"
            )
        declared = tuple(v for p, v in self._inputs if p == pool)
        return ContractError(
            f"the {view!r} view of {pool} rows was not declared: add it to "
            f"{pool}_{self._declared_in}, which is {declared}"
        )

    def forget(self) -> None:
        """Drop the outputs: the weights have changed, so the next access runs the network again."""
        self._outputs = None


def no_such_view(view: object, known: Collection[str], attribute: str = "") -> ContractError:
    """The error for a view that the data do not have. attribute: the one that declares it."""
    start = f"{attribute} has {view!r}: " if attribute else ""
    text = f"{start}there is no view {view!r}.{did_you_mean(str(view), known)}"
    return ContractError(text, attribute, str(view))


@dataclass
class Batch:
    """Some rows of one pool in one step.

    rows      B positions in the pool: `self.targets[batch.rows]` is this batch's part
    observed  B × K int8: 1 positive, 0 negative, -1 unknown
    """

    pool: str
    rows: Tensor
    observed: Tensor
    forward: Forward
    ema_forward: Forward

    def logits(self, view: str) -> Tensor:
        """The head's output, B × K: logits, or cosines for a cosine head."""
        return self.outputs(view)["logits"]

    def features(self, view: str) -> Tensor:
        """B × D, the head's input."""
        return self.outputs(view)["features"]

    def outputs(self, view: str) -> Outputs:
        """All outputs of the head, and its input "features", by name."""
        return self.forward[self.pool, view]

    def ema_outputs(self, view: str) -> Outputs:
        """The same from the averaged weights, in eval mode, without gradients."""
        return self.ema_forward[self.pool, view]


POOL_RATIO = (
    "weight of the unlabelled rows' summed loss beside the labelled rows'; none: by their numbers. "
    "CAP's batches: 15 at π = 0.05, 7 at 0.1, 4.33 at 0.15, 3 at 0.2"
)
"""The help text of the hyper-parameter that `pool_weight` takes."""


def pool_weight(ratio: float | None, labelled: Batch, unlabelled: Batch) -> float:
    """The factor of the unlabelled rows' summed loss that makes the pools weigh 1 : ratio in a step."""
    return 1.0 if ratio is None else ratio * len(labelled.rows) / len(unlabelled.rows)


Predict = Callable[[str, str, tuple[str, ...]], Outputs]
"""(model, view, names of the outputs wanted) → outputs over all rows."""
FeatureBatches = Callable[[str, str], Iterator[tuple[int, Tensor]]]
"""(model, view) → the features of all rows, a batch at a time with the position of its first row."""


class RowOutputs:
    """Rows without labels, with network outputs over the whole of them.

    Results are cached until the steps of the epoch begin, so that two callers compute once.
    `model` is "ema" (the averaged weights) or "raw" (the ones being trained); both in eval mode.
    """

    def __init__(self, count: int, predict: Predict):
        self._count = count
        self._predict = predict
        self._outputs: dict[tuple[str, str], Outputs] = {}

    def __len__(self) -> int:
        return self._count

    def logits(self, model: str = "ema", view: str = "weak") -> Tensor:
        """N × K."""
        return self.output("logits", model, view)

    def features(self, model: str = "raw", view: str = "weak") -> Tensor:
        """N × D, the head's inputs."""
        return self.output("features", model, view)

    def output(self, name: str, model: str = "ema", view: str = "weak") -> Tensor:
        """Any output of the head, by name."""
        kept = self._outputs.setdefault((model, view), {})
        if name not in kept:
            # Wide features are kept only if they are read; logits cost nothing extra.
            kept.update(self._predict(model, view, tuple({name, "logits"})))
        return kept[name]

    def forget(self) -> None:
        """Drop the outputs: the weights are about to change."""
        self._outputs.clear()


class Pool(RowOutputs):
    """Training rows and their observed labels.

    observed  N × K int8: 1 positive, 0 negative, -1 unknown
    prior     K, the share of positives among the labelled rows' known labels (the same in both pools)
    """

    def __init__(
        self,
        observed: Tensor,
        prior: Tensor,
        predict: Predict,
        feature_batches: FeatureBatches | None = None,
    ):
        super().__init__(len(observed), predict)
        self.observed = observed
        self.prior = prior
        self._feature_batches = feature_batches

    def put_features(self, whole: Tensor | None, start: int, rows: int, model: str) -> Tensor:
        """Copy the weak view's features into `whole` from row `start` on; None: make it, `rows` × D."""
        kept = self._outputs.get((model, "weak"), {})
        if self._feature_batches is None or "features" in kept:
            batches = iter([(0, self.features(model))])
        else:
            batches = self._feature_batches(model, "weak")
        for at, part in batches:
            if whole is None:
                whole = part.new_empty((rows, *part.shape[1:]))
            whole[start + at : start + at + len(part)] = part
        assert whole is not None  # a pool without rows has one empty batch
        return whole


@dataclass
class Pools:
    """The labelled and the unlabelled pool. Outside `semi`, every row is in `labelled`."""

    labelled: Pool
    unlabelled: Pool
    epoch: int = 0  # of the epoch that is about to start, from 1; 0 in `setup`
    epochs: int = 0  # all of them, warm-up included
    warmup_epochs: int = 0
    views: frozenset[str] = frozenset()  # the views this data has: only images have patches

    @property
    def first_epoch(self) -> bool:
        """Whether the epoch that is about to start is the first one after warm-up."""
        return self.epoch == self.warmup_epochs + 1

    def features(self, model: str = "raw") -> Tensor:
        """N × D, the weak view's features of both pools, labelled rows first.

        The caller owns the tensor: no other code reads it, and no copy is kept.
        """
        first, rows = len(self.labelled), len(self.labelled) + len(self.unlabelled)
        whole = self.labelled.put_features(None, 0, rows, model)
        return self.unlabelled.put_features(whole, first, rows, model)

    def forget(self) -> None:
        """Drop the outputs of both pools."""
        self.labelled.forget()
        self.unlabelled.forget()
