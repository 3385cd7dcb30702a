"""A digest of a plugin's code: an edited method is another method.

It covers the plugin's class and every function, class and constant that the class reaches, in the plugin's
own files and in ssmlbench.kit. The contract (Method, Encoder, …) and everything else that is the same for
every method belong to the protocol version, which golden runs guard (docs/protocol.md).
"""

from __future__ import annotations

import ast
import hashlib
import importlib.util
import inspect
import sys
from collections.abc import Iterator, Sequence
from functools import cache
from importlib.machinery import SourceFileLoader
from pathlib import Path
from typing import TYPE_CHECKING

from ssmlbench.core.errors import UserError
from ssmlbench.core.names import PLUGIN_PREFIX
from ssmlbench.plugins.syntax import Code, Source, Statements, Target, Writer, bound_names

if TYPE_CHECKING:
    from ssmlbench.inputs.encoders import Encoder

DIGEST_PREFIX = "ast-"
"""Starts every digest. Older ones have no prefix: they cover the lines of the plugin's file."""
KIT = "ssmlbench.kit"
CONTRACT = tuple(f"{KIT}.{name}" for name in ("method", "estimator", "pools", "gradient_step"))
"""Modules of the kit that are the same for every method."""
DECLARATIONS = frozenset({"name", "paper", "differences", "regimes", "ablations", "most_labels_of"})
"""Class members that describe a plugin or its limits, and change no number."""


def code_digest(cls: type) -> str:
    """The digest of a plugin's code.

    Docstrings, comments, imports, annotations, help texts and layout do not change it, nor does
    moving or renaming a file.
    """
    texts = code_texts(cls)
    return DIGEST_PREFIX + hashlib.sha256("\n".join(texts).encode()).hexdigest()[:12]


def is_old_digest(code: str) -> bool:
    """Whether a digest is of the older form, which covers the lines of one file."""
    return not code.startswith(DIGEST_PREFIX)


def encoder_code(cls: type[Encoder]) -> str:
    """The digest of an encoder plugin's code; of a built-in encoder its version, "" for the first."""
    if not cls.__module__.startswith("ssmlbench."):
        return code_digest(cls)
    return f"version {cls.version}" if cls.version > 1 else ""


def code_texts(cls: type) -> list[str]:
    """The texts that the digest covers: the canonical text of each definition, sorted."""
    package = cls.__module__.partition(".")[0]
    if package.startswith(PLUGIN_PREFIX):  # every plugin file is a module of its own
        package = PLUGIN_PREFIX
    return _reader(_home(cls).parent, package).texts(cls)


def _home(cls: type) -> Path:
    try:
        return Path(inspect.getfile(cls)).resolve()
    except (OSError, TypeError):
        raise UserError(
            f"class {cls.__name__} is in no file, so its code has no digest; save it in a file and "
            "name that with --plugin"
        ) from None


@cache
def _reader(folder: Path, package: str) -> CodeReader:
    return CodeReader(folder, package)


