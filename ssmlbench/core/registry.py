"""Plugin classes by name, and where each was defined."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, Generic, TypeVar

from ssmlbench.core.errors import UserError
from ssmlbench.core.names import check_name
from ssmlbench.core.suggestions import did_you_mean

T = TypeVar("T")


class Registry(Generic[T]):
    """Classes by name; a duplicate raises, an unknown name answers with the closest known ones.

    A class can be announced by name before it is loaded: its file is read when it is asked for.
    """

    def __init__(self, what: str):
        self.what = what
        self._classes: dict[str, type[T]] = {}
        self._announced: dict[str, Callable[[], Iterable[type[T]]]] = {}

    def announce(self, name: str, load: Callable[[], Iterable[type[T]]]) -> None:
        """Add a class of this name later, when it is asked for. load: its file's plugins."""
        self._load(name)  # two files of one name: the second one is the error
        if name in self._classes:
            self._add_all(load())
        else:
            self._announced[name] = load

    def _load(self, name: object) -> None:
        if isinstance(name, str) and name in self._announced:
            classes = list(self._announced[name]())
            del self._announced[name]
            self._add_all(classes)

    def _add_all(self, classes: Iterable[type[T]]) -> None:
        for cls in classes:
            self.add(cls)

    def add(self, cls: type[T]) -> None:
        """Add a class under its `name`; a UserError if it has none or if the name is taken."""
        name = plugin_name(cls, self.what)
        self._load(name)
        if name in self._classes:
            raise UserError(
                f"two plugins call themselves {self.what} {name!r}: "
                f"{location(self._classes[name])} and {location(cls)}; rename one"
            )
        self._classes[name] = cls

    def __getitem__(self, name: str) -> type[T]:
        self._load(name)
        if name not in self._classes:
            raise UserError(f"unknown {self.what} {name!r}.{did_you_mean(name, list(self))}")
        return self._classes[name]

    def __contains__(self, name: object) -> bool:
        return name in self._classes or name in self._announced

    def __iter__(self) -> Iterator[str]:
        return iter(sorted((*self._classes, *self._announced)))

    def __len__(self) -> int:
        return len(self._classes) + len(self._announced)


def plugin_name(cls: type[Any], what: str) -> str:
    """The `name` that the class itself declares; one it inherits is another plugin's."""
    name = cls.__dict__.get("name")
    if not isinstance(name, str) or not name:
        raise UserError(
            f"{location(cls)}: class {cls.__name__} has no `name`; add e.g. "
            f'name = "my-{what.split(maxsplit=1)[0]}"'
        )
    check_name(name, f"{location(cls)}: {what}")
    return name


def source_file(cls: type[Any]) -> Path:
    """The Python file that defines the class."""
    return Path(inspect.getfile(cls))


def location(cls: type[Any]) -> Path | str:
    """Where a plugin comes from, to show a user: its data, its file, or its module in a notebook."""
    home: Path | None = getattr(cls, "home", None)  # of a user's own data: a folder or ARFF file
    if home is not None:
        return home
    try:
        return source_file(cls)
    except (OSError, TypeError):
        return f"{cls.__module__}.{cls.__qualname__}"
