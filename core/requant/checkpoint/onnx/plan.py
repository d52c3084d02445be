"""The plan for an ONNX model: the new graph, and the place of each tensor in the new data file."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from requant.checkpoint.onnx.block_quantization import WeightForm
from requant.checkpoint.onnx.graph import (
    EXTERNAL,
    Message,
    TensorData,
    TensorFiles,
    attribute_tensors,
    graphs,
    parse_model,
    point_to,
    subgraphs,
    tensor_bytes,
)
from requant.checkpoint.onnx.rewrite import NodeReport, Rewriting, Weight
from requant.checkpoint.onnx.skeleton import read_skeleton
from requant.checkpoint.run.file_plan import FilePlan
from requant.checkpoint.storage.store import Store, StoredFile, file_named
from requant.errors import CheckpointError, excerpt

# Of tensors in the data file, in bytes: onnx asks for pages where the file is to be mapped.
_ALIGNMENT = 4096


@dataclass(frozen=True, slots=True)
class QuantizedWeight:
    """A weight, and where what it becomes begins in the data file. `zero_points`: None if symmetric."""

    weight: Weight
    codes: int
    scales: int
    zero_points: int | None


@dataclass(frozen=True, slots=True)
class CopiedTensor:
    """`size` bytes of a file, from `begin` on, that are carried over to `output_begin` of the data file."""

    file: StoredFile
    begin: int
    size: int
    output_begin: int


@dataclass(frozen=True, slots=True)
class OnnxPlan(FilePlan):
    """All that will be done. `model`: the bytes of the new model file; `data_size`: of the data file in bytes."""

    source: StoredFile
    output: str
    form: WeightForm
    model: bytes
    data_size: int
    weights: tuple[QuantizedWeight, ...]
    copies: tuple[CopiedTensor, ...]
    nodes: tuple[NodeReport, ...]
    gaps: tuple[tuple[int, int], ...]
    """Between tensors of the data file: where each begins and ends. They are zeros."""

    @property
    def data_output(self) -> str:
        """The name of the file with all external data."""
        return data_name(self.output)

    @property
    def sizes(self) -> dict[str, int]:
        return {self.output: len(self.model), self.data_output: self.data_size}

    @property
    def bytes_to_read(self) -> int:
        return sum(each.weight.data.size for each in self.weights) + sum(each.size for each in self.copies)

    def as_json(self) -> dict[str, Any]:
        return {
            "source": self.source.name,
            "output": self.output,
            "data": self.data_output,
            "output_bytes": len(self.model),
            "data_bytes": self.data_size,
            "profile": self.form.profile,
            "bits": self.form.bits,
            "block_size": self.form.block_size,
            "symmetric": self.form.symmetric,
            "nodes": [
                {
                    "node": each.node,
                    "operator": each.operator,
                    "weight": each.weight,
                    "shape": list(each.shape),
                    **({"kept": each.skip_reason} if each.skip_reason else {}),
                }
                for each in self.nodes
            ],
        }

    def lines(self) -> Iterable[str]:
        kind = "symmetric" if self.form.symmetric else "asymmetric"
        converted = sum(each.skip_reason is None for each in self.nodes)
        yield f"{self.source.name}: {len(self.nodes)} MatMul and Gemm nodes with constant weights"
        yield f"{self.output}: {len(self.model):,} bytes, {self.data_output}: {self.data_size:,} bytes"
        form = f"{self.form.operator}, {self.form.bits} bits, {kind}, blocks of {self.form.block_size}"
        yield f"{converted} weights quantized: {form}"
        for each in self.nodes:
            shape = "x".join(map(str, each.shape))
            yield f"  {each.operator} {each.node or '(no name)'} {each.weight} [{shape}]" + (
                f" stays: {each.skip_reason}" if each.skip_reason else ""
            )


def data_name(output: str) -> str:
    """Return the name of the data file beside a model file."""
    return f"{output}.data"


def plan_onnx(source: Store, name: str, output: str, form: WeightForm, *, ignore: Sequence[str] = ()) -> OnnxPlan:
    """Return the plan for the model file `name` of a store; nothing is written.

    `ignore`: names of nodes or of weights, or `re:` and a regular expression. All external data, and what is not small
    of the data in the model file itself, go to one file, `<output>.data`.

    Raises UnsupportedError where the package onnx is not installed; CheckpointError for a file that is no ONNX model, a
    name of one that is not UTF-8, external data that are not in the directory or not of the size of their tensor, a
    model without a weight that can be quantized, and DequantizeLinear for an opset below 21; and what the store raises.
    """
    for each in (name, output):
        try:
            each.encode()
        except UnicodeEncodeError:
            detail = (
                f"the name '{excerpt(each)}' is not UTF-8, as the names of files in an ONNX model are: choose another"
            )
            raise CheckpointError(detail, file=each) from None
    file = file_named(source, name)
    files = TensorFiles(source, name)
    model = parse_model(read_skeleton(source, file), name)
    rewriting = Rewriting(model, files, form, ignore)
    if not rewriting.weights:
        raise CheckpointError(_nothing_to_do(rewriting.nodes), file=file.name)
    placing = _Placing(data_name(output))
    weights = tuple(placing.weights(model, rewriting.weights))
    copies = tuple(placing.copies(model, files))
    model_bytes = model.SerializeToString(deterministic=True)
    nodes = tuple(rewriting.nodes)
    return OnnxPlan(file, output, form, model_bytes, placing.end, weights, copies, nodes, tuple(placing.gaps))


def _nothing_to_do(nodes: Sequence[NodeReport]) -> str:
    if not nodes:
        return (
            "no MatMul or Gemm of the model has an initializer as its weight: nothing can be quantized (weights in "
            "Constant nodes are not quantized)"
        )
    first = nodes[0]
    return f"no weight of the model can be quantized; for example '{excerpt(first.weight)}': {first.skip_reason}"


class _Placing:
    """Assigns tensors consecutive places in the data file."""

    def __init__(self, location: str) -> None:
        self.location, self.end = location, 0
        self.gaps: list[tuple[int, int]] = []
        self.new: set[str] = set()
        self.placed: dict[tuple[str, int, int], int] = {}
        self.quantized: dict[tuple[TensorData, str, int, int, bool], list[int]] = {}

    def place(self, tensor: Message, size: int) -> int:
        begin = -(-self.end // _ALIGNMENT) * _ALIGNMENT
        if begin > self.end:
            self.gaps.append((self.end, begin))
        self.end = begin + size
        point_to(tensor, self.location, begin, size)
        return begin

    def weights(self, model: Message, weights: Sequence[Weight]) -> Iterator[QuantizedWeight]:
        tensors = {tensor.name: tensor for graph in graphs(model.graph) for tensor in graph.initializer}
        for weight in weights:
            key = (weight.data, weight.dtype, weight.k, weight.n, weight.transposed)
            made = [tensors[name] for name in (weight.codes, weight.scales, weight.zero_points) if name is not None]
            sizes = [tensor_bytes(each) for each in made]
            self.new.update(each.name for each in made)
            if key in self.quantized:
                for each, begin, size in zip(made, self.quantized[key], sizes, strict=True):
                    point_to(each, self.location, begin, size)
                continue
            begins = [self.place(each, size) for each, size in zip(made, sizes, strict=True)]
            self.quantized[key] = begins
            yield QuantizedWeight(weight, begins[0], begins[1], begins[2] if len(begins) > 2 else None)

    def copies(self, model: Message, files: TensorFiles) -> Iterator[CopiedTensor]:
        for tensor in _all_tensors(model, files):
            if tensor.data_location != EXTERNAL or tensor.name in self.new:
                continue
            data = files.data_of(tensor)
            assert data.file is not None
            key = (data.file.name, data.begin, data.size)
            if key in self.placed:
                point_to(tensor, self.location, self.placed[key], data.size)
                continue
            self.placed[key] = self.place(tensor, data.size)
            yield CopiedTensor(data.file, data.begin, data.size, self.placed[key])


def _all_tensors(model: Message, files: TensorFiles) -> Iterator[Message]:
    inside_functions = [inner for function in model.functions for node in function.node for inner in subgraphs(node)]
    for graph in (each for outermost in (model.graph, *inside_functions) for each in graphs(outermost)):
        for sparse in graph.sparse_initializer:
            if EXTERNAL in (sparse.values.data_location, sparse.indices.data_location):
                raise files.error(sparse.values, "sparse tensors with external data are not supported")
        yield from graph.initializer
        yield from attribute_tensors(graph.node)
    for function in model.functions:
        yield from attribute_tensors(function.node)
