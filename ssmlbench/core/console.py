"""The terminal as every verb writes to it: text is shown as it was typed or stored.

Rich's own console shows `:x:` as an emoji, in "--device cuda:x: no such device", and takes `[x]` in a path
or in the name of a label for markup: `[x]` is not shown, and `[/x]` is an error. Styles are `Text`.
"""

from __future__ import annotations

from typing import Any

from rich.console import Console as RichConsole


class Console(RichConsole):
    """Rich's console without emoji codes and markup."""

    def __init__(self, **options: Any) -> None:
        super().__init__(emoji=False, markup=False, **options)

    def print_line(self, text: str) -> None:
        """Print a text as it is: numbers are not coloured, and long lines are not broken."""
        self.print(text, highlight=False, soft_wrap=True)
