"""Finds methods, data sets and encoders.

A plugin is a class derived from Method, Estimator, DatasetAdapter or Encoder. It needs no registration, and
comes from one of four sources: a file in the built-in folders, an installed distribution (entry points
`ssmlbench.methods`, `ssmlbench.datasets`, `ssmlbench.encoders`), a user's Python file, or a user's data,
for which a data set class is built.
"""

from __future__ import annotations

import hashlib
import importlib.util
import inspect
import multiprocessing
import re
import sys
import warnings
from collections.abc import Iterable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import cached_property, partial
from importlib import import_module
from importlib.machinery import SourceFileLoader
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from types import CodeType, ModuleType
from typing import TYPE_CHECKING, Any

from ssmlbench.core.commands import Sources
from ssmlbench.core.errors import NO_FAULT, PluginWarning, UserError
from ssmlbench.core.names import PLUGIN_PREFIX
from ssmlbench.core.paths import absolute, builtin_root, near
from ssmlbench.core.plain_text import error_text
from ssmlbench.core.process_environment import record_changes
from ssmlbench.core.registry import Registry, location, plugin_name
from ssmlbench.core.suggestions import did_you_mean
from ssmlbench.plugins.contract import check_contract
from ssmlbench.plugins.source_lines import defined_at
from ssmlbench.plugins.watch import attempts_of, remember_state, watched_import

if TYPE_CHECKING:
    from ssmlbench.core.data_options import DataOptions
    from ssmlbench.data import DatasetAdapter
    from ssmlbench.inputs.encoders import Encoder
    from ssmlbench.kit.estimator import Estimator
    from ssmlbench.kit.method import Method


@dataclass(frozen=True)
class PluginKind:
    """One kind of plugin. Base classes are given by name, so that nothing is imported early."""

    name: str  # in messages
    folder: str  # of the built-in ones; also the last part of the entry points' group
    bases: tuple[tuple[str, str], ...]  # (module, class)
    otherwise: str = ""  # a sentence for an unknown name: what else may be typed

    def matches(self, cls: type[Any]) -> bool:
        """Whether the class is a plugin of this kind."""
        for name, base in self.bases:
            module = sys.modules.get(name)  # None: no class can be derived from it yet
            if module is not None and issubclass(cls, getattr(module, base)):
                return True
        return False

    @property
    def expected(self) -> str:
        """The names of the base classes, for a message."""
        return " or ".join(base for _, base in self.bases)


METHOD = PluginKind(
    "method",
    "methods",
    (("ssmlbench.kit.method", "Method"), ("ssmlbench.kit.estimator", "Estimator")),
)
DATASET = PluginKind(
    "data set",
    "datasets",
    (("ssmlbench.data.adapter", "DatasetAdapter"),),
    " Your own data are typed as a path.",
)
ENCODER = PluginKind("encoder", "encoders", (("ssmlbench.inputs.encoders.base", "Encoder"),))


