r"""Texts as LaTeX: in ASCII, with special characters escaped."""

from __future__ import annotations

import re
import unicodedata

SPECIAL = {
    "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_", "{": r"\{", "}": r"\}",
    "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "\\": r"\textbackslash{}",
    # at the start of a row these would be read as an argument of the \\ before
    "[": "{[}", "*": "{*}",
    "<": r"$<$", ">": r"$>$", "|": r"\textbar{}", '"': "''",
    "±": r"$\pm$", "×": r"$\times$", "≥": r"$\geq$", "≤": r"$\leq$", "≈": r"$\approx$",
    "≠": r"$\neq$", "→": r"$\to$", "↑": r"$\uparrow$", "↓": r"$\downarrow$", "Δ": r"$\Delta$",
    "†": r"$\dagger$", "§": r"\S{}", "‡": r"$\ddagger$", "·": r"$\cdot$", "−": "$-$", "∞": r"$\infty$",
    "°": r"$^\circ$", "²": "$^2$", "³": "$^3$", "¹": "$^1$",
    "√": r"$\surd$", "∼": r"$\sim$", "–": "--", "—": "---", "…": r"\ldots{}", "’": "'", "‘": "`",
    "“": "``", "”": "''", "ß": r"\ss{}", "ø": r"\o{}", "Ø": r"\O{}", "ł": r"\l{}", "Ł": r"\L{}",
    "æ": r"\ae{}", "Æ": r"\AE{}", "\ufffd": "?",
}  # fmt: skip

ACCENTS = {
    "\u0300": r"\`", "\u0301": r"\'", "\u0302": r"\^", "\u0303": r"\~", "\u0304": r"\=",
    "\u0306": r"\u", "\u0307": r"\.", "\u0308": r"\"", "\u030a": r"\r", "\u030b": r"\H",
    "\u030c": r"\v", "\u0327": r"\c",
}  # fmt: skip

GREEK_AS_LATIN = {
    "ALPHA": "A", "BETA": "B", "EPSILON": "E", "ZETA": "Z", "ETA": "H", "IOTA": "I", "KAPPA": "K",
    "MU": "M", "NU": "N", "OMICRON": "O", "RHO": "P", "TAU": "T", "CHI": "X",
}  # fmt: skip


def latex_escape(text: str) -> str:
    """Return the text in ASCII with LaTeX's special characters escaped."""
    opened = re.sub(r'(?<![^\s(\[])"(?=\S)', "“", unicodedata.normalize("NFC", text))
    # an option's two hyphens would become one dash
    parts = re.split("(?<=-)(?=-)", opened)
    return "{}".join("".join(map(_escaped, part)) for part in parts)


def _escaped(character: str) -> str:
    if character in SPECIAL:
        return SPECIAL[character]
    if character.isspace():
        return " "
    if " " < character < "\x7f":
        return character
    return _greek(character) or _accented(character) or _code_point(character)


def _greek(character: str) -> str:
    words = unicodedata.name(character, "").split()
    if len(words) != 4 or words[0] != "GREEK" or words[2] != "LETTER":
        return ""
    _, case, _, letter = words
    letter = letter.replace("LAMDA", "LAMBDA")
    if letter == "OMICRON" or (case == "CAPITAL" and letter in GREEK_AS_LATIN):
        return f"${GREEK_AS_LATIN[letter] if case == 'CAPITAL' else 'o'}$"
    if letter not in _GREEK_LETTERS:
        return ""
    return rf"$\{letter.lower() if case == 'SMALL' else letter.capitalize()}$"


_GREEK_LETTERS = {
    "ALPHA", "BETA", "GAMMA", "DELTA", "EPSILON", "ZETA", "ETA", "THETA", "IOTA", "KAPPA", "LAMBDA",
    "MU", "NU", "XI", "PI", "RHO", "SIGMA", "TAU", "UPSILON", "PHI", "CHI", "PSI", "OMEGA",
}  # fmt: skip


def _accented(character: str) -> str:
    base, *marks = list(unicodedata.normalize("NFKD", character))
    if not " " < base < "\x7f" or any(mark not in ACCENTS for mark in marks):
        compatible = unicodedata.normalize("NFKC", character)  # a superscript, a ligature
        plain = compatible.isascii() and compatible.isalnum()
        return compatible if plain else ""
    text = base
    for mark in marks:
        text = f"{ACCENTS[mark]}{{{text}}}"
    return SPECIAL.get(text, text)


def _code_point(character: str) -> str:
    return rf"\texttt{{U+{ord(character):04X}}}"
