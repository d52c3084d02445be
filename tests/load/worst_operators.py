"""For each operator of another system, the most expensive calls that a body of some size holds.

Every operator has its example with the first operand as large as the body allows; where that does not work or is not
what costs most, it has calls of its own here. Each is sent in JSON and as a model.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from math import isqrt, prod
from typing import Any

import numpy as np

from requant.mlir import parse_type, print_type
from requant.mlir.types import TensorType
from requant.operators.description import Operator
from requant.operators.element_names import container
from requant.operators.registry import OPERATORS
from requant.operators.separate_parameters import MAX_FACTORS, MAX_SCALES
from requant_service.json_api.catalog.operators import route_path
from tests.load.case import Array, Case, json_case, noise, numbers, positive, scale_list, tensor
from tests.support.oip_wire import Input, body_of

# Bytes of all tensors of a call: of 64 MiB, and of 8 MiB in base64 with a MiB for attributes.
_BINARY_BYTES = 62 << 20
_JSON_BYTES = 5 << 20
_MAX_ENTRIES = 65_536
_SCALES_OF_TYPE = 50_000
_ELEMENTS = {"f4": "f32", "i1": "i8", "u1": "ui8", "i4": "i32", "i8": "i64"}


@dataclass(frozen=True)
class Operand:
    """A tensor. `element`: its element type in MLIR's spelling, where the dtype does not say it."""

    array: Array
    element: str = ""

    @property
    def natural(self) -> str:
        """What the dtype says."""
        return _ELEMENTS[self.array.dtype.str[1:]]

    @property
    def type(self) -> str:
        return f"tensor<{''.join(f'{size}x' for size in self.array.shape)}{self.element or self.natural}>"


@dataclass(frozen=True)
class Call:
    """A call of an operator. Its operands are made when it is sent."""

    what: str
    operands: Callable[[], dict[str, Operand]]
    attributes: dict[str, Any] = field(default_factory=dict)


Calls = Callable[[int], Iterator[Call]]


def _million(count: int) -> str:
    return f"{count / 1e6:.1f} million" if count >= 100_000 else str(count)


def _grown(operator: Operator) -> Calls:
    """The example with a first operand that takes nearly all bytes; the size along the axis of scales stays."""

    def calls(budget: int) -> Iterator[Call]:
        example = operator.example
        (first, head), *rest = example["inputs"].items()
        attributes = dict(example.get("attributes") or {})
        type_ = parse_type(head["type"])
        assert isinstance(type_, TensorType)
        shape, dtype = [size or 1 for size in type_.shape or ()], container(type_.element)
        assert dtype is not None
        grows = 1 if attributes.get("axis") == 0 and rest else 0
        shape[grows] *= (budget - 4096) // (prod(shape) * dtype.itemsize)

        def operands() -> dict[str, Operand]:
            found = {first: Operand(noise(tuple(shape), dtype.str[1:]), print_type(type_.element))}
            for name, given in rest:
                other = parse_type(given["type"])
                assert isinstance(other, TensorType)
                kept = container(other.element)
                sizes = [size or 0 for size in other.shape or ()]
                found[name] = Operand(np.array(given["values"], kept).reshape(sizes), print_type(other.element))
            return found

        yield Call(f"{_million(prod(shape))} elements", operands, attributes)

    return calls


