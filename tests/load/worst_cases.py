"""For each route that takes a body, requests within the default limits that cost as much as their shape allows.

Each case attacks one part of the cost: elements, parameters that are all different, texts, products, or the size of the
reply beside that of the request. `tests.load.worst_requests` sends them.
"""

from __future__ import annotations

import io
import json
from base64 import b64encode
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from core.operators.registry import OPERATORS
from tests.oip_wire import Input, body_of

Array = NDArray[Any]

# The default limits: what one JSON body, one binary body and one type may have.
JSON_BYTES = 8 << 20
BINARY_BYTES = 64 << 20
TYPE_BYTES = 1 << 20
ENTRIES = 65_536


@dataclass(frozen=True)
class Case:
    """A request. It is made when it is sent: all of them together would fill the memory."""

    route: str
    what: str
    make: Callable[[], tuple[bytes, dict[str, str]]]
    query: dict[str, str] = field(default_factory=dict)


def _json(route: str, what: str, make: Callable[[], Any]) -> Case:
    return Case(route, what, lambda: (json.dumps(make()).encode(), {"content-type": "application/json"}))


def _npy(route: str, what: str, make: Callable[[], Array], **query: str) -> Case:
    def body() -> tuple[bytes, dict[str, str]]:
        file = io.BytesIO()
        np.save(file, make())
        return file.getvalue(), {"content-type": "application/octet-stream"}

    return Case(route, what, body, query)


def _model(name: str, what: str, make: Callable[[], list[Input]], **parameters: Any) -> Case:
    def body() -> tuple[bytes, dict[str, str]]:
        return body_of(make(), parameters={**parameters, "binary_data_output": True})

    return Case(f"/v2/models/{name}/infer", what, body)


def _tensor(type_: str, array: Array) -> dict[str, str]:
    return {"type": type_, "data": b64encode(array.tobytes()).decode()}


def _random(shape: tuple[int, ...], dtype: str = "f4") -> Array:
    rng = np.random.default_rng(1)
    if dtype[0] == "f":
        return rng.standard_normal(shape).astype(dtype)
    limits = np.iinfo(dtype)
    return rng.integers(limits.min, limits.max, shape, endpoint=True).astype(dtype)


def _numbers(count: int, first: float = 1e-3) -> list[float]:
    """Different numbers of 17 digits each, all of one magnitude."""
    return [float(each) for each in first * (1 + np.random.default_rng(2).random(count))]


def _scales(count: int, first: float = 1e-3, zeros: bool = True) -> str:
    """The list of a type: as many different scales as its length allows."""
    return "{" + ", ".join(f"{each:.10g}" + (f":{index % 100}" if zeros else "")
                           for index, each in enumerate(_numbers(count, first))) + "}"  # fmt: skip


def _table() -> str:
    """A quantile type with as many entries as 16 bits have codes."""
    return "!quant.quantile<i16:f32, {" + ",".join(f"{each:.8g}" for each in sorted(_numbers(ENTRIES, 1.0))) + "}>"


_MOST_SCALES = 55_000
_JSON_ELEMENTS = 6_200_000


