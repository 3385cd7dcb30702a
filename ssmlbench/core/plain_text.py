"""Text of unknown origin (an error, a name in a damaged file) made safe to print."""

from __future__ import annotations

LONGEST = 3_000
"""The most characters of an error that are shown; the traceback in error.json has all of them."""
END = 500
"""How many of them are from its end."""


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


def valid_text(text: str) -> str:
    r"""The text, if it can be encoded; bytes of a name of a file that are not UTF-8 as `\xe9`.

    Python keeps such bytes as lone surrogates, which no file of text can hold.
    """
    try:
        text.encode()
    except UnicodeEncodeError:
        try:
            return text.encode(errors="surrogateescape").decode(errors="backslashreplace")
        except UnicodeEncodeError:  # a surrogate that stands for no byte, as `\\ud800` in JSON
            return text.encode(errors="backslashreplace").decode()
    return text


def error_text(error: BaseException) -> str:
    """The text of an exception, not too long for a line. The text of a plugin's may be missing."""
    try:
        return shorten(str(error))
    except Exception as fault:
        return f"an error whose text raises {type(fault).__name__}"


def line_of(error: BaseException, which: int = 0) -> str:
    """One line of an exception's text, the first or `which`; its type if it has no text."""
    try:
        lines = str(error).strip().splitlines()
    except Exception:
        lines = [error_text(error)]
    return shorten(lines[which].strip()) if lines else type(error).__name__


def one_line(text: str) -> str:
    """The text on one line; spaces within a line stay, as in the name of a file."""
    return " ".join(line.strip() for line in text.splitlines() if line.strip())


def shorten(text: str) -> str:
    """The text, or its length, its beginning and its end, which says what was expected."""
    if len(text) <= LONGEST:
        return text
    return f"{text[: LONGEST - END]} … ({len(text):,} characters) … {text[-END:]}"
