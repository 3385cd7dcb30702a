"""The options for reading a user's own data: its columns, labels and test rows."""

from __future__ import annotations

import dataclasses
import os
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl, urlencode

from ssmlbench.core.errors import UserError
from ssmlbench.core.hyperparameters import TRUTH
from ssmlbench.core.paths import from_home
from ssmlbench.core.suggestions import one_of

EMPTY_LABELS = ("none", "unknown")
BYTES = "surrogateescape"
"""Bytes of a typed name that are not UTF-8 are kept, as in other words of a command."""


def _option(default: Any, help_: str) -> Any:
    return field(default=default, metadata={"help": help_})


@dataclass(frozen=True)
class DataOptions:
    """Every field is an option of the commands that read data; the default means "not given".

    A column option is a name, or several with commas between them; `*` stands for any characters.
    """

    text_column: str = _option("", "The column of the texts.")
    image_column: str = _option("", "The column of the images or of their paths.")
    vector_column: str = _option(
        "", "The column of the vectors, or one column a number: a,b or f*."
    )
    label_column: str = _option("", "The column of the labels, or the 0/1 columns: a,b or label_*.")
    id_column: str = _option("", "The column of the row ids.")
    split_column: str = _option("", "One file: the column that says train or test.")
    hub_config: str = _option("", "hf:…: the configuration, of a repository with several.")
    label_separator: str = _option("", "What stands between labels in one cell, if not ; | or ,.")
    empty_labels: str = _option("", "What an empty label cell means: none (no label) or unknown.")
    holdout: float = _option(
        0.0, "Data without test rows: this share of the labelled rows is test."
    )
    holdout_seed: int = _option(0, "Draws the rows of --holdout.")
    drop_leaks: bool = _option(False, "Leave training rows out whose input is also a test row's.")
    allow_outside: bool = _option(False, "Read images outside the data folder too.")

    def __post_init__(self) -> None:
        for name, value in self.given.items():
            if name.endswith("_column") and not value.strip(", \t\n"):
                flag = f"--{name.replace('_', '-')}"
                raise UserError(f"{flag} {value!r}: expected the name of a column, or several")
        if self.empty_labels:
            one_of(self.empty_labels, EMPTY_LABELS, "--empty-labels")
        if not 0 <= self.holdout < 1:
            raise UserError(
                f"--holdout {self.holdout:g}: expected a share of the rows below 1, e.g. 0.2"
            )
        if not 0 <= self.holdout_seed < 2**32:  # of NumPy
            raise UserError(f"--holdout-seed {self.holdout_seed}: expected 0 to {2**32 - 1:,}")

    @classmethod
    def names(cls) -> frozenset[str]:
        """The names of all options."""
        return frozenset(option.name for option in dataclasses.fields(cls))

    @property
    def given(self) -> dict[str, Any]:
        """The options that the user gave."""
        return {
            option.name: value
            for option in dataclasses.fields(self)
            if (value := getattr(self, option.name)) != option.default
        }

    @property
    def chooses_columns(self) -> bool:
        """Whether the user named the input and label columns; other columns are then ignored."""
        inputs = self.text_column or self.image_column or self.vector_column
        return bool(inputs and self.label_column)


@dataclass(frozen=True)
class DataAddress:
    """The path or hub id of a user's data with its options, as one text: `mine?holdout=0.2`.

    The text goes to other processes and into grid files; on the command line, options are separate.
    """

    path: str
    options: DataOptions = DataOptions()

    @classmethod
    def parse(cls, text: str, defaults: DataOptions | None = None) -> DataAddress:
        """Parse an address. An existing path with a `?` in its name is a path."""
        options = defaults or DataOptions()
        path, mark, query = text.rpartition("?")
        # A text with many options is too long for a file's name: pathlib raises an error, os.path does not.
        if not mark or os.path.exists(from_home(text)):  # noqa: PTH110
            return cls(text, options)
        return cls(path, dataclasses.replace(options, **_parse_query(query, text)))

    @property
    def text(self) -> str:
        """The text that `parse` reads."""
        given = self.options.given
        return f"{self.path}?{urlencode(given, errors=BYTES)}" if given else self.path


def _parse_query(query: str, text: str) -> dict[str, Any]:
    fields: dict[str, Any] = {option.name: option for option in dataclasses.fields(DataOptions)}
    values: dict[str, Any] = {}
    try:
        pairs = parse_qsl(query, keep_blank_values=True, strict_parsing=True, errors=BYTES)
    except ValueError:
        raise UserError(f"data set {text}: expected option=value after `?`") from None
    for key, escaped in pairs:
        name = key.replace("-", "_")
        # A typed byte beside one written as %DE: together they may be a character.
        value = escaped.encode(errors=BYTES).decode(errors=BYTES)
        one_of(name, tuple(fields), f"data set {text}: option")
        if not value or name in values:
            problem = "is given twice" if value else "is empty"
            raise UserError(f"data set {text}: option {key} {problem}")
        kind = type(fields[name].default)
        try:
            values[name] = TRUTH[value.lower()] if kind is bool else kind(value)
        except KeyError:
            raise UserError(f"data set {text}: {key}={value}: must be true or false") from None
        except ValueError:
            raise UserError(f"data set {text}: {key}={value} is not a number") from None
    return values
