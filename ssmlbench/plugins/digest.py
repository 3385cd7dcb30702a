"""A digest of a plugin's code: an edited method is another method."""

from __future__ import annotations

import hashlib

from ssmlbench.core.registry import source_file


def code_digest(cls: type) -> str:
    """A digest of the plugin's file that comments and blank lines do not change.

    An edited method is another method: its finished runs are not taken for the new one's.
    """
    lines = source_file(cls).read_text(encoding="utf-8").splitlines()
    code = [line.rstrip() for line in lines if line.strip() and not line.strip().startswith("#")]
    return hashlib.sha256("\n".join(code).encode()).hexdigest()[:12]
