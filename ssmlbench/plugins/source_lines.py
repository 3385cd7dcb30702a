"""Finds the line of a mistake in a plugin's file, and turns exceptions into one line for its author."""

from __future__ import annotations

import ast
import difflib
import inspect
import re
from collections.abc import Collection, Iterator
from functools import lru_cache
from pathlib import Path
from types import TracebackType
from typing import Any

from ssmlbench.core.errors import RunFailed, UserError
from ssmlbench.core.paths import near
from ssmlbench.core.plain_text import error_text, shorten
from ssmlbench.core.registry import location

LIBRARIES = ("ssmlbench", "torch", "builtins", "abc", "typing", "sklearn")
"""Packages whose classes a plugin is derived from, and which are not its author's."""

HINTS = (
    (
        r"\bByte\b|unsigned char",
        "images are uint8: write inputs.to(torch.float32)",
        "",
    ),
    (
        r"Char\b|signed char",
        "`observed` is int8 with -1 for unknown: use bce(logits, observed)",
        "",
    ),
    (
        r"on the same device|compiled with CUDA|NVIDIA driver",
        "name no device: make tensors on the device of their inputs, e.g. torch.zeros_like(logits) "
        "or device=logits.device",
        "",
    ),
    (
        r"modified by an inplace operation|leaf Variable that requires grad",
        "a tensor that the loss needs was changed in place: use e.g. x.clamp(…), not x.clamp_(…), "
        "and torch.where, not x[mask] = …",
        "loss",
    ),
    (
        r"backward through the graph a second time",
        "leave .backward() to the trainer; or a tensor of an earlier step is still tied to its graph: "
        "put self.x = value.detach() on self",
        "loss",
    ),
    (
        r"does not require grad",
        "nothing in it depends on the network: is a tensor detached, or made under torch.no_grad()?",
        "loss",
    ),
)
"""Advice on torch's messages in a plugin: (pattern, advice, the function to look at)."""


def own_classes(cls: type[Any]) -> list[type[Any]]:
    """The class and the bases that its author wrote."""
    return [base for base in cls.__mro__ if base.__module__.split(".")[0] not in LIBRARIES]


def explain(error: BaseException, *plugins: type[Any]) -> str:
    """One line about an exception of a run: file and line, the error, advice."""
    if isinstance(error, UserError):
        return error_text(error)
    advice = member = ""
    if isinstance(error, RunFailed):
        text, member, literal = error_text(error), error.member, error.literal
    else:
        text = f"{type(error).__name__}: {' '.join(error_text(error).split())}".removesuffix(": ")
        literal = ""
        advice, member = _advice(error, text)
    place = _raised_at(error, plugins) or (member and defined_at(plugins[0], member, literal))
    return f"{place}: {text}{advice}" if place else f"{text}{advice}"


def explained_in(error: BaseException, files: Collection[str]) -> str | None:
    """One line about an exception that passed through one of the files; None if it passed through none."""
    place = _line_in(error, files)
    if not place:
        return None
    if isinstance(error, SystemExit):
        return f"{place}: it called sys.exit({'' if error.code is None else shorten(repr(error.code))})"
    text = f"{type(error).__name__}: {' '.join(error_text(error).split())}".removesuffix(": ")
    return f"{place}: {text}{_advice(error, text)[0]}"


def passed_through(error: BaseException, *plugins: type[Any]) -> bool:
    """Whether the exception passed through a line of one of the plugins' files."""
    return bool(_raised_at(error, plugins))


def _advice(error: BaseException, text: str) -> tuple[str, str]:
    """Advice on an error, and the function to look at if no line of the plugin raised it."""
    if isinstance(error, AttributeError) and error.name is not None:
        if error.obj is None:
            none = " (`unlabelled` is None during warm-up and if no row is unlabelled)"
            return (none if error.name in ("logits", "features", "outputs", "rows") else ""), ""
        known = [name for name in dir(error.obj) if not name.startswith("_")]
        close = difflib.get_close_matches(error.name, known, n=1, cutoff=0.6)
        return (f". Did you mean {close[0]}?" if close else ""), ""
    if isinstance(error, RuntimeError | AssertionError):  # torch raises both
        for pattern, advice, member in HINTS:
            if re.search(pattern, text):
                return f". {advice[0].upper()}{advice[1:]}", member
    return "", ""


def _raised_at(error: BaseException, plugins: tuple[type[Any], ...]) -> str:
    """`file:line` of the innermost line of a plugin's file that the exception passed through."""
    files = {str(file) for cls in plugins for base in own_classes(cls) if (file := file_of(base))}
    return _line_in(error, files)


def _line_in(error: BaseException, files: Collection[str]) -> str:
    """`file:line` of the innermost line of these files that the exception passed through."""
    place = ""
    for frame in _frames(error.__traceback__):
        name = frame.tb_frame.f_code.co_filename
        if name in files:
            place = f"{near(Path(name))}:{frame.tb_lineno}"
    return place


def _frames(trace: TracebackType | None) -> Iterator[TracebackType]:
    while trace is not None:
        yield trace
        trace = trace.tb_next


def defined_at(cls: type[Any], member: str = "", literal: str = "") -> str:
    """`file:line` of a member of the class, or of a text inside it; of the class if there is none.

    member: a name, or `Config.weight` for a field of a nested class.
    """
    for base in own_classes(cls):
        file = file_of(base)
        node = file and _class_node(file, base.__qualname__)
        if not file or not node:
            continue
        for part in filter(None, member.split(".")):
            node = _bound(node, part)
            if node is None:
                break
        if node is None:
            continue
        line = getattr(node, "lineno", 1)
        for inner in ast.walk(node):
            if literal and isinstance(inner, ast.Constant) and inner.value == literal:
                line = inner.lineno
                break
        return f"{near(file)}:{line}"
    return defined_at(cls) if member else str(location(cls))


def file_of(cls: type[Any]) -> Path | None:
    """The file of a class, if it has one: a class of a notebook has none."""
    try:
        return Path(inspect.getfile(cls))
    except (OSError, TypeError):
        return None


@lru_cache(maxsize=64)
def syntax_of(file: Path) -> ast.Module | None:
    """The parsed file, if it can be read and parsed."""
    try:
        return ast.parse(file.read_bytes())
    except (OSError, SyntaxError, ValueError):
        return None


def _class_node(file: Path, qualified: str) -> ast.AST | None:
    node: ast.AST | None = syntax_of(file)
    for part in qualified.split("."):
        if part != "<locals>" and node is not None:
            node = next(
                (inner for inner in ast.walk(node) if getattr(inner, "name", None) == part), None
            )
    return node


def _bound(node: ast.AST, name: str) -> ast.AST | None:
    """The statement of a class body that binds the name."""
    for statement in getattr(node, "body", []):
        targets = getattr(statement, "targets", [getattr(statement, "target", None)])
        names = [
            inner.id for t in targets if t for inner in ast.walk(t) if isinstance(inner, ast.Name)
        ]
        if getattr(statement, "name", None) == name or name in names:
            return statement  # type: ignore[no-any-return]
    return None
