"""A fitted estimator as arrays and JSON, and back. Nothing is pickled.

The state has an estimator's attributes: numbers, texts, arrays, lists and dictionaries of these, data
classes of ssmlbench.kit, sparse matrices, and scikit-learn's own objects by their class and attributes.
Any other attribute raises NotStorable.
"""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from ssmlbench.kit.estimator import Estimator

Arrays = dict[str, npt.NDArray[Any]]

CONTRACT = ("config", "labels", "seed")
"""Attributes that `Estimator.__init__` sets: they come from the spec, and are not stored."""
TRUSTED = ("sklearn.", "ssmlbench.kit.")
"""Modules whose classes stored objects may have."""


class NotStorable(Exception):
    """An estimator has an attribute that cannot be stored; the text names it."""


def estimator_state(estimator: Estimator) -> tuple[Arrays, str]:
    """The arrays of a fitted estimator by name, and JSON that says where each belongs."""
    arrays: Arrays = {}
    state = {name: value for name, value in vars(estimator).items() if name not in CONTRACT}
    encoded = {name: _encode(value, name, arrays) for name, value in state.items()}
    return arrays, json.dumps(encoded)


def restore_estimator(estimator: Estimator, arrays: Mapping[str, Any], description: str) -> None:
    """Set the state that `estimator_state` returned on an estimator of the same class and config."""
    for name, value in json.loads(description).items():
        setattr(estimator, name, _decode(value, arrays))


# ------------------------------------------------------------------------------------- encoding


