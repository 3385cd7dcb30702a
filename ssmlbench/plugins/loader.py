"""Finds methods, data sets and encoders: one loader for the built-in folders and for a user's file.

A plugin is a Python file with a subclass of Method, DatasetAdapter or Encoder in it, or a user's
own data: a folder of tables or an ARFF file, which is turned into an adapter. Nothing is registered
by decorator or by hand: being in the file is enough.
"""

from __future__ import annotations

import hashlib
import importlib.util
import inspect
import sys
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from ssmlbench.core.errors import UserError
from ssmlbench.core.paths import builtin_root
from ssmlbench.core.registry import Registry, source_file

if TYPE_CHECKING:
    from ssmlbench.data import DatasetAdapter
    from ssmlbench.inputs.encoders import Encoder
    from ssmlbench.kit.method import Method


class Plugins:
    """Everything that can be named on the command line."""

    def __init__(self, files: Iterable[str | Path] = ()):
        from ssmlbench.data import DatasetAdapter
        from ssmlbench.inputs import encoders
        from ssmlbench.kit.method import Method

        self.methods: Registry[Method] = Registry("method")
        self.datasets: Registry[DatasetAdapter] = Registry("data set")
        self.encoders: Registry[Encoder] = Registry("encoder")
        self.files = tuple(str(Path(file).resolve()) for file in files)
        for cls in encoders.BUILTIN:
            self.encoders.add(cls)
        builtin = [
            file
            for folder in ("methods", "datasets")
            for file in sorted((builtin_root() / folder).glob("*.py"))
        ]
        self._kinds = (
            (Method, self.methods),
            (DatasetAdapter, self.datasets),
            (encoders.Encoder, self.encoders),
        )
        for file in [*builtin, *map(Path, self.files)]:
            if file.is_dir() or file.suffix == ".arff":
                add_data(self.datasets, file)
            else:
                self._add_file(file)

    def data_set(self, typed: str) -> str:
        """The name of a data set typed by name or by path; a path is a plugin from now on."""
        from ssmlbench.data.user_data import looks_like_path

        if typed in self.datasets or not looks_like_path(typed):
            return typed
        file = Path(typed).expanduser().resolve()
        name = add_data(self.datasets, file)
        self.files = tuple(dict.fromkeys((*self.files, str(file))))
        return name

    def _add_file(self, file: Path) -> None:
        module = load_file(file)
        found = 0
        for cls in _classes_defined_in(module):
            for base, registry in self._kinds:
                if issubclass(cls, base):
                    registry.add(cls)  # type: ignore[arg-type]
                    found += 1
        if not found:
            raise UserError(
                f"{file}: no plugin in it; expected a class derived from Method, DatasetAdapter "
                "or Encoder (`ssmlbench new method NAME` writes one to start from)"
            )


def data_sets(files: Iterable[str | Path] = ()) -> Registry[DatasetAdapter]:
    """The data sets alone: what needs no torch is answered without loading it."""
    from ssmlbench.data import DatasetAdapter

    registry: Registry[DatasetAdapter] = Registry("data set")
    for file in [*sorted((builtin_root() / "datasets").glob("*.py")), *map(Path, files)]:
        for cls in _classes_defined_in(load_file(file)):
            if issubclass(cls, DatasetAdapter):
                registry.add(cls)
    return registry


def add_data(registry: Registry[DatasetAdapter], path: Path) -> str:
    """Add a user's own data, and return the name it has: its folder's or file's."""
    from ssmlbench.data.user_data import data_class

    cls = data_class(path)
    if cls.name in registry:
        known = registry[cls.name]
        if getattr(known, "home", None) == getattr(cls, "home", None):
            return cls.name
        raise UserError(
            f"--dataset {path}: there is another data set called {cls.name!r} "
            f"({getattr(known, 'home', source_file(known))}); rename yours"
        )
    registry.add(cls)
    return cls.name


def _classes_defined_in(module: ModuleType) -> list[type]:
    return [
        cls
        for cls in vars(module).values()
        if inspect.isclass(cls)
        and cls.__module__ == module.__name__
        and not cls.__name__.startswith("_")  # a plugin file's private bases are not plugins
    ]


def load_file(file: Path) -> ModuleType:
    """Import one plugin file by its path, under a module name no package can have."""
    file = Path(file).resolve()
    if not file.is_file():
        raise UserError(f"plugin file {file} does not exist")
    digest = hashlib.sha256(str(file).encode()).hexdigest()[:8]
    name = f"ssmlbench_plugin_{file.stem.replace('-', '_')}_{digest}"
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, file)
    if spec is None or spec.loader is None:
        raise UserError(f"{file}: not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look their module up while the file is still running
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        del sys.modules[name]
        where = f" (line {_line_in(error, file)})" if _line_in(error, file) else ""
        raise UserError(
            f"{file}{where} does not import: {type(error).__name__}: {error}"
        ) from error
    return module


def _line_in(error: BaseException, file: Path) -> int | None:
    if isinstance(error, SyntaxError):
        return error.lineno
    line, trace = None, error.__traceback__
    while trace:
        if trace.tb_frame.f_code.co_filename == str(file):
            line = trace.tb_lineno
        trace = trace.tb_next
    return line
