"""What every method must keep, checked on toy data in seconds: `ssmlbench check`, and the test suite.

Each check is one statement about behaviour; a failure is told in plain words.
"""

from __future__ import annotations

import contextlib
import dataclasses
import tempfile
import traceback
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Console

from ssmlbench.checks.encoders import Broken, encoder_statements
from ssmlbench.core import hyperparameters as search
from ssmlbench.core.errors import RunFailed, UserError
from ssmlbench.core.events import CheckpointSaved, Event, Notify
from ssmlbench.core.registry import source_file
from ssmlbench.core.seeds import stream_seed
from ssmlbench.core.spec import REGIME_NUMBERS, RunSpec
from ssmlbench.inputs.encoders import Encoder, SmallCnn, Vector
from ssmlbench.inputs.splits import Inputs
from ssmlbench.inputs.views import image_views, vector_views
from ssmlbench.kit.method import Method
from ssmlbench.plugins.loader import Plugins, load_file
from ssmlbench.protocol.observation import Labels, observe
from ssmlbench.protocol.regimes import REGIMES
from ssmlbench.protocol.sealed import SealedTruth
from ssmlbench.training.checkpoint import Checkpoint
from ssmlbench.training.evaluation import Outcome
from ssmlbench.training.run_data import RunData
from ssmlbench.training.trainer import Trainer, TrainingContext

ROWS, TEST_ROWS, LABELS = 72, 24, 5


Plugin = type[Method] | type[Encoder]
Statement = tuple[str, Callable[[], None]]


class _Killed(BaseException):
    """Stands for a kill: not an Exception, as nothing may catch it."""


@dataclass(frozen=True)
class Toy:
    """Inputs with true labels that can be learnt a little: enough to train on for seconds."""

    kind: str
    train: Inputs
    test: Inputs
    truth: Labels
    test_truth: Labels

    @property
    def encoder(self) -> type[Encoder]:
        return {"vector": Vector, "image": SmallCnn}[self.kind]


def toy(kind: str, empty_label: bool = False) -> Toy:
    random = np.random.default_rng(7)
    n = ROWS + TEST_ROWS
    labels = (random.random((n, LABELS)) < 0.3).astype(np.int8)
    labels[np.arange(n), random.integers(0, LABELS, n)] = 1
    if empty_label:
        labels[:, -1] = 0
    if kind == "vector":
        made = labels @ random.normal(size=(LABELS, 12)) + 0.3 * random.normal(size=(n, 12))
        values, views = torch.from_numpy(made).float(), vector_views()
    else:
        noise = random.integers(0, 60, (n, 1, 8, 2 * LABELS))
        strips = labels.astype(np.int64).repeat(2, axis=1)[:, None, None, :]
        values = torch.from_numpy(noise + 150 * strips)
        values, views = values.to(torch.uint8), image_views(flips=False)
    return Toy(
        kind,
        Inputs(values[:ROWS], views),
        Inputs(values[ROWS:], views),
        labels[:ROWS],
        labels[ROWS:],
    )


def spec_for(cls: type[Method], regime: str, **changes: Any) -> RunSpec:
    values: dict[str, Any] = {
        "method": cls.name,
        "dataset": "toy",
        "regime": regime,
        "epochs": 5,
        "warmup_epochs": 2,
        "batch_size": 16,
        "labelled_batch_size": 8,
        "projection": cls.projection,
        "config": dataclasses.asdict(cls.Config()),
    }
    if number := REGIME_NUMBERS.get(regime):
        values[number.name] = number.example
    return RunSpec(**{**values, **changes})