class Plugins:
    """Everything that can be named on the command line.

    Each kind is loaded when it is first used, so that listing data sets imports no torch.
    files: the user's Python files and own data (addresses of core/data_options.py), loaded at once.
    data_options: defaults for reading own data, where its address has no options.
    """

    def __init__(self, files: Iterable[str | Path] = (), data_options: DataOptions | None = None):
        from ssmlbench.data.user_data import is_own_data

        self.in_memory = False  # whether a class was added that no other process can load
        self.data_options = data_options
        self.files: tuple[str, ...] = ()
        self._file_of: dict[tuple[PluginKind, str], str] = {}  # of a plugin in one of these files
        self.addresses: dict[str, str] = {}  # of own data, by the name of the data set
        for file in map(str, files):
            if is_own_data(file):
                self._add_data(file)
            else:
                self.add_files([file])

    def add_files(self, files: Iterable[str | Path]) -> None:
        """Import Python files with plugins, but those that were imported before."""
        for path in map(absolute, files):
            if str(path) not in self.files:
                self._add_file(path)
                self._remember(str(path))

    def _remember(self, file: str) -> None:
        self.files = tuple(dict.fromkeys((*self.files, file)))

    @property
    def python_files(self) -> tuple[str, ...]:
        """The user's Python files; the other ones are addresses of own data."""
        return tuple(file for file in self.files if file not in self.addresses.values())

    @cached_property
    def methods(self) -> Registry[Method | Estimator]:
        """The methods and estimators by name."""
        return self._registry(METHOD)

    @cached_property
    def datasets(self) -> Registry[DatasetAdapter]:
        """The data sets by name."""
        return self._registry(DATASET)

    @cached_property
    def encoders(self) -> Registry[Encoder]:
        """The encoders by name; torchvision and Hugging Face models are not listed here."""
        from ssmlbench.inputs.encoders import BUILTIN

        return self._registry(ENCODER, BUILTIN)

    def data_set(self, typed: str) -> str:
        """The name of a data set that is given by name or by path; a path becomes a plugin."""
        from ssmlbench.data.user_data import looks_like_path

        if typed in self.datasets or not looks_like_path(typed):
            return typed
        return self._add_data(typed)

    def check_data_options(self, names: Iterable[str]) -> None:
        """Raise a UserError if there are options for own data and none of the data sets is own data."""
        given = list(self.data_options.given) if self.data_options else []
        names = list(names)
        if given and not any(name in self.addresses for name in names):
            flag = f"--{given[0].replace('_', '-')}"
            raise UserError(
                f"{flag} is for your own data, typed as a path; {', '.join(names)} would not read it; "
                "leave it out"
            )

    def sources(self, dataset: str, options: Sequence[str]) -> Sources:
        """What a command for runs on a data set needs. options: more of it, as words."""
        return Sources(self.addresses.get(dataset, ""), self.python_files, tuple(options))

    def training_files(self, method: str, backbone: str) -> tuple[str, ...]:
        """The files with a run's method and encoder: no other file is imported where it trains.

        Code that another file runs when it is imported would change the run's numbers.
        """
        found = (*self.encoder_files(backbone), self._file_of.get((METHOD, method)))
        return tuple(dict.fromkeys(file for file in found if file is not None))

    def encoder_files(self, backbone: str) -> tuple[str, ...]:
        """The file with the encoder, if a plugin file has it."""
        file = self._file_of.get((ENCODER, backbone))
        return () if file is None else (file,)

    def add(self, cls: type[Any]) -> str:
        """Add a class that is already in memory, and return its name."""
        for kind, registry in self._kinds(cls):
            registry.add(cls)
            check_contract(cls)
            self.in_memory = True
            return plugin_name(cls, kind.name)
        raise UserError(
            f"{cls.__name__} is not a plugin; expected a class derived from Method, Estimator, "
            "DatasetAdapter or Encoder"
        )

    def _kinds(self, cls: type[Any]) -> Iterable[tuple[PluginKind, Registry[Any]]]:
        """The kinds that the class is a plugin of. Only these registries are loaded."""
        if METHOD.matches(cls):
            yield METHOD, self.methods
        if DATASET.matches(cls):
            yield DATASET, self.datasets
        if ENCODER.matches(cls):
            yield ENCODER, self.encoders

    def _registry(self, kind: PluginKind, classes: Sequence[type[Any]] = ()) -> Registry[Any]:
        """The plugins of one kind that are built in or installed."""
        for module, _ in kind.bases:
            import_module(module)
        registry: Registry[Any] = Registry(kind.name, kind.otherwise)
        for cls in classes:
            registry.add(cls)
        for file in sorted((builtin_root() / kind.folder).glob("*.py")):
            load = partial(_plugins_of, file, kind)
            if _is_named_as_its_plugin(file):
                registry.announce(file.stem, load)
            else:
                for cls in load():
                    registry.add(cls)
        for entry in entry_points(group=f"ssmlbench.{kind.folder}"):
            for cls in _installed(entry, kind):
                registry.add(cls)
        return registry

    def _add_file(self, file: Path) -> None:
        kinds = set()
        for cls in _classes_of(load_file(file)):
            for kind, registry in self._kinds(cls):
                registry.add(cls)
                check_contract(cls)
                self._file_of[kind, plugin_name(cls, kind.name)] = str(file)
                kinds.add(kind)
        if not kinds:
            raise _no_plugin(load_file(file), file)

    def _add_data(self, typed: str) -> str:
        """Add a user's own data, and return the name it has: its folder's or file's."""
        from ssmlbench.data.user_data import data_class, own_address

        address = own_address(typed, self.data_options)
        cls = data_class(address)
        if cls.name not in self.datasets:
            self.datasets.add(cls)
        else:
            known = self.datasets[cls.name]
            if getattr(known, "home", None) != cls.home:
                raise UserError(
                    f"{address.path}: there is another data set called {cls.name!r} "
                    f"({location(known)}); rename yours"
                )
            if getattr(known, "options", None) != cls.options:
                raise UserError(f"{address.path}: it is named twice, with other options")
        self._remember(address.text)
        self.addresses[cls.name] = address.text
        return cls.name