def _conversions() -> Iterator[Case]:
    count = 1_500_000
    yield _json("/v1/quantize", "1.5 million f32, stochastic", lambda: {
        "input": _tensor(f"tensor<{count}xf32>", _random((count,))), "output_type": "!quant.uniform<i8:f32, 0.05:3>",
        "profile": "torch", "error": True})  # fmt: skip
    yield _json("/v1/quantize", f"{_MOST_SCALES} scales along the last axis", lambda: {
        "input": _tensor(f"tensor<20x{_MOST_SCALES}xf32>", _random((20, _MOST_SCALES))),
        "output_type": f"!quant.uniform<i8:f32:1, {_scales(_MOST_SCALES)}>"})  # fmt: skip
    yield _json("/v1/quantize", "a table of 65536 values", lambda: {
        "input": _tensor("tensor<100000xf32>", _random((100_000,))),
        "output_type": f"!quant.uniform<{_table()}:f32, 0.5>", "profile": "quantile"})  # fmt: skip
    yield _json("/v1/quantize", "f64, i48 beside", lambda: {
        "input": _tensor("tensor<750000xf64>", _random((750_000,), "f8")),
        "output_type": "!quant.uniform<i32:f64, 0.0001:3>"})  # fmt: skip
    yield _json("/v1/dequantize", "6 million i8 to f32", lambda: {
        "input": _tensor(f"tensor<{_JSON_ELEMENTS}x!quant.uniform<i8:f32, 0.5:3>>",
                         _random((_JSON_ELEMENTS,), "i1"))})  # fmt: skip
    yield _json("/v1/dequantize", "packed i2", lambda: {
        "input": _tensor(f"tensor<{_JSON_ELEMENTS * 4}x!quant.uniform<i2:f32, 0.5:1>>",
                         _random((_JSON_ELEMENTS,), "i1")), "packing": "dense"})  # fmt: skip
    yield _json("/v1/dequantize", f"{_MOST_SCALES} scales", lambda: {
        "input": _tensor(f"tensor<100x{_MOST_SCALES}x!quant.uniform<i8:f32:1, {_scales(_MOST_SCALES)}>>",
                         _random((100, _MOST_SCALES), "i1"))})  # fmt: skip
    for scheme in ("litert", "tosa", "onnx_reference", "fbgemm", "stablehlo"):
        yield _json("/v1/requantize", f"{_MOST_SCALES} scales, {scheme}", lambda scheme=scheme: {  # type: ignore[misc]
            "input": _tensor(f"tensor<{_MOST_SCALES}x!quant.uniform<i32:f32:0, {_scales(_MOST_SCALES, zeros=False)}>>",
                             _random((_MOST_SCALES,), "i4")),
            "output_type": "!quant.uniform<i8:f32, 0.05:3>", "scheme": scheme})  # fmt: skip
    yield _json("/v1/requantize", "65536 multipliers", lambda: {
        "input": _tensor("tensor<65536xi32>", _random((65_536,), "i4")), "output_type": "!quant.uniform<i8:f32, 0.5>",
        "axis": 0, "scheme": "litert",
        "multipliers": [{"multiplier": (1 << 30) + index, "shift": -7} for index in range(65_536)]})  # fmt: skip
    yield _json("/v1/requantize", "55000 scales on both sides", lambda: {
        "input": _tensor(f"tensor<55000x!quant.uniform<i32:f32:0, {_scales(55_000, zeros=False)}>>",
                         _random((55_000,), "i4")),
        "output_type": f"!quant.uniform<i8:f32:0, {_scales(55_000)}>", "profile": "torch"})  # fmt: skip
    wide = (16_700_000,)
    yield _npy(
        "/v1/npy/quantize", "16 million f32", lambda: _random(wide), output_type="!quant.uniform<i8:f32, 0.05:3>"
    )
    yield _npy("/v1/npy/quantize", "16 million f32, stochastic", lambda: _random(wide), rounding="stochastic", seed="1",
               output_type="!quant.uniform<i8:f32, 0.05:3>")  # fmt: skip
    yield _npy("/v1/npy/quantize", "32 million f16 to packed i2", lambda: _random((33_000_000,), "f2"), packing="dense",
               output_type="!quant.uniform<i2:f16, 0.05:1>")  # fmt: skip
    yield _npy("/v1/npy/dequantize", "64 million i8 to f64", lambda: _random((63 << 20,), "i1"), output_type="f64",
               input_type="!quant.uniform<i8:f64, 0.05:3>")  # fmt: skip
    yield _npy("/v1/npy/dequantize", "250 million packed i2", lambda: _random((63 << 20,), "u1"), packing="dense",
               input_type=f"tensor<{4 * (63 << 20)}x!quant.uniform<i2:f32, 0.05:1>>")  # fmt: skip
    yield _npy("/v1/npy/requantize", "16 million i32", lambda: _random(wide, "i4"),
               input_type="!quant.uniform<i32:f32, 0.01>", output_type="!quant.uniform<i8:f32, 0.05:3>")  # fmt: skip
    yield _npy("/v1/npy/requantize", "64 million i8, torch", lambda: _random((63 << 20,), "i1"), profile="torch",
               input_type="!quant.uniform<i8:f32, 0.01>", output_type="!quant.uniform<i32:f32, 0.05:3>")  # fmt: skip


def _type(shape: tuple[int, ...], storage: str) -> str:
    return f"tensor<{'x'.join(map(str, shape))}x!quant.uniform<{storage}:f32, 0.01>>"