class CodeReader:
    """Reads the code of plugins that live in one folder or package, and of the kit."""

    def __init__(self, folder: Path, package: str, edited: dict[str, str] | None = None):
        """edited: texts to use instead of files on disk, by the end of their path."""
        self.folder = folder
        self.package = package
        self.edited = edited or {}
        self._stamps: dict[Path, tuple[int, int]] = {}
        self._modules: dict[str, Source | None] = {}
        self._members: dict[ast.ClassDef, dict[str, Statements]] = {}
        self._codes: dict[tuple[Source, str], Code] = {}
        self._kit: dict[str, list[Source]] = {}
        self._texts: dict[type, list[str]] = {}

    def texts(self, cls: type) -> list[str]:
        """The canonical text of everything that the class reaches, sorted."""
        self._forget_changed_files()
        if cls not in self._texts:
            self._texts[cls] = Reach(self, cls).texts()
        return self._texts[cls]

    def class_syntax(self, cls: type, contract: bool = False) -> tuple[Source, ast.ClassDef] | None:
        """The syntax of a class, if it is a plugin's or the kit's; `contract`: or the contract's."""
        source = self._module(cls.__module__, contract)
        if source is None:
            return None
        body: Sequence[ast.stmt] = source.tree.body
        node: ast.ClassDef | None = None
        for name in cls.__qualname__.split("."):
            inner = [s for s in body if isinstance(s, ast.ClassDef) and s.name == name]
            if not inner:  # it is made inside a function
                found = [
                    n
                    for n in ast.walk(source.tree)
                    if isinstance(n, ast.ClassDef) and n.name == cls.__name__
                ]
                return (source, found[-1]) if found else None
            node = inner[-1]
            body = node.body
        return (source, node) if node else None

    def made_in(self, cls: type) -> Source | None:
        """The module of a class that a call makes, with what the call is given; None for all others.

        Such a class is that of a function, or of `type(name, bases, members)`.
        """
        source = self._module(cls.__module__)
        found = self.class_syntax(cls)
        if source is None or (found and "<locals>" not in cls.__qualname__):
            return None
        return source

    def header(self, source: Source, node: ast.ClassDef) -> Code:
        """Decorators, keywords, bases that are not followed, and what the module does to it on import."""
        outside = [base for base in node.bases if not Writer(source, self).code([base]).uses]
        later = [
            s for s in source.definitions.get(node.name, ()) if not isinstance(s, ast.ClassDef)
        ]
        parts = [*node.decorator_list, *node.keywords, *outside, *source.effects, *later]
        return Writer(source, self).code(parts)

    def definition(self, source: Source, name: str) -> Code:
        """A top-level name of a module; `Class.member` is that member alone."""
        if (source, name) not in self._codes:
            owner, _, member = name.partition(".")
            statements = source.definitions[owner]
            if member:
                node = next(s for s in statements if isinstance(s, ast.ClassDef))
                statements = self.members(node)[member]
            self._codes[source, name] = self.code(source, statements)
        return self._codes[source, name]

    def code(self, source: Source, statements: Statements) -> Code:
        """Statements that define one thing."""
        return Writer(source, self).code(_without_annotations(statements))

    def members(self, node: ast.ClassDef) -> dict[str, Statements]:
        """The definitions in a class's own body, by name."""
        if node not in self._members:
            self._members[node] = bound_names(node.body)
        return self._members[node]

    # ------------------------------------------------------------------ resolving names

    def resolve_name(self, source: Source, name: str, chain: Sequence[str]) -> Target | None:
        """The target of `name.chain` in the code of a module."""
        if name in source.definitions:
            return self._target(source, name, chain)
        if name in source.imports:
            return self.resolve_dotted(".".join([source.imports[name], *chain]))
        for module in source.stars:
            followed = self._module(module)
            if followed is not None and (found := self.resolve_name(followed, name, chain)):
                return found
        return None

    def resolve_dotted(self, dotted: str) -> Target:
        """The target of a full dotted name: a definition that is followed, or else a text."""
        parts = dotted.split(".")
        if parts[0] == "ssmlbench" and (public := self._public(parts)):
            return public
        for length in range(len(parts) - 1, 0, -1):
            source = self._module(".".join(parts[:length]))
            if source is None:
                continue
            found = self.resolve_name(source, parts[length], parts[length + 1 :])
            if found is not None:
                return found
        return Target(f"ssmlbench {parts[-1]}" if parts[0] == "ssmlbench" else f"import {dotted}")

    def _public(self, parts: Sequence[str]) -> Target | None:
        """The definition in the kit of a name of ssmlbench.api, or of ssmlbench itself."""
        at = 2 if parts[1:2] == ["api"] else 1
        homes = self.homes().get(parts[at], ()) if len(parts) > at else ()
        return self._target(homes[0], parts[at], parts[at + 1 :]) if homes else None

    def _target(self, source: Source, name: str, chain: Sequence[str]) -> Target:
        """A definition; of a class's own member, that member."""
        nodes = [s for s in source.definitions[name] if isinstance(s, ast.ClassDef)]
        if chain and nodes:
            if chain[0] in self.members(nodes[-1]):
                return Target(".".join(["", name, *chain]), source, f"{name}.{chain[0]}")
            for base in nodes[-1].bases:
                if isinstance(base, ast.Name):
                    found = self.resolve_name(source, base.id, chain)
                    if found is not None and found.source is not None:
                        return found
        return Target(".".join(["", name, *chain]), source, name)

    # ------------------------------------------------------------------ modules

    def homes(self) -> dict[str, list[Source]]:
        """Public names of the kit with the modules that define them."""
        if not self._kit:
            spec = importlib.util.find_spec(KIT)
            folder = Path((spec and spec.origin) or "").parent
            for file in sorted(folder.rglob("*.py")):
                inner = file.relative_to(folder).with_suffix("").parts
                source = self._module(".".join([KIT, *inner]).removesuffix(".__init__"))
                for name in source.definitions if source else ():
                    if source and not name.startswith("_"):
                        self._kit.setdefault(name, []).append(source)
        return self._kit

    def _module(self, name: str, contract: bool = False) -> Source | None:
        """The syntax of a module that is followed; None for all others."""
        if name not in self._modules:
            self._modules[name] = self._followed(name)
        return None if name in CONTRACT and not contract else self._modules[name]

    def _followed(self, name: str) -> Source | None:
        top = name.partition(".")[0]
        if top in sys.stdlib_module_names:
            return None
        if top == "ssmlbench" and not f"{name}.".startswith(f"{KIT}."):
            return None
        file = self._file(name)
        if file is None or file.suffix != ".py":
            return None
        below = file.is_relative_to(self.folder) and "site-packages" not in file.parts
        own = below or top == self.package or top.startswith(PLUGIN_PREFIX)
        return self._read(name, file) if own or top == "ssmlbench" else None

    def _file(self, name: str) -> Path | None:
        loaded = getattr(sys.modules.get(name), "__file__", None)
        if loaded is None and name not in sys.modules:
            try:
                spec = importlib.util.find_spec(name)
            except (ImportError, ValueError, AttributeError):
                return None
            loaded = spec.origin if spec else None
        return Path(loaded).resolve() if loaded else None

    def _read(self, name: str, file: Path) -> Source:
        self._stamps[file] = _stamp(file)
        edits = [text for end, text in self.edited.items() if str(file).endswith(end)]
        text = edits[0] if edits else importlib.util.decode_source(file.read_bytes())
        if file.is_relative_to(self.folder) and not name.startswith(PLUGIN_PREFIX):
            _check_compiled(name, file)
        return Source.parse(text, name, file.name == "__init__.py")

    def _forget_changed_files(self) -> None:
        """Parse all files again if one has changed on disk."""
        if any(_stamp(file) != stamp for file, stamp in self._stamps.items()):
            self._stamps.clear()
            self._modules.clear()
            self._codes.clear()
            self._members.clear()
            self._kit.clear()
            self._texts.clear()


