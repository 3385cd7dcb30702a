"""The method contract: one class, its hyper-parameters on it, its mathematics in `loss`.

The trainer owns data, device, precision, optimiser, schedule, EMA, checkpoints and logging.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import reduce
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from ssmlbench.core.errors import ContractError, UserError
from ssmlbench.kit import heads
from ssmlbench.kit.contract import check_terms
from ssmlbench.kit.estimator import Uses
from ssmlbench.kit.gradient_step import GradientStep
from ssmlbench.kit.heads import Network
from ssmlbench.kit.pools import Batch, Pools, RowOutputs


class Method(nn.Module):
    """A way of learning from labelled and unlabelled rows.

    A method is an nn.Module: a Parameter put on `self` is trained; a tensor put on `self` is saved
    with the run and moved to its device, so that a killed run resumes with equal bits. Plain Python
    attributes are not saved, and a conformance check reports a method that needs them.
    """

    name: ClassVar[str]
    paper: ClassVar[str] = ""  # authors, title, venue
    differences: ClassVar[tuple[str, ...]] = ()  # where the paper and its released code differ
    regimes: ClassVar[frozenset[str] | set[str]] = frozenset({"semi"})
    # Variants that each change one ingredient: name → hyper-parameters. `ssmlbench analyse ablation`
    # runs them; the key "method" names another method that the values belong to.
    ablations: ClassVar[Mapping[str, Mapping[str, Any]]] = {}
    head: ClassVar[str] = "linear"  # or "cosine": normalised features and weights
    projection: ClassVar[str] = "none"  # or "mlp": the papers' 512-256 projection below the head
    warm_up: bool = True  # start with epochs on labelled rows only

    # The views `loss` asks for; they are computed together in one forward pass.
    labelled_views: tuple[str, ...] = ("strong",)
    unlabelled_views: tuple[str, ...] = ("strong",)
    # Views that go through the averaged network instead, for `batch.ema_outputs(view)`.
    unlabelled_ema_views: tuple[str, ...] = ()

    @property
    def uses(self) -> Uses:
        """The training rows it learns from; set it on the class if the views do not show it."""
        views = (*self.unlabelled_views, *self.unlabelled_ema_views)
        return "both pools" if views else "labelled rows"

    @dataclass(frozen=True)
    class Config:
        """Hyper-parameters, each with a default: `ssmlbench run --set name=value` changes one."""

    def __init__(self, config: Any, labels: int):
        super().__init__()
        self.check_labels(config, labels)
        self.config = config
        self.labels = labels  # K
        self.optimisers: dict[str, torch.optim.Optimizer] = {}
        # Further columns of history.csv: a step sets scalar tensors by name, and the trainer writes
        # the mean of each over the epoch's steps.
        self.diagnostics: dict[str, Tensor] = {}

    def __setattr__(self, name: str, value: Any) -> None:
        if "_buffers" not in self.__dict__:
            raise ContractError(
                f"__init__ sets self.{name} before it calls super().__init__(config, labels)"
            )
        is_state = isinstance(value, Tensor) and not isinstance(value, nn.Parameter)
        if is_state and name not in self._buffers:
            self.__dict__.pop(name, None)  # a placeholder such as `self.targets = None`
            self.register_buffer(name, value)
        else:
            super().__setattr__(name, value)

    @classmethod
    def most_labels(cls, config: Any) -> int | None:
        """The most labels that fit in 2 GB with this configuration; None: no limit of the method's own."""
        return None

    @classmethod
    def check_labels(cls, config: Any, labels: int) -> None:
        """Raise a UserError if the method cannot handle that many labels."""
        most = cls.most_labels(config)
        if most is not None and labels > most:
            raise UserError(
                f"method {cls.name}: the data set has {labels:,} labels, and with these hyper-parameters "
                f"it can handle {most:,}; choose another method"
            )

    @classmethod
    def head_of(cls, config: Any) -> str:
        """The kind of head with this configuration: `head`, unless a hyper-parameter chooses it."""
        return cls.head

    def build_head(self, width: int) -> nn.Module:
        """The module on top of the `width` features; most methods name one in `head` instead."""
        return heads.build_head(self.head_of(self.config), width, self.labels)

    def setup(self, pools: Pools) -> None:
        """Once, before training: make state that depends on the rows."""

    def start_phase(self, network: Network) -> None:
        """Before the first step of warm-up and of the main phase: weights may be moved here.

        The averaged network starts again from these weights right after.
        """

    def start_epoch(self, pools: Pools) -> None:
        """Before every epoch after warm-up. Scores and features of whole pools are cheap here."""

    def start_steps(self, network: Network) -> None:
        """Before the first step of every epoch, with the network in train mode.

        Parts of it may be frozen here: the optimiser skips weights without a gradient.
        """

    def loss(self, labelled: Batch, unlabelled: Batch | None) -> dict[str, Tensor]:
        """The terms to minimise; they are summed, and each is logged under its name.

        `unlabelled` is None during warm-up, and in regimes where no row is without labels.
        """
        raise NotImplementedError(f"{type(self).__name__} must define loss or step")

    def step(
        self, labelled: Batch, unlabelled: Batch | None, update: GradientStep
    ) -> dict[str, Tensor]:
        """One gradient step. Override it only if one backward pass is not enough."""
        terms = self.loss(labelled, unlabelled)
        check_terms(terms, "loss")
        update.backward(summed(terms))
        return terms

    def scores(self, logits: Tensor) -> Tensor:
        """Test-time scores in [0, 1], N × K."""
        return logits.sigmoid()

    def test_scores(self, rows: RowOutputs) -> Tensor:
        """N × K scores of rows to be judged. Override it only if one plain view is not enough."""
        return self.scores(rows.logits(model="ema", view="plain"))

    def warning(self, epoch: Mapping[str, Any]) -> str | None:
        """A warning for the user about an epoch, given its row of the history; None if all is well.

        The first warning of a run is shown, and kept among the notes of its result.
        """
        return None

    def pseudo_labels(self) -> tuple[Tensor, Tensor] | None:
        """The current targets and trust of the unlabelled pool, N_u × K, for the audit to grade."""
        targets, trust = getattr(self, "targets", None), getattr(self, "trust", None)
        return None if targets is None or trust is None else (targets, trust)

    def parameter_groups(self, lr: float) -> list[dict[str, Any]]:
        """The method's own parameters as optimiser groups (the network's are not in here)."""
        own = list(self.parameters())
        return [{"params": own, "lr": lr}] if own else []

    def build_optimisers(self, network: Network) -> dict[str, torch.optim.Optimizer]:
        """Optimisers of the method's own, for a `step` that needs more than the trainer's.

        Called at the start of each phase; kept in `self.optimisers` and saved with the run.
        """
        return {}

    def load_state(self, state: dict[str, Tensor]) -> None:
        """Restore a `state_dict`, whose tensors may have other shapes than those on `self` now."""
        parameters = dict(self.named_parameters())
        for name, value in state.items():
            if name in parameters:
                parameters[name].data.copy_(value)
            else:
                owner = self.get_submodule(name.rpartition(".")[0])
                setattr(owner, name.rpartition(".")[2], value)


def summed(terms: Mapping[str, Tensor]) -> Tensor:
    """The loss: the sum of its terms."""
    return reduce(torch.add, [term.float() for term in terms.values()])
