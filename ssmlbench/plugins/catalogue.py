"""The lists of methods and data sets, as small typed tables for Python and the command line."""

from __future__ import annotations

import dataclasses
import hashlib
import inspect
import types
import typing
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from html import escape
from importlib.metadata import entry_points
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

import ssmlbench
from ssmlbench.core.arguments import checked
from ssmlbench.core.code_state import code_state
from ssmlbench.core.errors import DamagedFile, UserError
from ssmlbench.core.files import read_placed_json, write_placed_json
from ssmlbench.core.hyperparameters import as_typed, search_of
from ssmlbench.core.paths import cache_root
from ssmlbench.core.registry import location
from ssmlbench.core.suggestions import did_you_mean
from ssmlbench.plugins.loader import METHOD, Plugins

if TYPE_CHECKING:
    import pandas as pd

    from ssmlbench.data import DatasetAdapter, Kind
    from ssmlbench.kit.estimator import Estimator
    from ssmlbench.kit.method import Method


LIST_VERSION = 1
"""Raised when the format of the cached list of methods changes."""


@dataclass(frozen=True)
class HyperParameter:
    """One field of a method's Config, as texts for the command line."""

    name: str
    default: str
    kind: str  # its type, or its allowed values
    search: str  # the range that `ssmlbench tune` draws from; empty: it is not tuned
    meaning: str


@dataclass(frozen=True)
class MethodInfo:
    """The declarations of a method or an estimator."""

    name: str
    title: str  # the idea, in a sentence
    paper: str
    kind: str  # "method" or "estimator"
    uses: str  # with its defaults: "labelled rows" or "both pools"
    regimes: tuple[str, ...]
    head: str  # empty for an estimator
    hyperparameters: tuple[HyperParameter, ...]
    differences: tuple[str, ...]  # where paper, released code and this file differ
    file: Path | str

    COLUMNS: ClassVar[tuple[str, ...]] = (
        "name",
        "kind",
        "uses",
        "title",
        "paper",
        "regimes",
        "file",
    )

    @classmethod
    def of(cls, method: type[Method | Estimator]) -> MethodInfo:
        """The declarations of a method or estimator class."""
        from ssmlbench.kit.contract import build_method
        from ssmlbench.kit.estimator import Estimator

        if issubclass(method, Estimator):
            kind, uses, head = "estimator", method.uses, ""
        else:
            projection = " on the 512-256 projection" if method.projection == "mlp" else ""
            kind, head = "method", method.head + projection
            uses = build_method(method, method.Config(), 2).uses
        return cls(
            name=method.name,
            title=first_paragraph(method),
            paper=method.paper,
            kind=kind,
            uses=uses,
            regimes=tuple(sorted(method.regimes)),
            head=head,
            hyperparameters=tuple(_hyperparameters(method.Config)),
            differences=tuple(method.differences),
            file=location(method),
        )

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> MethodInfo:
        """The inverse of `dataclasses.asdict`, after a round trip through JSON."""
        lists = {name: tuple(values[name]) for name in ("regimes", "differences")}
        fields = tuple(HyperParameter(**field) for field in values["hyperparameters"])
        file = Path(values["file"])
        return cls(**{**values, **lists, "hyperparameters": fields, "file": file})


@dataclass(frozen=True)
class DatasetInfo:
    """The declarations of a data set."""

    name: str
    title: str
    kind: Kind
    backbone: str  # the encoder used when none is named
    citation: str
    licence: str
    file: Path | str

    COLUMNS: ClassVar[tuple[str, ...]] = (
        "name",
        "title",
        "kind",
        "backbone",
        "citation",
        "licence",
        "file",
    )

    @classmethod
    def of(cls, adapter: type[DatasetAdapter]) -> DatasetInfo:
        """The declarations of a data set class."""
        return cls(
            name=adapter.name,
            title=first_paragraph(adapter),
            kind=adapter.kind,
            backbone=adapter.backbone,
            citation=adapter.citation,
            licence=adapter.licence,
            file=location(adapter),
        )


Info = TypeVar("Info", bound="MethodInfo | DatasetInfo")


