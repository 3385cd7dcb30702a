"""Plugin classes by name, and where each was defined."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Generic, TypeVar

from ssmlbench.core.errors import UserError
from ssmlbench.core.names import check_name
from ssmlbench.core.suggestions import did_you_mean

T = TypeVar("T")


class Registry(Generic[T]):
    """Classes by name; a duplicate raises, an unknown name answers with the closest known ones."""

    def __init__(self, what: str):
        self.what = what
        self._classes: dict[str, type[T]] = {}

    def add(self, cls: type[T]) -> None:
        """Add a class under its `name`; a UserError if it has none or if the name is taken."""
        name = plugin_name(cls, self.what)
        if name in self._classes:
            raise UserError(
                f"two plugins call themselves {self.what} {name!r}: "
                f"{location(self._classes[name])} and {location(cls)}; rename one"
            )
        self._classes[name] = cls

    def __getitem__(self, name: str) -> type[T]:
        if name not in self._classes:
            raise UserError(f"unknown {self.what} {name!r}.{did_you_mean(name, self._classes)}")
        return self._classes[name]

    def __contains__(self, name: object) -> bool:
        return name in self._classes

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(self._classes))

    def __len__(self) -> int:
        return len(self._classes)


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
