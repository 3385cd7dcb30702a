"""Words of a command that the parser accepts and that are mistakes: empty ones, 0_1, lists given twice."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ssmlbench.core.errors import UserError
from ssmlbench.core.paths import usable

MAY_BE_BLANK = {"label_separator"}
"""Options whose value may be a space."""


def usable_paths(value: Any) -> Any:
    """The value of an option or argument, or a list of values, with ~ in paths replaced.

    A shell replaces it in `--out ~/a.csv`, and not in `--out=~/a.csv`. A UserError for a path that
    cannot be used, such as a circle of links.
    """
    if isinstance(value, list):
        return [usable_paths(each) for each in value]
    return usable(value) if isinstance(value, Path) else value


def check_words(parameters: Sequence[Any], words: Sequence[str]) -> None:
    """Raise a UserError for a word that is empty, a number with _, or a list that is given twice.

    The parser would take an empty path for the working folder, read 0_1 as 1, and drop all lists but
    the last. Of other options the last one counts, as usual: a script may append its own.
    parameters: of the command that the words belong to.
    """
    from ssmlbench.core.spec import OPTIONS

    options = {
        flag: own
        for own in parameters
        for flag in (*own.opts, *own.secondary_opts)
        if flag.startswith("-")
    }
    given: dict[str, str] = {}  # what was typed for a list
    rest = iter(words)
    for word in rest:
        if word == "--":
            break
        flag, equals, value = word.partition("=")
        option = options.get(flag)
        if option is None:
            if not word:
                raise UserError("an argument is empty; leave it out, or type a value")
            continue
        if option.is_flag:
            continue
        typed = value if equals else next(rest, None)
        if typed is None:  # the parser reports it
            return
        if not typed.strip() and (option.name not in MAY_BE_BLANK or not typed):
            raise UserError(f"{flag} is empty; leave it out, or type a value")
        if _is_number(option) and "_" in typed:
            raise UserError(f"{flag} {typed}: must be a number, without _")
        is_list = option.name in OPTIONS and OPTIONS[option.name].axis and not option.multiple
        if is_list and given.setdefault(flag, typed) != typed:
            raise UserError(
                f"{flag} is given twice, with {given[flag]} and with {typed}; type it once, with commas "
                f"between several values: {flag} {given[flag]},{typed}"
            )


def _is_number(option: Any) -> bool:
    """Whether an option's value is one number: Typer says so in one of two ways, by its version."""
    described = getattr(option, "type_descriptor", None)
    kind = described.annotation.__name__ if described else option.type.name
    return kind.split(maxsplit=1)[0] in ("int", "float", "integer")
