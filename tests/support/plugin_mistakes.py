"""Plugin files with one mistake, and what `ssmlbench check` says of them."""

from __future__ import annotations

import re
from pathlib import Path

from ssmlbench.cli.check import check_plugins
from ssmlbench.core.console import Console
from ssmlbench.core.errors import UserError


def checked(file: Path) -> str:
    """What `ssmlbench check` says of a file; the line of its error if it does not even load."""
    console = Console(record=True, width=500)
    try:
        assert not check_plugins(str(file), console)
    except UserError as error:
        return str(error)
    return console.export_text()


def mistaken(folder: Path, text: str, new: str, old: str | None) -> Path:
    """A plugin file with a mistake in it."""
    if old is None:
        text = text[: text.index("class Mine")] + new + '    name = "mine"\n'
    else:
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    file = folder / "mine.py"
    file.write_text(text)
    return file


def assert_one_line(file: Path, said: str, expected: str, marker: str = "#!") -> None:
    """One mistake, said once, with the number of the marked line."""
    line = next(i for i, text in enumerate(file.read_text().splitlines(), 1) if marker in text)
    reasons = [text for text in said.splitlines() if f"{file.name}:" in text]
    assert len(reasons) == 1, said
    assert any(alternative in reasons[0] for alternative in expected.split("|")), said
    assert re.search(rf"{file.name}:{line}\b", reasons[0]), (line, said)
    assert said.count("BROKEN") <= 1
    assert "Traceback" not in said