def _products() -> Iterator[Case]:
    quantized = "!quant.uniform<i8:f32, 0.01:3>"

    def conv(what: str, x: tuple[int, ...], w: tuple[int, ...], storage: str = "i8", **members: Any) -> Case:
        kind = "i2" if storage == "i16" else "i1"
        return _json("/v1/conv2d", what, lambda: {
            "input": _tensor(_type(x, storage), _random(x, kind)),
            "weights": _tensor(_type(w, storage), _random(w, kind)),
            "output_type": quantized, **members})  # fmt: skip

    yield conv("1x1 input, pads of 2047", (1, 1, 1, 1), (1, 16, 32, 1), pads=[2047] * 4)
    yield conv("1x1 input, kernel of a megabyte", (1, 1, 1, 1), (1, 1024, 1024, 1), pads=[2000] * 4)
    yield conv("one channel, wide kernel", (1, 1200, 1200, 1), (1, 81, 81, 1))
    yield conv("one channel to 16", (1, 1000, 1000, 1), (16, 17, 17, 1))
    yield conv("64 channels", (1, 180, 180, 64), (64, 7, 7, 64))
    yield conv("depthwise by 2", (1, 128, 128, 256), (512, 10, 10, 1), groups=256)
    yield conv("128 groups of 2", (1, 128, 128, 256), (256, 11, 11, 2), groups=128)
    yield conv("dilated, one channel", (1, 1500, 1500, 1), (1, 13, 13, 1), dilations=[3, 3])
    yield conv("16 bits", (1, 128, 128, 64), (64, 12, 12, 64), "i16", accumulator="i64", profile="stablehlo")
    yield conv("many groups", (1, 8, 8, 32768), (65536, 1, 1, 32), groups=1024)
    yield conv("stages of 65536 sums", (1, 256, 256, 1), (1, 120, 120, 1), trace=True, padding="same_upper")

    def matmul(what: str, a: tuple[int, ...], b: tuple[int, ...], storage: str = "i8", **members: Any) -> Case:
        kind = "i2" if storage == "i16" else "i1"
        return _json("/v1/matmul", what, lambda: {
            "lhs": _tensor(_type(a, storage), _random(a, kind)),
            "rhs": _tensor(_type(b, storage), _random(b, kind)),
            "output_type": quantized, **members})  # fmt: skip

    yield matmul("1600 cubed", (1600, 1600), (1600, 1600))
    yield matmul("4096 by 4096, one product each", (4096, 1), (1, 4096))
    yield matmul("60000 products of 1 by 1", (60000, 1, 1), (60000, 1, 1))
    yield matmul("16 bits, 64 bits", (1200, 1200), (1200, 1200), "i16", accumulator="i64")
    yield matmul("a column of 16 bits", (1, 1400), (1400, 1400), "i16", accumulator="i64")
    yield _json("/v1/matmul", "scales for each row and each column", lambda: {
        "lhs": _tensor(f"tensor<256x1x!quant.uniform<i8:f32:0, {_scales(256)}>>", _random((256, 1), "i1")),
        "rhs": _tensor(f"tensor<1x256x!quant.uniform<i8:f32:1, {_scales(256)}>>", _random((1, 256), "i1")),
        "output_type": quantized})  # fmt: skip
    yield _json("/v1/matmul", "a bias of another scale for each of 55000 columns", lambda: {
        "lhs": _tensor(f"tensor<1x1x{quantized}>", _random((1, 1), "i1")),
        "rhs": _tensor(f"tensor<1x55000x!quant.uniform<i8:f32:1, {_scales(55_000, zeros=False)}>>",
                       _random((1, 55_000), "i1")),
        "bias": _tensor(f"tensor<55000x!quant.uniform<i32:f32:0, {_scales(55_000, zeros=False)}>>",
                        _random((55_000,), "i4") >> 8),
        "output_type": f"!quant.uniform<i8:f32:1, {_scales(55_000)}>"})  # fmt: skip
    yield _json("/v1/add", "3 million, through real", lambda: {
        "lhs": _tensor("tensor<3000000x!quant.uniform<i8:f32, 0.01:3>>", _random((3_000_000,), "i1")),
        "rhs": _tensor("tensor<3000000x!quant.uniform<i8:f32, 0.02:3>>", _random((3_000_000,), "i1")),
        "output_type": quantized})  # fmt: skip
    yield _json("/v1/add", "broadcast to 16 million", lambda: {
        "lhs": _tensor("tensor<4096x1x!quant.uniform<i8:f32, 0.01:3>>", _random((4096, 1), "i1")),
        "rhs": _tensor("tensor<1x4096x!quant.uniform<i8:f32, 0.02:3>>", _random((1, 4096), "i1")),
        "output_type": quantized, "profile": "litert_xnnpack"})  # fmt: skip
    yield _model("onnx.ConvInteger", "1x1 input, pads of 2040",
                 lambda: [Input("x", _random((1, 1, 1, 1), "u1")), Input("w", _random((1, 1, 16, 32), "u1"))],
                 pads="[2040, 2040, 2040, 2040]")  # fmt: skip
    yield _model("onnx.ConvInteger", "three dimensions, padded",
                 lambda: [Input("x", _random((1, 1, 1, 8, 8), "u1")), Input("w", _random((1, 1, 100, 3, 3), "u1"))],
                 pads="[20000, 0, 0, 20000, 0, 0]")  # fmt: skip
    yield _model(
        "onnx.ConvInteger",
        "one channel, wide kernel",
        lambda: [Input("x", _random((1, 1, 3000, 3000), "u1")), Input("w", _random((1, 1, 27, 27), "u1"))],
    )
    yield _model(
        "onnx.MatMulInteger",
        "one row by 60 MB",
        lambda: [Input("A", _random((1, 7000), "u1")), Input("B", _random((7000, 7000), "u1"))],
    )
    yield _model(
        "onnx.MatMulInteger",
        "2000 cubed",
        lambda: [Input("A", _random((2000, 2000), "u1")), Input("B", _random((2000, 2000), "u1"))],
    )


