"""Shell completion of the names of built-in methods and data sets, without importing a plugin."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from ssmlbench.core.paths import builtin_root


def builtin_names(folder: str) -> list[str]:
    """The names of the plugins in a built-in folder: a file has its plugin's name."""
    return sorted(file.stem for file in (builtin_root() / folder).glob("*.py"))


def complete_list(incomplete: str, names: Iterable[str]) -> list[str]:
    """The completions of the last name of a list such as `bce,ca`."""
    before, comma, last = incomplete.rpartition(",")
    taken = set(before.split(","))
    return [f"{before}{comma}{n}" for n in names if n.startswith(last) and n not in taken]


def completing(names: Iterable[str]) -> Callable[[str], list[str]]:
    """The completion of an option with these choices."""

    def complete(incomplete: str) -> list[str]:
        return complete_list(incomplete, names)

    return complete


def complete_method(incomplete: str) -> list[str]:
    """The methods whose names start with the text."""
    return complete_list(incomplete, builtin_names("methods"))


def complete_dataset(incomplete: str) -> list[str]:
    """The data sets whose names start with the text."""
    return complete_list(incomplete, builtin_names("datasets"))


COMPLETIONS: dict[str, Callable[[str], list[str]]] = {
    "method": complete_method,
    "dataset": complete_dataset,
}
"""Completions by the name of the option."""
