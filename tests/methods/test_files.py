"""The files of the built-in methods and data sets: what they may import."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from ssmlbench.core.paths import builtin_root

FILES = sorted(
    file for folder in ("methods", "datasets") for file in (builtin_root() / folder).glob("*.py")
)


def imported(file: Path) -> list[str]:
    """The modules that a file imports, one for each import statement."""
    modules = []
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            modules += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            modules.append("." * node.level + (node.module or ""))
    return modules


@pytest.mark.parametrize("file", FILES, ids=lambda file: f"{file.parent.name}-{file.stem}")
def test_a_plugin_file_has_one_import_of_ssmlbench_and_it_is_the_api(file: Path) -> None:
    ours = [name for name in imported(file) if name.startswith((".", "ssmlbench"))]
    assert ours == ["ssmlbench.api"]


@pytest.mark.parametrize("file", FILES, ids=lambda file: f"{file.parent.name}-{file.stem}")
def test_a_plugin_file_imports_no_other_plugin_file(file: Path) -> None:
    others = {other.stem for other in FILES}
    assert not others & set(imported(file))
