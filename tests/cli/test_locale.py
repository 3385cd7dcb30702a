"""A locale that is not UTF-8 stops no command: the names of metrics and symbols are not in Latin-1."""

from __future__ import annotations

import io
import sys

import pytest

from ssmlbench.cli import main


class Terminal(io.BytesIO):
    """Bytes that claim to be a terminal."""

    def __init__(self, terminal: bool):
        super().__init__()
        self.terminal = terminal

    def isatty(self) -> bool:
        return self.terminal


@pytest.mark.parametrize("encoding", ["latin-1", "ascii", "cp1252"])
@pytest.mark.parametrize("terminal", [True, False])
def test_symbols_are_written_in_any_locale(
    monkeypatch: pytest.MonkeyPatch, encoding: str, terminal: bool
) -> None:
    raw = Terminal(terminal)
    stream = io.TextIOWrapper(raw, encoding=encoding)
    monkeypatch.setattr(sys, "stdout", stream)
    monkeypatch.setattr(sys, "argv", ["ssmlbench", "methods", "bbam"])
    monkeypatch.setenv("COLUMNS", "200")
    with pytest.raises(SystemExit) as ended:
        main()
    stream.flush()
    assert not ended.value.code
    written = raw.getvalue().decode(encoding if terminal else "utf-8")
    assert "bbam" in written
    assert ("θ" in written or "π" in written or "μ" in written or "λ" in written) != terminal
