"""Checks a plugin class against its contract when it is loaded: names, types, values and parameters.

No code of the plugin is called. A mistake is a UserError of one line, with the file and line to edit.
"""

from __future__ import annotations

import inspect
import math
import typing
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from ssmlbench.core.names import EVERY_METHOD
from ssmlbench.core.spec import Projection
from ssmlbench.core.suggestions import did_you_mean
from ssmlbench.plugins.config_contract import check_config
from ssmlbench.plugins.contract_names import (
    check_member_names,
    contract_names,
    engine_bases,
    library_base,
    wrong,
)
from ssmlbench.plugins.source_lines import own_classes
from ssmlbench.protocol.regimes import REGIMES

HEADS = ("linear", "cosine")
OPTIONAL = ("backbone",)  # the default depends on the kind of data
POSITIVE = ("batch_rows", "threads", "lr")
"""Numbers that are None or above 0."""
INPUT_KINDS = ("image", "text", "vector")


def check_contract(cls: type[Any]) -> None:
    """Raise a UserError if the class does not keep to the contract of its kind of plugin."""
    for check in (check_member_names, _types, _values, _parameters, _required, check_config):
        check(cls)


# ------------------------------------------------------------------------------------- types


def _types(cls: type[Any]) -> None:
    """Check that functions are functions, and that attributes have the types of the contract."""
    hints = _attribute_types(cls)
    for name, value in _declared(cls):
        contract = next(
            (vars(base)[name] for base in engine_bases(cls) if name in vars(base)), None
        )
        if inspect.isfunction(contract) and not _is_function(cls, name, value):
            raise wrong(cls, name, f"{name} is {value!r}; expected a function: def {name}(self, …)")
        expected = hints.get(name)
        if expected is None:
            continue
        if inspect.isfunction(value):
            raise wrong(cls, name, f"{name} is a function; expected {_type_text(expected)}")
        computed = hasattr(value, "__get__")  # a property, for example
        if not computed and not _is(value, expected):
            text = f"{name} is {value!r}; expected {_type_text(expected)}"
            raise wrong(cls, name, text + _what_to_write(value, expected))


def _is_function(cls: type[Any], name: str, value: Any) -> bool:
    return isinstance(value, classmethod | staticmethod) or callable(
        inspect.getattr_static(cls, name, None)
    )


def _what_to_write(value: Any, expected: Any) -> str:
    """The end of the message about a value of the wrong type, for usual mistakes with texts."""
    if not isinstance(value, str):
        return ""
    if typing.get_origin(expected) is tuple:
        return f': write ("{value}",) with the comma'
    if choices := _choices(expected):
        return f".{did_you_mean(value, choices)}"
    return f': write {{"{value}"}}' if "set" in _type_text(expected) else ""


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
    types: dict[str, Any] = {}
    for base in reversed(engine_bases(cls)):
        for name in vars(base).get("__annotations__", {}):
            types[name] = typing.get_type_hints(base).get(name)
        for name, value in vars(base).items():
            if isinstance(value, property) and value.fget is not None:
                types[name] = typing.get_type_hints(value.fget).get("return")
    return {name: _without_class_var(kind) for name, kind in types.items()}


def _without_class_var(kind: Any) -> Any:
    return typing.get_args(kind)[0] if typing.get_origin(kind) is typing.ClassVar else kind


def _choices(kind: Any) -> tuple[str, ...]:
    return typing.get_args(kind) if typing.get_origin(kind) is typing.Literal else ()


def _is(value: Any, kind: Any) -> bool:
    """Whether the value is of an annotated type; lists pass for tuples and sets.

    A set does not pass for a tuple: its order, and with it the order of random draws, differs between
    processes.
    """
    origin, args = typing.get_origin(kind), typing.get_args(kind)
    if origin is typing.Literal:
        return value in args
    if origin in (tuple, set, frozenset):
        ordered = isinstance(value, tuple | list)
        several = ordered or (origin is not tuple and isinstance(value, set | frozenset))
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
        if cls.name == EVERY_METHOD:
            raise wrong(cls, "name", f"name is {cls.name!r}, the word for every method; rename it")
        _some_of(cls, "regimes", cls.regimes, REGIMES)
    if "kinds" in names and hasattr(cls, "kinds"):
        _some_of(cls, "kinds", cls.kinds, INPUT_KINDS)
    if "head" in names and not _builds_its_head(cls):
        _some_of(cls, "head", (cls.head,), HEADS)
    if "ablations" in names:
        _check_ablations(cls)
    for member in POSITIVE:
        value = getattr(cls, member, None) if member in names else None
        if isinstance(value, int | float) and not 0 < value < math.inf:  # NaN is not, either
            raise wrong(cls, member, f"{member} is {value}; expected a number above 0")
    if "projection" in names:
        _some_of(cls, "projection", (cls.projection,), typing.get_args(Projection))
    if "options" in names:  # data sets of a user's own files have options of another kind
        _check_encoder(cls)


def _check_encoder(cls: type[Any]) -> None:
    """Check what only an encoder declares; torch says nothing about the parameters of `forward`."""
    from ssmlbench.inputs.encoders import Encoder, EncoderOptions
    from ssmlbench.inputs.encoders.lookup import names_a_library_model

    def forward(self: Any, inputs: Any) -> Any: ...

    if not issubclass(cls, Encoder):
        return
    _some_of(cls, "options", cls.options, EncoderOptions.__dataclass_fields__, may_be_empty=True)
    if any("forward" in vars(base) for base in own_classes(cls)):
        _same_parameters(cls, "forward", cls.forward, forward)
    inherited = cls.name in (getattr(base, "name", None) for base in engine_bases(cls))
    if own_classes(cls) and not inherited and names_a_library_model(cls.name):
        text = f"name is {cls.name!r}, which --backbone reads as a model of a library; rename it"
        raise wrong(cls, "name", text)


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


def _check_ablations(cls: type[Any]) -> None:
    for name, changes in cls.ablations.items():
        if not isinstance(name, str) or not name.strip():
            raise wrong(cls, "ablations", f"ablations has the name {name!r}; expected a text")
        if not isinstance(changes, Mapping):
            text = f"ablations: {name!r} is {changes!r}; expected a dictionary of hyper-parameters"
            raise wrong(cls, "ablations", text)


def _builds_its_head(cls: type[Any]) -> bool:
    return any("build_head" in vars(base) for base in own_classes(cls))


# -------------------------------------------------------------------------------- parameters


def _parameters(cls: type[Any]) -> None:
    bases = [*engine_bases(cls), library_base(cls)]
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
    """The engine passes the contract's parameters by position: the function must accept them."""
    expected = list(inspect.signature(contract).parameters.values())
    positional = [p for p in expected if p.kind is p.POSITIONAL_OR_KEYWORD]
    if name != "__init__":  # the engine passes no argument that has a default
        positional = [p for p in positional if p.default is p.empty]
    signature = inspect.signature(given)
    in_order = [p.name for p in signature.parameters.values() if p.kind is p.POSITIONAL_OR_KEYWORD]
    names = [p.name for p in positional]
    try:
        signature.bind(*[None] * len(positional))
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
    """The members that a plugin of this kind must define."""
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
    return owner in (engine_bases(cls)[-1], library_base(cls))
