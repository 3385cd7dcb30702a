"""`--help`: every text is shown whole, and nothing is imported that it does not need."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from types import ModuleType
from typing import Annotated, Any

import pytest
import typer
from typer.testing import CliRunner

from ssmlbench.cli import app, verbs
from ssmlbench.cli.verbs import VERBS, load_verb

WIDE = {"COLUMNS": "600", "TERMINAL_WIDTH": "600"}


def declared_texts(monkeypatch: pytest.MonkeyPatch) -> dict[tuple[str, ...], list[str]]:
    """The help texts of every command and of its options, as they were written."""
    with monkeypatch.context() as patched:
        patched.setattr(verbs, "escape", str)
        return {
            path: [text for item in (command, *command.params) if (text := _text(item))]
            for name in VERBS
            for path, command in leaves((name,), load_verb(name))
        }


def _text(item: Any) -> str:
    return " ".join((getattr(item, "help", None) or "").split("\n\n")[0].split())


def leaves(path: tuple[str, ...], command: Any) -> Iterator[tuple[tuple[str, ...], Any]]:
    yield path, command
    for name, below in getattr(command, "commands", {}).items():
        yield from leaves((*path, name), below)


def shown(path: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> str:
    for name, value in WIDE.items():
        monkeypatch.setenv(name, value)
    answer = CliRunner().invoke(app, [*path, "--help"], terminal_width=600)
    assert answer.exit_code == 0, answer.output
    return " ".join(answer.output.split())


def test_every_help_text_is_shown_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = declared_texts(monkeypatch)
    assert ("data", "prepare") in texts
    for path, declared in texts.items():
        page = shown(path, monkeypatch)
        assert [text for text in declared if text not in page] == [], path


def test_text_in_brackets_is_not_taken_for_markup(monkeypatch: pytest.MonkeyPatch) -> None:
    def probe(
        folder: Annotated[str, typer.Option(help="A folder [bold] of [results].")] = "",
    ) -> None:
        """Look at [red] things."""

    module = ModuleType("ssmlbench.cli.probe")
    module.probe = probe  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setitem(VERBS, "probe", ("probe:probe", "Look at [red] things."))
    page = shown(("probe",), monkeypatch)
    assert "A folder [bold] of [results]." in page
    assert "Look at [red] things." in page
    assert "Look at [red] things." in shown((), monkeypatch)


@pytest.mark.parametrize(
    ("arguments", "absent"),
    [
        (["--help"], {"numpy", "ssmlbench.grid", "ssmlbench.boards", "ssmlbench.core.spec"}),
        (["compare", "--help"], {"ssmlbench.grid.engines", "ssmlbench.boards.build"}),
        (["run", "--help"], {"ssmlbench.boards", "ssmlbench.plugins"}),
    ],
    ids=["--help", "compare --help", "run --help"],
)
def test_help_imports_only_what_it_shows(arguments: list[str], absent: set[str]) -> None:
    heavy = {"torch", "datasets", "transformers", "pandas", "sklearn", *absent}
    code = (
        "import sys; from typer.testing import CliRunner; from ssmlbench.cli import app;"
        f"answer = CliRunner().invoke(app, {arguments!r}); assert answer.exit_code == 0, answer;"
        f"print(*sorted({heavy!r} & set(sys.modules)))"
    )
    run = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert run.stdout.strip() == ""
