"""A user's NumPy arrays as a data set: one .npz file, or .npy files and sparse matrices in a folder.

X is N × D numbers, N × H × W (× 3) uint8 images, or N texts; y is N × K with 1 and 0, and with -1 or NaN
where a label is unknown.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar
from zipfile import ZipFile

import numpy as np
from numpy.typing import NDArray

from ssmlbench.core.data_options import DataOptions
from ssmlbench.core.errors import UserError
from ssmlbench.data.adapter import BadRow, Kind, Row
from ssmlbench.data.label_cells import never_zero
from ssmlbench.data.listed_names import check_counted, read_names
from ssmlbench.data.text_files import check_plain
from ssmlbench.data.user_files import BACKBONES, PART_OF, PARTS, UserFiles

LAYOUT = """
NAME.npz                        with X_train, y_train, X_test, y_test (or X and y);
or X_train.npy, y_train.npy …   in a folder, or X_train.npz … as scipy's save_npz writes them
X_unlabelled                    optional: training rows whose labels are not known
labels.txt                      optional, or `label_names` in the .npz: the names of y's columns
"""
INPUTS = ("x", "features", "inputs", "data", "embeddings", "vectors", "texts", "images")
LABELS = ("y", "labels", "targets", "target")
IDS = ("id", "ids")
NAMES = ("labelnames", "targetnames", "classes", "classnames")
MOST_DENSE = 4 * 2**30
"""Sparse matrices become dense in memory: more than this is refused."""
MOST_PACKED, PACKED_TIMES = 2**28, 900
"""An array of more bytes that is packed to a smaller share is all zeros."""
CHECKED_BYTES = 2**24
"""Texts are checked so much at a time."""
RoleArrays = Mapping[tuple[str, str], NDArray[Any]]
"""("x", "train") → array; "x", "y" and "ids" by part."""


class ArrayFiles(UserFiles):
    """NumPy arrays."""

    layout = LAYOUT
    format_name = "arrays"
    reads = frozenset({"empty_labels"})
    arrays: ClassVar[RoleArrays]
    names: ClassVar[tuple[str, ...]]

    @classmethod
    def at(cls, path: Path, options: DataOptions) -> type[ArrayFiles]:
        """Build the data set class of an .npz file or a folder of .npy files."""
        home = path.parent if path.suffix.lower() == ".npy" else path
        found = read_folder(home) if home.is_dir() else read_npz(home)
        arrays, given = by_role(home, found)
        check_shapes(home, arrays)
        labels = arrays["y", "train"].shape[1]
        folder = home if home.is_dir() else home.parent
        listed = [] if given else read_names(folder)
        names = given or listed or [str(k) for k in range(labels)]
        if len(names) != labels:
            raise UserError(f"data set {home}: {len(names)} names for {labels} columns of y")
        check_counted(listed, f"data set {home}")
        y = arrays["y", "train"]
        if not options.empty_labels and (y == -1).any() and not (y == 0).any():
            raise never_zero(str(home))
        kind = kind_of(home, arrays["x", "train"])
        return cls.named(
            home,
            options,
            arrays=arrays,
            names=tuple(names),
            kind=kind,
            backbone=BACKBONES[kind],
        )

    def source_files(self) -> list[Path]:
        """Return the .npz file, or every array file of the folder."""
        return array_files(self.home) if self.home.is_dir() else [self.home]

    def parts(self) -> tuple[str, ...]:
        """Return the parts that have inputs."""
        return tuple(part for part in PARTS if ("x", part) in self.arrays)

    def card_notes(self) -> list[str]:
        """Name the arrays of validation rows, which are not used."""
        if ("x", "validation") not in self.arrays:
            return []
        return ["validation arrays are not used: validation rows come from train"]

    @cached_property
    def _names(self) -> list[str]:
        return list(self.names)

    def label_names(self) -> list[str]:
        """Return the names of y's columns."""
        return self._names

    def part_rows(self, part: str) -> Iterator[Row | BadRow]:
        """Yield the rows of a part."""
        inputs, labels = self.arrays["x", part], self.arrays.get(("y", part))
        ids = self.arrays.get(("ids", part))
        for n, raw in enumerate(inputs):
            where = f"{self.home.name} {part} row {n + 1}"
            value = str(raw) if self.kind == "text" else np.asarray(raw)
            id_ = "" if ids is None else str(ids[n])
            if labels is None:
                yield Row(value, None, id_, where)
                continue
            row = np.asarray(labels[n]).astype(np.float64)
            if self.options.empty_labels == "none":
                row[row == -1] = 0
            unknown = np.isnan(row) | (row == -1)
            if not (unknown | (row == 0) | (row == 1)).all():
                strange = row[~(unknown | (row == 0) | (row == 1))][0]
                yield BadRow(where, f"a label is {strange:g}, expected 0 or 1", "unknown label")
                continue
            positive = tuple(np.flatnonzero(row == 1).tolist())
            yield Row(value, positive, id_, where, unknown=tuple(np.flatnonzero(unknown).tolist()))


