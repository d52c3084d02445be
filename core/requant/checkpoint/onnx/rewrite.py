"""Puts quantized weights into the graphs of a model. Names are those of onnxruntime's MatMulNBitsQuantizer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any

from requant.checkpoint.name_patterns import NamePatterns
from requant.checkpoint.onnx.block_quantization import Operator, WeightForm
from requant.checkpoint.onnx.graph import (
    INT4,
    UINT4,
    UINT8,
    WEIGHTS,
    Message,
    Scope,
    TensorData,
    TensorFiles,
    graphs,
    initializer_named,
    messages,
    node_names,
    subgraphs,
    used_names,
    value_names,
)
from requant.errors import CheckpointError

_ONNX = ("", "ai.onnx")
_CONTRIBUTED = "com.microsoft"
_OPSET, _IR_VERSION = 21, 10
_INT = 2


@dataclass(frozen=True, slots=True)
class Weight:
    """The weight of MatMul or Gemm, and the names of what it becomes. `transposed`: it is [N, K], not [K, N]."""

    name: str
    data: TensorData
    dtype: str
    k: int
    n: int
    transposed: bool
    codes: str
    scales: str
    zero_points: str | None


@dataclass(frozen=True, slots=True)
class NodeReport:
    """A MatMul or Gemm with a constant weight. `skip_reason`: why it stays as it is."""

    node: str
    operator: str
    weight: str
    shape: tuple[int, ...]
    skip_reason: str | None


class Rewriting:
    """Rewrites a model in place: `weights` are to be computed, `nodes` say what was done with each MatMul and Gemm.

    Raises CheckpointError for DequantizeLinear in blocks in a model of an opset below 21, and what
    `TensorFiles.data_of` raises.
    """

    def __init__(self, model: Message, files: TensorFiles, form: WeightForm, ignore: Sequence[str]) -> None:
        self.model, self.files, self.form = model, files, form
        self.ignored = NamePatterns(ignore)
        self.weights: list[Weight] = []
        self.nodes: list[NodeReport] = []
        self._value_names, self._node_names = _Names(value_names(model)), _Names(node_names(model))
        self._rewrite(model.graph, [])
        if self.weights:
            self._declare_operators()
            self._remove_unused()

    def _rewrite(self, graph: Message, above: list[Scope]) -> None:
        scopes = [*above, Scope.of(graph, self.files.model)]
        rewritten: list[Message] = []
        for node in graph.node:
            for inner in subgraphs(node):
                self._rewrite(inner, scopes)
            rewritten += self._replaced(node, scopes)
        del graph.node[:]
        graph.node.extend(rewritten)

    def _replaced(self, node: Message, scopes: list[Scope]) -> list[Message]:
        if (
            node.op_type not in ("MatMul", "Gemm")
            or node.domain not in _ONNX
            or len(node.input) < 2
            or len(node.output) != 1
        ):
            return [node]
        initializer = initializer_named(node.input[1], scopes)
        if initializer is None:
            return [node]
        tensor, scope = initializer
        if self.form.operator is Operator.DEQUANTIZE_LINEAR:
            # onnxruntime looks for the codes in the graph of the node only. Their bytes are in the file once.
            scope = scopes[-1]
        attributes = {attribute.name: attribute for attribute in node.attribute}
        transposed = node.op_type == "Gemm" and "transB" in attributes and attributes["transB"].i != 0
        reason = self._skip_reason(node, tensor, attributes, transposed)
        known = scope.weights.get(tensor.name)
        if reason is None and known is not None and known.transposed != transposed:
            reason = "its weight is used both transposed and not transposed"
        self.nodes.append(NodeReport(node.name, node.op_type, tensor.name, tuple(tensor.dims), reason))
        if reason is not None:
            return [node]
        weight = known or self._weight(tensor, scope, transposed)
        if self.form.operator is Operator.DEQUANTIZE_LINEAR:
            return self._dequantized(node, weight)
        return self._matmul_nbits(node, weight)

    def _skip_reason(
        self, node: Message, tensor: Message, attributes: dict[str, Message], transposed: bool
    ) -> str | None:
        if self.ignored.match(node.name) or self.ignored.match(tensor.name):
            return "ignored"
        if tensor.data_type not in WEIGHTS:
            return "its weight is not f32, f16 or bf16"
        if len(tensor.dims) != 2 or 0 in tensor.dims:
            return "its weight is not a matrix"
        if self.form.operator is Operator.DEQUANTIZE_LINEAR:
            return None
        if tensor.dims[1 if transposed else 0] % 2 and self.form.bits == 4:
            return "K is odd, but MatMulNBits packs two codes per byte"
        if node.op_type == "Gemm":
            scaled = any(name in attributes and attributes[name].f != 1 for name in ("alpha", "beta"))
            if scaled or ("transA" in attributes and attributes["transA"].i):
                return "MatMulNBits has no alpha, beta or transA"
        return None

    def _weight(self, tensor: Message, scope: Scope, transposed: bool) -> Weight:
        k, n = reversed(tensor.dims) if transposed else tensor.dims
        form, blocks, bits = self.form, self.form.blocks(k), self.form.bits
        if form.operator is Operator.MATMUL_NBITS:
            infix = ""
            codes = self._new(f"{tensor.name}_Q{bits}", UINT8, (n, blocks, form.block_size * bits // 8))
            scales_shape: tuple[int, ...] = (n, blocks)
            zero_points_type, zero_points_shape = UINT8, (n, -(-blocks * bits // 8))
        else:
            infix = "_DQ"
            zero_points_type = codes_type = INT4 if form.symmetric else UINT4
            codes = self._new(f"{tensor.name}_DQ_Q{bits}", codes_type, tuple(tensor.dims))
            scales_shape = zero_points_shape = (n, blocks) if transposed else (blocks, n)
        scales = self._new(f"{tensor.name}{infix}_scales", tensor.data_type, scales_shape)
        zero_points = None
        if not form.symmetric:
            zero_points = self._new(f"{tensor.name}{infix}_zero_points", zero_points_type, zero_points_shape)
        weight = Weight(
            tensor.name,
            self.files.data_of(tensor),
            WEIGHTS[tensor.data_type],
            k,
            n,
            transposed,
            codes.name,
            scales.name,
            zero_points.name if zero_points is not None else None,
        )
        scope.graph.initializer.extend([codes, scales] if zero_points is None else [codes, scales, zero_points])
        self.weights.append(weight)
        scope.weights[tensor.name] = weight
        return weight

    def _new(self, name: str, type_: int, shape: tuple[int, ...]) -> Message:
        tensor = messages().TensorProto()
        tensor.name, tensor.data_type = self._value_names.free(name), type_
        tensor.dims.extend(shape)
        return tensor

    def _name_after(self, new: Message, node: Message, suffix: str) -> None:
        """Give a node the name of the one that it is made from, and a suffix; none where that has none."""
        if node.name:
            new.name = self._node_names.free(f"{node.name}{suffix}")

    def _matmul_nbits(self, node: Message, weight: Weight) -> list[Message]:
        replaced = messages().NodeProto()
        replaced.op_type, replaced.domain = "MatMulNBits", _CONTRIBUTED
        self._name_after(replaced, node, f"_Q{self.form.bits}")
        replaced.input.extend([node.input[0], weight.codes, weight.scales])
        if weight.zero_points is not None:
            replaced.input.append(weight.zero_points)
        numbers = {"K": weight.k, "N": weight.n, "bits": self.form.bits, "block_size": self.form.block_size}
        for name, number in numbers.items():
            _set_int(replaced, name, number)
        bias = node.input[2] if len(node.input) > 2 else ""
        if not bias:
            replaced.output.append(node.output[0])
            return [replaced]
        replaced.output.append(self._value_names.free(f"{node.output[0]}_Q{self.form.bits}_without_bias"))
        added = messages().NodeProto()
        added.op_type = "Add"
        self._name_after(added, node, f"_Q{self.form.bits}_bias")
        added.input.extend([replaced.output[0], bias])
        added.output.append(node.output[0])
        return [replaced, added]

    def _dequantized(self, node: Message, weight: Weight) -> list[Message]:
        codes, bits = weight.codes, self.form.bits
        # One node for each use: onnxruntime fuses it with the only MatMul that reads it.
        dequantize = messages().NodeProto()
        dequantize.op_type = "DequantizeLinear"
        self._name_after(dequantize, node, f"_DQ_Q{bits}")
        dequantize.input.extend([codes, weight.scales])
        if weight.zero_points is not None:
            dequantize.input.append(weight.zero_points)
        dequantize.output.append(self._value_names.free(f"{codes}_output"))
        _set_int(dequantize, "axis", 1 if weight.transposed else 0)
        _set_int(dequantize, "block_size", self.form.block_size)
        product = messages().NodeProto()
        product.CopyFrom(node)
        self._name_after(product, node, f"_matmul_Q{bits}")
        product.input[1] = dequantize.output[0]
        return [dequantize, product]

    def _declare_operators(self) -> None:
        versions = {opset.domain: opset for opset in self.model.opset_import}
        if self.form.operator is Operator.MATMUL_NBITS:
            if _CONTRIBUTED not in versions:
                opset = self.model.opset_import.add()
                opset.domain, opset.version = _CONTRIBUTED, 1
            # From IR version 4 on initializers need not be inputs of the graph.
            self.model.ir_version = max(self.model.ir_version, 4)
            return
        version = max((opset.version for domain, opset in versions.items() if domain in _ONNX), default=0)
        if version < _OPSET:
            detail = (
                f"the model has opset {version}, but DequantizeLinear supports blocks only from opset {_OPSET} on: "
                "convert it with onnx.version_converter first, or use the scheme MatMulNBits4"
            )
            raise CheckpointError(detail, file=self.files.model)
        # From IR version 10 on tensors may be INT4 and UINT4.
        self.model.ir_version = max(self.model.ir_version, _IR_VERSION)

    def _remove_unused(self) -> None:
        used = used_names(self.model)
        replaced = {weight.name for weight in self.weights} - used
        for graph in graphs(self.model.graph):
            _remove(graph.initializer, replaced)
        # Before IR version 4 the initializers of the model's graph are inputs of it as well.
        _remove(self.model.graph.input, replaced)


def _remove(values: Any, names: set[str]) -> None:
    kept = [each for each in values if each.name not in names]
    if len(kept) < len(values):
        del values[:]
        values.extend(kept)


class _Names:
    """The names that are taken. None is ever given back."""

    def __init__(self, taken: set[str]) -> None:
        self._taken = taken
        self._next: dict[str, int] = {}

    def free(self, name: str) -> str:
        """Take a name that is free: this one, or with the first number that makes it one."""
        if name not in self._taken:
            self._taken.add(name)
            return name
        for number in count(self._next.get(name, 1)):
            free = f"{name}_{number}"
            if free not in self._taken:
                break
        self._next[name] = number + 1
        self._taken.add(free)
        return free


def _set_int(node: Message, name: str, number: int) -> None:
    attribute = node.attribute.add()
    attribute.name, attribute.type, attribute.i = name, _INT, number
