"""What plugin code may not change, and what Python has to write while it imports a plugin."""

from __future__ import annotations

from pathlib import Path

import pytest

from ssmlbench.core import protected_files
from ssmlbench.core.protected_files import changed_path

COMPILED = Path(protected_files.__file__).parent / "__pycache__"


def test_python_may_make_the_folder_of_what_it_compiles() -> None:
    """The first import of a checkout's module may be that of a plugin file."""
    assert changed_path()("os.mkdir", (str(COMPILED), 0o777, -1)) is None


@pytest.mark.parametrize(
    ("event", "arguments"),
    [
        ("os.mkdir", (str(COMPILED.with_name("other")), 0o777, -1)),
        ("os.rename", ("forged", str(COMPILED), -1, -1)),
        ("os.rename", (str(COMPILED), "elsewhere", -1, -1)),
        ("os.symlink", ("forged", str(COMPILED), -1)),
        ("os.rmdir", (str(COMPILED), -1)),
    ],
)
def test_nothing_else_may_happen_to_this_folder_and_its_neighbours(
    event: str, arguments: tuple[object, ...]
) -> None:
    assert changed_path()(event, arguments) is not None
