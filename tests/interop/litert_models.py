"""One-operator LiteRT models: built with the schema that ai-edge-litert carries, run by a resolver of choice."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import flatbuffers
import numpy as np
from ai_edge_litert import schema_py_generated as schema
from ai_edge_litert.interpreter import Interpreter, OpResolverType
from numpy.typing import NDArray

Array = NDArray[Any]

QUANTIZE = int(schema.BuiltinOperator.QUANTIZE)
DEQUANTIZE = int(schema.BuiltinOperator.DEQUANTIZE)
REFERENCE = OpResolverType.BUILTIN_REF
DEFAULT = OpResolverType.AUTO
"""The resolver that an interpreter has unless told otherwise: the XNNPACK delegate takes what it can."""

TYPES: dict[str, int] = {
    "f32": schema.TensorType.FLOAT32,
    "i2": schema.TensorType.INT2,
    "i4": schema.TensorType.INT4,
    "u4": schema.TensorType.UINT4,
    "i8": schema.TensorType.INT8,
    "u8": schema.TensorType.UINT8,
    "i16": schema.TensorType.INT16,
    "i32": schema.TensorType.INT32,
    "i64": schema.TensorType.INT64,
}


class Operand(NamedTuple):
    """The type of an input or output. Without scales it is not quantized; with several, along `axis`."""

    type: str
    scales: Array | None = None
    zero_points: Array | None = None
    axis: int = 0


def _tensor(name: str, shape: tuple[int, ...], operand: Operand) -> Any:
    tensor = schema.TensorT()
    tensor.name, tensor.shape, tensor.type, tensor.buffer = name, list(shape), TYPES[operand.type], 0
    if operand.scales is not None and operand.zero_points is not None:
        parameters = schema.QuantizationParametersT()
        parameters.scale = operand.scales.ravel().tolist()
        parameters.zeroPoint = operand.zero_points.ravel().tolist()
        parameters.quantizedDimension = operand.axis
        tensor.quantization = parameters
    return tensor


def _packed(numbers: Array, type_: str) -> Array:
    """The bytes of a constant: of 4 and of 2 bits the first in the lowest bits, without a gap between rows."""
    if type_ not in ("i2", "i4", "u4"):
        return np.ascontiguousarray(numbers).view(np.uint8).ravel()
    width = int(type_[1:])
    places = np.arange(0, 8, width)
    codes = numbers.ravel().astype(np.uint8) & (2**width - 1)
    filled = np.pad(codes, (0, -codes.size % places.size)).reshape(-1, places.size)
    found: Array = (filled << places).sum(1).astype(np.uint8)
    return found


def fake_quant(shape: tuple[int, ...], low: float, high: float, num_bits: int) -> bytes:
    """A model of one FAKE_QUANT. With a narrow range LiteRT does not run it."""
    options = schema.FakeQuantOptionsT()
    options.min, options.max, options.numBits = low, high, num_bits
    return one_operator(
        int(schema.BuiltinOperator.FAKE_QUANT),
        shape,
        Operand("f32"),
        Operand("f32"),
        (int(schema.BuiltinOptions.FakeQuantOptions), options),
    )


def one_operator(
    operator: int,
    shape: tuple[int, ...],
    source: Operand,
    target: Operand,
    options: tuple[int, Any] | None = None,
) -> bytes:
    """A model of one operator with one input and one output, both of `shape`. `options`: their kind, and they."""
    return model_of(operator, [(shape, source)], (shape, target), options)


def model_of(
    operator: int,
    inputs: Sequence[tuple[tuple[int, ...], Operand] | tuple[tuple[int, ...], Operand, Array]],
    output: tuple[tuple[int, ...], Operand],
    options: tuple[int, Any] | None = None,
    version: int = 1,
) -> bytes:
    """A model of one operator. Inputs with an array are constants of the model; the others are set for a run."""
    code = schema.OperatorCodeT()
    code.builtinCode = code.deprecatedBuiltinCode = operator
    code.version = version
    node = schema.OperatorT()
    node.opcodeIndex, node.inputs, node.outputs = 0, list(range(len(inputs))), [len(inputs)]
    if options is not None:
        node.builtinOptionsType, node.builtinOptions = options
    graph = schema.SubGraphT()
    model = schema.ModelT()
    model.buffers = [schema.BufferT()]
    graph.tensors, graph.inputs = [], []
    for index, (shape, operand, *constant) in enumerate([*inputs, output]):
        tensor = _tensor(f"t{index}", shape, operand)
        if constant:
            buffer = schema.BufferT()
            buffer.data = _packed(constant[0], operand.type)
            tensor.buffer = len(model.buffers)
            model.buffers.append(buffer)
        elif index < len(inputs):
            graph.inputs.append(index)
        graph.tensors.append(tensor)
    graph.outputs, graph.operators = [len(inputs)], [node]
    model.version, model.operatorCodes, model.subgraphs = 3, [code], [graph]
    return packed_model(model)


def packed_model(model: Any) -> bytes:
    """A model as the bytes of its file."""
    builder = flatbuffers.Builder(1024)
    builder.Finish(model.Pack(builder), b"TFL3")
    return bytes(builder.Output())


def run(model: bytes, x: Array, resolver: Any) -> Array:
    """The output of the model for `x`."""
    return run_inputs(model, [x], resolver)


def run_inputs(model: bytes, inputs: Sequence[Array], resolver: Any) -> Array:
    """The output of the model for the inputs that are no constants."""
    interpreter = Interpreter(model_content=model, experimental_op_resolver_type=resolver, num_threads=1)
    interpreter.allocate_tensors()
    for detail, array in zip(interpreter.get_input_details(), inputs, strict=True):
        interpreter.set_tensor(detail["index"], array)
    interpreter.invoke()
    return np.array(interpreter.get_tensor(interpreter.get_output_details()[0]["index"]))
