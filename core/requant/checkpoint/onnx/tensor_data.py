"""Where the elements of an initializer are stored: in the graph, in the model file, or in a separate file."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from requant.checkpoint.onnx.graph import ELEMENT_BITS, EXTERNAL, FLOAT, FLOAT16, Message
from requant.checkpoint.storage.store import Store, StoredFile, read_range
from requant.errors import CheckpointError, excerpt

Array = NDArray[Any]

_NUMBER = re.compile(r"[0-9]{1,19}", re.ASCII)
_ENTRIES = ("location", "offset", "length", "checksum", "basepath")


@dataclass(frozen=True, slots=True)
class TensorData:
    """The bytes of a tensor as raw_data has them: [begin, begin + size) of a file, or `inline` where `file` is None."""

    size: int
    file: StoredFile | None = None
    begin: int = 0
    inline: bytes = b""

    def read(self, store: Store, begin: int, size: int) -> Array:
        """Return some of the bytes as uint8. Raises what `Store.read_into` raises."""
        if self.file is None:
            return np.frombuffer(self.inline, "|u1", size, begin)
        return read_range(store, self.file, self.begin + begin, size)


class TensorFiles:
    """The files that external data may be in: those of the store, without links that lead out of it."""

    def __init__(self, store: Store, model: str) -> None:
        self.store, self.model = store, model
        self._found: dict[str, StoredFile | None] = {}

    def data_of(self, tensor: Message) -> TensorData:
        """Return where the elements of an initializer lie.

        Raises CheckpointError for a location that is not the plain relative path of a file of the store, offsets and
        lengths that are not within the file or not those of the tensor, and element types that are not known.
        """
        if tensor.data_type not in ELEMENT_BITS:
            raise self.error(tensor, f"it has the element type {tensor.data_type}, which has no fixed size")
        if any(dimension < 0 for dimension in tensor.dims):
            raise self.error(tensor, "it has a negative dimension")
        size = -(-prod(tensor.dims) * ELEMENT_BITS[tensor.data_type] // 8)
        if tensor.data_location == EXTERNAL:
            return self._external(tensor, size)
        inline = _inline_bytes(tensor)
        if len(inline) != size:
            raise self.error(tensor, f"it holds {len(inline)} bytes; its shape and type require {size}")
        return TensorData(size, inline=inline)

    def _external(self, tensor: Message, size: int) -> TensorData:
        entries: dict[str, str] = {}
        for entry in tensor.external_data:
            if entry.key in entries or entry.key not in _ENTRIES:
                raise self.error(tensor, f"'{excerpt(entry.key)}' in its external data is unknown or occurs twice")
            entries[entry.key] = entry.value
        location = entries.get("location", "")
        parts = location.split("/")
        plain = not any(part in ("", ".", "..") for part in parts) and "\\" not in location and ":" not in location
        if location != self.model and not plain:
            raise self.error(tensor, f"its data are at '{excerpt(location)}', which is not a plain relative path")
        if location not in self._found:
            self._found[location] = self.store.find(location)
        file = self._found[location]
        if file is None:
            raise self.error(tensor, f"its data are in '{excerpt(location)}', which does not exist")
        if location != self.model and self.store.leads_out(file):
            raise self.error(tensor, f"its data are in '{excerpt(location)}', a link that points outside the directory")
        begin = self._number(tensor, entries, "offset", 0)
        length = self._number(tensor, entries, "length", file.size - begin)
        if length != size:
            raise self.error(tensor, f"its data have {length} bytes; its shape and type require {size}")
        if begin + length > file.size:
            end = begin + length
            raise self.error(tensor, f"its data end at {end} of '{excerpt(location)}', which has {file.size} bytes")
        return TensorData(size, file, begin)

    def _number(self, tensor: Message, entries: Mapping[str, str], key: str, default: int) -> int:
        text = entries.get(key)
        if text is None:
            return default
        if not _NUMBER.fullmatch(text):
            raise self.error(tensor, f"the {key} of its data is '{excerpt(text)}', which is not a byte count")
        return int(text)

    def error(self, tensor: Message, detail: str) -> CheckpointError:
        """Return the error about a tensor."""
        return CheckpointError(f"'{excerpt(tensor.name)}': {detail}", file=self.model, tensor=tensor.name)


def _inline_bytes(tensor: Message) -> bytes:
    """Return the bytes in the form of raw_data. Only the types of weights are supported: others must be raw."""
    if tensor.HasField("raw_data"):
        return bytes(tensor.raw_data)
    if tensor.data_type == FLOAT:
        return np.array(tensor.float_data, "<f4").tobytes()
    if ELEMENT_BITS[tensor.data_type] == ELEMENT_BITS[FLOAT16]:
        return np.array(tensor.int32_data, "<i4").astype("<u2").tobytes()
    return b""
