"""Puts the tables and lists of the documents back to what their commands print: `make tables`.

One stands between `<!-- table: COMMAND -->` and `<!-- end of table -->`; a test runs the same
commands, so that no number in a document is older than the file it comes from.
"""

from __future__ import annotations

import contextlib
import io
import re
import runpy
import shlex
import sys
from pathlib import Path
from unittest import mock

from ssmlbench.cli import app

ROOT = Path(__file__).resolve().parent.parent
PAGES = (
    ROOT / "README.md",
    ROOT / "docs" / "methods.md",
    ROOT / "docs" / "findings.md",
    ROOT / "leaderboards" / "README.md",
)
TABLE = re.compile(
    r"(<!-- table: ((?:ssmlbench|python) .*?) -->\n).*?(<!-- end of table -->)", re.DOTALL
)


def with_tables(page: str) -> str:
    """The page with every table made anew."""

    def made(match: re.Match[str]) -> str:
        start, command, end = match.groups()
        return f"{start}\n{printed_by(command).strip()}\n\n{end}"

    return TABLE.sub(made, page)


def printed_by(command: str) -> str:
    """What the command prints, run in this process: a new one would import everything again."""
    program, *words = shlex.split(command)
    out = io.StringIO()
    with contextlib.chdir(ROOT), contextlib.redirect_stdout(out):
        if program == "ssmlbench":
            app(words, standalone_mode=False)
        else:
            with mock.patch.object(sys, "argv", words):
                runpy.run_path(words[0], run_name="__main__")
    return out.getvalue()


def main() -> None:
    for page in PAGES:
        page.write_text(with_tables(page.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
