"""The contract of every method, checked on toy data in seconds: by `ssmlbench check` and the tests.

Each check is one statement about behaviour, and raises Broken with the reason if it does not hold.
"""

from __future__ import annotations

import dataclasses
import tempfile
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ssmlbench.checks.randomness import unseeded_draw
from ssmlbench.checks.statements import Broken, Statement
from ssmlbench.checks.toy import (
    CHECKPOINT,
    LABELS,
    ROWS,
    same_bits,
    spec_for,
    toy,
    toy_trainer,
    train,
)
from ssmlbench.core import hyperparameters
from ssmlbench.core.errors import UserError
from ssmlbench.core.events import CheckpointSaved, Event
from ssmlbench.core.spec import REGIME_NUMBERS
from ssmlbench.inputs.splits import Inputs
from ssmlbench.kit.contract import build_method
from ssmlbench.kit.estimator import Estimator
from ssmlbench.kit.method import Method
from ssmlbench.plugins.contract import check_contract
from ssmlbench.plugins.source_lines import defined_at
from ssmlbench.protocol.observation import observe
from ssmlbench.protocol.regimes import REGIMES
from ssmlbench.training.evaluation import Outcome

RESUMED_AFTER = (1, 2, 3)
"""Epochs after which a kill is simulated: in warm-up, at its end, and in the main phase."""


@dataclasses.dataclass(frozen=True)
class UndisturbedRun:
    """One run from start to end, and its checkpoints on the way."""

    outcome: Outcome
    method: Method  # as it ended
    checkpoints: dict[int, bytes]  # by epoch


_latest: dict[tuple[type[Method], str, str], UndisturbedRun] = {}


def undisturbed(cls: type[Method], regime: str, kind: str) -> UndisturbedRun:
    """The run that the checks compare with: trained once for all checks of a regime and kind."""
    wanted = (cls, regime, kind)
    if wanted not in _latest:
        _latest.clear()
        _latest[wanted] = _train_undisturbed(*wanted)
    return _latest[wanted]


def _train_undisturbed(cls: type[Method], regime: str, kind: str) -> UndisturbedRun:
    checkpoints = {}
    with tempfile.TemporaryDirectory() as folder:

        def keep(event: Event) -> None:
            if isinstance(event, CheckpointSaved):
                checkpoints[event.epoch] = (Path(folder) / CHECKPOINT).read_bytes()

        trainer, judge = toy_trainer(
            cls, toy(kind), spec_for(cls, regime), folder=Path(folder), notify=keep
        )
        outcome = Outcome.of(trainer.train(), judge.judgements)
    return UndisturbedRun(outcome, trainer.method, checkpoints)


def declares_itself(cls: type[Method]) -> None:
    """Check the declarations of the class."""
    check_contract(cls)
    check_meanings(cls)


def check_meanings(cls: type[Method | Estimator]) -> None:
    """Check that every hyper-parameter has a meaning: readers need it, though runs do not."""
    for field in dataclasses.fields(cls.Config):
        if not field.metadata.get("meaning"):
            raise Broken(
                f"{defined_at(cls, f'Config.{field.name}')}: hyper-parameter {field.name} has no "
                f'meaning: {field.name}: … = option({field.default!r}, "what it is")'
            )
    for variant, changes in getattr(cls, "ablations", {}).items():
        if changes.get("method", cls.name) == cls.name:
            _check_variant(cls, variant, changes)


def _check_variant(cls: type[Method | Estimator], variant: str, changes: Mapping[str, Any]) -> None:
    texts = {key: hyperparameters.as_typed(value) for key, value in changes.items()}
    texts.pop("method", None)
    try:
        changed = hyperparameters.parse_config(cls.Config, texts, f"ablation {variant!r}")
    except UserError as error:
        raise Broken(str(error)) from None
    if changed == cls.Config():
        raise Broken(f"ablation {variant!r} changes no hyper-parameter")


def trains(cls: type[Method], regime: str, kind: str) -> None:
    """Check the form of the scores, and that a loss is logged."""
    outcome = undisturbed(cls, regime, kind).outcome
    if not any(key.startswith("loss_") for key in outcome.history[-1]):
        raise Broken("no loss term was logged: loss or step must return a dictionary of tensors")


def repeats_itself(cls: type[Method], regime: str, kind: str) -> None:
    """Check that the seed, and nothing else, decides the bits."""
    data, spec = toy(kind), spec_for(cls, regime)
    first = undisturbed(cls, regime, kind).outcome
    if not same_bits(first, train(cls, data, spec)):
        raise Broken(f"two runs of one spec differ: {unseeded_draw(cls, 'torch, e.g. torch.rand')}")
    if same_bits(first, train(cls, data, dataclasses.replace(spec, seed=1))):
        raise Broken("seeds 0 and 1 give the same bits")


