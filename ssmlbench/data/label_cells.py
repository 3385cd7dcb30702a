"""The labels in a cell of a table: a list, a text that spells a list, joined names, 0 and 1, or unknown."""

from __future__ import annotations

import ast
import json
import math
import re
from collections.abc import Iterable
from typing import Any

from ssmlbench.core.errors import UserError
from ssmlbench.data.adapter import BadRow

ZERO_ONE = {"0": 0, "1": 1, "0.0": 0, "1.0": 1, "false": 0, "true": 1}
UNKNOWN_CELLS = ("", "-1", "-1.0", "nan", "none", "null")
"""Of a 0/1 column, in lower case; None and NaN are among them as texts."""
JOINED = r"[;|,]"
"""What separates joined names if the user names no separator."""
ITEM = re.compile(
    r"""\s*('(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|[+-]?\d+(?:\.\d*)?)\s*(?:,|(?=\s|'|"|$))"""
)
"""One item of a list as Python or NumPy prints it; NumPy leaves the commas out."""


def flag(value: Any) -> int | BadRow | None:
    """The value of a 0/1 cell: 1, 0, or None if it is unknown."""
    text = str(value).strip().lower()
    if text in ZERO_ONE:
        return ZERO_ONE[text]
    if text in UNKNOWN_CELLS:
        return None
    return BadRow("", f"expected 0 or 1, found {value!r}")


def label_values(value: Any, separator: str, empty: str, where: str) -> list[str] | BadRow | None:
    """The labels of a cell as texts; None if they are unknown.

    empty: what an empty text means, "none" or "unknown"; "" if the user has not said, and then an
    empty text is a UserError that asks.
    """
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return None
    if isinstance(value, str):
        text = value.strip()
        if not text:
            return meaning_of_empty(empty, where)
        if text.startswith("["):
            listed = _spelled(text)
            if listed is None:
                return BadRow("", f"labels {text[:40]!r} are not a list of names or ids")
            value = listed
        else:
            value = text.split(separator) if separator else re.split(JOINED, text)
    if isinstance(value, bool | int) or (isinstance(value, float) and value.is_integer()):
        value = [int(value)]
    if not isinstance(value, list) or any(not _is_label(v) for v in value):
        return BadRow("", f"labels {str(value)[:40]!r} are not a list of names or ids")
    return [text for v in value if (text := str(v).strip())]


def multi_hot_width(cells: Iterable[Any]) -> int:
    """K, if the cells are lists of 0 and 1 with a place for each label; 0 if they are lists of ids.

    All are then of one length, and in some of them a number comes twice, as no id does.
    """
    width, repeated = 0, False
    for cell in cells:
        if cell is None:
            continue
        values = as_list(cell)
        if values is None or len(values) < 2 or (width and len(values) != width):
            return 0
        if any(isinstance(v, str) or isinstance(flag(v), BadRow) for v in values):
            return 0
        width = len(values)
        repeated = repeated or len(set(map(str, values))) < width
    return width if repeated else 0


def as_list(cell: Any) -> list[Any] | None:
    """The list in a cell, or the one that its text spells; None if there is none."""
    if isinstance(cell, str) and cell.strip().startswith("["):
        return _spelled(cell.strip())
    return cell if isinstance(cell, list) else None


def meaning_of_empty(empty: str, where: str) -> list[str] | None:
    """What an empty cell or a missing list means; a UserError if the user has not said."""
    if not empty:
        raise UserError(
            f"{where}: the labels are empty; do such rows have no label, or are their labels not "
            "known? type --empty-labels none or --empty-labels unknown"
        )
    return [] if empty == "none" else None


def _is_label(value: Any) -> bool:
    return isinstance(value, str | int) and not isinstance(value, bool)


def _spelled(text: str) -> list[Any] | None:
    """`["a", "b"]`, `['a', 'b']`, `['a' 'b']` or `[1 2]` as a list; None if it is none of them."""
    if not text.endswith("]"):
        return None
    try:
        listed = json.loads(text)
    except (ValueError, RecursionError):
        pass
    else:
        return listed if isinstance(listed, list) else None
    items, at, end = [], 1, len(text) - 1
    while text[at:end].strip():
        item = ITEM.match(text, at, end)
        if item is None:
            return None
        try:
            items.append(ast.literal_eval(item[1]))
        except (ValueError, SyntaxError):
            return None
        at = item.end()
    return items
