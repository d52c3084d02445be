"""The graphs of a model: its nodes and tensors, those of subgraphs included, and what a name means in each."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from requant.checkpoint.onnx.messages import GRAPH, GRAPHS, Message
from requant.errors import CheckpointError, excerpt


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
