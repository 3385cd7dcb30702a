"""A name means one thing: no class, type alias or public function is defined in two modules."""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import Path

from tests.conftest import ROOT

VERB_AND_FUNCTION = {"run", "compare", "methods"}
"""A verb of the command line and the Python function that does the same."""
SUITES = ROOT / "ssmlbench" / "checks"
"""Conformance suites: one file for each kind of plugin, with the same statements."""


def defined_names(file: Path) -> set[str]:
    """The classes, type aliases and public functions of a module."""
    names: set[str] = set()
    for node in ast.parse(file.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef):
            names.add(node.name)
        elif isinstance(node, ast.Assign):
            targets = {target.id for target in node.targets if isinstance(target, ast.Name)}
            names |= {name for name in targets if name[1:] != name[1:].upper()}
    return {name for name in names if not name.startswith("_")}


def test_no_name_is_defined_in_two_modules() -> None:
    homes: dict[str, list[str]] = defaultdict(list)
    files = sorted((ROOT / "ssmlbench").rglob("*.py"))
    for file in (file for file in files if file.parent != SUITES):
        for name in defined_names(file) - VERB_AND_FUNCTION:
            homes[name].append(str(file.relative_to(ROOT)))
    assert {name: files for name, files in homes.items() if len(files) > 1} == {}