def _encode(value: Any, where: str, arrays: Arrays) -> Any:
    """JSON for a value; its arrays go into `arrays`, under their path. where: the value's path."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, np.generic):
        return _encode(value.item(), where, arrays)
    if isinstance(value, np.ndarray):
        return _encode_array(value, where, arrays)
    if isinstance(value, list | tuple):
        parts = [_encode(part, f"{where}.{i}", arrays) for i, part in enumerate(value)]
        return {"list" if isinstance(value, list) else "tuple": parts}
    if isinstance(value, dict):
        return {
            "dict": [
                [_encode(key, where, arrays), _encode(part, f"{where}.{key}", arrays)]
                for key, part in value.items()
            ]
        }
    return _encode_object(value, where, arrays)


def _encode_array(value: npt.NDArray[Any], where: str, arrays: Arrays) -> Any:
    if value.dtype == object:
        return {"objects": [_encode(v, f"{where}.{i}", arrays) for i, v in enumerate(value.flat)]}
    if value.dtype.names:  # the nodes of a tree: rows of several fields
        arrays[where] = np.frombuffer(value.tobytes(), dtype=np.uint8).copy()
        by_name: Any = value.dtype.fields
        fields = [[name, kind.str, offset] for name, (kind, offset, *_) in by_name.items()]
        return {"records": where, "fields": fields, "size": value.dtype.itemsize}
    if value.dtype.kind not in "biuf":
        raise NotStorable(f"{where}: an array of {value.dtype}")
    # NumPy's bool has another name in a file of tensors than Python's.
    arrays[where] = np.ascontiguousarray(value)
    return {"array": where, "shape": list(value.shape)}


def _encode_object(value: Any, where: str, arrays: Arrays) -> Any:
    cls = type(value)
    path = f"{cls.__module__}.{cls.__qualname__}"
    if path == "sklearn.tree._tree.Tree":
        _, arguments, state = value.__reduce__()
        return {
            "tree": _encode(list(arguments), f"{where}.with", arrays),
            "state": _encode(state, f"{where}.state", arrays),
        }
    if path.startswith("sklearn.neighbors.") and hasattr(value, "_fit_X"):
        # The search tree has no arrays to read: it is built again from the rows.
        parameters = _encode(value.get_params(deep=False), f"{where}.parameters", arrays)
        rows = _encode(np.asarray(value._fit_X), f"{where}.rows", arrays)
        return {"fitted on": rows, "class": path, "parameters": parameters}
    if path.startswith("scipy.sparse."):
        matrix = value.tocsr()
        parts = [matrix.data, matrix.indices, matrix.indptr]
        return {"sparse": _encode(parts, where, arrays), "shape": list(matrix.shape)}
    if path.startswith(TRUSTED) and hasattr(value, "__dict__"):
        return {"class": path, "attributes": _encode(dict(vars(value)), where, arrays)}
    raise NotStorable(f"{where}: an object of {path}")


# ------------------------------------------------------------------------------------- decoding


def _decode(value: Any, arrays: Mapping[str, Any]) -> Any:
    if not isinstance(value, dict):
        return value
    for kind, decode in DECODERS.items():
        if kind in value:
            return decode(value, arrays)
    raise ValueError(f"unknown kind of stored value: {sorted(value)}")


def _decode_array(value: Any, arrays: Mapping[str, Any]) -> Any:
    return np.array(arrays[value["array"]]).reshape(value["shape"])


def _decode_records(value: Any, arrays: Mapping[str, Any]) -> Any:
    names, kinds, offsets = zip(*value["fields"], strict=True)
    layout: Any = {"names": names, "formats": kinds, "offsets": offsets, "itemsize": value["size"]}
    raw = np.array(arrays[value["records"]], dtype=np.uint8).tobytes()
    return np.frombuffer(raw, dtype=np.dtype(layout)).copy()


def _decode_objects(value: Any, arrays: Mapping[str, Any]) -> Any:
    objects = np.empty(len(value["objects"]), dtype=object)
    objects[:] = [_decode(part, arrays) for part in value["objects"]]
    return objects


def _decode_tree(value: Any, arrays: Mapping[str, Any]) -> Any:
    from sklearn.tree._tree import Tree

    columns, classes, outputs = _decode(value["tree"], arrays)
    tree = Tree(columns, classes.astype(np.intp), outputs)
    tree.__setstate__(_decode(value["state"], arrays))
    return tree


def _decode_sparse(value: Any, arrays: Mapping[str, Any]) -> Any:
    from scipy.sparse import csr_array

    return csr_array(tuple(_decode(value["sparse"], arrays)), shape=tuple(value["shape"]))


def _decode_fitted(value: Any, arrays: Mapping[str, Any]) -> Any:
    model = _class(value["class"])(**_decode(value["parameters"], arrays))
    return model.fit(_decode(value["fitted on"], arrays))


def _decode_instance(value: Any, arrays: Mapping[str, Any]) -> Any:
    cls: Any = _class(value["class"])
    instance = cls.__new__(cls)
    instance.__dict__.update(_decode(value["attributes"], arrays))
    return instance


def _class(path: str) -> Any:
    """A class of scikit-learn or of the kit, by its path; no other module is imported."""
    if not path.startswith(TRUSTED):
        raise ValueError(f"a stored model may not name {path}")
    module, _, name = path.rpartition(".")
    cls = getattr(importlib.import_module(module), name)
    # Their modules import classes of others, which open files when they are called.
    if not isinstance(cls, type) or not cls.__module__.startswith(TRUSTED):
        raise ValueError(f"a stored model names {path}, which is no class of theirs")
    return cls


Decoder = Callable[[Any, Mapping[str, Any]], Any]
DECODERS: dict[str, Decoder] = {
    "array": _decode_array,
    "records": _decode_records,
    "objects": _decode_objects,
    "list": lambda value, arrays: [_decode(part, arrays) for part in value["list"]],
    "tuple": lambda value, arrays: tuple(_decode(part, arrays) for part in value["tuple"]),
    "dict": lambda value, arrays: {
        _decode(key, arrays): _decode(part, arrays) for key, part in value["dict"]
    },
    "tree": _decode_tree,
    "sparse": _decode_sparse,
    "fitted on": _decode_fitted,
    "class": _decode_instance,
}