def train(
    cls: type[Method],
    data: Toy,
    spec: RunSpec,
    *,
    truth: Labels | None = None,
    folder: Path | None = None,
    notify: Notify = lambda event: None,
) -> Outcome:
    """Train on the toy. `truth`: the training rows' true labels, if not the toy's own."""
    truth = data.truth if truth is None else truth
    # The draw itself may read the true labels, so it always gets the toy's own.
    observation = observe(data.truth, spec)
    run_data = RunData(data.train, data.test, observation, SealedTruth(truth), data.test_truth)
    torch.manual_seed(stream_seed(spec.seed, "method"))
    method = cls(cls.Config(**spec.config), LABELS)
    torch.manual_seed(stream_seed(spec.seed, "network"))
    example = data.train.view(np.zeros(1, dtype=np.int64), "plain", torch.Generator())[0]
    checkpoint = Checkpoint(folder / "checkpoint.safetensors") if folder else None
    context = TrainingContext(torch.device("cpu"), checkpoint, notify)
    return Trainer(spec, method, data.encoder(example), run_data, context).train()


def same_bits(a: Outcome, b: Outcome) -> bool:
    weights = zip(a.network.state_dict().values(), b.network.state_dict().values(), strict=True)
    return np.array_equal(a.scores, b.scores) and all(torch.equal(x, y) for x, y in weights)


# ------------------------------------------------------------------------------- the checks


def declares_itself(cls: type[Method]) -> None:
    """it says what it is: head, regimes, and hyper-parameters with default, meaning and sound ranges"""
    known = set(REGIMES)
    if not cls.regimes or not set(cls.regimes) <= known:
        raise Broken(f"regimes {set(cls.regimes)} must be some of {sorted(known)}")
    if cls.head not in ("linear", "cosine"):
        raise Broken(f"head {cls.head!r} must be 'linear' or 'cosine' (or override build_head)")
    for field in dataclasses.fields(cls.Config):
        if field.default is dataclasses.MISSING:
            raise Broken(f"hyper-parameter {field.name} has no default")
        if not field.metadata.get("meaning"):
            raise Broken(f'hyper-parameter {field.name} has no meaning: option(default, "…")')
    if wrong := search.faults(cls.Config):
        raise Broken(f"hyper-parameter {'; '.join(wrong)}")


def trains(cls: type[Method], regime: str, kind: str) -> None:
    """it trains, and its scores are N × K numbers in [0, 1]"""
    outcome = train(cls, toy(kind), spec_for(cls, regime))
    scores = outcome.scores
    if scores.shape != (TEST_ROWS, LABELS):
        raise Broken(f"scores have shape {scores.shape}, expected {(TEST_ROWS, LABELS)}")
    if not np.isfinite(scores).all() or scores.min() < 0 or scores.max() > 1:
        raise Broken(f"scores lie in [{scores.min()}, {scores.max()}], expected [0, 1]")
    if not any(key.startswith("loss_") for key in outcome.history[-1]):
        raise Broken("no loss term was logged: loss or step must return a dictionary of tensors")


def repeats_itself(cls: type[Method], regime: str, kind: str) -> None:
    """the same seed gives the same bits, another seed others"""
    data, spec = toy(kind), spec_for(cls, regime)
    first = train(cls, data, spec)
    if not same_bits(first, train(cls, data, spec)):
        raise Broken("two runs of one spec differ: draw random numbers only from torch's generator")
    if same_bits(first, train(cls, data, dataclasses.replace(spec, seed=1))):
        raise Broken("seeds 0 and 1 give the same bits")


def survives_a_kill(cls: type[Method], regime: str, kind: str) -> None:
    """killed after any epoch and started again, it ends with the bits of an undisturbed run"""
    data, spec = toy(kind), spec_for(cls, regime)
    whole = train(cls, data, spec)
    for last in (1, 2, 3):

        def kill(event: Event, last: int = last) -> None:
            if event == CheckpointSaved(last):
                raise _Killed

        with tempfile.TemporaryDirectory() as folder:
            with contextlib.suppress(_Killed):
                train(cls, data, spec, folder=Path(folder), notify=kill)
            resumed = train(cls, data, spec, folder=Path(folder))
        if not same_bits(whole, resumed):
            raise Broken(
                f"resumed after epoch {last} it ends elsewhere: some state is not a tensor on self"
            )


