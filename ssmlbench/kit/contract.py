"""The method contract at run time: builds a method, and checks the values that its functions return."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from torch import Tensor

from ssmlbench.core.errors import ContractError
from ssmlbench.kit.pools import Pools, no_such_view

if TYPE_CHECKING:
    from ssmlbench.kit.method import Method

PoolValues = npt.NDArray[np.floating[Any]]

RETURN = 'return {"labelled": …, "unlabelled": …}'


def build_method(cls: type[Method], config: Any, labels: int) -> Method:
    """Build a method; a ContractError if its `__init__` does not call its base class's."""
    method = cls(config, labels)
    if "_buffers" not in method.__dict__ or "optimisers" not in method.__dict__:
        raise ContractError(
            "__init__ does not call super().__init__(config, labels)", member="__init__"
        )
    return method


def check_terms(terms: object, function: str) -> None:
    """Raise a ContractError unless a step's terms are a dictionary of scalar tensors.

    function: the one that returned them, "loss" or "step".
    """
    if type(terms) is dict and terms:
        for name, term in terms.items():
            if not isinstance(term, Tensor) or term.dim() or type(name) is not str:
                raise _term_error(name, term, function)
        return
    if isinstance(terms, Mapping) and terms:
        check_terms(dict(terms), function)
        return
    if terms is None:
        text = f"{function} returned nothing; end it with {RETURN}"
    elif isinstance(terms, Mapping):
        text = f"{function} returned no term; expected {RETURN}"
    else:
        kind = "tensor" if isinstance(terms, Tensor) else type(terms).__name__
        text = f"{function} returned a {kind}; expected a dictionary of terms: {RETURN}"
    raise ContractError(text, member=function)


def _term_error(name: object, term: object, function: str) -> ContractError:
    if type(name) is not str:
        return ContractError(
            f"{function} returned a term called {name!r}; expected a text", member=function
        )
    if isinstance(term, Tensor):
        problem = f"has shape {tuple(term.shape)}, expected one number: take its mean or sum"
    elif isinstance(term, int | float | np.floating):
        problem = (
            f"is the number {term:g}, expected a tensor that depends on the network: "
            "leave out .item() and float()"
        )
    else:
        problem = f"is a {type(term).__name__}, expected a tensor with one number"
    return ContractError(f"{function}: term {name!r} {problem}", function, name)


def check_pseudo_labels(targets: PoolValues, trust: PoolValues, rows: int, labels: int) -> None:
    """Raise a ContractError unless targets are N_u × K, and trust N_u × K or N_u × 1 of at least 0."""
    if targets.shape != (rows, labels):
        raise ContractError(
            f"self.targets has shape {targets.shape}, expected N_u × K: {(rows, labels)}",
            "start_epoch",
        )
    if trust.shape not in ((rows, labels), (rows, 1)):
        raise ContractError(
            f"self.trust has shape {trust.shape}, expected N_u × K or N_u × 1: {(rows, labels)}",
            "start_epoch",
        )
    if not (trust >= 0).all():  # also false for NaN
        raise ContractError(
            f"self.trust has values down to {trust.min():.3g}, expected weights of 0 or more",
            "start_epoch",
        )


def check_views(method: Method, known: Collection[str]) -> None:
    """Raise a ContractError if the method declares a view that the data do not have."""
    for attribute in ("labelled_views", "unlabelled_views", "unlabelled_ema_views"):
        for view in getattr(method, attribute):
            if view not in known:
                raise no_such_view(view, known, attribute)


class UnchangedPools:
    """Finds out when a method changes observed labels or priors in place: other code reads them too."""

    def __init__(self, pools: Pools):
        self._tensors = {
            f"pools.{name}.{part}": getattr(getattr(pools, name), part)
            for name in ("labelled", "unlabelled")
            for part in ("observed", "prior")
        }
        self._versions = {name: tensor._version for name, tensor in self._tensors.items()}

    def check(self, function: str) -> None:
        """Raise a ContractError if one has changed. function: the one that was just called."""
        for name, tensor in self._tensors.items():
            if tensor._version != self._versions[name]:
                raise ContractError(
                    f"{function} changes {name} in place; work on a copy: {name}.clone()", function
                )
