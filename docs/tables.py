"""Puts the tables and lists of the documents back to what their commands print: `make tables`.

One stands between `<!-- table: COMMAND -->` and `<!-- end of table -->`; a test runs the same
commands, so that no number in a document is older than the file it comes from.
"""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

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
        program, *arguments = shlex.split(command)
        arguments = [*(["-m", program] if program == "ssmlbench" else []), *arguments]
        printed = subprocess.run(
            [sys.executable, *arguments], cwd=ROOT, capture_output=True, text=True, check=True
        )
        return f"{start}\n{printed.stdout.strip()}\n\n{end}"

    return TABLE.sub(made, page)


def main() -> None:
    for page in PAGES:
        page.write_text(with_tables(page.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
