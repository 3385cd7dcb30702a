"""The terminal as every verb writes to it: text is shown as it was typed or stored.

Rich's own console shows `:x:` as an emoji: in "--device cuda:x: no such device", in a path or in the name
of a label.
"""

from __future__ import annotations

from typing import Any

from rich.console import Console as RichConsole


class Console(RichConsole):
    """Rich's console without emoji codes."""

    def __init__(self, **options: Any) -> None:
        super().__init__(emoji=False, **options)
