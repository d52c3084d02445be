"""Tensors in files, for subcommands: `.npy`, and of `.npz` and `.safetensors` one by its name, `file:name`.

Floats that numpy has no dtype for are their bit patterns in `.npy` and `.npz`, in unsigned integers.
"""

from __future__ import annotations

import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from requant.checkpoint.safetensors.header import Header
from requant.checkpoint.safetensors.reader import read_header
from requant.checkpoint.safetensors.writer import head_bytes, layout
from requant.errors import NpyError, ParameterError, SafetensorsError, StorageError, excerpt
from requant.errors.names import entry_named

Array = NDArray[Any]

_SEVERAL = (".npz", ".safetensors")
_SAFETENSORS: Mapping[str, np.dtype[Any]] = {
    name: np.dtype(dtype)
    for name, dtype in (
        ("U8", np.uint8),
        ("I8", np.int8),
        ("F8_E5M2", ml_dtypes.float8_e5m2),
        ("F8_E4M3", ml_dtypes.float8_e4m3fn),
        ("F8_E8M0", ml_dtypes.float8_e8m0fnu),
        ("F8_E4M3FNUZ", ml_dtypes.float8_e4m3fnuz),
        ("F8_E5M2FNUZ", ml_dtypes.float8_e5m2fnuz),
        ("I16", np.int16),
        ("U16", np.uint16),
        ("F16", np.float16),
        ("BF16", ml_dtypes.bfloat16),
        ("I32", np.int32),
        ("U32", np.uint32),
        ("F32", np.float32),
        ("F64", np.float64),
        ("I64", np.int64),
        ("U64", np.uint64),
    )
}
_NAMES = {dtype: name for name, dtype in _SAFETENSORS.items()}


def read_tensor(text: str) -> Array:
    """Return the tensor that an argument names.

    Raise StorageError for a file that cannot be read, NpyError or SafetensorsError for one that is malformed or of a
    refused kind, ParameterError for a file of several tensors without a name, and UnknownNameError for another name.
    """
    path, name = Path(text), None
    for suffix in _SEVERAL:
        file, found, rest = text.rpartition(f"{suffix}:")
        if found:
            path, name = Path(f"{file}{suffix}"), rest
    try:
        if path.suffix == ".safetensors":
            return _from_safetensors(path, name)
        with path.open("rb"):
            return _from_numpy(path, name)
    except OSError as error:
        raise StorageError(f"{excerpt(str(path))} cannot be read: {error.strerror or error}") from None


def _from_numpy(path: Path, name: str | None) -> Array:
    try:
        loaded = np.load(path, allow_pickle=False)
    except (ValueError, EOFError, zipfile.BadZipFile) as error:
        raise NpyError(f"{excerpt(str(path))} is no .npy or .npz file: {excerpt(str(error))}") from None
    if isinstance(loaded, np.ndarray):
        return loaded
    with loaded:
        only = _only(path, loaded.files, name)
        try:
            array: Array = loaded[only]
        except (ValueError, EOFError, zipfile.BadZipFile) as error:
            raise NpyError(f"{excerpt(str(path))}: {excerpt(str(error))}") from None
    return array


def _from_safetensors(path: Path, name: str | None) -> Array:
    with path.open("rb") as file:

        def read(offset: int, length: int) -> bytes:
            file.seek(offset)
            return file.read(length)

        header: Header = read_header(read, path.stat().st_size)
        entries = {entry.name: entry for entry in header.tensors}
        entry = entries[_only(path, list(entries), name)]
        if entry.dtype not in _SAFETENSORS:
            detail = f"{excerpt(entry.name)} is {entry.dtype}; expected one of {', '.join(_SAFETENSORS)}"
            raise SafetensorsError(detail, tensor=entry.name)
        data = read(entry.begin, entry.end - entry.begin)
    return np.frombuffer(data, _SAFETENSORS[entry.dtype]).reshape(entry.shape)


def _only(path: Path, names: list[str], name: str | None) -> str:
    """Return the tensor that is meant: the one of that name, or the only one."""
    if name is not None:
        return entry_named({each: each for each in names}, name, f"tensor of {excerpt(path.name)}")
    if len(names) == 1:
        return names[0]
    shown = excerpt(", ".join(names))
    raise ParameterError(f"{excerpt(path.name)} has {len(names)} tensors; name one, {path.name}:NAME. It has {shown}")


def write_tensors(path: Path, outputs: Mapping[str, Array], stages: Mapping[str, Array]) -> None:
    """Write tensors: one output to `.npy`, all that there are to `.npz` or `.safetensors`.

    Raise ParameterError for a suffix that is none of these, and StorageError for a file that cannot be written.
    """
    try:
        if path.suffix == ".safetensors":
            _to_safetensors(path, {**outputs, **stages})
        elif path.suffix == ".npz":
            np.savez(path, allow_pickle=False, **{name: _known(each) for name, each in {**outputs, **stages}.items()})
        elif path.suffix == ".npy" and len(outputs) == 1:
            (array,) = outputs.values()
            np.save(path, _known(array), allow_pickle=False)
        else:
            expected = ".npy, .npz or .safetensors" if len(outputs) == 1 else ".npz or .safetensors"
            raise ParameterError(f"{excerpt(path.name)} has to end in {expected}")
    except OSError as error:
        raise StorageError(f"{excerpt(str(path))} cannot be written: {error.strerror or error}") from None


def _known(array: Array) -> Array:
    """Return an array whose dtype `.npy` has: of floats that numpy does not have, the bit patterns."""
    return array if array.dtype.kind in "iuf" and array.dtype.isbuiltin else array.view(f"u{array.dtype.itemsize}")


def _to_safetensors(path: Path, tensors: Mapping[str, Array]) -> None:
    kept = {name: each if each.dtype in _NAMES else _known(each) for name, each in tensors.items()}
    header = layout((name, _NAMES[each.dtype], each.shape) for name, each in kept.items())
    with path.open("wb") as file:
        file.write(head_bytes(header))
        for entry in header.tensors:
            file.write(np.ascontiguousarray(kept[entry.name]).tobytes())
