"""Text of unknown origin (an error, a name in a damaged file) made safe to print."""

from __future__ import annotations


def printable(text: str) -> str:
    """The text without control characters (line ends stay) and lone surrogates.

    A terminal would execute an escape sequence, and a lone surrogate cannot be encoded.
    """
    if text.isascii() and text.isprintable():
        return text
    whole = text.encode("utf-8", "replace").decode()
    return "".join(
        c if c.isprintable() or c in "\n\t" else "\N{REPLACEMENT CHARACTER}" for c in whole
    )
