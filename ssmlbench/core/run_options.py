"""The declaration of a field of the run spec, with everything that other rooms need to know about it.

The command line, the keys of a grid file, the checks of a spec and the comparison of boards are derived
from these declarations; none of them names an option again.
"""

from __future__ import annotations

import dataclasses
import math
import types
import typing
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

from ssmlbench.core.errors import UserError
from ssmlbench.core.suggestions import no_such_choice
from ssmlbench.core.whole_numbers import MOST_DIGITS

WHAT = "What is run"
MEASURED = "How it is measured"
ENCODER = "Encoder"
TRAINING = "Training"
WHERE = "Where it runs"
OWN_DATA = "Your own data"
PANELS = (WHAT, OWN_DATA, MEASURED, ENCODER, TRAINING, WHERE)
"""The groups of options in `--help`."""
AUTO = "auto"
"""Typed for an option: its default."""


@dataclass(frozen=True)
class RunOption:
    """The declaration of one field of the run spec."""

    name: str
    kind: type  # str, int, float or bool; object for fields that no user sets
    default: Any
    help: str = ""  # empty: not an option of the command line
    panel: str = WHAT
    key: str = ""  # its name in a grid file and, with two dashes, on the command line
    default_text: str = ""  # the default's description in `--help`
    axis: bool = False  # a grid may have several values
    choices: tuple[str, ...] = ()
    number_flag: str = ""  # the option that takes a number, if this one takes words: `--epochs`
    automatic: bool = False  # `auto` may be typed too, and means its default
    above: float | None = None  # bounds of a number
    least: float | None = None
    most: float | None = None
    below: float | None = None
    example: Any = None
    setting: bool = False  # runs that differ in it never share a table
    training: bool = False  # read by gradient training only: no part of an estimator's setting
    # Not hashed at its default: runs older than the field keep their hash.
    added_later: bool = False
    regimes: tuple[str, ...] = ()  # the regimes whose number this is
    symbol: str = ""  # what boards call that number, e.g. π

    @property
    def of_training(self) -> bool:
        """Whether only runs that train by gradient steps read it."""
        return self.training or self.panel == TRAINING

    @property
    def flag(self) -> str:
        """The option on the command line."""
        return f"--{self.key}"

    @property
    def typed_choices(self) -> tuple[str, ...]:
        """What may be typed for an option with choices."""
        return (AUTO, *self.choices) if self.automatic else self.choices

    @property
    def expected(self) -> str:
        """The bounds of a number, for an error message."""
        if self.most is not None:
            opening, low = ("(", self.above) if self.least is None else ("[", self.least)
            text = f"must lie in {opening}{low}, {self.most}]"
        elif self.below is not None:
            text = f"must lie in [{self.least:g}, {self.below:g})"
        elif self.least is not None:
            text = f"must be at least {self.least:g}"
        else:
            text = f"must be above {self.above:g}"
        return text if self.example is None else f"{text}, e.g. {self.flag} {self.example}"

    def check(self, value: Any) -> None:
        """Raise a UserError for a value that is not one of the choices or lies outside the bounds."""
        if value is None:
            return
        if self.number_flag and str(value).isdecimal():
            expected = f"expected {' or '.join(self.choices)}"
            raise UserError(
                f"{self.flag} {value}: {expected}; for a number type {self.number_flag} {value}"
            )
        if self.choices and value not in self.choices:
            raise no_such_choice(self.flag, value, self.typed_choices)
        inside = (
            (self.above is None or value > self.above)
            and (self.least is None or value >= self.least)
            and (self.most is None or value <= self.most)
            and (self.below is None or value < self.below)
        )
        if not inside:
            raise UserError(f"{self.flag} {value}: {self.expected}")
        if isinstance(value, float) and not math.isfinite(value):
            raise UserError(f"{self.flag} {value}: must be a finite number")
        if isinstance(value, int) and abs(value) >= 10**MOST_DIGITS:
            raise UserError(f"{self.flag} {value}: numbers of at most {MOST_DIGITS} digits")


def run_option(default: Any = dataclasses.MISSING, /, help: str = "", **declared: Any) -> Any:
    """Declare a field of the run spec; `declared` are the attributes of RunOption.

    Without `help` the field is not an option: the engine fills it in.
    """
    metadata = {"help": help, **declared}
    if callable(default):
        return dataclasses.field(default_factory=default, metadata=metadata)
    return dataclasses.field(default=default, metadata=metadata)


# Runs that differ in one of these never share a table.
measured_option = partial(run_option, panel=MEASURED, setting=True)
encoder_option = partial(run_option, panel=ENCODER, setting=True)
training_option = partial(run_option, panel=TRAINING, setting=True)


def read_options(spec: type) -> dict[str, RunOption]:
    """The declarations of a spec's fields, by field name."""
    hints = typing.get_type_hints(spec)
    options = {}
    for field in dataclasses.fields(spec):
        kind, choices = _kind(hints[field.name])
        factory = field.default_factory
        default = field.default if factory is dataclasses.MISSING else factory()
        key = field.name.replace("_", "-")
        declared = {"key": key, "choices": choices, **field.metadata}
        options[field.name] = RunOption(field.name, kind, default, **declared)
    return options


def _kind(hint: Any) -> tuple[type, tuple[str, ...]]:
    """`Literal["a", "b"] | None` → (str, ("a", "b")); `float | None` → (float, ())."""
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        hint = next(part for part in typing.get_args(hint) if part is not type(None))
    if typing.get_origin(hint) is Literal:
        return str, typing.get_args(hint)
    return (hint if hint in (str, int, float, bool) else object), ()
