"""The names that plugins, data sets and labels may have.

The name of a plugin or data set is part of paths, so few characters are allowed; a label may be in any
language.
"""

from __future__ import annotations

import re
import unicodedata

from ssmlbench.core.errors import UserError

NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._+-]{0,98}[A-Za-z0-9_+-])?")
EVERY_METHOD = "all"
"""The word of `--method all`, which no method may have as its name."""
LABEL_LENGTH = 300
PLUGIN_PREFIX = "ssmlbench_plugin_"
"""How the module names of plugin files start."""
DIRECTION = frozenset("\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
"""Characters that change the direction of the text after them."""


def is_name(name: str) -> bool:
    """Whether a plugin or data set may have this name."""
    return NAME.fullmatch(name) is not None


def check_name(name: str, owner: str) -> None:
    """Raise a UserError unless a plugin or data set may have this name. owner: for the message."""
    if not is_name(name):
        raise UserError(
            f"{owner} {name[:100]!r}: a name has letters, digits, . _ + and -, starts with a letter or "
            "digit, does not end with a dot, and has at most 100 characters"
        )


def is_path_part(name: str) -> bool:
    """Whether a name from a file is safe as a folder's name: no path, no invisible characters.

    Older versions and other programs allowed more names than `is_name` does.
    """
    hidden = any(_is_hidden(character) or character in "/\\" for character in name)
    return bool(name) and name not in (".", "..") and not hidden


def check_label(name: str, where: str) -> None:
    """Raise a UserError unless a label may have this name: any script, but no control characters."""
    reason = ""
    if not name.strip():
        reason = "is empty"
    elif not any(map(_is_visible, name)):
        reason = "has no visible character"
    elif name != name.strip():
        reason = "starts or ends with a space"
    elif len(name) > LABEL_LENGTH:
        reason = f"has {len(name)} characters, at most {LABEL_LENGTH} are allowed"
    elif any(_is_hidden(character) for character in name):
        reason = "has control characters or broken ones in it"
    if reason:
        raise UserError(f"{where}: label {name[:60]!r} {reason}; rename it")


def _is_visible(character: str) -> bool:
    return unicodedata.category(character) != "Cf" and not character.isspace()


def _is_hidden(character: str) -> bool:
    kind = unicodedata.category(character)
    return kind in ("Cc", "Cs", "Zl", "Zp") or character in DIRECTION
