"""Finds the line of a plugin's file that draws random numbers without the run's seed."""

from __future__ import annotations

import ast
from typing import Any

from ssmlbench.core.paths import near
from ssmlbench.plugins.source_lines import file_of, own_classes, syntax_of

SOURCES = {
    "numpy.random": "NumPy's generator",
    "random": "Python's `random`",
    "secrets": "`secrets`",
    "uuid": "`uuid`",
    "os.urandom": "os.urandom",
    "time": "the clock",
    "datetime": "the clock",
    "torch.Generator": "a separate generator",
    "torch.seed": "torch.seed",
}
"""Random sources other than the run's generator, by the name in code."""


def unseeded_draw(cls: type[Any], instead: str) -> str:
    """A text that names the line with an unseeded draw. instead: the source to draw from."""
    for base in own_classes(cls):
        file = file_of(base)
        tree = syntax_of(file) if file else None
        if file is None or tree is None:
            continue
        names = _imported(tree)
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and (source := _source(node, names)):
                where = f"{near(file)}:{node.lineno}"
                return (
                    f"{where} draws from {source}, which the run does not seed; draw from {instead}"
                )
    return (
        f"draw every random number from {instead}; the order of a set and the clock differ from run to "
        "run too"
    )


def _source(call: ast.Call, names: dict[str, str]) -> str | None:
    """The source that a call draws from; None if it draws nothing, or is given a seed."""
    chain: list[str] = []
    node: ast.expr = call.func
    while isinstance(node, ast.Attribute):
        chain.insert(0, node.attr)
        node = node.value
    if not isinstance(node, ast.Name) or node.id not in names:
        return None
    called = ".".join([names[node.id], *chain])
    arguments = [*call.args, *(word.value for word in call.keywords)]
    if any("seed" in ast.unparse(argument) for argument in arguments):
        return None
    return next((s for start, s in SOURCES.items() if f"{called}.".startswith(f"{start}.")), None)


def _imported(tree: ast.Module) -> dict[str, str]:
    """The names that the file imports, with their full dotted names."""
    names = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                top = alias.name.split(".")[0]
                names[alias.asname or top] = alias.name if alias.asname else top
        elif isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                names[alias.asname or alias.name] = f"{node.module}.{alias.name}"
    return names
