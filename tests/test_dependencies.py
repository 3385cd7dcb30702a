"""What is imported is declared in pyproject.toml, and `make test-oldest` installs the lower bounds."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
IMPORTED_AS = {
    "pil": "pillow",
    "sklearn": "scikit-learn",
    "iterstrat": "iterative-stratification",
    "scikit-posthocs": "scikit-posthocs",
}
COMES_WITH = {
    "click": "typer",
    "huggingface-hub": "transformers",
    "markupsafe": "jinja2",
    "threadpoolctl": "scikit-learn",
    "tokenizers": "transformers",
}
"""Imported, and bound by the versions of a package that is declared."""


def project() -> dict[str, list[str]]:
    """The requirements by group; "" are those of every installation."""
    values = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return {"": values["dependencies"], **values["optional-dependencies"]}


def name_of(requirement: str) -> str:
    return re.split(r"[<>=\[ ]", requirement)[0].lower().replace("_", "-")


def imported() -> set[str]:
    found = set()
    for folder in ("ssmlbench", "methods", "datasets"):
        for file in (ROOT / folder).rglob("*.py"):
            for node in ast.walk(ast.parse(file.read_text())):
                if isinstance(node, ast.Import):
                    found |= {alias.name.partition(".")[0] for alias in node.names}
                elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                    found.add(node.module.partition(".")[0])
    names = {name.lower().replace("_", "-") for name in found - set(sys.stdlib_module_names)}
    return {IMPORTED_AS.get(name, name) for name in names} - {"ssmlbench", "-typeshed"}


def test_every_package_that_is_imported_is_declared() -> None:
    declared = {name_of(line) for lines in project().values() for line in lines}
    assert {COMES_WITH.get(name, name) for name in imported()} <= declared


def test_the_oldest_versions_are_the_lower_bounds() -> None:
    lines = (ROOT / "constraints-oldest.txt").read_text().splitlines()
    oldest = dict(line.split("==") for line in lines if "==" in line)
    for requirement in project()[""]:
        (bound,) = re.findall(r">=([\d.]+)", requirement)
        installed = oldest[name_of(requirement)]
        assert f"{installed}.".startswith(f"{bound}."), f"{requirement}: {installed} is installed"
