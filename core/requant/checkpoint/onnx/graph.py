"""The graphs of a model, those of subgraphs included, and what a name means in each; in onnx's protobuf messages, which
are imported where they are needed: the package `onnx` is an extra.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

from requant.errors import CheckpointError, UnsupportedError, excerpt

# A message of protobuf: its classes are made at run time.
Message = Any

FLOAT, FLOAT16, BFLOAT16 = 1, 10, 16
WEIGHTS = {FLOAT: "F32", FLOAT16: "F16", BFLOAT16: "BF16"}
"""The element types of weights that are quantized."""
UINT8, UINT4, INT4 = 2, 21, 22
INLINE, EXTERNAL = 0, 1
GRAPH, GRAPHS = 5, 10
ELEMENT_BITS = {
    1: 32,
    2: 8,
    3: 8,
    4: 16,
    5: 16,
    6: 32,
    7: 64,
    9: 8,
    10: 16,
    11: 64,
    12: 32,
    13: 64,
    14: 64,
    15: 128,
    16: 16,
    17: 8,
    18: 8,
    19: 8,
    20: 8,
    21: 4,
    22: 4,
    23: 4,
    24: 8,
    25: 2,
    26: 2,
}
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


def given_names(model: Message) -> set[str]:
    """Return all names that are given to values: inputs, initializers and outputs of nodes."""
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