_NAME = re.compile(r"^[ \t]+name\b.*$", re.MULTILINE)


def _is_named_as_its_plugin(file: Path) -> bool:
    """Whether the file declares exactly one plugin, which has the file's name.

    Such a file can be listed without loading it: some import scikit-learn, which takes seconds.
    """
    text = file.read_text(encoding="utf-8", errors="replace")
    return [line.strip() for line in _NAME.findall(text)] == [f'name = "{file.stem}"']


def _plugins_of(file: Path, kind: PluginKind) -> list[type[Any]]:
    return [cls for cls in _classes_of(load_file(file)) if kind.matches(cls)]


def _classes_of(module: ModuleType) -> list[type[Any]]:
    """The public classes that the module, or a part of the package, defines."""
    return [
        cls
        for cls in vars(module).values()
        if inspect.isclass(cls)
        and f"{cls.__module__}.".startswith(f"{module.__name__}.")
        and not cls.__name__.startswith("_")  # a plugin file's private bases are not plugins
    ]


def _installed(entry: EntryPoint, kind: PluginKind) -> list[type[Any]]:
    """The plugins that an entry point names: a class, or a module with classes in it.

    One that cannot be loaded is a warning that names its distribution: it must not stop commands
    that have nothing to do with it.
    """
    try:
        loaded = entry.load()
        chosen = _classes_of(loaded) if inspect.ismodule(loaded) else [loaded]
        plugins = [cls for cls in chosen if inspect.isclass(cls) and kind.matches(cls)]
        if not plugins:
            raise TypeError(f"no class derived from {kind.expected} in it")
        for cls in plugins:
            plugin_name(cls, kind.name)
            check_contract(cls)
    except NO_FAULT:
        raise
    except BaseException as error:
        if multiprocessing.parent_process() is None:  # a worker's parent has already warned
            reason = str(error).partition("\n")[0]
            distribution = entry.dist.name if entry.dist else "unknown"
            warnings.warn(
                f"distribution {distribution}: entry point {entry.group}: {entry.name} = "
                f"{entry.value} is left out ({type(error).__name__}: {reason})",
                PluginWarning,
                stacklevel=2,
            )
        return []
    return plugins


class FromSource(SourceFileLoader):
    """Loads a module from its source, which the digest of its code covers.

    Code that was compiled before, in `__pycache__`, may be of another source.
    """

    def get_code(self, fullname: str) -> CodeType:
        """The code of the module."""
        file = self.get_filename(fullname)
        return compile(self.get_data(file), file, "exec", dont_inherit=True)


