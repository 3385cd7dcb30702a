"""Names of files and labels, made from titles."""

from __future__ import annotations

import re
from collections.abc import Iterable


def slugs(texts: Iterable[str]) -> list[str]:
    """File names for the texts: small letters, digits, dots and dashes; all different."""
    names: list[str] = []
    for text in texts:
        ascii_text = text.replace("π", "pi").encode("ascii", "ignore").decode().lower()
        base = re.sub(r"[^a-z0-9.]+", "-", ascii_text).strip("-.")[:80] or "figure"
        slug, number = base, 2
        while slug in names:
            slug, number = f"{base}-{number}", number + 1
        names.append(slug)
    return names
