"""The most expensive calls of other systems' operators, where that is not the example with larger tensors."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import isqrt
from typing import Any

import numpy as np

from requant.operators.separate_parameters import MAX_FACTORS, MAX_SCALES
from tests.load.case import Call, Calls, million, noise, numbers, of, positive, scale_list

ENTRIES = 65_536
_SCALES_OF_TYPE = 50_000

Tensors = dict[str, dict[str, Any]]


def _call(what: str, tensors: Callable[[], Tensors], attributes: dict[str, Any] | None = None) -> Call:
    return Call(what, lambda: {"inputs": tensors(), "attributes": attributes or {}})


def _channels(scales: str, zeros: str | None, input_: str, attributes: Any = None, element: str = "f4") -> Calls:
    """As many channels as there may be, of 4 elements each."""
    size = 4 * np.dtype(element).itemsize + 8

    def calls(budget: int) -> Iterator[Call]:
        count = min(MAX_SCALES, budget // size)

        def operands() -> Tensors:
            found = {input_: of(noise((4, count), element)), scales: of(positive((count,)))}
            if zeros is not None:
                found[zeros] = of(np.full(count, 3, "i1" if input_ == "x" else "i4"))
            return found

        yield _call(f"{million(count)} channels", operands, {"axis": 1, **(attributes or {})})

    return calls


def _tokens(dtype: str) -> Calls:
    """Tokens of one element each."""

    def calls(budget: int) -> Iterator[Call]:
        count = budget // 12
        yield _call(
            f"{million(count)} tokens",
            lambda: {
                "input": of(noise((count, 1), dtype)),
                "scales": of(positive((count, 1))),
                "zero_points": of(np.zeros((count, 1), "i4")),
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
        yield _call(
            f"{million(count)} groups",
            lambda: {
                "input": of(noise((1, count * size), dtype) & 7 if dtype == "i1" else
                                 noise((1, count * size), dtype)),
                "scales": of(positive((1, count))),
                "zero_points": of(np.zeros((1, count), "i4")),
            },
            {"quant_min": -8, "quant_max": 7, "dtype": "int8", "group_size": size},
        )  # fmt: skip

    return calls


def _quantize_linear(budget: int) -> Iterator[Call]:
    yield from _channels("y_scale", "y_zero_point", "x")(budget)
    count = min(15 << 20, budget * 4 // 17) // 16 * 16
    yield _call(
        "a scale for each 16 elements",
        lambda: {"x": of(noise((count,))), "y_scale": of(positive((count // 16,)))},
        {"axis": 0, "block_size": 16, "output_dtype": 3},
    )


def _dequantize_linear(budget: int) -> Iterator[Call]:
    yield from _channels("x_scale", "x_zero_point", "x", element="i1")(budget)
    scales = min(MAX_SCALES, budget // 5)
    size = (budget - 4 * scales) // scales
    yield _call(
        f"a scale for each {size} elements",
        lambda: {"x": of(noise((scales * size,), "i1")), "x_scale": of(positive((scales,)))},
        {"axis": 0, "block_size": size},
    )


def _dynamic_dequantize(budget: int) -> Iterator[Call]:
    yield from _channels("scales", None, "src", {"qtype": "per_channel"}, "i1")(budget)
    scales = min(MAX_SCALES, budget // 6)
    size = (budget - 4 * scales) // scales
    yield _call(
        f"a scale for each {size} elements",
        lambda: {"src": of(noise((1, scales * size), "i1")), "scales": of(positive((1, scales)))},
        {"qtype": "per_group", "group_shape": [1, size]},
    )


def _scale_lists(dtype: str, **attributes: Any) -> Calls:
    """As many scales and zero points as an attribute may list."""

    def calls(budget: int) -> Iterator[Call]:
        rows = budget // (ENTRIES * np.dtype(dtype).itemsize)
        scales = [float(f"{each:.8g}") for each in numbers(ENTRIES)]
        yield _call(
            f"{ENTRIES} scales",
            lambda: {"src": of(noise((rows, ENTRIES), dtype))},
            {"qtype": "per_channel", "axis": 1, "scales": scales, "zps": [0] * ENTRIES, **attributes},
        )

    return calls


def _quantized_type() -> str:
    return f"!quant.uniform<i8:f32:1, {scale_list(_SCALES_OF_TYPE, 1.0)}>"


def _to_type(input_: str, **attributes: Any) -> Calls:
    """A type of many scales, to which real numbers go."""

    def calls(budget: int) -> Iterator[Call]:
        rows = (budget - (1 << 20)) // (4 * _SCALES_OF_TYPE)
        yield _call(
            f"{_SCALES_OF_TYPE} scales",
            lambda: {input_: of(noise((rows, _SCALES_OF_TYPE)))},
            {"output_type": _quantized_type(), **attributes},
        )

    return calls


def _from_type(input_: str, **attributes: Any) -> Calls:
    """A type of many scales, from which real or stored numbers come."""

    def calls(budget: int) -> Iterator[Call]:
        rows = (budget - (1 << 20)) // _SCALES_OF_TYPE
        yield _call(
            f"{_SCALES_OF_TYPE} scales",
            lambda: {input_: of(noise((rows, _SCALES_OF_TYPE), "i1"), _quantized_type())},
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
        yield _call(
            what,
            lambda a=a, b=b: {"A": of(noise(a, "u1")), "B": of(noise(b, "u1"))},  # type: ignore[misc]
        )


def _qlinear_matmul(budget: int) -> Iterator[Call]:
    def operands(a: tuple[int, ...], b: tuple[int, ...], columns: tuple[int, ...] = ()) -> Tensors:
        return {
            "a": of(noise(a, "u1")),
            "a_scale": of(np.array(0.0066, "f4")),
            "a_zero_point": of(np.array(113, "u1")),
            "b": of(noise(b, "i1")),
            "b_scale": of(positive(columns)),
            "b_zero_point": of(np.full(columns, 3, "i1")),
            "y_scale": of(np.array(10.7, "f4")),
            "y_zero_point": of(np.array(118, "u1")),
        }

    for what, a, b in _matmul_shapes(budget):
        yield _call(what, lambda a=a, b=b: operands(a, b))  # type: ignore[misc]
    columns = min(MAX_FACTORS, budget // 6)
    yield _call(f"a scale for each of {million(columns)} columns", lambda: operands((1, 1), (1, columns), (columns,)))


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
        yield _call(
            what,
            lambda x=x, w=w: {"x": of(noise(x, "u1")), "w": of(noise(w, "u1"))},  # type: ignore[misc]
            attributes,
        )
    yield _call(
        "three dimensions, padded",
        lambda: {
            "x": of(noise((1, 1, 1, 8, 8), "u1")),
            "w": of(noise((1, 1, 100, 3, 3), "u1")),
        },
        {"pads": [20_000, 0, 0, 20_000, 0, 0]},
    )


def _qlinear_conv(budget: int) -> Iterator[Call]:
    def operands(x: tuple[int, ...], w: tuple[int, ...]) -> Tensors:
        channels = w[0]
        return {
            "x": of(noise(x, "u1")),
            "x_scale": of(np.array(0.00369, "f4")),
            "x_zero_point": of(np.array(132, "u1")),
            "w": of(noise(w, "i1")),
            "w_scale": of(positive((channels,))),
            "w_zero_point": of(np.array(0, "i1")),
            "y_scale": of(np.array(16.2, "f4")),
            "y_zero_point": of(np.array(123, "u1")),
            "B": of(noise((channels,), "i4") >> 12),
        }

    for what, x, w, attributes in _conv_shapes(budget):
        yield _call(what, lambda x=x, w=w: operands(x, w), attributes)  # type: ignore[misc]
    channels = min(MAX_FACTORS, budget // 10)
    yield _call(f"{million(channels)} channels", lambda: operands((1, 1, 1, 1), (channels, 1, 1, 1)))


def _rescale(budget: int) -> Iterator[Call]:
    rows = budget // (4 * ENTRIES) - 2
    yield _call(
        f"{ENTRIES} multipliers",
        lambda: {
            "input": of(noise((rows, ENTRIES), "i4")),
            "multiplier": of(np.full(ENTRIES, 1 << 30, "i4")),
            "shift": of(np.full(ENTRIES, 35, "i1")),
            "input_zp": of(np.zeros(1, "i4")),
            "output_zp": of(np.zeros(1, "i1")),
        },
        {"per_channel": True},
    )


def _from_block_scaled(budget: int) -> Iterator[Call]:
    # The output is f32, and takes four times as much.
    rows = budget // 33
    yield _call(
        f"{million(32 * rows)} elements",
        lambda: {
            "input_data": of(noise((rows, 32), "i1")),
            "input_scale": of(noise((rows, 1), "u1") & 0x7F, "f8E8M0FNU"),
        },
    )


def _matmul_n_bits(budget: int) -> Iterator[Call]:
    # 2 bits of 16 weights of a scale: the weights take eight times as much as both operands.
    columns = min(budget // 8, _MOST_OUTPUTS // 16)
    yield _call(
        f"{million(16 * columns)} weights",
        lambda: {"B": of(noise((columns, 1, 4), "u1")), "scales": of(noise((columns,)))},
        {"K": 16, "N": columns, "bits": 2, "block_size": 16},
    )


_I8 = "!quant.uniform<i8:f32, 0.5>"


def _batch_matmul(budget: int) -> Iterator[Call]:
    for what, a, b in _matmul_shapes(budget):
        yield _call(
            what,
            lambda a=a, b=b: {"lhs": of(noise(a, "i1"), _I8), "rhs": of(noise(b, "i1"), _I8)},  # type: ignore[misc]
            {"output_type": "!quant.uniform<i8:f32, 64.0>"},
        )


def _transpose_conv(budget: int) -> Iterator[Call]:
    images = min(budget, _MOST_OUTPUTS) // 16
    yield _call(
        f"{million(16 * images)} outputs",
        lambda: {
            "output_shape": of(np.array([images, 4, 4, 1], "i4")),
            "weights": of(noise((1, 3, 3, 1), "i1"), _I8),
            "input": of(noise((images, 4, 4, 1), "i1"), _I8),
        },
        {"padding": "SAME", "stride_h": 1, "stride_w": 1, "output_type": "!quant.uniform<i8:f32, 64.0>"},
    )


_MOST_OUTPUTS = 1 << 24
_BOUNDS = {"quant_min": 0, "quant_max": 255}
_TYPED = {**_BOUNDS, "dtype": "uint8"}
_TORCH_CHANNELS = ("scales", "zero_points", "input")
_DECOMPOSED = "torch.quantized_decomposed."

# Instead of the example that is made larger.
OWN: dict[str, Calls] = {
    "onnx.DequantizeLinear": _dequantize_linear,
    "onnx.MatMulInteger": _matmul_integer,
    "onnx.ConvInteger": _conv_integer,
    "onnx.QLinearMatMul": _qlinear_matmul,
    "onnx.QLinearConv": _qlinear_conv,
    "com.microsoft.MatMulNBits": _matmul_n_bits,
    "litert.BATCH_MATMUL": _batch_matmul,
    "litert.TRANSPOSE_CONV": _transpose_conv,
    "onednn.DynamicDequantize": _dynamic_dequantize,
    f"{_DECOMPOSED}quantize_per_token": _tokens("f4"),
    f"{_DECOMPOSED}dequantize_per_token": _tokens("i1"),
    f"{_DECOMPOSED}quantize_per_channel_group": _groups("f4"),
    f"{_DECOMPOSED}dequantize_per_channel_group": _groups("i1"),
    "tosa.CAST_FROM_BLOCK_SCALED": _from_block_scaled,
}
# Beside it.
FURTHER: dict[str, Calls] = {
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
