"""What is printed is shown as it was typed or stored."""

from __future__ import annotations

import io
import re
from pathlib import Path

from rich.console import Group
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

import ssmlbench
from ssmlbench.core.console import Console


def test_colons_make_no_emoji() -> None:
    console = Console(file=io.StringIO(), width=80)
    table = Table(":x:")
    table.add_row(":heart:")
    console.print("--device cuda:x: no such device", style="red")
    console.print(table)
    shown = console.file.getvalue()  # type: ignore[attr-defined]
    assert all(text in shown for text in ("cuda:x: no", ":x:", ":heart:"))


def test_brackets_are_no_markup() -> None:
    console = Console(file=io.StringIO(), width=80)
    table = Table("[bold]", title="[/title]", caption="[red]")
    table.add_row("label [/x]")
    console.print(table)
    console.print("note: [/x] and [bold]y")
    console.print_line("wrote out[x]/multidigits.csv")
    shown = console.file.getvalue()  # type: ignore[attr-defined]
    kept = ("[bold] ", "[/title]", "[red]", "label [/x]", "[/x] and [bold]y", "out[x]/")
    assert all(text in shown for text in kept)


def test_no_text_reaches_the_terminal_as_an_escape_sequence() -> None:
    """Of a plugin's docstring, an error, a label: in lines, tables, and what is printed as it is."""
    evil = "\x1b[2Jx\x07\u202e\udce9\x9b1m"
    console = Console(file=io.StringIO(), width=80, force_terminal=True, color_system=None)
    table = Table(evil, title=evil, caption=evil)
    table.add_row(Text(evil, style="bold"))
    console.print(table)
    console.print(Group(Text(evil), Padding(Text(evil), 1)))
    console.print(evil, style="red")
    console.print_line(f"{evil}\n{evil}")
    console.out(evil, highlight=False)
    shown = console.file.getvalue()  # type: ignore[attr-defined]
    assert shown.count("[2Jx") == 10
    own = re.sub("\x1b\\[[0-9;]*m", "", shown)  # Rich's styles
    assert not re.search("[\x1b\x07\u202e\x9b\ud800-\udfff]", own)


def test_every_verb_writes_to_this_console() -> None:
    folder = Path(ssmlbench.__file__).parent
    others = [
        file.relative_to(folder).as_posix()
        for file in folder.rglob("*.py")
        if re.search(r"from rich.console import .*\bConsole\b|rich\.get_console", file.read_text())
    ]
    assert others == ["core/console.py"]
