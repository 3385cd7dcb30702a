"""The contract of a plugin class, checked when it is loaded: names, types and parameters.

Nothing is run here. A mistake is a UserError of one line, with the file and the line to edit.
"""

from __future__ import annotations

import ast
import difflib
import inspect
import re
import typing
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from ssmlbench.core.errors import UserError
from ssmlbench.core.spec import Projection
from ssmlbench.core.suggestions import did_you_mean
from ssmlbench.plugins.config_contract import check_config
from ssmlbench.plugins.source_lines import defined_at, file_of, own_classes, syntax_of
from ssmlbench.protocol.regimes import REGIMES

HEADS = ("linear", "cosine")
OPTIONAL = ("backbone",)  # without one, an encoder for the kind of data is taken
INPUT_KINDS = ("image", "text", "vector")

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


def check_contract(cls: type[Any]) -> None:
    """Raise a UserError if the class does not keep to the contract of its kind of plugin."""
    for check in (_names, _types, _values, _parameters, _required, check_config):
        check(cls)


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


# ------------------------------------------------------------------------------------- names


def _names(cls: type[Any]) -> None:
    known = contract_names(cls)
    for base in own_classes(cls):
        for name, value in vars(base).items():
            if name in known or hasattr(_library_base(cls), name):
                continue
            if meant := _meant(name, value, known, base):
                raise wrong(
                    cls,
                    name,
                    f"{name} is not a name of the contract, and nothing calls it. "
                    f"Did you mean {meant}? (A name of your own: start it with _)",
                )


def _library_base(cls: type[Any]) -> type[Any]:
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
    found = difflib.get_close_matches(name, sorted(known), n=1, cutoff=0.8)
    return found[0] if found else None


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


# ------------------------------------------------------------------------------------- types


def _types(cls: type[Any]) -> None:
    hints = _attribute_types(cls)
    for name, value in _declared(cls):
        is_function = callable(inspect.getattr_static(cls, name, None)) or isinstance(
            value, classmethod | staticmethod
        )
        expected = hints.get(name)
        contract = next(
            (vars(b)[name] for b in engine_bases(cls) if name in vars(b)), inspect.Parameter.empty
        )
        if inspect.isfunction(contract) and not is_function:
            raise wrong(cls, name, f"{name} is {value!r}; expected a function: def {name}(self, …)")
        if expected is None or isinstance(value, property) or hasattr(value, "__get__"):
            if expected is not None and inspect.isfunction(value):
                raise wrong(cls, name, f"{name} is a function; expected {_type_text(expected)}")
            continue
        if not _is(value, expected):
            hint = ""
            if isinstance(value, str) and typing.get_origin(expected) is tuple:
                hint = f': write ("{value}",) with the comma'
            elif isinstance(value, str) and _choices(expected):
                hint = f".{did_you_mean(value, _choices(expected))}"
            elif isinstance(value, str) and "set" in _type_text(expected):
                hint = f': write {{"{value}"}}'
            raise wrong(cls, name, f"{name} is {value!r}; expected {_type_text(expected)}{hint}")


def _declared(cls: type[Any]) -> Iterator[tuple[str, Any]]:
    """The names of the contract that the author's classes set, and their values."""
    known, seen = contract_names(cls), set()
    for base in own_classes(cls):
        for name, value in vars(base).items():
            if name in known and name not in seen:
                seen.add(name)
                yield name, value


def _attribute_types(cls: type[Any]) -> dict[str, Any]:
    """The types that the engine's classes state for attributes and properties."""
    found: dict[str, Any] = {}
    for base in reversed(engine_bases(cls)):
        for name in vars(base).get("__annotations__", {}):
            found[name] = typing.get_type_hints(base).get(name)
        for name, value in vars(base).items():
            if isinstance(value, property) and value.fget is not None:
                found[name] = typing.get_type_hints(value.fget).get("return")
    return {name: _without_class_var(kind) for name, kind in found.items()}


def _without_class_var(kind: Any) -> Any:
    return typing.get_args(kind)[0] if typing.get_origin(kind) is typing.ClassVar else kind


def _choices(kind: Any) -> tuple[str, ...]:
    return typing.get_args(kind) if typing.get_origin(kind) is typing.Literal else ()


def _is(value: Any, kind: Any) -> bool:
    """Whether the value is of an annotated type; lists pass for tuples and sets."""
    origin, args = typing.get_origin(kind), typing.get_args(kind)
    if origin is typing.Literal:
        return value in args
    if origin in (tuple, set, frozenset):
        several = isinstance(value, tuple | list | set | frozenset)
        return several and all(_is(entry, args[0]) for entry in value)
    if inspect.isclass(origin) and issubclass(origin, Mapping):
        return isinstance(value, Mapping)
    if args:  # a union
        return any(_is(value, alternative) for alternative in args)
    if kind is Any or not inspect.isclass(kind):
        return True
    if kind is float:
        return isinstance(value, int | float) and not isinstance(value, bool)
    if kind is int:
        return isinstance(value, int) and not isinstance(value, bool)
    return isinstance(value, kind)


def _type_text(kind: Any) -> str:
    origin, args = typing.get_origin(kind), typing.get_args(kind)
    if origin is typing.Literal:
        return f"one of {', '.join(map(repr, args))}"
    if origin is tuple:
        return "a tuple of texts"
    if origin in (set, frozenset):
        return "a set of texts"
    if inspect.isclass(origin) and issubclass(origin, Mapping):
        return "a dictionary"
    if args:  # a union
        return " or ".join(dict.fromkeys(_type_text(alternative) for alternative in args))
    names = {str: "a text", int: "a whole number", float: "a number", bool: "True or False"}
    return names.get(kind, "None" if kind is type(None) else getattr(kind, "__name__", str(kind)))


