"""A conformance suite as statements about a plugin, and their results.

A statement that needs a broken one is not checked: only the first cause is reported.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Literal, NamedTuple

from ssmlbench.core.errors import NO_FAULT
from ssmlbench.plugins.source_lines import explain


class Broken(Exception):
    """A check does not hold; the text is for the plugin's author."""


class Statement(NamedTuple):
    """One thing that must be true of a plugin."""

    text: str
    check: Callable[[], None]  # raises Broken, or anything else, if it is not true
    name: str  # of the check; one name may be stated in several regimes
    needs: tuple[str, ...] = ()  # checks that must hold for this one to make sense
    case: str = ""  # the regime and the kind of rows


class CheckResult(NamedTuple):
    """The result of checking one statement."""

    statement: Statement
    outcome: Literal["ok", "broken", "not checked"]
    reason: str = ""  # one line, of a broken one


def results_of(cls: type[Any], statements: Iterable[Statement]) -> Iterator[CheckResult]:
    """Check each statement, but skip those whose needed checks are broken."""
    broken: set[str] = set()
    for statement in statements:
        if broken & {statement.name, *statement.needs}:
            yield CheckResult(statement, "not checked")
            continue
        try:
            statement.check()
        except Broken as problem:
            reason = str(problem)
        except NO_FAULT:
            raise
        except BaseException as error:
            reason = explain(error, cls)
        else:
            yield CheckResult(statement, "ok")
            continue
        broken.add(statement.name)
        yield CheckResult(statement, "broken", reason)