class Reach:
    """Everything that one class reaches: its members by the order of its bases, and definitions."""

    def __init__(self, reader: CodeReader, cls: type):
        self.reader = reader
        self.lineage = [found for c in cls.__mro__ if (found := reader.class_syntax(c))]
        self.tables = [reader.members(node) for _, node in self.lineage]
        others = [c for c in cls.__mro__ if not reader.class_syntax(c)]
        # The contract's own members are not digested, but what they call is reached through them.
        self.contract = [found for c in others if (found := reader.class_syntax(c, contract=True))]
        inner = {name for _, node in self.contract for name in self._called(node)}
        called = {name for c in others for name in vars(c)} - inner
        own = {name for table in self.tables for name in table if name.startswith("__")}
        self.pending = [(name, 0) for name in sorted(called | own)]
        self.found: dict[str, dict[int, str]] = {}  # member → depth in the lineage → text
        self.definitions: dict[tuple[Source, str], str] = {}
        self.made_in = {source: None for c in cls.__mro__ if (source := reader.made_in(c))}

    def _called(self, node: ast.ClassDef) -> frozenset[str]:
        """Members of the contract that it calls itself: `loss` in `step`, `scores` in `test_scores`."""
        called = {
            part.attr
            for part in ast.walk(node)
            if isinstance(part, ast.Attribute) and getattr(part.value, "id", "") == "self"
        }
        return frozenset(called & self.reader.members(node).keys())

    def texts(self) -> list[str]:
        """The canonical texts, sorted: their order in files does not matter."""
        headers = []
        for depth, (source, node) in enumerate(self.lineage):
            header = self.reader.header(source, node)
            headers.append(header.text)
            self._follow(header, depth)
        for source in self.made_in:
            self._whole_module(source)
        visited: set[tuple[str, int]] = set()
        while self.pending:
            wanted = self.pending.pop()
            if wanted not in visited and wanted[0] not in DECLARATIONS:
                visited.add(wanted)
                self._member(*wanted)
        members = [
            f"member {name}: " + " then ".join(text for _, text in sorted(by_depth.items()))
            for name, by_depth in self.found.items()
        ]
        return sorted({*filter(None, headers), *members, *self.definitions.values()})

    def _member(self, name: str, start: int) -> None:
        """The first definition of a member from this depth of the lineage on."""
        for depth, (source, _) in list(enumerate(self.lineage))[start:]:
            if name in self.tables[depth]:
                code = self.reader.code(source, self.tables[depth][name])
                self.found.setdefault(name, {})[depth] = code.text
                self._follow(code, depth)
                return
        for source, node in self.contract:
            if name in self.reader.members(node):
                code = self.reader.code(source, self.reader.members(node)[name])
                self.pending += [(attribute, 0) for attribute in code.attributes]

    def _whole_module(self, source: Source) -> None:
        """All that a module does on import: what in it decides the members of a class is not looked for."""
        for name in source.definitions:
            if (source, name) not in self.definitions:
                self._define((source, name), self.reader.definition(source, name))
        bound = {id(s) for statements in source.definitions.values() for s in statements}
        others = [s for s in source.tree.body if id(s) not in bound and not _is_import(s)]
        self._define((source, ""), self.reader.code(source, tuple(others)))

    def _define(self, used: tuple[Source, str], code: Code) -> None:
        self.definitions[used] = code.text
        self._follow(code, len(self.lineage))

    def _follow(self, code: Code, depth: int) -> None:
        self.pending += [(name, 0) for name in code.attributes]
        self.pending += [(name, depth + 1) for name in code.inherited]
        if code.by_name:
            self.pending += [(name, 0) for table in self.tables for name in table]
        for used in code.uses - self.definitions.keys():
            self._define(used, self.reader.definition(*used))


def _check_compiled(name: str, file: Path) -> None:
    """Raise a UserError if Python would run other code than the file's, from its `__pycache__`."""
    cached = Path(importlib.util.cache_from_source(str(file)))
    if not cached.is_file():
        return
    source = compile(file.read_bytes(), str(file), "exec", dont_inherit=True)
    if SourceFileLoader(name, str(file)).get_code(name) != source:
        raise UserError(
            f"{cached} is not compiled from {file}; delete it, and give the same command"
        )


def _stamp(file: Path) -> tuple[int, int]:
    try:
        stat = file.stat()
    except OSError:
        return (0, 0)
    return (stat.st_mtime_ns, stat.st_size)


def _is_import(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Import | ast.ImportFrom)


def _without_annotations(statements: Statements) -> Iterator[ast.stmt]:
    """Statements, with `x: T = value` as `x = value`."""
    for statement in statements:
        if isinstance(statement, ast.AnnAssign) and statement.value is not None:
            yield ast.Assign([statement.target], statement.value)
        else:
            yield statement
