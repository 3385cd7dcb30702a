"""What to type instead of an unknown name."""

from __future__ import annotations

import difflib
import typing


def did_you_mean(name: str, known: typing.Iterable[str]) -> str:
    """' Did you mean …?' when something close exists, else the whole list."""
    known = sorted(known)
    close = difflib.get_close_matches(name, known, n=3, cutoff=0.5)
    if close:
        return f" Did you mean {' or '.join(close)}?"
    return f" There is: {', '.join(known) or 'nothing'}."
