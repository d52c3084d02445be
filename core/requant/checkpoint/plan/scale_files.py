"""The files in which scales of activations are given (`requant.checkpoint.given_scales`).

*.json                           an object of names and numbers
*.safetensors, or a directory    the tensors with names of scales, of one element
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from numbers import Real
from typing import Any, Protocol

from requant.checkpoint.given_scales import Scales, in_order, number_of
from requant.checkpoint.plan.source import SAFETENSORS, Reserve, header_of, unlimited
from requant.checkpoint.safetensors.header import TensorEntry
from requant.checkpoint.small_json import parse_small_json
from requant.checkpoint.storage.location import open_folder, open_store
from requant.checkpoint.storage.store import Store, StoredFile, read_range
from requant.checkpoint.weights.floats import EPSILON
from requant.errors import ParameterError, SafetensorsError, StorageError, excerpt
from requant.errors.cancellation import checked

_MAX_BYTES = 64 << 20
_JSON = ".json"
# The text, the same decoded, and what is made of it.
_BYTES_PER_BYTE = 8


class Places(Protocol):
    """What opens the places that are named: a directory, and the folder of a file, with the file's name in it."""

    def source(self, name: str, /) -> Store:
        """Return the store of a directory. Raises StorageError."""

    def file(self, name: str, /) -> tuple[Store, str]:
        """Return the store of the folder of a file, and the file's name. Raises StorageError."""


@dataclass(frozen=True, slots=True)
class _Anywhere:
    def source(self, name: str) -> Store:
        return open_store(name)

    def file(self, name: str) -> tuple[Store, str]:
        return open_folder(name)


_ANYWHERE = _Anywhere()


def scales_from(
    given: Mapping[str, float] | str | os.PathLike[str],
    parameters: tuple[str, ...],
    places: Places = _ANYWHERE,
    reserve: Reserve = unlimited,
) -> Scales:
    """Return the scales of a mapping, or those at a path or URL, which `places` opens. `reserve` is asked for memory
    first, as by `read_source`.

    A `.json` file is an object of names and numbers. Of a `.safetensors` file, or of all those in a directory, the
    tensors count whose names end in `.` and one of `parameters`: BF16, F16 or F32, of one element.

    Raises ParameterError for what is none of these, and for no scale at all; StorageError.
    """
    where = "the mapping"
    if isinstance(given, Mapping):
        scales: Mapping[Any, Any] = given
    elif isinstance(given, str | os.PathLike):
        where = os.fspath(given)
        scales = (
            _in_json(where, places, reserve)
            if where.endswith(_JSON)
            else _in_tensors(where, parameters, places, reserve)
        )
    else:
        raise ParameterError(f"scales are {excerpt(repr(given))}; expected a mapping of names to numbers, or a path")
    if not scales:
        raise ParameterError(f"{where} has no scale; expected names such as {_examples(parameters)}")
    for name, number in scales.items():
        if not isinstance(name, str):
            raise ParameterError(f"{where} has the name {excerpt(repr(name))}; expected text")
        if isinstance(number, bool) or not isinstance(number, Real):
            raise ParameterError(f"{where} has no number for '{excerpt(name)}'")
    return in_order(scales)


def _examples(parameters: tuple[str, ...]) -> str:
    return " or ".join(f"X.{parameter}" for parameter in parameters)


def _in_json(location: str, places: Places, reserve: Reserve) -> Mapping[str, Any]:
    folder, name = places.file(location)
    file = folder.find(name)
    reserve(_BYTES_PER_BYTE * min(0 if file is None else file.size, _MAX_BYTES))
    data = None if file is None else folder.get(name, _MAX_BYTES)
    if data is None:
        raise StorageError(f"{location} does not exist: scales are in a JSON or safetensors file")
    try:
        parsed = parse_small_json(data, _MAX_BYTES)
    except ValueError as error:
        raise ParameterError(f"{location} is not JSON that is read: {excerpt(str(error))}") from None
    if not isinstance(parsed, dict):
        raise ParameterError(f'{location} is no object; expected {{"model.layers.0.mlp.up_proj": 0.0123, ...}}')
    return parsed


def _in_tensors(location: str, parameters: tuple[str, ...], places: Places, reserve: Reserve) -> dict[str, float]:
    """Return the scales of a file, or of the files of a directory."""
    if location.endswith(SAFETENSORS):
        store, name = places.file(location)
        files = [file for file in (store.find(name),) if file is not None]
    else:
        store = places.source(location)
        files = [file for file in store.files() if file.name.endswith(SAFETENSORS) and "/" not in file.name]
    if not files:
        raise StorageError(
            f"{location} does not exist: scales are in a JSON file, a safetensors file, or a directory with such files"
        )
    scales: dict[str, float] = {}
    for file in files:
        for entry, number in _of_file(store, file, parameters, reserve):
            if entry.name in scales:
                raise ParameterError(f"two files of {location} have '{excerpt(entry.name)}'")
            scales[entry.name] = number
    return scales


def _of_file(
    store: Store, file: StoredFile, parameters: tuple[str, ...], reserve: Reserve
) -> Iterator[tuple[TensorEntry, float]]:
    try:
        header = header_of(store, file, reserve)
    except SafetensorsError as error:
        raise ParameterError(f"{file.name} is no safetensors file: {error.detail}") from None
    for entry in checked(header.tensors):
        if entry.name.rpartition(".")[2] not in parameters:
            continue
        if entry.dtype not in EPSILON or math.prod(entry.shape) != 1:
            raise ParameterError(
                f"{file.name}: '{excerpt(entry.name)}' is {entry.dtype} {excerpt(str(list(entry.shape)))}; expected "
                f"one element of {', '.join(EPSILON)}: activations have one scale for the tensor"
            )
        yield entry, number_of(read_range(store, file, entry.begin, entry.end - entry.begin).tobytes(), entry.dtype)