def read_npz(file: Path) -> dict[str, NDArray[Any]]:
    """The arrays of an .npz file by name; a sparse matrix of scipy's has the name of the file."""
    check_plain(file)
    _check_packing(file)
    with _errors_in_one_line(file), np.load(file, allow_pickle=False) as arrays:
        if not {"format", "shape", "data"} <= set(arrays.files):
            return {name: _plain_array(arrays[name], name) for name in arrays.files}
        rows, columns = (int(size) for size in arrays["shape"])
        size = rows * columns * arrays["data"].dtype.itemsize
    if size > MOST_DENSE:
        raise UserError(
            f"{file}: {rows:,} × {columns:,} would take {size / 2**30:,.0f} GiB as dense vectors; "
            "reduce the columns first (e.g. TruncatedSVD)"
        )
    from scipy.sparse import load_npz

    with _errors_in_one_line(file):
        matrix = load_npz(file)
        # a place outside of the matrix would be written into other memory
        if hasattr(matrix, "check_format"):
            matrix.check_format(full_check=True)
        dense: NDArray[Any] = matrix.toarray()
    return {file.stem: dense}


def _check_packing(file: Path) -> None:
    """Raise a UserError if an array of gigabytes is packed into a file that has nearly no content."""
    with _errors_in_one_line(file), ZipFile(file) as archive:
        packed = [
            m
            for m in archive.infolist()
            if m.file_size > MOST_PACKED and m.file_size > PACKED_TIMES * m.compress_size
        ]
    if packed:
        raise UserError(
            f"{file}: {packed[0].filename} would take {packed[0].file_size / 2**30:,.1f} GiB, and is "
            f"packed in {packed[0].compress_size:,} bytes; save it with np.savez if it is meant"
        )


def array_files(folder: Path) -> list[Path]:
    """The files of arrays in a folder."""
    return sorted(file for file in folder.iterdir() if file.suffix.lower() in (".npy", ".npz"))


def read_folder(folder: Path) -> dict[str, NDArray[Any]]:
    """The arrays of a folder by the names of their files; those of .npy stay on disk.

    An .npz file that is a sparse matrix of scipy's is an array too; others hold arrays with names.
    """
    arrays: dict[str, NDArray[Any]] = {}
    for file in array_files(folder):
        npy = file.suffix.lower() == ".npy"
        found = {file.stem: read_npy(file)} if npy else read_npz(file)
        if twice := sorted(found.keys() & arrays.keys()):
            raise UserError(f"{file}: another file of its folder has {twice[0]} too; move one away")
        arrays |= found
    return arrays


def read_npy(file: Path) -> NDArray[Any]:
    """The array of an .npy file, which is not read into memory."""
    check_plain(file)
    with _errors_in_one_line(file):
        return _plain_array(np.load(file, mmap_mode="r", allow_pickle=False), file.stem)


def _plain_array(loaded: object, name: str) -> NDArray[Any]:
    """What NumPy loaded, if it is an array: of another format, it returns the bytes or an archive."""
    if not isinstance(loaded, np.ndarray):
        raise ValueError(f"{name} is not an array")
    if loaded.dtype.kind == "U" and loaded.size and loaded.dtype.itemsize:
        _check_characters(loaded, name)
    return loaded