class Catalogue(Mapping[str, Info], Generic[Info]):
    """Plugins by name. A notebook shows it as a table."""

    def __init__(self, kind: str, entries: Iterable[Info]) -> None:
        """kind: "method" or "data set"."""
        self.kind = kind
        self._entries: dict[str, Info] = {entry.name: entry for entry in entries}

    def __getitem__(self, name: str) -> Info:
        if name not in self._entries:
            raise UserError(f"unknown {self.kind} {name!r}.{did_you_mean(name, self._entries)}")
        return self._entries[name]

    def __contains__(self, name: object) -> bool:
        return name in self._entries

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def rows(self) -> list[dict[str, str]]:
        """Return the columns of the overview as texts, one dictionary for each plugin."""
        return [
            {name: _text(getattr(entry, name)) for name in entry.COLUMNS}
            for entry in self._entries.values()
        ]

    def to_pandas(self) -> pd.DataFrame:
        """Return the overview as a DataFrame with the names as its index."""
        import pandas as pd

        return pd.DataFrame.from_records(self.rows(), index="name")

    def __repr__(self) -> str:
        width = max(map(len, self._entries), default=0)
        lines = [f"{name:{width}}  {entry.title}" for name, entry in self._entries.items()]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        rows = self.rows()
        head = "".join(f"<th>{escape(name)}</th>" for name in (rows[0] if rows else ()))
        body = "".join(
            "<tr>" + "".join(f"<td>{escape(text)}</td>" for text in row.values()) + "</tr>"
            for row in rows
        )
        return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


@checked
def methods(plugin: str | Path | Iterable[str | Path] = ()) -> Catalogue[MethodInfo]:
    """List the methods by name, as `ssmlbench methods` does.

    plugin: one plugin file or several, whose methods are listed too.
    """
    return method_catalogue(Plugins([plugin] if isinstance(plugin, str | Path) else plugin))


@checked
def datasets(plugin: str | Path | Iterable[str | Path] = ()) -> Catalogue[DatasetInfo]:
    """List the data sets by name, as `ssmlbench datasets` does.

    plugin: Python files or paths of your own data, one or several; they are listed too.
    """
    return dataset_catalogue(Plugins([plugin] if isinstance(plugin, str | Path) else plugin))


def method_catalogue(plugins: Plugins) -> Catalogue[MethodInfo]:
    """List the methods of loaded plugins.

    The list of the built-in methods is cached: reading it from the classes imports torch and scikit-learn.
    """
    file = None if plugins.files or plugins.in_memory else _cached_list()
    if file is not None and (cached := _read_list(file)) is not None:
        return Catalogue("method", cached)
    registry = plugins.methods
    entries = [MethodInfo.of(registry[name]) for name in registry]
    if file is not None:
        _write_list(file, entries)
    return Catalogue("method", entries)


def _cached_list() -> Path | None:
    """The cache file of the list of methods; None if an installed package adds methods.

    Such a package may be edited in place without a change of the key.
    """
    if entry_points(group=f"ssmlbench.{METHOD.folder}"):
        return None
    key = hashlib.sha256(f"{LIST_VERSION} {ssmlbench.__version__} {code_state()}".encode())
    return cache_root() / "catalogue" / f"methods-{key.hexdigest()[:24]}.json"


def _read_list(file: Path) -> list[MethodInfo] | None:
    try:
        return [MethodInfo.from_dict(values) for values in read_placed_json(file)["methods"]]
    except (OSError, DamagedFile, KeyError, TypeError, ValueError):
        return None


def _write_list(file: Path, methods: Iterable[MethodInfo]) -> None:
    with suppress(OSError):  # the list is only a cache
        file.parent.mkdir(parents=True, exist_ok=True)
        for old in file.parent.glob("methods-*.json"):
            old.unlink(missing_ok=True)
        entries = [{**dataclasses.asdict(one), "file": str(one.file)} for one in methods]
        write_placed_json(file, {"methods": entries}, durable=False)


def dataset_catalogue(plugins: Plugins) -> Catalogue[DatasetInfo]:
    """List the data sets of loaded plugins."""
    registry = plugins.datasets
    return Catalogue("data set", [DatasetInfo.of(registry[name]) for name in registry])


def first_paragraph(cls: type[Any]) -> str:
    """Return the first paragraph of the docstring, on one line."""
    return " ".join((inspect.getdoc(cls) or "").split("\n\n")[0].split())


def _hyperparameters(config: type[Any]) -> Iterator[HyperParameter]:
    hints = typing.get_type_hints(config)
    for field in dataclasses.fields(config):
        yield HyperParameter(
            field.name,
            as_typed(field.default),
            _kind_text(hints[field.name]),
            str(search_of(field) or ""),
            field.metadata.get("meaning", ""),
        )


def _kind_text(kind: Any) -> str:
    """`float | None` → "float | none", Literal["a", "b"] → "a | b"."""
    origin = typing.get_origin(kind)
    if origin is typing.Literal or origin in (typing.Union, types.UnionType):
        return " | ".join(map(_kind_text, typing.get_args(kind)))
    if kind is type(None):
        return "none"
    return kind.__name__ if isinstance(kind, type) else str(kind)


def _text(value: Any) -> str:
    return ", ".join(value) if isinstance(value, tuple) else str(value)
