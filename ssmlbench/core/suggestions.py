"""Suggestions for an unknown name."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from ssmlbench.core.errors import UserError


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """' Did you mean …?' if there are close names, else the whole list."""
    known = sorted(known)
    return _close(name, known) or _all_of(known)


def _close(name: str, known: list[str]) -> str:
    same = [each for each in known if each.casefold() == name.casefold()]
    close = same or difflib.get_close_matches(name, known, n=3, cutoff=0.5)
    return f" Did you mean {' or '.join(close)}?" if close else ""


def _all_of(known: list[str]) -> str:
    return f" There is: {', '.join(known)}." if known else " There is none."


def one_of(value: str, allowed: Iterable[str], option: str) -> None:
    """Raise a UserError unless the value typed for an option is one of its choices."""
    if value not in (allowed := tuple(allowed)):
        raise no_such_choice(option, value, allowed)


def no_such_choice(option: str, value: str, choices: Iterable[str]) -> UserError:
    """The error for a value that is none of an option's choices, which are few: it lists them all."""
    known = sorted(choices)
    return UserError(f"{option} {value}: no such choice.{_close(value, known)}{_all_of(known)}")


def values_without_runs(
    option: str, typed: Iterable[str], shown: Iterable[str], known: Iterable[str], runs: str = "run"
) -> list[str]:
    """Lines that name the values of a filter that no shown run has; known: of all runs there are."""
    shown, known = set(shown), set(known)
    return [
        f"{option} {value}: no {runs} that fits the other filters has it"
        if value in known
        else f"{option} {value}: no {runs} here has it.{did_you_mean(value, known)}"
        for value in typed
        if value not in shown
    ]
