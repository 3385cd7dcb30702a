"""The contract of every encoder, checked on a few inputs: by `ssmlbench check` and the tests."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ssmlbench.checks.statements import Broken, Statement
from ssmlbench.core.errors import ContractError
from ssmlbench.inputs.encoders import Encoder, EncoderOptions
from ssmlbench.plugins.contract import check_contract


def raw_inputs(kind: str, resized: bool) -> list[Any]:
    """Six raw inputs as from a task; images of two shapes if the encoder resizes."""
    random = np.random.default_rng(5)
    if kind == "text":
        return ["a short text", "another one, a little longer", "w", "x y z", "", "one more"]
    if kind == "vector":
        return list(random.normal(size=(6, 12)).astype(np.float32))
    shapes = ((40, 48, 3), (32, 32)) if resized else ((32, 32, 3),)
    return [random.integers(0, 256, shapes[i % len(shapes)]).astype(np.uint8) for i in range(6)]


def _prepared(cls: type[Encoder], kind: str) -> Tensor:
    options = EncoderOptions(**cls.options)
    rows = cls.prepare(raw_inputs(kind, bool(options.image_size)), options)
    return cls.views(kind, True, options)["plain"](rows, torch.Generator())


def _found(value: object) -> str:
    if isinstance(value, Tensor):
        return f"a tensor of shape {tuple(value.shape)}"
    return "nothing" if value is None else f"a {type(value).__name__}"


def _built(cls: type[Encoder], example: Tensor) -> Encoder:
    torch.manual_seed(0)
    return cls(example, EncoderOptions(**cls.options))


def prepares(cls: type[Encoder], kind: str) -> None:
    """Check that a row is prepared alike alone and in a batch."""
    options = EncoderOptions(**cls.options)
    raws = raw_inputs(kind, bool(options.image_size))
    together = cls.prepare(raws, options)
    if not isinstance(together, Tensor) or len(together) != 6:
        raise ContractError(
            f"prepare of 6 raw inputs gave {_found(together)}; expected a tensor of 6 rows",
            "prepare",
        )
    alone = torch.cat([cls.prepare([raw], options) for raw in raws])
    if together.shape != alone.shape or not torch.equal(together, alone):
        raise Broken("prepare([a, b]) and prepare([a]), prepare([b]) differ")


def has_views(cls: type[Encoder], kind: str) -> None:
    """Check shape, type and repeatability of the views."""
    options = EncoderOptions(**cls.options)
    rows = cls.prepare(raw_inputs(kind, bool(options.image_size)), options)
    views = cls.views(kind, True, options)
    plain = views["plain"](rows, torch.Generator())
    for name in ("weak", "strong"):
        first, second = (views[name](rows, torch.Generator().manual_seed(1)) for _ in range(2))
        if first.shape != plain.shape or first.dtype != plain.dtype:
            raise Broken(
                f"the {name} view is {first.dtype} {tuple(first.shape)}, the plain one "
                f"{plain.dtype} {tuple(plain.shape)}"
            )
        if not torch.equal(first, second):
            raise Broken(
                f"the {name} view draws from another source than the generator it is given"
            )


def encodes(cls: type[Encoder], kind: str) -> None:
    """Check the shape of the features, and that they are finite."""
    inputs = _prepared(cls, kind)
    encoder = _built(cls, inputs[0])
    if not isinstance(getattr(encoder, "features", None), int):
        raise ContractError("self.features, the width of its output, is not set", "__init__")
    given = encoder(inputs)
    if not isinstance(given, Tensor):
        raise ContractError(f"forward returned {_found(given)}; expected a tensor", "forward")
    if given.shape != (6, encoder.features):
        raise ContractError(
            f"forward of 6 rows gave {tuple(given.shape)}, expected B × self.features: "
            f"{(6, encoder.features)}",
            "forward",
        )
    if not given.is_floating_point() or not given.isfinite().all():
        raise ContractError("forward must give finite floating-point numbers", "forward")


@torch.no_grad()
def repeats_itself(cls: type[Encoder], kind: str) -> None:
    """Check that features in eval mode depend on the row alone."""
    inputs = _prepared(cls, kind)
    encoder = _built(cls, inputs[0]).eval()
    first = encoder(inputs)
    if not torch.equal(first, encoder(inputs)):
        raise Broken(
            "two passes in eval mode differ: does it draw random numbers outside nn.Dropout?"
        )
    if not torch.allclose(encoder(inputs[1:3]), first[1:3], rtol=1e-3, atol=1e-4):
        raise Broken("a row's features depend on the other rows of its batch")


def learns(cls: type[Encoder], kind: str) -> None:
    """Check the gradients of an encoder that has parameters."""
    inputs = _prepared(cls, kind)
    encoder = _built(cls, inputs[0])
    trained = [p for p in encoder.parameters() if p.requires_grad]
    if not trained:
        return  # features as they are: the projection and the head learn
    encoder(inputs).square().sum().backward()
    reached = [p.grad for p in trained if p.grad is not None and p.grad.any()]
    if not reached:
        raise Broken("no parameter got a gradient: is something detached or under no_grad?")
    if not all(bool(grad.isfinite().all()) for grad in reached):
        raise Broken("some gradients are not finite")


def fits(cls: type[Encoder], kind: str) -> None:
    """Check that the same inputs give the same state."""
    options = EncoderOptions(**cls.options)
    raws = raw_inputs(kind, bool(options.image_size))
    first, second = cls.fit(raws, options), cls.fit(raws, options)
    if not all(isinstance(value, np.ndarray) for value in first.values()):
        raise Broken("fit must return NumPy arrays by name")
    if first.keys() != second.keys() or not all(
        np.array_equal(first[name], second[name]) for name in first
    ):
        raise Broken("fit gives another state for the same inputs")


def names_its_weights(cls: type[Encoder]) -> None:
    """Check that weights_id is a text and repeats."""
    options = EncoderOptions(**cls.options)
    name = cls.weights_id(options)
    if not isinstance(name, str) or name != cls.weights_id(options):
        raise Broken('weights_id must give one text, e.g. "name@digest", or "" for a random start')


CHECKS: dict[str, Callable[[type[Encoder], str], None]] = {
    "it prepares every raw input into a tensor of one shape and type, whatever the batch": prepares,
    "plain, weak and strong views keep shape and type, and repeat from one generator": has_views,
    "its output is B × features finite numbers": encodes,
    "in eval mode the same rows give the same features, alone or in a batch": repeats_itself,
    "gradients reach its parameters": learns,
}
"""The statements of `ssmlbench check` about an encoder and each kind of input, with their checks."""


def encoder_statements(cls: type[Encoder]) -> Iterator[Statement]:
    """Yield every statement about an encoder, with the check that raises Broken if it is false."""
    declared, prepared, encoded = "declares", prepares.__name__, encodes.__name__
    needs: dict[Callable[[type[Encoder], str], None], tuple[str, ...]] = {
        has_views: (declared, prepared),
        encodes: (declared, prepared, has_views.__name__),
        repeats_itself: (declared, prepared, has_views.__name__, encoded),
        learns: (declared, prepared, has_views.__name__, encoded),
    }
    yield Statement(
        "it declares the kinds it reads, and known options", partial(check_contract, cls), declared
    )
    weights = partial(names_its_weights, cls)
    yield Statement(
        "its weights_id is one text, the same every time", weights, "weights", (declared,)
    )
    if cls.fitted:
        for kind in sorted(cls.kinds):
            yield Statement(
                "fit gives the same arrays for the same inputs",
                partial(fits, cls, kind),
                fits.__name__,
                (declared,),
                kind,
            )
    for text, check in CHECKS.items():
        for kind in sorted(cls.kinds):
            wanted = (*needs.get(check, (declared,)), fits.__name__)
            run = partial(_on_fitted, check, cls, kind)
            yield Statement(text, run, check.__name__, wanted, kind)


def _on_fitted(check: Callable[[type[Encoder], str], None], cls: type[Encoder], kind: str) -> None:
    """Run a check on the encoder; one that has to be fitted is fitted on the check's inputs first."""
    if cls.fitted:
        options = EncoderOptions(**cls.options)
        cls = cls.with_state(cls.fit(raw_inputs(kind, bool(options.image_size)), options))
    check(cls, kind)
