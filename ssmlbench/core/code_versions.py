"""The two forms of a code digest: of a plugin's syntax, and the older one, of its file's lines."""

from __future__ import annotations

DIGEST_PREFIX = "ast-"
"""Starts every digest of syntax. Runs made earlier have digests of the plugin's file, without it."""


def is_old_digest(code: str) -> bool:
    """Whether a digest is of the older form, which covers the lines of one file."""
    return not code.startswith(DIGEST_PREFIX)
