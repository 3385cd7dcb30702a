"""Remarks on a run for readers of its result: each once, and of very many the first."""

from __future__ import annotations

from ssmlbench.core.plain_text import shorten

MOST = 20
MORE = "there were more remarks, which are left out"


class Remarks(list[str]):
    """A list that `add` keeps short: a plugin may make any number of remarks."""

    def add(self, text: str) -> None:
        """Add a remark, unless it is there already or there are very many."""
        text = shorten(text)
        if text not in self and len(self) <= MOST:
            self.append(text if len(self) < MOST else MORE)