def _calibration() -> Iterator[Case]:
    count = 1_500_000

    def search(what: str, shape: tuple[int, ...], **members: Any) -> Case:
        text = "x".join(map(str, shape))
        return _json("/v1/parameters/tensor", what, lambda: {
            "input": _tensor(f"tensor<{text}xf32>", _random(shape)), "storage": "i8", **members})  # fmt: skip

    channels = {"granularity": "per_axis", "axis": 0}
    for method in ("min_max", "percentile", "mse", "entropy", "moving_average"):
        yield search(f"{method}, one range", (count,), method=method)
        if method == "mse":
            continue
        yield search(f"{method}, 65536 channels", (65536, 20), method=method, **channels)
        yield search(f"{method}, 65536 channels, last axis", (20, 65536), method=method,
                     granularity="per_axis", axis=1)  # fmt: skip
    yield search("min_max, 65536 blocks", (4096, 256), method="min_max", granularity="sub_channel", block_sizes=[1, 16])
    yield search(
        "percentile of magnitudes, 65536 channels", (65536, 20), method="percentile", magnitudes=True, **channels
    )
    yield search("percentile, 8192 bins, 30000 channels", (30_000, 50), method="percentile", bins=8192, **channels)
    yield search("percentile, 16 bins, 65536 channels", (65536, 20), method="percentile", bins=16, **channels)
    yield search("entropy, most bins", (count,), method="entropy", bins=8192, quantized_bins=128)
    yield search("entropy, 1000 channels", (1000, 1000), method="entropy", bins=700, quantized_bins=2, **channels)
    yield search("entropy_model_optimizer", (count,), method="entropy_model_optimizer", bins=8192)
    yield search(
        "entropy_model_optimizer, 65536 channels", (65536, 20), method="entropy_model_optimizer", bins=40, **channels
    )
    yield search("torch_histogram, 4096 bins", (count,), method="torch_histogram", storage="i8", bins=4096)
    yield search("mse, 340 candidates", (count,), method="mse", candidates=340)
    yield search("mse, 8 candidates, 65536 channels", (65536, 20), method="mse", candidates=8, **channels)
    for method in ("torch_histogram", "percentile", "moving_average", "min_max", "mse"):
        yield _json("/v1/parameters/tensor", f"{method}, 256 tensors", lambda method=method: {  # type: ignore[misc]
            "inputs": [_tensor("tensor<5000xf32>", (1 + index / 256) * _random((5000,))) for index in range(256)],
            "storage": "i8", "method": method})  # fmt: skip
    yield _json("/v1/parameters/tensor", "percentile, 60 tensors of 1000 channels, each reaching further", lambda: {
        "inputs": [_tensor("tensor<1000x20xf32>", (1 + index / 60) * _random((1000, 20))) for index in range(60)],
        "storage": "i8", "method": "percentile", "granularity": "per_axis", "axis": 0})  # fmt: skip
    yield _json("/v1/parameters/tensor", "percentile, 256 tensors of 500 channels", lambda: {
        "inputs": [_tensor("tensor<500x10xf32>", _random((500, 10))) for _ in range(256)],
        "storage": "i8", "method": "percentile", "granularity": "per_axis", "axis": 0})  # fmt: skip
    yield _json("/v1/parameters/tensor", "percentile of magnitudes, 60 tensors of 900 channels", lambda: {
        "inputs": [_tensor("tensor<900x20xf32>", (1 + index / 60) * _random((900, 20))) for index in range(60)],
        "storage": "i8", "method": "percentile", "magnitudes": True, "granularity": "per_axis", "axis": 0,
        "bins": 512})  # fmt: skip
    for scheme in ("litert", "torch_observer", "onnxruntime", "onednn"):
        yield _json("/v1/parameters/range", f"65536 ranges, {scheme}", lambda scheme=scheme: {  # type: ignore[misc]
            "minimums": [-each for each in _numbers(ENTRIES)], "maximums": _numbers(ENTRIES, 1.0), "axis": 0,
            "storage": "i8", "scheme": scheme})  # fmt: skip
    yield _json("/v1/parameters/bias", "65536 scales", lambda: {
        "input_scale": 0.5, "weight_scales": _numbers(ENTRIES), "scheme": "litert",
        "bias": _tensor("tensor<65536xf32>", _random((ENTRIES,)))})  # fmt: skip
    for scheme in ("litert", "tosa", "fbgemm"):
        yield _json("/v1/parameters/multiplier", f"4096 factors, {scheme}", lambda scheme=scheme: {  # type: ignore[misc]
            "factors": [f"{each!r}" for each in _numbers(4096)], "scheme": scheme})  # fmt: skip
    yield _json("/v1/parameters/multiplier", "4096 triples of long texts", lambda: {
        "scales": [dict.fromkeys(("input", "weight", "output"), f"{each:.100f}") for each in _numbers(4096)],
        "scheme": "litert"})  # fmt: skip
    yield _json("/v1/fake_quantize", "65536 ranges", lambda: {
        "input": _tensor("tensor<10x65536xf32>", _random((10, ENTRIES))),
        "minimums": [-each for each in _numbers(ENTRIES)], "maximums": _numbers(ENTRIES, 1.0), "axis": 1})  # fmt: skip
    yield _json("/v1/fake_quantize", "1.5 million f32", lambda: {
        "input": _tensor(f"tensor<{count}xf32>", _random((count,))),
        "minimums": [-1.0], "maximums": [1.0]})  # fmt: skip


