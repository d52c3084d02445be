"""Scales of activations that were found with data, and are given: their names, and the files that hold them.

    X.input_scale         of the inputs of the linear module X, where they are FP8 with one scale:
                          largest magnitude / 448
    X.input_global_scale  likewise, where they are NVFP4: 448 * 6 / largest magnitude
    X.k_scale, X.v_scale  of what the attention module X keeps of keys and values, in FP8: largest magnitude / 448

Source: compressed-tensors 0.20.0, `initialize_qparams` (`quantization/lifecycle/initialize.py`) and `generate_gparam`
(`quantization/utils/helpers.py`).
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Mapping
from numbers import Real
from typing import Any

import numpy as np

from requant.checkpoint.safetensors.header import DTYPES, TensorEntry
from requant.checkpoint.safetensors.reader import read_header
from requant.checkpoint.small_json import parse_small_json
from requant.checkpoint.storage.location import open_folder, open_store
from requant.checkpoint.storage.store import Store, StoredFile, read_range
from requant.checkpoint.weights.floats import EPSILON, bits_of, values
from requant.errors import ParameterError, SafetensorsError, StorageError, excerpt

INPUT_SCALE, INPUT_GLOBAL_SCALE = "input_scale", "input_global_scale"
OF_INPUTS = (INPUT_SCALE, INPUT_GLOBAL_SCALE)
OF_KV_CACHE = ("k_scale", "v_scale")

Scales = tuple[tuple[str, float], ...]
"""Names and numbers, in the order of the names."""

_MAX_BYTES = 64 << 20
_JSON, _SAFETENSORS = ".json", ".safetensors"


def scales_from(given: Mapping[str, float] | str | os.PathLike[str], parameters: tuple[str, ...]) -> Scales:
    """Return the scales of a mapping, or those at a path or URL.

    A `.json` file is an object of names and numbers. Of a `.safetensors` file, or of all those in a directory, the
    tensors count whose names end in `.` and one of `parameters`: BF16, F16 or F32, of one element.

    Raises ParameterError for what is none of these, and for no scale at all; StorageError.
    """
    where = "the mapping"
    if isinstance(given, Mapping):
        scales: Mapping[Any, Any] = given
    elif isinstance(given, str | os.PathLike):
        where = os.fspath(given)
        scales = _in_json(where) if where.endswith(_JSON) else _in_tensors(where, parameters)
    else:
        raise ParameterError(f"scales are {excerpt(repr(given))}; expected a mapping of names to numbers, or a path")
    if not scales:
        raise ParameterError(f"{where} has no scale; expected names such as {_examples(parameters)}")
    for name, number in scales.items():
        if not isinstance(name, str):
            raise ParameterError(f"{where} has the name {excerpt(repr(name))}; expected text")
        if isinstance(number, bool) or not isinstance(number, Real):
            raise ParameterError(f"{where} has {excerpt(repr(number))} for '{excerpt(name)}'; expected a number")
    return in_order(scales)


def in_order(scales: Mapping[str, float]) -> Scales:
    """Return scales in the order of their names. An integer that f64 does not reach is infinite."""
    return tuple((name, _as_float(number)) for name, number in sorted(scales.items()))


def bytes_of(number: float, dtype: str) -> bytes:
    """Return a number as it is stored: rounded to f32, then to BF16, F16 or F32, to the nearest, ties to even."""
    with np.errstate(over="ignore", under="ignore"):
        in_f32 = np.array([number], np.float64).astype("<f4")
        # By numpy: a kernel for it might be the only one that has to be compiled.
        return in_f32.astype("<f2").tobytes() if dtype == "F16" else bits_of(in_f32, dtype).tobytes()


def number_of(data: bytes, dtype: str) -> float:
    """Return the number that BF16, F16 or F32 stand for."""
    if dtype == "F16":
        return float(np.frombuffer(data, "<f2")[0])
    return float(values(np.frombuffer(data, DTYPES[dtype].array), dtype)[0])


def _as_float(number: float) -> float:
    try:
        return float(number)
    except OverflowError:
        return math.inf


def _examples(parameters: tuple[str, ...]) -> str:
    return " or ".join(f"X.{parameter}" for parameter in parameters)


def _in_json(location: str) -> Mapping[str, Any]:
    folder, name = open_folder(location)
    data = folder.get(name, _MAX_BYTES)
    if data is None:
        raise StorageError(f"{location} does not exist: scales are in a JSON or safetensors file")
    try:
        parsed = parse_small_json(data, _MAX_BYTES)
    except ValueError as error:
        raise ParameterError(f"{location} is not JSON that is read: {excerpt(str(error))}") from None
    if not isinstance(parsed, dict):
        raise ParameterError(f'{location} is no object; expected {{"model.layers.0.mlp.up_proj": 0.0123, ...}}')
    return parsed


def _in_tensors(location: str, parameters: tuple[str, ...]) -> dict[str, float]:
    """Return the scales of a file, or of the files of a directory."""
    if location.endswith(_SAFETENSORS):
        store, name = open_folder(location)
        files = [file for file in (store.find(name),) if file is not None]
    else:
        store = open_store(location)
        files = [file for file in store.files() if file.name.endswith(_SAFETENSORS) and "/" not in file.name]
    if not files:
        raise StorageError(
            f"{location} does not exist: scales are in a JSON file, a safetensors file, or a directory with such files"
        )
    scales: dict[str, float] = {}
    for file in files:
        for entry, number in _of_file(store, file, parameters):
            if entry.name in scales:
                raise ParameterError(f"two files of {location} have '{excerpt(entry.name)}'")
            scales[entry.name] = number
    return scales


def _of_file(store: Store, file: StoredFile, parameters: tuple[str, ...]) -> Iterator[tuple[TensorEntry, float]]:
    try:
        header = read_header(lambda offset, length: read_range(store, file, offset, length).tobytes(), file.size)
    except SafetensorsError as error:
        raise ParameterError(f"{file.name} is no safetensors file: {error.detail}") from None
    for entry in header.tensors:
        if entry.name.rpartition(".")[2] not in parameters:
            continue
        if entry.dtype not in EPSILON or math.prod(entry.shape) != 1:
            raise ParameterError(
                f"{file.name}: '{excerpt(entry.name)}' is {entry.dtype} {excerpt(str(list(entry.shape)))}; expected "
                f"one element of {', '.join(EPSILON)}: activations have one scale for the tensor"
            )
        yield entry, number_of(read_range(store, file, entry.begin, entry.end - entry.begin).tobytes(), entry.dtype)
