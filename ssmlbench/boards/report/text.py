"""Names from plugins or files, made safe for a page or a figure."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence

_TURNS_TEXT = re.compile("[\u202a-\u202e\u2066-\u2069]")


def clean(text: str) -> str:
    """The text without characters that a page or SVG may not contain, or that reorder text."""
    return "".join(
        "\ufffd"
        if (unicodedata.category(c) in ("Cc", "Cs", "Cn") and c not in "\t\n")
        or _TURNS_TEXT.match(c)
        else c
        for c in text
    )


def short_names(names: Sequence[str], width: int) -> dict[str, str]:
    """Each name cut to `width` characters; those that would look alike are numbered."""
    short: dict[str, str] = {}
    for name in dict.fromkeys(names):
        line = " ".join(clean(name).split())
        text, number = line if len(line) <= width else f"{line[: width - 1]}…", 2
        while text in short.values():
            text, number = f"{line[: width - 4]}… {number}", number + 1
        short[name] = text
    return short