def load_file(file: Path) -> ModuleType:
    """Import one plugin file by its path, under a module name that no package has."""
    file = absolute(file)
    if not file.is_file():
        kind = "a folder" if file.is_dir() else "a pipe or a device"
        problem = f"is {kind}" if file.exists() else "does not exist"
        raise UserError(
            f"plugin file {file} {problem}; a plugin is a Python file, or a folder or file of your own "
            "data"
        )
    digest = hashlib.sha256(str(file).encode()).hexdigest()[:8]
    name = f"{PLUGIN_PREFIX}{file.stem.replace('-', '_')}_{digest}"
    if name in sys.modules:
        return sys.modules[name]
    own = file.parent in (builtin_root() / kind.folder for kind in (METHOD, DATASET))
    loader = None if own or file.suffix != ".py" else FromSource(name, str(file))
    spec = importlib.util.spec_from_file_location(name, file, loader=loader)
    if spec is None or spec.loader is None:
        raise UserError(f"{file}: not a Python file, and no data of your own")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look their module up while the file is still running
    try:
        with record_changes(), nullcontext() if own else watched_import(file):
            spec.loader.exec_module(module)
        module.__file__ = str(file)  # the digest is that of this file
        if own:
            remember_state(module)
        if tried := attempts_of(file):
            raise PermissionError(f"it {tried[0]}")
    except BaseException as error:
        del sys.modules[name]
        if isinstance(error, NO_FAULT):
            raise
        number = _line_in(error, file)
        where = f"{near(file)}:{number}" if number else str(near(file))
        text = error.msg if isinstance(error, SyntaxError) else error_text(error)
        text = " ".join(text.split())
        raise UserError(
            f"{where}: does not import: {type(error).__name__}: {text}{_import_advice(error, file)}"
        ) from error
    return module


def _import_advice(error: BaseException, file: Path) -> str:
    """Advice on an import that fails in a plugin file."""
    if isinstance(error, SystemExit):
        return (
            '; what reads the command line or ends Python belongs under if __name__ == "__main__"'
        )
    if not isinstance(error, ImportError):
        return ""
    if error.name == "ssmlbench.api":
        wanted = str(error).partition("import name '")[2].partition("'")[0]
        return f".{did_you_mean(wanted, dir(sys.modules[error.name]))}" if wanted else ""
    top = (error.name or "").split(".")[0]
    folders = (file.parent, *(builtin_root() / kind.folder for kind in (METHOD, DATASET)))
    relative = "relative import" in str(error)
    if relative or top == "methods" or any((folder / f"{top}.py").is_file() for folder in folders):
        return (
            "; a plugin file imports no other plugin file: copy what it needs, or derive from a class "
            "of ssmlbench.api"
        )
    return ""


def _no_plugin(module: ModuleType, file: Path) -> UserError:
    """The error for a file without a plugin; it names a class that is almost one."""
    for cls in vars(module).values():
        if not inspect.isclass(cls) or cls.__module__ != module.__name__:
            continue
        if any(kind.matches(cls) for kind in (METHOD, DATASET, ENCODER)):
            return UserError(
                f"{defined_at(cls)}: class {cls.__name__} is private: a plugin's name has no _ in front"
            )
        return UserError(
            f"{defined_at(cls)}: class {cls.__name__} is not a plugin; derive it from Method, Estimator, "
            f"DatasetAdapter or Encoder: class {cls.__name__}(Method)"
        )
    return UserError(
        f"{near(file)}: no plugin in it; expected a class derived from Method, Estimator, "
        "DatasetAdapter or Encoder (`ssmlbench new method NAME` writes one to start from)"
    )


def _line_in(error: BaseException, file: Path) -> int | None:
    if isinstance(error, SyntaxError):
        return error.lineno
    line, trace = None, error.__traceback__
    while trace:
        if trace.tb_frame.f_code.co_filename == str(file):
            line = trace.tb_lineno
        trace = trace.tb_next
    return line
