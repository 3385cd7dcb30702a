"""The syntax of one module: its names, and each definition as canonical text.

The text has no docstrings, comments, imports, annotations, layout or line numbers. A reference is written
by the target's own name, wherever it was imported from and under which alias.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol

SKIPPED_FIELDS = frozenset(
    {"annotation", "returns", "type_comment", "type_params", "ctx", "kind", "simple"}
)
"""Fields that no number depends on, or that only some versions of Python have."""
READS_BY_NAME = frozenset({"vars", "dir", "globals", "locals", "eval", "exec", "__dict__"})
"""Names that reach members or globals which the syntax does not show."""

LOOKUPS = {"getattr": 1, "attrgetter": 0, "methodcaller": 0}
"""Functions that read an attribute by its name, and which argument names it."""

Statements = tuple[ast.stmt, ...]
Functions = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)


@dataclass(frozen=True, eq=False)
class Source:
    """One module: its top-level statements by the names they bind, and its imports."""

    package: str  # dotted, where relative imports start
    definitions: dict[str, Statements]
    imports: dict[str, str]  # local name → dotted name
    stars: tuple[str, ...]  # modules of `from … import *`
    effects: Statements  # calls at the top level that bind no name
    tree: ast.Module

    @classmethod
    def parse(cls, text: str, name: str, is_package: bool = False) -> Source:
        """The module from its text."""
        tree = ast.parse(text)
        package = name if is_package else name.rpartition(".")[0]
        imports, stars = imported_names(_same_scope(tree), package)
        definitions = bound_names(tree.body)
        effects = tuple(
            statement
            for statement in tree.body
            if isinstance(statement, ast.Expr)
            and isinstance(statement.value, ast.Call)
            and _root(statement.value) not in definitions
        )
        return cls(package, definitions, imports, stars, effects, tree)


@dataclass(frozen=True)
class Code:
    """One definition as canonical text, with its references."""

    text: str
    uses: frozenset[tuple[Source, str]] = frozenset()  # top-level names of followed modules
    attributes: frozenset[str] = frozenset()  # read from any object
    inherited: frozenset[str] = frozenset()  # read from super()
    by_name: bool = False  # it reads names that the syntax does not show


@dataclass(frozen=True)
class Target:
    """The target of a name: a definition in a followed module, or else a text."""

    text: str
    source: Source | None = None
    name: str = ""


class Resolver(Protocol):
    """Resolves a name."""

    def resolve_name(self, source: Source, name: str, chain: Sequence[str]) -> Target | None:
        """The target of `name.chain` in a module; None for builtins and unbound names."""

    def resolve_dotted(self, dotted: str) -> Target:
        """The target of a full dotted name."""


def imported_names(
    nodes: Iterable[ast.AST], package: str
) -> tuple[dict[str, str], tuple[str, ...]]:
    """Local names of import statements with the dotted names they refer to, and star imports."""
    names: dict[str, str] = {}
    stars = []
    for node in nodes:
        if isinstance(node, ast.Import):
            for alias in node.names:
                top = alias.name.partition(".")[0]
                names[alias.asname or top] = alias.name if alias.asname else top
        elif isinstance(node, ast.ImportFrom):
            module = node.module or ""
            if node.level:
                parts = package.split(".")
                above = parts[: len(parts) - node.level + 1]
                module = ".".join([*above, *([module] if module else [])])
            for alias in node.names:
                if alias.name == "*":
                    stars.append(module)
                else:
                    names[alias.asname or alias.name] = f"{module}.{alias.name}"
    return names, tuple(stars)


def bound_names(body: Sequence[ast.stmt]) -> dict[str, Statements]:
    """Names that statements define, assign, extend or fill, each with those statements in order."""
    names: dict[str, list[ast.stmt]] = {}
    for statement in body:
        for name in dict.fromkeys(_names_bound_by(statement)):
            names.setdefault(name, []).append(statement)
    return {name: tuple(statements) for name, statements in names.items()}


def _names_bound_by(statement: ast.stmt) -> Iterator[str]:
    if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        yield statement.name
    elif isinstance(statement, ast.Assign | ast.AnnAssign | ast.AugAssign | ast.Delete):
        targets = getattr(statement, "targets", None) or [getattr(statement, "target", None)]
        for target in targets:
            parts = target.elts if isinstance(target, ast.Tuple | ast.List) else [target]
            yield from filter(None, map(_root, parts))
    elif isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
        if isinstance(statement.value.func, ast.Attribute) and (name := _root(statement.value)):
            yield name  # TABLE.update(…)
    elif not isinstance(statement, ast.Import | ast.ImportFrom | ast.Expr):
        for node in _same_scope(statement):
            if isinstance(node, ast.stmt) and node is not statement:
                yield from _names_bound_by(node)
            elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                yield node.id


def _root(node: ast.AST | None) -> str | None:
    """The name at the start of `name`, `name.x`, `name[x]` or `name.x(…)`."""
    while isinstance(node, ast.Attribute | ast.Subscript | ast.Call | ast.Starred):
        node = node.func if isinstance(node, ast.Call) else node.value
    return node.id if isinstance(node, ast.Name) else None


def _same_scope(node: ast.AST) -> Iterator[ast.AST]:
    """The nodes below, without the insides of functions and classes."""
    for child in ast.iter_child_nodes(node):
        yield child
        if not isinstance(child, (*Functions, ast.ClassDef)):
            yield from _same_scope(child)


def _locals(function: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda) -> set[str]:
    """Names that belong to a function: its arguments and what it binds."""
    names = {node.arg for node in ast.walk(function.args) if isinstance(node, ast.arg)}
    shared: set[str] = set()
    for node in _same_scope(function):
        match node:
            case ast.Name(id=name, ctx=ast.Store()):
                names.add(name)
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                names.add(name)
            case ast.ClassDef(name=name) | ast.ExceptHandler(name=str(name)):
                names.add(name)
            case ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)):
                names.add(name)
            case ast.Global(names=declared):
                shared.update(declared)
    return names - shared


@dataclass
class Writer:
    """Writes nodes of one module as canonical text and collects their references."""

    source: Source
    resolver: Resolver
    uses: set[tuple[Source, str]] = field(default_factory=set)
    attributes: set[str] = field(default_factory=set)
    inherited: set[str] = field(default_factory=set)
    by_name: bool = False

    def code(self, nodes: Iterable[ast.AST]) -> Code:
        """The statements that define one thing."""
        text = ";".join(self.write(node, {}) for node in nodes)
        return Code(
            text,
            frozenset(self.uses),
            frozenset(self.attributes),
            frozenset(self.inherited),
            self.by_name,
        )

    def write(self, node: object, scope: dict[str, str]) -> str:
        """One node. scope: local names; a text where one is imported, else empty."""
        if isinstance(node, list):
            return "[" + ",".join(self.write(part, scope) for part in node) + "]"
        if not isinstance(node, ast.AST):
            return repr(node)
        if isinstance(node, ast.Import | ast.ImportFrom):
            return ""
        if isinstance(node, ast.Name | ast.Attribute):
            return self._reference(node, scope)
        if isinstance(node, ast.Constant):
            return f"{type(node.value).__name__} {node.value!r}"
        if isinstance(node, ast.Call):
            self._note_lookups(node)
            node = self._without_help(node, scope)
        inner = scope
        if isinstance(node, Functions):
            inner = {**scope, **dict.fromkeys(_locals(node), "")}
            inner |= imported_names(_same_scope(node), self.source.package)[0]
        parts = []
        for name, value in ast.iter_fields(node):
            if name in SKIPPED_FIELDS or value is None or value == []:
                continue
            if name == "body" and isinstance(value, list):
                value = _without_docstring(value)
            parts.append(f"{name}={self.write(value, inner if name == 'body' else scope)}")
        return f"{type(node).__name__}({','.join(parts)})"

    def _reference(self, node: ast.Name | ast.Attribute, scope: dict[str, str]) -> str:
        """The text of a name or a chain of attributes: its target, if that is known."""
        chain: list[str] = []
        root: ast.expr = node
        while isinstance(root, ast.Attribute):
            chain.insert(0, root.attr)
            root = root.value
        self.by_name |= not READS_BY_NAME.isdisjoint(chain)
        if isinstance(root, ast.Name) and scope.get(root.id) != "":
            if imported := scope.get(root.id):
                found: Target | None = self.resolver.resolve_dotted(".".join([imported, *chain]))
            else:
                found = self.resolver.resolve_name(self.source, root.id, chain)
            if found is not None:
                self.attributes |= set(chain)
                if found.source is not None:
                    self.uses.add((found.source, found.name))
                return found.text
            self.by_name |= root.id in READS_BY_NAME
        self.attributes |= set(chain)
        if isinstance(root, ast.Call) and getattr(root.func, "id", "") == "super" and chain:
            self.inherited.add(chain[0])
        start = f"name {root.id}" if isinstance(root, ast.Name) else self.write(root, scope)
        return ".".join([start, *chain])

    def _note_lookups(self, call: ast.Call) -> None:
        """`getattr(x, "name")` reads an attribute; with a name that is computed, any."""
        called = getattr(call.func, "id", None) or getattr(call.func, "attr", None)
        if called not in LOOKUPS:
            return
        named = call.args[LOOKUPS[called] :]
        if named and isinstance(named[0], ast.Constant):
            self.attributes |= set(str(named[0].value).split("."))
        else:
            self.by_name = True

    def _without_help(self, call: ast.Call, scope: dict[str, str]) -> ast.Call:
        """A call as it is; of `option(default, meaning, search=…)`, the default alone."""
        if getattr(call.func, "id", getattr(call.func, "attr", "")) != "option":
            return call
        if self.write(call.func, scope) != "ssmlbench option":
            return call
        kept = [word for word in call.keywords if word.arg not in ("meaning", "search")]
        return ast.Call(call.func, call.args[:1], kept)


def _without_docstring(body: list[ast.stmt]) -> list[ast.stmt]:
    """Statements without the texts that only readers see, and without imports."""
    return [
        statement
        for statement in body
        if not isinstance(statement, ast.Import | ast.ImportFrom)
        and not (isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant))
    ]
