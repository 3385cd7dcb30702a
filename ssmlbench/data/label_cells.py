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
from ssmlbench.data.plain_numbers import is_number, plain_float

ZERO_ONE = {"0": 0, "1": 1, "0.0": 0, "1.0": 1, "false": 0, "true": 1}
UNKNOWN_CELLS = ("", "-1", "-1.0", "nan", "none", "null")
"""Cells of a 0/1 column that mean unknown, in lower case; None and NaN are among them as texts.

Other spellings of the numbers (1.00, 1e0) are read too."""
YES = ("yes", "y", "t", "on", "ja", "wahr", "vrai", "pos", "positive", "present", "x", "✓", "✔")
NO = ("no", "n", "f", "off", "nein", "falsch", "faux", "neg", "negative", "absent", "✗", "✘")
"""Words for 1 and 0, in lower case, that are not read as such."""
JOINED = r"[;|,]"
"""The separators of joined names, unless the user names one."""
ITEM = re.compile(
    r"""\s*(np\.\w+\()?('(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|[+-]?\d+(?:\.\d*)?)(?(1)\))"""
    r"""\s*(?:,|(?=\s|'|"|$))"""
)
"""One item of a list as Python or NumPy prints it; NumPy leaves the commas of an array out, and names
the type of a value of its own: np.str_('a')."""
ENTITY = re.compile(r"&(?:[A-Za-z]{2,8}|#\d{1,6}|#x[\dA-Fa-f]{1,5});")
"""A character as HTML writes it."""
NAME_MARK = "Write the name in another way, or name the mark between labels with --label-separator"
JOINED_IDS = re.compile(r"\s*\d+(?:\.0+)?(?:\s*[;|,\s]\s*\d+(?:\.0+)?)*\s*")
BETWEEN_BITS = re.compile(r"\s*[;|,]\s*|\s+")
"""What stands between a 0 or 1 for each label: as between names, or spaces."""
CLOSING = {"[": "]", "(": ")", "{": "}"}
PRINTED_SET = re.compile(r"(?:frozenset|set)\((.*)\)", re.DOTALL)
PRINTED = re.compile(r"\[|[({]\s*['\"]|\{.*:.*\}$|(?:frozenset|set|array|np\.\w+)\(", re.DOTALL)
"""The start of a printed Python object: one that cannot be parsed is not the name of a label."""
QUOTED = re.compile(r"(['\"]).*\1", re.DOTALL)
"""A cell with quotes of its own around it: around one label, or around all."""
FLOAT_ID = re.compile(r"\d+\.0+")
NOT_SAID = ("", "nan", "<na>", "-1", "-1.0")
"""Cells, in lower case, that may mean that no label applies, or that the labels are not known."""


def is_minus_one(value: Any) -> bool:
    """Whether a 0/1 cell is -1."""
    return is_number(value) and plain_float(value) == -1


def never_zero(name: str) -> UserError:
    """The error for labels of 1 and -1 alone: -1 may mean "no" or "not known"."""
    return UserError(
        f"data set {name}: its labels are 1 and -1, and never 0; does -1 mean that a label does not "
        "apply, or that it is not known? type --empty-labels none or --empty-labels unknown"
    )


def counts_from(where: str, instead: str) -> UserError:
    """The error for ids of labels that may count from 1, beside names that count from 0."""
    return UserError(
        f"{where}: ids of labels count from 0 in labels.txt, and no training row has 0; if they count "
        f"from 1, {instead}"
    )


def flag(value: Any) -> int | BadRow | None:
    """The value of a 0/1 cell: 1, 0, or None if it is unknown."""
    text = str(value).strip().lower()
    if text in ZERO_ONE:
        return ZERO_ONE[text]
    if text in UNKNOWN_CELLS:
        return None
    number = plain_float(text) if is_number(text) else math.nan
    if number in (-1, 0, 1):
        return int(number) if number >= 0 else None
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
        if text.lower() in NOT_SAID:
            return meaning_of_empty(empty, where, text)
        listed = _spelled(text)
        if listed is None and (PRINTED.match(text) or QUOTED.fullmatch(text)):
            return not_a_list(text)
        if listed is None and not separator and (escaped := ENTITY.search(text)):
            return BadRow(
                "", f"labels {text[:40]!r}: does the ; of {escaped[0]} part labels? {NAME_MARK}"
            )
        joined = [part.strip() for part in re.split(re.escape(separator) or JOINED, text)]
        if all(map(FLOAT_ID.fullmatch, joined)):  # how pandas writes ids if one is missing
            joined = [part.partition(".")[0] for part in joined]
        value = joined if listed is None else listed
    if isinstance(value, bool | int) or (isinstance(value, float) and value.is_integer()):
        value = [int(value)]
    if not isinstance(value, list) or any(not _is_label(v) for v in value):
        return not_a_list(value)
    names = [text for v in value if (text := _as_name(v))]
    if names == ["-1"]:
        return meaning_of_empty(empty, where, "-1")
    return not_a_list(value) if "-1" in names else names


