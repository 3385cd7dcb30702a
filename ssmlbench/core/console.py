"""The terminal as every verb writes to it: text is shown as it was typed or stored.

Rich's own console shows `:x:` as an emoji, in "--device cuda:x: no such device", and takes `[x]` in a path
or in the name of a label for markup: `[x]` is not shown, and `[/x]` is an error. Styles are `Text`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from rich.console import Console as RichConsole
from rich.console import ConsoleOptions, RenderableType
from rich.segment import Segment

from ssmlbench.core.plain_text import printable


class Console(RichConsole):
    """Rich's console without emoji codes, markup, and escape sequences of plugins and files."""

    def __init__(self, **options: Any) -> None:
        super().__init__(emoji=False, markup=False, **options)

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        """Render without control characters of texts: a terminal would execute an escape sequence."""
        for segment in super().render(renderable, options):
            if segment.control or segment.text == "\n" or segment.text.isprintable():
                yield segment
            else:
                yield Segment(printable(segment.text), segment.style)

    def print_line(self, text: str) -> None:
        """Print a text as it is: numbers are not coloured, and long lines are not broken."""
        self.print(text, highlight=False, soft_wrap=True)
