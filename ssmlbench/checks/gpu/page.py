"""The page that `ssmlbench doctor --gpu` prints: a line for each part, also for one that fails."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from ssmlbench.core.markdown_text import markdown_cell

State = Literal["OK", "differs", "failed", "skipped"]
LONGEST = 300
"""Characters of a reason; the page is meant to be pasted."""


class Differs(Exception):
    """A part that ran, and found other values than expected."""


class Skipped(Exception):
    """A part that this machine cannot run."""


@dataclass(frozen=True)
class PageLine:
    """One part of the page: its state, and the measurement or the error."""

    part: str
    state: State
    text: str


def checked_line(part: str, check: Callable[[], str]) -> PageLine:
    """The line of one part. check: returns its measurement as a text; an exception is a line too."""
    try:
        return PageLine(part, "OK", check())
    except Differs as found:
        return PageLine(part, "differs", str(found))
    except Skipped as found:
        return PageLine(part, "skipped", str(found))
    except Exception as error:
        return PageLine(part, "failed", _reason(error))


def _reason(error: BaseException) -> str:
    """An error in one line, with the place that raised it."""
    frames = traceback.extract_tb(error.__traceback__)
    where = f" ({Path(frames[-1].filename).name}:{frames[-1].lineno})" if frames else ""
    first = (str(error).strip().splitlines() or [""])[0]
    return f"{type(error).__name__}: {first}{where}"


@dataclass
class Page:
    """Sections of lines, as Markdown."""

    title: str
    facts: dict[str, str]
    sections: dict[str, list[PageLine]] = field(default_factory=dict)
    about: dict[str, str] = field(default_factory=dict)  # section → what its lines say

    @property
    def lines(self) -> list[PageLine]:
        """The lines of all sections."""
        return [line for lines in self.sections.values() for line in lines]

    @property
    def summary(self) -> str:
        """The number of lines in each state."""
        states = [line.state for line in self.lines]
        counts = {state: states.count(state) for state in ("OK", "differs", "failed", "skipped")}
        return ", ".join(f"{count} {state}" for state, count in counts.items() if count)

    @property
    def sound(self) -> bool:
        """Whether nothing differs and nothing failed."""
        return all(line.state in ("OK", "skipped") for line in self.lines)

    def markdown(self) -> str:
        """The page as text to paste into an issue."""
        return "\n".join(self._markdown()) + "\n"

    def _markdown(self) -> Iterator[str]:
        yield f"# {self.title}"
        yield ""
        yield from (f"* {name}: {value}" for name, value in self.facts.items())
        yield f"* parts: {self.summary}"
        yield (
            "* states: OK; differs (it ran, and a value is not as expected); failed (an error); skipped "
            "(not possible here)"
        )
        for section, lines in self.sections.items():
            yield f"\n## {section}\n"
            if section in self.about:
                yield f"{self.about[section]}\n"
            yield "| part | state | measured |"
            yield "| --- | --- | --- |"
            for line in lines:
                yield f"| {_cell(line.part)} | {line.state} | {_cell(line.text)} |"


def _cell(text: str) -> str:
    """Text that stays inside one cell of a table."""
    flat = markdown_cell(text)
    return flat if len(flat) <= LONGEST else f"{flat[:LONGEST]} …"