def _texts() -> Iterator[Case]:
    yield _json("/v1/types/parse", f"{_MOST_SCALES} scales", lambda: {
        "text": f"tensor<{_MOST_SCALES}x!quant.uniform<i8:f32:0, {_scales(_MOST_SCALES)}>>"})  # fmt: skip
    yield _json("/v1/types/parse", "60000 short scales", lambda: {
        "text": f"tensor<60000x!quant.uniform<i8:f32:0, {{{', '.join(['0.5'] * 60_000)}}}>>"})  # fmt: skip
    yield _json(
        "/v1/types/parse",
        "blocks in 32 dimensions",
        lambda: {"text": "!quant.uniform<i8:f32:{0:1, 1:2}, {" + ", ".join(["{0.5, 0.25}"] * 30_000) + "}>"},
    )
    yield _json("/v1/types/parse", "brackets", lambda: {"text": "{" * (1 << 20)})
    yield _json(
        "/v1/types/parse",
        "16000 scales of 60 digits",
        lambda: {
            "text": "tensor<16000x!quant.uniform<i8:f64:0, {"
            + ", ".join(f"{each:.60f}" for each in _numbers(16_000))
            + "}>>"
        },
    )
    yield _json(
        "/v1/types/parse",
        "a table of 65536 values",
        lambda: {"text": _table()},
    )
    yield _json(
        "/v1/types/translate",
        f"{_MOST_SCALES} scales to all systems",
        lambda: {"type": f"tensor<{_MOST_SCALES}x!quant.uniform<i8:f32:0, {_scales(_MOST_SCALES, zeros=False)}>>"},
    )
    yield _json(
        "/v1/types/translate",
        "60000 scales with zero points",
        lambda: {"type": f"tensor<60000x!quant.uniform<i8:f32:0, {_scales(60_000, 1.0)[:TYPE_BYTES]}>>"},
    )
    yield _json("/v1/types/translate", f"{ENTRIES} scales of onnx", lambda: {
        "onnx": {"x_type": "i8", "x_scale": _numbers(ENTRIES), "scale_shape": [ENTRIES], "axis": 0,
                 "x_zero_point": [index % 100 for index in range(ENTRIES)]}, "shape": [ENTRIES]})  # fmt: skip
    yield _json("/v1/types/translate", "4096 multipliers of tosa", lambda: {
        "tosa": {"input": f"tensor<4096x!quant.uniform<i8:f32:0, {_scales(4096, zeros=False)}>>", "output_type": "i8",
                 "multiplier": [(1 << 30) + index for index in range(4096)], "shift": [30] * 4096,
                 "per_channel": True}})  # fmt: skip
    yield _json("/v1/compare", "3 million i8", lambda: {
        "a": _tensor("tensor<3000000x!quant.uniform<i8:f32, 0.5>>", _random((3_000_000,), "i1")),
        "b": _tensor("tensor<3000000x!quant.uniform<i8:f32, 0.25:3>>", _random((3_000_000,), "i1")),
        "max_reported": 100})  # fmt: skip
    yield _json("/v1/compare", "25000 scales on both sides", lambda: {
        "a": _tensor(f"tensor<100x25000x!quant.uniform<i8:f32:1, {_scales(25_000)}>>", _random((100, 25_000), "i1")),
        "b": _tensor(f"tensor<100x25000x!quant.uniform<i8:f32:1, {_scales(25_000, 2e-3)}>>",
                     _random((100, 25_000), "i1"))})  # fmt: skip
    yield _json(
        "/v1/tosa/rescale",
        "65536 multipliers",
        lambda: {
            "input": _tensor("tensor<1x65536xi32>", _random((1, ENTRIES), "i4")),
            "output_type": "i8",
            "multiplier": [(1 << 30) + index for index in range(ENTRIES)],
            "shift": [35] * ENTRIES,
            "per_channel": True,
        },
    )
    yield _json("/v1/tosa/rescale", "750000 i48", lambda: {
        "input": _tensor("tensor<750000xi48>", _random((750_000,), "i4").astype("i8")), "output_type": "i16",
        "multiplier": [1 << 14], "shift": [30], "scale32": False})  # fmt: skip