# ------------------------------------------------------------------------------------ values


def _values(cls: type[Any]) -> None:
    names = contract_names(cls)
    if "regimes" in names:
        _some_of(cls, "regimes", cls.regimes, REGIMES)
    if "kinds" in names and hasattr(cls, "kinds"):
        _some_of(cls, "kinds", cls.kinds, INPUT_KINDS)
    if "head" in names and not _overridden(cls, "build_head"):
        _some_of(cls, "head", (cls.head,), HEADS)
    if "projection" in names:
        _some_of(cls, "projection", (cls.projection,), typing.get_args(Projection))
    if "options" in names:
        from ssmlbench.inputs.encoders import Encoder, EncoderOptions

        if issubclass(cls, Encoder):  # data sets of a user's own files have options of another kind
            known = EncoderOptions.__dataclass_fields__
            _some_of(cls, "options", cls.options, known, may_be_empty=True)


def _some_of(
    cls: type[Any],
    member: str,
    values: Collection[str],
    known: Collection[str],
    may_be_empty: bool = False,
) -> None:
    if not values and not may_be_empty:
        raise wrong(cls, member, f"{member} is empty; expected some of {', '.join(known)}")
    for value in sorted(values):
        if value not in known:
            raise wrong(
                cls, member, f"{member}: there is no {value!r}.{did_you_mean(value, known)}", value
            )


def _overridden(cls: type[Any], name: str) -> bool:
    return any(name in vars(base) for base in own_classes(cls))


# -------------------------------------------------------------------------------- parameters


def _parameters(cls: type[Any]) -> None:
    bases = [*engine_bases(cls), _library_base(cls)]
    for owner in own_classes(cls):
        for name, value in vars(owner).items():
            if name.startswith("_") and name != "__init__":
                continue
            contract = next((vars(b)[name] for b in bases if name in vars(b)), None)
            if isinstance(value, classmethod | staticmethod) and inspect.isfunction(contract):
                _bound_parameters(cls, name, value, contract)
            if not inspect.isfunction(value):
                continue
            if isinstance(contract, classmethod | staticmethod):
                kind = type(contract).__name__
                raise wrong(cls, name, f"{name} must be a {kind}: write @{kind} above it")
            if inspect.isfunction(contract) and not inspect.getfullargspec(contract).varargs:
                _same_parameters(cls, name, value, contract)


def _bound_parameters(
    cls: type[Any],
    name: str,
    value: classmethod[Any, Any, Any] | staticmethod[Any, Any],
    contract: Any,
) -> None:
    """A static or class method gets no self: it must take the rest."""
    given = [p for p in inspect.signature(contract).parameters.values() if p.default is p.empty][1:]
    try:
        inspect.signature(value.__get__(None, cls)).bind(*[None] * len(given))
    except TypeError:
        kind = type(value).__name__
        raise wrong(cls, name, f"{name} is a {kind}, and gets no self: leave out @{kind}") from None


def _same_parameters(cls: type[Any], name: str, given: Any, contract: Any) -> None:
    """The engine passes what the contract says, by position: the function must take it."""
    expected = list(inspect.signature(contract).parameters.values())
    positional = [p for p in expected if p.kind is p.POSITIONAL_OR_KEYWORD]
    if name != "__init__":  # the engine passes no argument that has a default
        positional = [p for p in positional if p.default is p.empty]
    found = inspect.signature(given)
    in_order = [p.name for p in found.parameters.values() if p.kind is p.POSITIONAL_OR_KEYWORD]
    names = [p.name for p in positional]
    try:
        found.bind(*[None] * len(positional))
    except TypeError:
        fits = False
    else:
        fits = in_order == names or sorted(in_order) != sorted(names)  # no two are swapped
    if not fits:
        raise wrong(
            cls, name, f"{name} takes ({', '.join(in_order)}); expected ({', '.join(names)})"
        )


# ---------------------------------------------------------------------------------- required


def _required(cls: type[Any]) -> None:
    """What a plugin of this kind cannot do without."""
    for base in engine_bases(cls):
        for name, kind in vars(base).get("__annotations__", {}).items():
            if name in OPTIONAL or not str(kind).startswith("ClassVar"):
                continue
            if not hasattr(cls, name):
                raise wrong(
                    cls,
                    "",
                    f"it has no `{name}`; expected {_type_text(_attribute_types(cls)[name])}",
                )
    if missing := sorted(getattr(cls, "__abstractmethods__", ())):
        raise wrong(cls, "", f"it must define {missing[0]}")
    for needed in _NEEDED.get(engine_bases(cls)[-1].__name__, ()):
        if all(_is_placeholder(cls, name) for name in needed):
            raise wrong(cls, "", f"it must define {' or '.join(needed)}")


_NEEDED: dict[str, tuple[tuple[str, ...], ...]] = {
    "Method": (("loss", "step"),),
    "Estimator": (("fit",), ("scores",)),
    "Encoder": (("forward",),),
}
"""Functions by base class: one of each tuple must be defined."""


def _is_placeholder(cls: type[Any], name: str) -> bool:
    """Whether the function is still the one of the contract's base class, or torch's."""
    owner = next(base for base in cls.__mro__ if name in vars(base))
    return owner in (engine_bases(cls)[-1], _library_base(cls))
