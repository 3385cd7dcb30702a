"""The names of a plugin's contract, and the check for names that are misspelt ones."""

from __future__ import annotations

import ast
import difflib
import inspect
import re
from collections.abc import Collection
from typing import Any

from ssmlbench.core.errors import UserError
from ssmlbench.plugins.source_lines import defined_at, file_of, own_classes, syntax_of

SPELLINGS = {"labeled": "labelled", "unlabeled": "unlabelled", "optimizer": "optimiser"}
SYNONYMS = {
    **dict.fromkeys(("begin", "starting", "init", "initialise", "initialize"), "start"),
    **dict.fromkeys(("make", "create", "configure", "get"), "build"),
    **dict.fromkeys(("predict", "prediction", "proba", "probability"), "score"),
    "train": "fit",
    "criterion": "loss",
    "warmup": "warm up",
}
FILLERS = {
    "on",
    "before",
    "after",
    "compute",
    "calc",
    "calculate",
    "training",
    "the",
    "do",
    "my",
    "each",
}


def wrong(cls: type[Any], member: str, text: str, literal: str = "") -> UserError:
    """The error for a member of a class: `file:line: class Mine: what is wrong`."""
    return UserError(f"{defined_at(cls, member, literal)}: {cls.__name__}: {text}")


def engine_bases(cls: type[Any]) -> list[type[Any]]:
    """The classes of the engine that it is derived from."""
    return [base for base in cls.__mro__ if base.__module__.startswith("ssmlbench.")]


def contract_names(cls: type[Any]) -> set[str]:
    """The public names that a plugin of this kind may define."""
    bases = engine_bases(cls)
    names = {
        name for base in bases for name in (*vars(base), *vars(base).get("__annotations__", {}))
    }
    return {name for name in names if not name.startswith("_")}


def check_member_names(cls: type[Any]) -> None:
    """Raise a UserError for a name that looks like a misspelt name of the contract."""
    known = contract_names(cls)
    for base in own_classes(cls):
        for name, value in vars(base).items():
            if name in known or hasattr(library_base(cls), name):
                continue
            if meant := _meant(name, value, known, base):
                raise wrong(
                    cls,
                    name,
                    f"{name} is not a name of the contract, and nothing calls it. "
                    f"Did you mean {meant}? (A name of your own: start it with _)",
                )


def library_base(cls: type[Any]) -> type[Any]:
    """torch.nn.Module for a method or encoder, else object: their names are not misspelt ones."""
    return next((b for b in cls.__mro__ if b.__module__.startswith("torch.")), object)


def _meant(name: str, value: object, known: Collection[str], owner: type[Any]) -> str | None:
    """The name of the contract that a name was meant to be; None if it is one of its own."""
    if re.fullmatch(r"__?init?_?_?|__int__|__intit__|__inti__", name):
        return "__init__"
    if name.startswith("_"):
        return None
    if spelt := next((k for k in sorted(known) if _spelling(k) == _spelling(name)), None):
        return spelt
    if name in _read_names(owner):
        return None
    words = _words(name)
    if close := next((k for k in sorted(known) if words and _words(k) == words), None):
        return close
    if inspect.isclass(value) and hasattr(value, "__dataclass_fields__") and "Config" in known:
        return "Config"
    matches = difflib.get_close_matches(name, sorted(known), n=1, cutoff=0.8)
    return matches[0] if matches else None


def _spelling(name: str) -> str:
    """The name without case, underscores and American or British spelling."""
    small = name.lower().replace("_", "")
    for other, ours in SPELLINGS.items():
        small = re.sub(f"(?<!un){other}" if other == "labeled" else other, ours, small)
    return small


def _words(name: str) -> frozenset[str]:
    """`on_epoch_begin` → {epoch, start}: order, fillers and plurals do not matter."""
    parts = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower().split("_")
    words = [SPELLINGS.get(p.rstrip("s"), p.rstrip("s") or p) for p in parts if p]
    words = [word for part in words for word in SYNONYMS.get(part, part).split()]
    return frozenset(word for word in words if word not in FILLERS)


def _read_names(owner: type[Any]) -> set[str]:
    """The attributes that the class's file reads: what its own code calls is a helper."""
    file = file_of(owner)
    tree = syntax_of(file) if file else None
    nodes = ast.walk(tree) if tree else ()
    return {n.attr for n in nodes if isinstance(n, ast.Attribute) and isinstance(n.ctx, ast.Load)}