def _blocks() -> Iterator[Case]:
    count = 1_500_160
    formats = (
        "mxfp4_e2m1",
        "mxfp6_e2m3",
        "mxfp6_e3m2",
        "mxfp8_e4m3",
        "mxfp8_e5m2",
        "mxint8",
        "nvfp4",
        "Q4_0",
        "gguf_q8_0",
    )
    for name in formats:
        yield _json("/v1/blocks/quantize", f"1.5 million, {name}", lambda name=name: {  # type: ignore[misc]
            "input": _tensor(f"tensor<{count}xf32>", _random((count,))), "format": name})  # fmt: skip
        yield _model(
            "quantize_blocks", f"16 million, {name}", lambda: [Input("x", _random((16_700_032,)))], format=name
        )
    yield _json(
        "/v1/blocks/dequantize",
        "6 million, mxfp8",
        lambda: {
            "format": "mxfp8_e4m3",
            "output_type": f"tensor<{5 << 20}xf32>",
            "elements": _tensor(f"tensor<{5 << 20}xf8E4M3FN>", _random((5 << 20,), "u1") & 0x7E),
            "scales": _tensor(f"tensor<{(5 << 20) // 32}xf8E8M0FNU>", _random(((5 << 20) // 32,), "u1") & 0x7F),
        },
    )
    yield _json("/v1/blocks/dequantize", "9 million, Q4_0", lambda: {
        "format": "Q4_0", "output_type": f"tensor<{280_000 * 32}xf32>",
        "blocks": _tensor(f"tensor<{280_000 * 18}xi8>", _random((280_000 * 18,), "u1"))})  # fmt: skip
    yield _model("dequantize_blocks", "60 million, mxfp8",
                 lambda: [Input("elements", _random((60 << 20,), "u1") & 0x7E),
                          Input("scales", _random(((60 << 20) // 32,), "u1") & 0x7F)],
                 format="mxfp8_e4m3", output_type=f"tensor<{60 << 20}xf32>")  # fmt: skip


def _modules() -> Iterator[Case]:
    quantized = "tensor<8x!quant.uniform<i8:f32, 0.5:3>>"

    def chain(operations: int, line: str, first: str = "%x", type_: str = "tensor<8xf32>") -> str:
        lines = [line.format(index + 1, first if index == 0 else f"%{index}") for index in range(operations)]
        return (
            f"func.func @main(%x: {type_}) -> {type_} {{\n" + "\n".join(lines) + f"\nreturn %{operations} : {type_}\n}}"
        )

    adds = "%{0} = stablehlo.add {1}, {1} : tensor<8xf32>"
    casts = (
        f"%q{{0}} = quant.qcast {{1}} : tensor<8xf32> to {quantized}\n"
        f"%{{0}} = quant.dcast %q{{0}} : {quantized} to tensor<8xf32>"
    )
    short = "tensor<!quant.uniform<i8:f32,1.0:3>>"
    sums = "%{0} = stablehlo.add {1},{1} : ({t},{t})->{t}".replace("{t}", short)
    yield _json("/v1/lower", "2490 operations, 16 passes", lambda: {
        "module": chain(2490, adds), "passes": ["stablehlo-legalize-quant-to-math"] * 16})  # fmt: skip
    yield _json("/v1/lower", "casts, lowered", lambda: {
        "module": chain(780, casts), "passes": ["lower-quant-ops", "strip-func-quant-types"]})  # fmt: skip
    yield _json("/v1/lower", "quantized additions", lambda: {
        "module": chain(860, sums, type_=short), "passes": ["stablehlo-legalize-quant-to-math"]})  # fmt: skip
    yield _json("/v1/lower", "a constant of 30000 elements", lambda: {
        "module": "func.func @main() -> tensor<30000xi32> {\n%c = stablehlo.constant dense<["
        + ",".join(str(index % 1000) for index in range(30_000)) + "]> : tensor<30000xi32>\n"
        "return %c : tensor<30000xi32>\n}"})  # fmt: skip
    yield _json("/v1/evaluate", "2490 additions", lambda: {
        "module": chain(2490, adds), "inputs": [{"type": "tensor<8xf32>", "values": [0.0] * 8}]})  # fmt: skip
    side = 640
    matrix = f"tensor<{side}x{side}xf32>"
    yield _json("/v1/evaluate", "products of matrices", lambda: {
        "module": f"func.func @main(%x: {matrix}) -> {matrix} {{\n%0 = stablehlo.dot %x, %x : ({matrix}, {matrix}) -> "
        f"{matrix}\nreturn %0 : {matrix}\n}}",
        "inputs": [_tensor(matrix, _random((side, side)))]})  # fmt: skip
    yield _json("/v1/evaluate", "a convolution", lambda: {
        "module": "func.func @main(%x: tensor<1x64x64x32xf32>, %w: tensor<5x5x32x32xf32>) -> tensor<1x60x60x32xf32> {\n"
        "%0 = stablehlo.convolution(%x, %w) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f], window = {} "
        "{batch_group_count = 1 : i64, feature_group_count = 1 : i64} : "
        "(tensor<1x64x64x32xf32>, tensor<5x5x32x32xf32>) -> tensor<1x60x60x32xf32>\n"
        "return %0 : tensor<1x60x60x32xf32>\n}",
        "inputs": [_tensor("tensor<1x64x64x32xf32>", _random((1, 64, 64, 32))),
                   _tensor("tensor<5x5x32x32xf32>", _random((5, 5, 32, 32)))]})  # fmt: skip


_LARGE = 15 << 20


def _operators() -> Iterator[Case]:
    """Each operator on as large a first operand as a binary body holds, the rest as in its example."""
    dtypes = {"f32": "f4", "i8": "i1", "ui8": "u1", "i32": "i4"}
    for name, operator in OPERATORS.items():
        if "Conv" in name or "MatMul" in name:
            continue
        given = operator.example["inputs"]
        (first, head), *rest = given.items()
        shape = [int(part) for part in head["type"][7:].split("x")[:-1] if part.isdigit()]
        element = head["type"][7:-1].split("x")[len(shape)]
        if element not in dtypes or head["type"].count("!"):
            continue
        dtype = dtypes[element]
        if "block_size" in operator.example.get("attributes", {}) or "group" in name or "BLOCK" in name:
            continue
        rows = _LARGE // np.dtype(dtype).itemsize // max(shape[-1], 1) * 4
        grown = (rows, shape[-1]) if len(shape) == 2 else (rows * shape[-1],)
        if name.endswith("per_token") and rest:
            continue
        attributes = {key: value if isinstance(value, (str, int, bool)) else json.dumps(value)
                      for key, value in (operator.example.get("attributes") or {}).items()}  # fmt: skip
        if attributes.get("axis") == 0 and rest:
            grown = (shape[0], rows)

        def make(
            first: str = first, grown: tuple[int, ...] = grown, dtype: str = dtype, rest: Any = rest
        ) -> list[Input]:
            inputs = [Input(first, _random(grown, dtype))]
            for other, tensor in rest:
                sizes = [int(part) for part in tensor["type"][7:].split("x")[:-1] if part.isdigit()]
                kind = {**dtypes, "i64": "i8"}[tensor["type"][7:-1].split("x")[-1]]
                inputs.append(Input(other, np.array(tensor["values"], kind).reshape(sizes)))
            return inputs

        yield _model(name, f"{int(np.prod(grown)) >> 20} million elements", make, **attributes)
    for name in ("quantize_per_channel", "fake_quantize_per_channel_affine"):
        extra: dict[str, Any] = (
            {"dtype": "qint8"} if name == "quantize_per_channel" else {"quant_min": 0, "quant_max": 255}
        )
        yield _model(f"torch.{name}", "1 million channels",
                     lambda: [Input("input", _random((4, 1 << 20))),
                              Input("scales", np.abs(_random((1 << 20,))) + 1e-3),
                              Input("zero_points", np.full(1 << 20, 3, "i4"))], axis=1, **extra)  # fmt: skip
    yield _model("onnx.QuantizeLinear", "1 million channels",
                 lambda: [Input("x", _random((4, 1 << 20))), Input("y_scale", np.abs(_random((1 << 20,))) + 1e-3),
                          Input("y_zero_point", np.full(1 << 20, 3, "i1"))], axis=1)  # fmt: skip
    yield _model("onnx.QuantizeLinear", "a scale for each 16 elements",
                 lambda: [Input("x", _random((15 << 20,))), Input("y_scale", np.abs(_random((15 << 16,))) + 1e-3)],
                 axis=0, block_size=16, output_dtype=3)  # fmt: skip
    yield _model("onnx.DequantizeLinear", "a scale for each 60 elements",
                 lambda: [Input("x", _random((59 << 20,), "i1")),
                          Input("x_scale", np.abs(_random((-(-(59 << 20) // 60),))) + 1e-3)],
                 axis=0, block_size=60)  # fmt: skip
    for method in ("choose_qparams_per_token", "choose_qparams_per_token_asymmetric"):
        yield _model(f"torch.quantized_decomposed.{method}", "7 million tokens",
                     lambda: [Input("input", _random((7 << 20, 2)))], dtype="int8")  # fmt: skip
    yield _model("torch.quantized_decomposed.quantize_per_token", "5 million tokens",
                 lambda: [Input("input", _random((5 << 20, 1))), Input("scales", np.abs(_random((5 << 20, 1))) + 1e-3),
                          Input("zero_points", np.zeros((5 << 20, 1), "i4"))],
                 quant_min=-128, quant_max=127, dtype="int8")  # fmt: skip
    yield _model("torch.quantized_decomposed.quantize_per_channel_group", "a million groups",
                 lambda: [Input("input", _random((1, 12 << 20))), Input("scales", np.abs(_random((1, 1 << 20))) + 1e-3),
                          Input("zero_points", np.zeros((1, 1 << 20), "i4"))],
                 quant_min=-8, quant_max=7, dtype="int8", group_size=12)  # fmt: skip
    yield _model("tosa.RESCALE", "65536 multipliers",
                 lambda: [Input("input", _random((200, ENTRIES), "i4")),
                          Input("multiplier", np.full(ENTRIES, 1 << 30, "i4")),
                          Input("shift", np.full(ENTRIES, 35, "i1")),
                          Input("input_zp", np.zeros(1, "i4")), Input("output_zp", np.zeros(1, "i1"))],
                 per_channel=True)  # fmt: skip
    yield _model("tosa.CAST_TO_BLOCK_SCALED", "15 million elements",
                 lambda: [Input("input_data", _random((_LARGE // 32, 32)))], output_data_type="f4E2M1FN")  # fmt: skip
    yield _json(
        "/v1/tosa/CAST_FROM_BLOCK_SCALED",
        "5 million elements",
        lambda: {
            "inputs": {
                "input_data": _tensor(f"tensor<{5 << 15}x32xi8>", _random((5 << 20,), "i1")),
                "input_scale": _tensor(f"tensor<{5 << 15}x1xf8E8M0FNU>", _random((5 << 15,), "u1") & 0x7F),
            }
        },
    )
    yield _model("quantize", "16 million f32", lambda: [Input("x", _random((16_700_000,)))],
                 output_type="!quant.uniform<i8:f32, 0.05:3>")  # fmt: skip
    yield _model("quantize", "60000 channels", lambda: [
        Input("x", _random((250, 60_000))), Input("scale", np.abs(_random((60_000,))) + 1e-3)],
        storage_type="i8", axis=1)  # fmt: skip
    yield _model("dequantize", "60 million i8", lambda: [Input("x", _random((60 << 20,), "i1"))],
                 input_type="!quant.uniform<i8:f32, 0.05:3>")  # fmt: skip
    yield _model("requantize", "16 million i32", lambda: [Input("x", _random((16_700_000,), "i4"))],
                 input_type="!quant.uniform<i32:f32, 0.01>", output_type="!quant.uniform<i8:f32, 0.05:3>")  # fmt: skip
    yield _model(
        "compare",
        "30 million i8",
        lambda: [Input("a", _random((30 << 20,), "i1")), Input("b", _random((30 << 20,), "i1")[::-1])],
    )


def _json_operators() -> Iterator[Case]:
    yield _json("/v1/onnx/QuantizeLinear", "4096 values", lambda: {
        "opset": 25,
        "inputs": {"x": {"type": "tensor<4096xf32>", "values": _numbers(4096)},
                   "y_scale": {"type": "tensor<4096xf32>", "values": _numbers(4096)}},
        "attributes": {"axis": 0, "output_dtype": 3}})  # fmt: skip
    yield _json("/v1/onednn/Quantize", "65536 scales", lambda: {
        "inputs": {"src": _tensor("tensor<16x65536xf32>", _random((16, ENTRIES)))},
        "attributes": {"dst_type": "i8", "qtype": "per_channel", "axis": 1, "scales": _numbers(ENTRIES),
                       "zps": [0] * ENTRIES}})  # fmt: skip


def cases() -> Iterator[Case]:
    """Yield all of them."""
    for group in (_conversions, _products, _calibration, _texts, _blocks, _modules, _operators, _json_operators):
        yield from group()
