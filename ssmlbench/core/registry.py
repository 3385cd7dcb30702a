"""Plugin classes by name, and the place where each is defined."""

from __future__ import annotations

import inspect
import os
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, Generic, TypeVar

from ssmlbench.core.errors import UserError
from ssmlbench.core.names import check_name
from ssmlbench.core.paths import near
from ssmlbench.core.suggestions import did_you_mean

T = TypeVar("T")


class Registry(Generic[T]):
    """Classes by name; a duplicate is an error, the error for an unknown name lists close ones.

    A class can be announced by name: its file is loaded when the class is first used.
    """

    def __init__(self, kind: str, otherwise: str = ""):
        """kind: of the plugins, for messages, e.g. "method"; otherwise: what may be typed instead."""
        self.kind = kind
        self.otherwise = otherwise
        self._classes: dict[str, type[T]] = {}
        self._announced: dict[str, Callable[[], Iterable[type[T]]]] = {}

    def announce(self, name: str, load: Callable[[], Iterable[type[T]]]) -> None:
        """Announce a class of this name. load: loads the plugins of its file."""
        self._load(name)  # if the name is known already, the second file is the error
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
        name = plugin_name(cls, self.kind)
        self._load(name)
        if name in self._classes:
            raise UserError(
                f"two plugins have the name of {self.kind} {name!r}: "
                f"{_named_at(self._classes[name])} and {_named_at(cls)}; rename one"
            )
        self._classes[name] = cls

    def __getitem__(self, name: str) -> type[T]:
        return self.find(name)

    def find(self, name: str, *also: str) -> type[T]:
        """The class of a name. also: what may be typed instead of a name, for the error's list."""
        self._load(name)
        if name not in self._classes:
            hint = _plugin_hint(name) or did_you_mean(name, [*self, *also])
            raise UserError(f"unknown {self.kind} {name!r}.{hint}{self.otherwise}")
        return self._classes[name]

    def __contains__(self, name: object) -> bool:
        return name in self._classes or name in self._announced

    def __iter__(self) -> Iterator[str]:
        return iter(sorted((*self._classes, *self._announced)))

    def __len__(self) -> int:
        return len(self._classes) + len(self._announced)


def _plugin_hint(name: str) -> str:
    """A hint for a plugin file that is here, e.g. written by `ssmlbench new`, and that was not named."""
    file = name if name.endswith(".py") else f"{name.replace('-', '_')}.py"
    return f" To use the file {file}, add --plugin {file}" if os.path.isfile(file) else ""  # noqa: PTH113 (a Path raises an error for a long name)


def plugin_name(cls: type[Any], kind: str) -> str:
    """The `name` that the class itself declares; an inherited one belongs to another plugin.

    kind: of the plugin, for messages.
    """
    name = cls.__dict__.get("name")
    if not isinstance(name, str) or not name:
        found = "no `name`" if name is None else f"the name {name!r}, which is no text"
        found = "an empty `name`" if name == "" else found
        raise UserError(
            f"{_named_at(cls)}: class {cls.__name__} has {found}; write e.g. "
            f'name = "my-{kind.split(maxsplit=1)[0]}"'
        )
    check_name(name, f"{_named_at(cls)}: {kind}")
    return name


def _named_at(cls: type[Any]) -> str:
    """`file:line` where a class is given its name, or where it begins; the place of a user's own data."""
    if getattr(cls, "home", None) is not None:
        return str(location(cls))
    try:
        lines, first = inspect.getsourcelines(cls)
    except (OSError, TypeError):
        return str(location(cls))
    at = next((i for i, line in enumerate(lines) if re.match(r"\s+name\s*[:=]", line)), 0)
    return f"{near(source_file(cls))}:{first + at}"


def source_file(cls: type[Any]) -> Path:
    """The Python file that defines the class."""
    return Path(inspect.getfile(cls))


def location(cls: type[Any]) -> Path | str:
    """The source of a plugin, for messages: its data, its file, or its module in a notebook."""
    home: Path | None = getattr(cls, "home", None)  # of a user's own data
    if home is not None:
        return home
    try:
        return source_file(cls)
    except (OSError, TypeError):
        return f"{cls.__module__}.{cls.__qualname__}"


def written_at(cls: type[Any], function: str) -> str:
    """`file:line: ` of a function of a plugin's class, for messages; empty if its author wrote none."""
    if cls.__module__.split(".")[0] == "ssmlbench":
        return ""  # a reader of users' files: their lines are in the rows' own messages
    try:
        file = Path(inspect.getfile(cls))
        line = inspect.getsourcelines(getattr(cls, function))[1]
    except (OSError, TypeError):
        return ""
    return f"{near(file)}:{line}: "