def _check_characters(texts: NDArray[Any], name: str) -> None:
    """Raise a ValueError for numbers that are no characters: NumPy does not look, and Python breaks."""
    numbers = np.dtype(np.uint32).newbyteorder(texts.dtype.byteorder)
    for block in np.array_split(texts.reshape(-1), texts.nbytes // CHECKED_BYTES + 1):
        if (np.ascontiguousarray(block).view(numbers) > sys.maxunicode).any():
            raise ValueError(f"a text of {name} has characters that do not exist")


@contextmanager
def _errors_in_one_line(file: Path) -> Iterator[None]:
    """Turn what NumPy raises for a damaged file into one line."""
    try:
        yield
    except Exception as error:  # zipfile, zlib, struct and tokenize raise their own
        reason = str(error).partition("\n")[0]
        if "allow_pickle" in reason:
            reason = "it holds Python objects, which are never read; save numbers or texts"
        raise UserError(f"{file}: not a file of plain arrays ({reason})") from None


def by_role(home: Path, found: Mapping[str, NDArray[Any]]) -> tuple[RoleArrays, list[str]]:
    """The arrays by role and part, and the names of the labels where there are some."""
    arrays: dict[tuple[str, str], NDArray[Any]] = {}
    names: list[str] = []
    roles = {
        **dict.fromkeys(INPUTS, "x"),
        **dict.fromkeys(LABELS, "y"),
        **dict.fromkeys(IDS, "ids"),
    }
    for name, array in found.items():
        if re.sub(r"[_-]", "", name.lower()) in NAMES:
            names = label_texts(home, name, array)
            continue
        words = re.split(r"[_-]", name.lower())
        named = [PART_OF[word] for word in words if word in PART_OF]
        part = named[0] if named else "train"
        role = next((roles[word] for word in words if word in roles), "")
        parted = named or any(name.lower().endswith(part) for part in PART_OF)  # Xtest
        if not role and (parted or {"mask", "idx", "index", "indices", "split"} & {*words}):
            raise UserError(
                f"data set {home}: array {name} is not read; to tell training from test rows, save them "
                "as X_train, y_train, X_test and y_test, else rename it"
            )
        if not role:
            continue
        if (role, part) in arrays:
            raise UserError(f"data set {home}: two arrays are {role} of {part}; rename {name}")
        arrays[role, part] = array
    for role, called in (("x", "X_train or X"), ("y", "y_train or y")):
        if (role, "train") not in arrays:
            listed = ", ".join(found) or "nothing"
            raise UserError(f"data set {home}: no array called {called}; there is {listed}")
    return arrays, names


def label_texts(home: Path, name: str, array: NDArray[Any]) -> list[str]:
    """The names of the labels; bytes are UTF-8."""
    try:
        return [v.decode() if isinstance(v, bytes) else str(v) for v in array.ravel().tolist()]
    except UnicodeDecodeError:
        raise UserError(f"data set {home}: {name} is not UTF-8; save the names as texts") from None


def check_shapes(home: Path, arrays: RoleArrays) -> None:
    """Raise a UserError unless the arrays fit together."""
    first, labels = arrays["x", "train"], arrays["y", "train"]
    for (role, part), array in arrays.items():
        where = f"data set {home}: {role} of {part} has the shape {array.shape}"
        if array.dtype.kind not in ("biufU" if role != "y" else "biuf"):
            raise UserError(
                f"data set {home}: {role} of {part} holds {array.dtype}, expected numbers"
            )
        inputs = arrays.get(("x", part))
        if inputs is None or len(array) != len(inputs):
            rows = "no inputs" if inputs is None else f"{len(inputs):,} inputs"
            raise UserError(f"{where}, and there are {rows}")
        if role == "x" and not _are_alike(array, first):
            raise UserError(
                f"data set {home}: x of {part} holds {array.dtype}, that of train {first.dtype}; save "
                "both as one type, with the same range"
            )
        if role == "x" and (array.ndim != first.ndim or array.shape[1:] != first.shape[1:]):
            raise UserError(f"{where}, that of train {first.shape}")
        if role == "y" and (array.ndim != 2 or array.shape[1] != labels.shape[1]):
            raise UserError(f"{where}, expected rows × labels, with the same labels everywhere")
    if ("y", "test") not in arrays and ("x", "test") in arrays:
        raise UserError(f"data set {home}: the test rows have no y; call their inputs X_unlabelled")


def _are_alike(inputs: NDArray[Any], others: NDArray[Any]) -> bool:
    """Whether two arrays are both texts or both numbers; fractions have another range than bytes."""
    kinds = {inputs.dtype.kind, others.dtype.kind}
    if "U" in kinds:
        return len(kinds) == 1
    return not ("f" in kinds and np.dtype(np.uint8) in (inputs.dtype, others.dtype))


def kind_of(home: Path, inputs: NDArray[Any]) -> Kind:
    """The kind of the inputs, by their shape and type."""
    if inputs.dtype.kind == "U" and inputs.ndim == 1:
        return "text"
    if inputs.dtype.kind in "biuf" and inputs.ndim == 2:
        return "vector"
    if inputs.dtype == np.uint8 and (inputs.ndim == 3 or inputs.shape[3:] == (3,)):
        return "image"
    raise UserError(
        f"data set {home}: X is {inputs.dtype} of the shape {inputs.shape}; expected N × D numbers, N "
        "texts, or N × H × W (× 3) images of uint8"
    )