def never_sees_hidden_labels(cls: type[Method], regime: str, kind: str) -> None:
    """scrambled hidden labels change no weight and no score"""
    data, spec = toy(kind), spec_for(cls, regime)
    seen = observe(data.truth, spec)
    scrambled = np.where(seen.labels >= 0, data.truth, 1 - data.truth).astype(np.int8)
    if not same_bits(train(cls, data, spec), train(cls, data, spec, truth=scrambled)):
        raise Broken("its weights or scores depend on labels it must not know")


def bears_thin_data(cls: type[Method], regime: str, kind: str) -> None:
    """a label without positives, one labelled row, or no unlabelled row is not its end"""
    train(cls, toy(kind, empty_label=True), spec_for(cls, regime))
    if REGIMES[regime].splits_rows:
        for fraction in (1.01 / ROWS, 1.0):
            train(cls, toy(kind), spec_for(cls, regime, **{REGIME_NUMBERS[regime].name: fraction}))


CHECKS = (
    trains,
    repeats_itself,
    survives_a_kill,
    never_sees_hidden_labels,
    bears_thin_data,
)


def cases(cls: type[Method]) -> Iterator[tuple[Callable[[type[Method], str, str], None], str, str]]:
    """Every check in every regime on vectors, and in one regime on images too."""
    for check in CHECKS:
        for regime in sorted(cls.regimes):
            yield check, regime, "vector"
        yield check, sorted(cls.regimes)[0], "image"


# ------------------------------------------------------------------------------- `ssmlbench check`


def check_plugins(target: str, console: Console) -> bool:
    """Check the methods and encoders of a file, or one by name; True if everything holds."""
    if target.endswith(".py") or "/" in target:
        file = Path(target).resolve()
        plugins = Plugins([file])
        module = load_file(file)
        methods = [plugins.methods[n] for n in plugins.methods]
        encoders = [plugins.encoders[n] for n in plugins.encoders]
        methods = [cls for cls in methods if cls.__module__ == module.__name__]
        encoders = [cls for cls in encoders if cls.__module__ == module.__name__]
        if not methods and not encoders:
            raise UserError(f"{target}: there is no method and no encoder in it")
    else:
        plugins = Plugins()
        is_encoder = target in plugins.encoders
        methods = [] if is_encoder else [plugins.methods[target]]
        encoders = [plugins.encoders[target]] if is_encoder else []
    statements: list[tuple[Plugin, Iterator[Statement]]]
    statements = [(cls, _statements(cls)) for cls in methods]
    statements += [(cls, encoder_statements(cls)) for cls in encoders]
    held = [_check_one(cls, made, console) for cls, made in statements]
    return all(held)


def _check_one(cls: Plugin, statements: Iterable[Statement], console: Console) -> bool:
    broken = 0
    console.print(f"[bold]{cls.name}[/bold]  {source_file(cls)}", highlight=False, soft_wrap=True)
    for statement, run in statements:
        try:
            run()
        except (Broken, RunFailed, UserError) as problem:
            reason = str(problem)
        except Exception as error:
            reason = f"{type(error).__name__}: {error}{_line(error, cls)}"
        else:
            console.print(f"  [green]ok[/green]      {statement}", highlight=False)
            continue
        broken += 1
        console.print(f"  [red]BROKEN[/red]  {statement}", highlight=False)
        console.print(f"          {reason}", highlight=False, markup=False, soft_wrap=True)
    console.print(f"{cls.name}: " + (f"{broken} broken" if broken else "everything holds"))
    return not broken


def _statements(cls: type[Method]) -> Iterator[Statement]:
    yield declares_itself.__doc__ or "", partial(declares_itself, cls)
    for check, regime, kind in cases(cls):
        yield f"{check.__doc__} ({regime}, {kind} rows)", partial(check, cls, regime, kind)


def _line(error: BaseException, cls: Plugin) -> str:
    """Where in the plugin's file it happened."""
    file = str(source_file(cls))
    lines = [f.lineno for f in traceback.extract_tb(error.__traceback__) if f.filename == file]
    return f" (line {lines[-1]} of {Path(file).name})" if lines else ""