def _channels(scales: str, zeros: str | None, input_: str, attributes: Any = None, element: str = "f4") -> Calls:
    """As many channels as there may be, of 4 elements each."""
    size = 4 * np.dtype(element).itemsize + 8

    def calls(budget: int) -> Iterator[Call]:
        count = min(MAX_SCALES, budget // size)

        def operands() -> dict[str, Operand]:
            found = {input_: Operand(noise((4, count), element)), scales: Operand(positive((count,)))}
            if zeros is not None:
                found[zeros] = Operand(np.full(count, 3, "i1" if input_ == "x" else "i4"))
            return found

        yield Call(f"{_million(count)} channels", operands, {"axis": 1, **(attributes or {})})

    return calls


def _tokens(dtype: str) -> Calls:
    """Tokens of one element each."""

    def calls(budget: int) -> Iterator[Call]:
        count = budget // 12
        yield Call(
            f"{_million(count)} tokens",
            lambda: {
                "input": Operand(noise((count, 1), dtype)),
                "scales": Operand(positive((count, 1))),
                "zero_points": Operand(np.zeros((count, 1), "i4")),
            },
            {"quant_min": -128, "quant_max": 127, "dtype": "int8"},
        )

    return calls


def _groups(dtype: str) -> Calls:
    """As many groups as there may be, of as many elements as there is room for."""
    itemsize = np.dtype(dtype).itemsize

    def calls(budget: int) -> Iterator[Call]:
        count = min(MAX_SCALES, budget // (2 * itemsize + 8))
        size = (budget - 8 * count) // (count * itemsize)
        yield Call(
            f"{_million(count)} groups",
            lambda: {
                "input": Operand(noise((1, count * size), dtype) & 7 if dtype == "i1" else
                                 noise((1, count * size), dtype)),
                "scales": Operand(positive((1, count))),
                "zero_points": Operand(np.zeros((1, count), "i4")),
            },
            {"quant_min": -8, "quant_max": 7, "dtype": "int8", "group_size": size},
        )  # fmt: skip

    return calls


def _quantize_linear(budget: int) -> Iterator[Call]:
    yield from _channels("y_scale", "y_zero_point", "x")(budget)
    count = min(15 << 20, budget * 4 // 17) // 16 * 16
    yield Call(
        "a scale for each 16 elements",
        lambda: {"x": Operand(noise((count,))), "y_scale": Operand(positive((count // 16,)))},
        {"axis": 0, "block_size": 16, "output_dtype": 3},
    )


def _dequantize_linear(budget: int) -> Iterator[Call]:
    yield from _channels("x_scale", "x_zero_point", "x", element="i1")(budget)
    scales = min(MAX_SCALES, budget // 5)
    size = (budget - 4 * scales) // scales
    yield Call(
        f"a scale for each {size} elements",
        lambda: {"x": Operand(noise((scales * size,), "i1")), "x_scale": Operand(positive((scales,)))},
        {"axis": 0, "block_size": size},
    )


def _dynamic_dequantize(budget: int) -> Iterator[Call]:
    yield from _channels("scales", None, "src", {"qtype": "per_channel"}, "i1")(budget)
    scales = min(MAX_SCALES, budget // 6)
    size = (budget - 4 * scales) // scales
    yield Call(
        f"a scale for each {size} elements",
        lambda: {"src": Operand(noise((1, scales * size), "i1")), "scales": Operand(positive((1, scales)))},
        {"qtype": "per_group", "group_shape": [1, size]},
    )


def _scale_lists(dtype: str, **attributes: Any) -> Calls:
    """As many scales and zero points as an attribute may list."""

    def calls(budget: int) -> Iterator[Call]:
        rows = budget // (_MAX_ENTRIES * np.dtype(dtype).itemsize)
        scales = [float(f"{each:.8g}") for each in numbers(_MAX_ENTRIES)]
        yield Call(
            f"{_MAX_ENTRIES} scales",
            lambda: {"src": Operand(noise((rows, _MAX_ENTRIES), dtype))},
            {"qtype": "per_channel", "axis": 1, "scales": scales, "zps": [0] * _MAX_ENTRIES, **attributes},
        )

    return calls


def _quantized_type() -> str:
    return f"!quant.uniform<i8:f32:1, {scale_list(_SCALES_OF_TYPE, 1.0)}>"


def _to_type(input_: str, **attributes: Any) -> Calls:
    """A type of many scales, to which real numbers go."""

    def calls(budget: int) -> Iterator[Call]:
        rows = (budget - (1 << 20)) // (4 * _SCALES_OF_TYPE)
        yield Call(
            f"{_SCALES_OF_TYPE} scales",
            lambda: {input_: Operand(noise((rows, _SCALES_OF_TYPE)))},
            {"output_type": _quantized_type(), **attributes},
        )

    return calls


def _from_type(input_: str, **attributes: Any) -> Calls:
    """A type of many scales, from which real or stored numbers come."""

    def calls(budget: int) -> Iterator[Call]:
        rows = (budget - (1 << 20)) // _SCALES_OF_TYPE
        yield Call(
            f"{_SCALES_OF_TYPE} scales",
            lambda: {input_: Operand(noise((rows, _SCALES_OF_TYPE), "i1"), _quantized_type())},
            attributes,
        )

    return calls


def _matmul_shapes(budget: int) -> Iterator[tuple[str, tuple[int, ...], tuple[int, ...]]]:
    # 2^33 products at most.
    side = min(2000, isqrt(budget // 2))
    yield f"{side} cubed", (side, side), (side, side)
    row = isqrt(budget) - 1
    yield f"one row by {row} squared", (1, row), (row, row)
    yield "60000 products of 1 by 1", (60_000, 1, 1), (60_000, 1, 1)


def _matmul_integer(budget: int) -> Iterator[Call]:
    for what, a, b in _matmul_shapes(budget):
        yield Call(
            what,
            lambda a=a, b=b: {"A": Operand(noise(a, "u1")), "B": Operand(noise(b, "u1"))},  # type: ignore[misc]
        )


def _qlinear_matmul(budget: int) -> Iterator[Call]:
    def operands(a: tuple[int, ...], b: tuple[int, ...], columns: tuple[int, ...] = ()) -> dict[str, Operand]:
        return {
            "a": Operand(noise(a, "u1")),
            "a_scale": Operand(np.array(0.0066, "f4")),
            "a_zero_point": Operand(np.array(113, "u1")),
            "b": Operand(noise(b, "i1")),
            "b_scale": Operand(positive(columns)),
            "b_zero_point": Operand(np.full(columns, 3, "i1")),
            "y_scale": Operand(np.array(10.7, "f4")),
            "y_zero_point": Operand(np.array(118, "u1")),
        }

    for what, a, b in _matmul_shapes(budget):
        yield Call(what, lambda a=a, b=b: operands(a, b))  # type: ignore[misc]
    columns = min(MAX_FACTORS, budget // 6)
    yield Call(f"a scale for each of {_million(columns)} columns", lambda: operands((1, 1), (1, columns), (columns,)))


def _conv_shapes(budget: int) -> Iterator[tuple[str, tuple[int, ...], tuple[int, ...], dict[str, Any]]]:
    yield "1x1 input, pads of 2040", (1, 1, 1, 1), (1, 1, 16, 32), {"pads": [2040] * 4}
    yield "one channel to 16", (1, 1, 1000, 1000), (16, 1, 17, 17), {}
    yield "depthwise by 2", (1, 256, 128, 128), (512, 1, 10, 10), {"group": 256}
    if budget > 10 << 20:
        yield "one channel, wide kernel", (1, 1, 3000, 3000), (1, 1, 27, 27), {}
    else:
        yield "one channel, wide kernel", (1, 1, 1200, 1200), (1, 1, 81, 81), {}


def _conv_integer(budget: int) -> Iterator[Call]:
    for what, x, w, attributes in _conv_shapes(budget):
        yield Call(
            what,
            lambda x=x, w=w: {"x": Operand(noise(x, "u1")), "w": Operand(noise(w, "u1"))},  # type: ignore[misc]
            attributes,
        )
    yield Call(
        "three dimensions, padded",
        lambda: {
            "x": Operand(noise((1, 1, 1, 8, 8), "u1")),
            "w": Operand(noise((1, 1, 100, 3, 3), "u1")),
        },
        {"pads": [20_000, 0, 0, 20_000, 0, 0]},
    )


def _qlinear_conv(budget: int) -> Iterator[Call]:
    def operands(x: tuple[int, ...], w: tuple[int, ...]) -> dict[str, Operand]:
        channels = w[0]
        return {
            "x": Operand(noise(x, "u1")),
            "x_scale": Operand(np.array(0.00369, "f4")),
            "x_zero_point": Operand(np.array(132, "u1")),
            "w": Operand(noise(w, "i1")),
            "w_scale": Operand(positive((channels,))),
            "w_zero_point": Operand(np.array(0, "i1")),
            "y_scale": Operand(np.array(16.2, "f4")),
            "y_zero_point": Operand(np.array(123, "u1")),
            "B": Operand(noise((channels,), "i4") >> 12),
        }

    for what, x, w, attributes in _conv_shapes(budget):
        yield Call(what, lambda x=x, w=w: operands(x, w), attributes)  # type: ignore[misc]
    channels = min(MAX_FACTORS, budget // 10)
    yield Call(f"{_million(channels)} channels", lambda: operands((1, 1, 1, 1), (channels, 1, 1, 1)))


def _rescale(budget: int) -> Iterator[Call]:
    rows = budget // (4 * _MAX_ENTRIES) - 2
    yield Call(
        f"{_MAX_ENTRIES} multipliers",
        lambda: {
            "input": Operand(noise((rows, _MAX_ENTRIES), "i4")),
            "multiplier": Operand(np.full(_MAX_ENTRIES, 1 << 30, "i4")),
            "shift": Operand(np.full(_MAX_ENTRIES, 35, "i1")),
            "input_zp": Operand(np.zeros(1, "i4")),
            "output_zp": Operand(np.zeros(1, "i1")),
        },
        {"per_channel": True},
    )


def _from_block_scaled(budget: int) -> Iterator[Call]:
    # The output is f32, and takes four times as much.
    rows = budget // 33
    yield Call(
        f"{_million(32 * rows)} elements",
        lambda: {
            "input_data": Operand(noise((rows, 32), "i1")),
            "input_scale": Operand(noise((rows, 1), "u1") & 0x7F, "f8E8M0FNU"),
        },
    )


_BOUNDS = {"quant_min": 0, "quant_max": 255}
_TYPED = {**_BOUNDS, "dtype": "uint8"}
_TORCH_CHANNELS = ("scales", "zero_points", "input")
_DECOMPOSED = "torch.quantized_decomposed."

# Instead of the example that is made larger.
_OWN: dict[str, Calls] = {
    "onnx.DequantizeLinear": _dequantize_linear,
    "onnx.MatMulInteger": _matmul_integer,
    "onnx.ConvInteger": _conv_integer,
    "onnx.QLinearMatMul": _qlinear_matmul,
    "onnx.QLinearConv": _qlinear_conv,
    "onednn.DynamicDequantize": _dynamic_dequantize,
    f"{_DECOMPOSED}quantize_per_token": _tokens("f4"),
    f"{_DECOMPOSED}dequantize_per_token": _tokens("i1"),
    f"{_DECOMPOSED}quantize_per_channel_group": _groups("f4"),
    f"{_DECOMPOSED}dequantize_per_channel_group": _groups("i1"),
    "tosa.CAST_FROM_BLOCK_SCALED": _from_block_scaled,
}
# Beside it.
_FURTHER: dict[str, Calls] = {
    "onnx.QuantizeLinear": _quantize_linear,
    "onednn.Quantize": _scale_lists("f4", dst_type="i8"),
    "onednn.Dequantize": _scale_lists("i1"),
    "onednn.DynamicQuantize": _channels("scales", None, "src", {"dst_type": "i8", "qtype": "per_channel"}),
    "stablehlo.uniform_quantize": _to_type("operand"),
    "stablehlo.uniform_dequantize": _from_type("operand"),
    "mlir.quant.qcast": _to_type("input"),
    "mlir.quant.dcast": _from_type("input", output_type="f32"),
    "mlir.quant.scast": _from_type("input", output_type="i8"),
    "litert.QUANTIZE": _to_type("input"),
    "litert.DEQUANTIZE": _from_type("input"),
    "torch.quantize_per_channel": _channels(*_TORCH_CHANNELS, {"dtype": "qint8"}),
    "torch.dequantize": _from_type("input"),
    "torch.fake_quantize_per_channel_affine": _channels(*_TORCH_CHANNELS, _BOUNDS),
    f"{_DECOMPOSED}quantize_per_channel": _channels(*_TORCH_CHANNELS, _TYPED),
    f"{_DECOMPOSED}dequantize_per_channel": _channels(*_TORCH_CHANNELS, _TYPED, "u1"),
    f"{_DECOMPOSED}fake_quant_per_channel": _channels(*_TORCH_CHANNELS, _BOUNDS),
    "tosa.RESCALE": _rescale,
}


def calls(operator: Operator, budget: int) -> Iterator[Call]:
    """Yield the calls of an operator whose tensors have about so many bytes."""
    own = _OWN.get(operator.full_name)
    yield from (own or _grown(operator))(budget)
    if operator.full_name in _FURTHER:
        yield from _FURTHER[operator.full_name](budget)


def in_json(operator: Operator, call: Call) -> Case:
    def body() -> dict[str, Any]:
        inputs = {name: tensor(each.type, each.array) for name, each in call.operands().items()}
        found: dict[str, Any] = {"inputs": inputs}
        if operator.versions:
            found["opset"] = operator.last_version
        return found | ({"attributes": call.attributes} if call.attributes else {})

    return json_case(route_path(operator), call.what, body)


def as_model(operator: Operator, call: Call) -> Case:
    def body() -> tuple[bytes, dict[str, str]]:
        operands = call.operands()
        # Lists and numbers are texts; so is what a datatype does not say of an operand.
        texts = {
            name: each if isinstance(each, (str, int)) else json.dumps(each) for name, each in call.attributes.items()
        }
        types = {
            f"{name}_type": each.element for name, each in operands.items() if each.element not in ("", each.natural)
        }
        parameters = {**texts, **types, "binary_data_output": True}
        return body_of([Input(name, each.array) for name, each in operands.items()], parameters=parameters)

    return Case(f"/v2/models/{operator.full_name}/infer", call.what, body)


def operator_cases(json_bytes: int = _JSON_BYTES, binary_bytes: int = _BINARY_BYTES) -> Iterator[Case]:
    """Yield every operator's calls in both forms."""
    for operator in OPERATORS.values():
        for call in calls(operator, json_bytes):
            yield in_json(operator, call)
        for call in calls(operator, binary_bytes):
            yield as_model(operator, call)
