"""The contract of every encoder, checked on a few inputs: by `ssmlbench check` and the tests."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ssmlbench.inputs.encoders import Encoder, EncoderOptions

KINDS = ("image", "text", "vector")

Statement = tuple[str, Callable[[], None]]
"""The statement that is checked, and its check."""


class Broken(Exception):
    """A check that does not hold, in words for the plugin's author."""


def raw_inputs(kind: str, resized: bool) -> list[Any]:
    """Six raw inputs as a task hands them out; images of two shapes where the encoder resizes."""
    random = np.random.default_rng(5)
    if kind == "text":
        return ["a short text", "another one, a little longer", "w", "x y z", "", "one more"]
    if kind == "vector":
        return list(random.normal(size=(6, 12)).astype(np.float32))
    shapes = ((40, 48, 3), (32, 32)) if resized else ((32, 32, 3),)
    return [random.integers(0, 256, shapes[i % len(shapes)]).astype(np.uint8) for i in range(6)]


def declares_itself(cls: type[Encoder]) -> None:
    """Check kinds and options."""
    if not cls.kinds or not set(cls.kinds) <= set(KINDS):
        raise Broken(f"kinds {set(cls.kinds)} must be some of {KINDS}")
    known = set(EncoderOptions.__dataclass_fields__)
    if not set(cls.options) <= known:
        raise Broken(f"options {sorted(cls.options)} must be some of {sorted(known)}")


def _prepared(cls: type[Encoder], kind: str) -> Tensor:
    options = EncoderOptions(**cls.options)
    rows = cls.prepare(raw_inputs(kind, bool(options.image_size)), options)
    if not isinstance(rows, Tensor) or len(rows) != 6:
        raise Broken("prepare must give one tensor with a row for each raw input")
    return cls.views(kind, True, options)["plain"](rows, torch.Generator())


def _built(cls: type[Encoder], example: Tensor) -> Encoder:
    torch.manual_seed(0)
    return cls(example, EncoderOptions(**cls.options))


def prepares(cls: type[Encoder], kind: str) -> None:
    """Check that a row is prepared alike alone and in a batch."""
    options = EncoderOptions(**cls.options)
    raws = raw_inputs(kind, bool(options.image_size))
    together = cls.prepare(raws, options)
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
        raise Broken("`features`, the width of its output, must be set in __init__")
    given = encoder(inputs)
    if given.shape != (6, encoder.features):
        raise Broken(f"6 rows gave {tuple(given.shape)}, expected {(6, encoder.features)}")
    if not given.is_floating_point() or not given.isfinite().all():
        raise Broken("features must be finite floating-point numbers")


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
"""What `ssmlbench check` states of an encoder and each kind of input, with the check of it."""


def encoder_statements(cls: type[Encoder]) -> Iterator[Statement]:
    """Yield every statement about an encoder, with the check that raises Broken if it is false."""
    yield "it declares the kinds it reads, and known options", partial(declares_itself, cls)
    yield "its weights_id is one text, the same every time", partial(names_its_weights, cls)
    if cls.fitted:
        for kind in sorted(cls.kinds):
            yield (
                f"fit gives the same arrays for the same inputs ({kind})",
                partial(fits, cls, kind),
            )
    for statement, check in CHECKS.items():
        for kind in sorted(cls.kinds):
            yield f"{statement} ({kind})", partial(_on_fitted, check, cls, kind)


def _on_fitted(check: Callable[[type[Encoder], str], None], cls: type[Encoder], kind: str) -> None:
    """Run a check on the encoder; one that is fitted learns from the checks' inputs first."""
    if cls.fitted:
        options = EncoderOptions(**cls.options)
        cls = cls.with_state(cls.fit(raw_inputs(kind, bool(options.image_size)), options))
    check(cls, kind)
