"""Classes by name; a duplicate raises, an unknown name answers with the closest known ones."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import Generic, TypeVar

from ssmlbench.core.errors import UserError
from ssmlbench.core.suggestions import did_you_mean

T = TypeVar("T")


class Registry(Generic[T]):
    """Classes by name; a duplicate raises, an unknown name answers with the closest known ones."""

    def __init__(self, what: str):
        self.what = what
        self._classes: dict[str, type[T]] = {}

    def add(self, cls: type[T]) -> None:
        name = cls.__dict__.get("name")
        if not isinstance(name, str) or not name:
            raise UserError(
                f"{source_file(cls)}: class {cls.__name__} has no `name`; add e.g. "
                f'name = "my-{self.what.split()[0]}"'
            )
        if name in self._classes:
            raise UserError(
                f"two plugins call themselves {self.what} {name!r}: "
                f"{source_file(self._classes[name])} and {source_file(cls)}; rename one"
            )
        self._classes[name] = cls

    def __getitem__(self, name: str) -> type[T]:
        if name not in self._classes:
            raise UserError(f"unknown {self.what} {name!r}.{did_you_mean(name, self._classes)}")
        return self._classes[name]

    def __contains__(self, name: str) -> bool:
        return name in self._classes

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(self._classes))

    def __len__(self) -> int:
        return len(self._classes)


def source_file(cls: type) -> Path:
    return Path(inspect.getfile(cls))
