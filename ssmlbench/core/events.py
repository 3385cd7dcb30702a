"""What a run tells whoever watches it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

Notify = Callable[[Mapping[str, Any]], None]
"""Whoever is told of the events of a run."""