def not_a_list(value: Any) -> BadRow:
    """The BadRow for a cell that holds no labels."""
    return BadRow("", f"labels {str(value)[:40]!r} are not a list of names or ids")


def joined_by(cell: Any) -> list[str]:
    """The separators in a cell of joined names."""
    if not isinstance(cell, str) or _spelled(text := cell.strip()) is not None or not text:
        return []
    return re.findall(JOINED, text)


def multi_hot_width(cells: Iterable[Any], where: str = "") -> int:
    """K, if the cells are lists of 0 and 1 with a place for each label; 0 if they are lists of ids.

    All are then of one length, or empty, and in some of them a number occurs twice, as no id does. A
    UserError, which starts with `where`, for lists of two places, which may be either, and for lists of
    which only some have a place for each label.
    """
    width, orders = 0, set[str]()
    # the first cell in which 0 or 1 comes twice, and one that is no such list
    repeated = other = ""
    for cell in cells:
        values = as_list(cell)
        if _is_name(cell, values):
            return 0
        if values == [] or cell is None or (values is None and _may_be_unknown(cell)):
            continue
        bits = len(values or ()) > 1 and all(isinstance(flag(v), int | None) for v in values or ())
        if values is None or not bits or (width and len(values) != width):
            other = other or str(cell)[:40]
        else:
            width = len(values)
        if values and bits and len(set(map(str, values))) < len(values):
            repeated = repeated or str(cell)[:40]
        if repeated and other:
            raise UserError(
                f"{where}: labels {repeated} are a 0 or 1 for each label, and {other} are not as many; "
                "write all rows in one form, and each id once"
            )
        if width == 2 and len(orders) < 2:
            orders.add(str(values))
    if len(orders) == 2 and not repeated and not other:
        raise UserError(
            f"{where}: labels are lists of 0 and 1, in both orders: two ids, or a 0 or 1 for each of two "
            "labels? Write names of labels, or a column of 0 and 1 for each label"
        )
    return width if repeated else 0


def _is_name(cell: Any, values: list[Any] | None) -> bool:
    """Whether labels are names: then none of the cells is a list of 0 and 1."""
    texts = [v for v in values if isinstance(v, str)] if values is not None else [cell]
    if values is None and (not isinstance(cell, str) or _may_be_unknown(cell)):
        return False
    return not all(JOINED_IDS.fullmatch(v) or _are_bits([v.strip()]) for v in texts)


def _may_be_unknown(cell: Any) -> bool:
    return isinstance(cell, str) and cell.strip().lower() in NOT_SAID


def as_list(cell: Any) -> list[Any] | None:
    """The list in a cell, or the one that its text spells; None if there is none."""
    if isinstance(cell, str):
        text = cell.strip()
        parts = BETWEEN_BITS.split(text)
        return parts if len(parts) > 1 and _are_bits(parts) else _spelled(text)
    return cell if isinstance(cell, list) else None


def _are_bits(values: Iterable[str]) -> bool:
    """Whether all texts spell 0, 1 or -1."""
    return all(value.lower() in (*ZERO_ONE, "-1", "-1.0") for value in values)


def meaning_of_empty(empty: str, where: str, found: str = "") -> list[str] | None:
    """The labels of an empty cell or a missing list; a UserError if the user has not chosen.

    found: what the cell holds, if it is not empty.
    """
    if not empty:
        raise UserError(
            f"{where}: the labels are {found or 'empty'}; do such rows have no label, or are their "
            "labels not known? type --empty-labels none or --empty-labels unknown"
        )
    return [] if empty == "none" else None


def _is_label(value: Any) -> bool:
    if isinstance(value, float):
        return value.is_integer()
    return isinstance(value, str | int) and not isinstance(value, bool)


def _as_name(value: Any) -> str:
    return str(int(value) if isinstance(value, float) else value).strip()


def _spelled(text: str) -> list[Any] | None:
    """`["a", "b"]`, `['a', 'b']`, `['a' 'b']`, `[1 2]`, `('a', 'b')` or `{'a', 'b'}` as a list.

    None if it is none of them: `(other)` is a name.
    """
    if inner := PRINTED_SET.fullmatch(text):
        text = inner[1] or "()"
    if len(text) < 2 or text[-1] != CLOSING.get(text[0]):
        return None
    if text[0] == "[":
        try:
            listed = json.loads(text)
        except (ValueError, RecursionError):
            pass
        else:
            return listed if isinstance(listed, list) else None
    elif text[0] == "(" and text[1:-1].strip() and "," not in text:
        return None
    items, at, end = [], 1, len(text) - 1
    while text[at:end].strip():
        item = ITEM.match(text, at, end)
        if item is None:
            return None
        try:
            items.append(ast.literal_eval(item[2]))
        except (ValueError, SyntaxError):
            return None
        at = item.end()
    return items