def survives_a_kill(cls: type[Method], regime: str, kind: str) -> None:
    """Check that a run resumed from any checkpoint ends as the undisturbed one."""
    whole = undisturbed(cls, regime, kind)
    for epoch in RESUMED_AFTER:
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / CHECKPOINT).write_bytes(whole.checkpoints[epoch])
            trainer, judge = toy_trainer(cls, toy(kind), spec_for(cls, regime), folder=Path(folder))
            resumed = Outcome.of(trainer.train(), judge.judgements)
        if not same_bits(whole.outcome, resumed):
            names = sorted(unsaved_state(whole.method) | unsaved_state(trainer.method))
            state = " or ".join(f"self.{name}" for name in names) or "some state"
            why = (
                f"{state} is not saved; only a tensor on self is, e.g. self.count = torch.tensor(0)"
            )
            if not names and (left := _left_gradients(whole.method)):
                why = f"gradients are not saved: end the step with self.optimisers[{left!r}].zero_grad()"
            raise Broken(
                f"killed after epoch {epoch} and started again it ends with other bits: {why}"
            )


def _left_gradients(method: Method) -> str:
    """The name of an optimiser of the method's own whose weights still have gradients; "" if none."""
    for name, optimiser in method.optimisers.items():
        weights = [weight for group in optimiser.param_groups for weight in group["params"]]
        if any(weight.grad is not None for weight in weights):
            return name
    return ""


def unsaved_state(method: Method) -> set[str]:
    """The plain attributes that training set on the method: no checkpoint holds them."""
    fresh = vars(build_method(type(method), method.config, method.labels))
    engine = {"config", "labels", "optimisers", "diagnostics", "training"}
    return {
        name
        for name, value in vars(method).items()
        if name not in engine
        and not name.startswith("_")
        and (name not in fresh or _differs(value, fresh[name]))
    }


def _differs(value: object, other: object) -> bool:
    try:
        return bool(value != other)
    except (TypeError, ValueError, RuntimeError):  # containers of tensors and arrays
        return True


def never_sees_hidden_labels(cls: type[Method], regime: str, kind: str) -> None:
    """Check that scrambled hidden labels and test labels change nothing."""
    data, spec = toy(kind), spec_for(cls, regime)
    seen = observe(data.truth, spec)
    scrambled = np.where(seen.labels >= 0, data.truth, 1 - data.truth).astype(np.int8)
    whole = undisturbed(cls, regime, kind).outcome
    blind = train(cls, data, spec, truth=scrambled, test_truth=1 - data.test_truth)
    if not same_bits(whole, blind):
        raise Broken("its weights or scores depend on labels it must not know")


def keeps_to_its_rows(cls: type[Method], regime: str, kind: str) -> None:
    """Check that a method for labelled rows gives the same bits with other unlabelled rows."""
    data, spec = toy(kind), spec_for(cls, regime)
    rows = observe(data.truth, spec).unlabelled
    if not len(rows) or cls(cls.Config(), LABELS).uses == "both pools":
        return
    values = data.train.values.clone()
    values[rows] = values[rows].flip(-1)
    other = dataclasses.replace(data, train=Inputs(values, data.train.views))
    if not same_bits(undisturbed(cls, regime, kind).outcome, train(cls, other, spec)):
        raise Broken(
            'it has no unlabelled views, but other unlabelled rows give other bits: set uses = "both '
            'pools" on the class'
        )


def handles_few_rows(cls: type[Method], regime: str, kind: str) -> None:
    """Check that it trains with few rows or positives."""
    train(cls, toy(kind, empty_label=True), spec_for(cls, regime))
    if REGIMES[regime].splits_rows:
        for fraction in (1.01 / ROWS, 1.0):
            train(cls, toy(kind), spec_for(cls, regime, **{REGIME_NUMBERS[regime].name: fraction}))


Check = Callable[[type[Method], str, str], None]
CHECKS: dict[str, Check] = {
    "it trains, and its scores are N × K numbers in [0, 1]": trains,
    "the same seed gives the same bits, another seed others": repeats_itself,
    "killed after any epoch and started again, it ends with the same bits": survives_a_kill,
    "scrambled hidden and test labels change no weight and no score": never_sees_hidden_labels,
    "if it says that it uses labelled rows, unlabelled rows change nothing": keeps_to_its_rows,
    "it trains with a label without positives, one labelled row, no unlabelled row": handles_few_rows,
}
"""The statements of `ssmlbench check` about a method in each regime, with their checks."""


NEEDS: dict[Check, tuple[str, ...]] = {
    trains: (),
    repeats_itself: (trains.__name__,),
    handles_few_rows: (trains.__name__,),
}
"""Checks that must hold before a check makes sense; all others compare bits."""


class Case(NamedTuple):
    """One check in one regime on one kind of input."""

    statement: str
    check: Check
    regime: str
    kind: str


def cases(cls: type[Method]) -> Iterator[Case]:
    """Every check in every regime on vectors, and in one regime on images too."""
    regimes = sorted(cls.regimes)
    for regime, kind in [*((regime, "vector") for regime in regimes), (regimes[0], "image")]:
        for statement, check in CHECKS.items():
            yield Case(statement, check, regime, kind)


def method_statements(cls: type[Method]) -> Iterator[Statement]:
    """Yield every statement about a method, with the check that raises Broken if it is false."""
    yield Statement(
        "it declares head, regimes, and hyper-parameters with default, meaning and sound ranges",
        partial(declares_itself, cls),
        "declares",
    )
    for case in cases(cls):
        needs = ("declares", *NEEDS.get(case.check, (trains.__name__, repeats_itself.__name__)))
        check = partial(case.check, cls, case.regime, case.kind)
        where = f"{case.regime}, {case.kind} rows"
        yield Statement(case.statement, check, case.check.__name__, needs, where)
