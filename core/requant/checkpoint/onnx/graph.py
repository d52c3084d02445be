"""The graphs of a model, those of subgraphs included, what a name means in each, and where the elements of a tensor are
stored: in the graph, in the model file, or in a separate file.

All is in onnx's protobuf messages, which are imported where they are needed: the package `onnx` is an extra.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from math import prod
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from requant.checkpoint.storage.store import Store, StoredFile, read_range
from requant.errors import CheckpointError, UnsupportedError, excerpt

Array = NDArray[Any]
# A message of protobuf: its classes are made at run time.
Message = Any

FLOAT, FLOAT16, BFLOAT16 = 1, 10, 16
WEIGHTS = {FLOAT: "F32", FLOAT16: "F16", BFLOAT16: "BF16"}
"""The element types of weights that are quantized."""
UINT8, UINT4, INT4 = 2, 21, 22
INLINE, EXTERNAL = 0, 1
GRAPH, GRAPHS = 5, 10
_NUMBERS_BY_BITS = {
    2: (25, 26),
    4: (21, 22, 23),
    8: (2, 3, 9, 17, 18, 19, 20, 24),
    16: (4, 5, 10, 16),
    32: (1, 6, 12),
    64: (7, 11, 13, 14),
    128: (15,),
}
ELEMENT_BITS = {number: bits for bits, numbers in _NUMBERS_BY_BITS.items() for number in numbers}
"""Bits of an element, by the numbers of TensorProto.DataType; strings (8) have none."""


def messages() -> ModuleType:
    """Return the module with the classes of onnx's messages. Raises UnsupportedError where onnx is not installed."""
    try:
        from onnx import onnx_ml_pb2
    except ImportError:
        raise UnsupportedError(
            "ONNX models need the package onnx: run pip install '.[onnx]' in the repository"
        ) from None
    module: ModuleType = onnx_ml_pb2
    return module


def parse_model(data: bytes, file: str) -> Message:
    """Return the ModelProto of some bytes. Raises CheckpointError where they are none, UnsupportedError."""
    module = messages()
    model = module.ModelProto()
    try:
        model.ParseFromString(data)
    except Exception:
        # google.protobuf.message.DecodeError, and RecursionError of its Python implementation.
        raise CheckpointError(f"{file} is not an ONNX model: protobuf cannot read it", file=file) from None
    if not model.ir_version or not model.HasField("graph"):
        raise CheckpointError(f"{file} is not an ONNX model: it has no IR version or no graph", file=file)
    return model


def subgraphs(node: Message) -> Iterator[Message]:
    """Yield the graphs among the attributes of a node."""
    for attribute in node.attribute:
        if attribute.type == GRAPH:
            yield attribute.g
        elif attribute.type == GRAPHS:
            yield from attribute.graphs


def graphs(graph: Message) -> Iterator[Message]:
    """Yield a graph and all that are nested in it."""
    yield graph
    for node in graph.node:
        for inner in subgraphs(node):
            yield from graphs(inner)


def attribute_tensors(nodes: Iterator[Message] | list[Message]) -> Iterator[Message]:
    """Yield the tensors among the attributes of nodes."""
    for node in nodes:
        for attribute in node.attribute:
            if attribute.HasField("t"):
                yield attribute.t
            yield from attribute.tensors


def used_names(model: Message) -> set[str]:
    """Return all names that nodes read or graphs return."""
    names: set[str] = set()
    for graph in graphs(model.graph):
        names.update(name for node in graph.node for name in node.input)
        names.update(output.name for output in graph.output)
    return names


def value_names(model: Message) -> set[str]:
    """Return the names of all values: inputs, initializers and outputs of nodes."""
    names: set[str] = set()
    for graph in graphs(model.graph):
        names.update(value.name for value in (*graph.input, *graph.initializer))
        names.update(sparse.values.name for sparse in graph.sparse_initializer)
        names.update(name for node in graph.node for name in node.output)
    return names


def node_names(model: Message) -> set[str]:
    """Return the names of all nodes."""
    return {node.name for graph in graphs(model.graph) for node in graph.node}


@dataclass(frozen=True, slots=True)
class Scope:
    """A graph, its initializers by name, and the names that have another meaning in it."""

    graph: Message
    initializers: dict[str, Message] = field(default_factory=dict)
    others: set[str] = field(default_factory=set)
    weights: dict[str, Any] = field(default_factory=dict)
    """What was made of its initializers so far, by their names."""

    @classmethod
    def of(cls, graph: Message, file: str) -> Scope:
        """Return the scope of a graph. Raises CheckpointError for two initializers of one name."""
        scope = cls(graph)
        for tensor in graph.initializer:
            if tensor.name in scope.initializers:
                detail = f"a graph has two initializers '{excerpt(tensor.name)}'"
                raise CheckpointError(detail, file=file, tensor=tensor.name)
            scope.initializers[tensor.name] = tensor
        scope.others.update(value.name for value in graph.input)
        scope.others.update(name for node in graph.node for name in node.output)
        scope.others.difference_update(scope.initializers)
        return scope


def initializer_named(name: str, scopes: list[Scope]) -> tuple[Message, Scope] | None:
    """Return the initializer that a name means in the innermost scope, and the scope that has it; None for others."""
    for scope in reversed(scopes):
        if name in scope.initializers:
            return scope.initializers[name], scope
        if name in scope.others:
            return None
    return None


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


def tensor_bytes(tensor: Message) -> int:
    """Return the bytes that the elements of a tensor take, from its shape and type."""
    bits: int = prod(tensor.dims) * ELEMENT_BITS[tensor.data_type]
    return -(-bits // 8)


def point_to(tensor: Message, location: str, begin: int, size: int) -> None:
    """Make bytes of a file the data of a tensor."""
    tensor.data_location = EXTERNAL
    del tensor.external_data[:]
    for key, value in (("location", location), ("offset", str(begin)), ("length", str(size))):
        tensor.external_data.add(key=key, value=value)


class TensorFiles:
    """The files that external data may be in: those of the store, without links that lead out of it."""

    def __init__(self, store: Store, model: str) -> None:
        self.store, self.model = store, model
        self._files: dict[str, StoredFile | None] = {}

    def data_of(self, tensor: Message) -> TensorData:
        """Return where the elements of an initializer lie.

        Raises CheckpointError for a location that is not the plain relative path of a file of the store, offsets and
        lengths that are not within the file or not those of the tensor, and element types that are not known.
        """
        if tensor.data_type not in ELEMENT_BITS:
            raise self.error(tensor, f"it has the element type {tensor.data_type}, which has no fixed size")
        if any(dimension < 0 for dimension in tensor.dims):
            raise self.error(tensor, "it has a negative dimension")
        size = tensor_bytes(tensor)
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
        if location not in self._files:
            self._files[location] = self.store.find(location)
        file = self._files[location]
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
