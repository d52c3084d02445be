"""For each route that takes a body, requests within the default limits that cost as much as their shape allows.

Each case attacks one part of the cost: elements, parameters that are all different, texts, products, or the size of the
reply beside that of the request. `tests.load.worst_requests` sends them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from tests.load.case import (
    Case,
    form_case,
    json_case,
    model_case,
    noise,
    npy_case,
    numbers,
    positive,
    scale_list,
    tensor,
)
from tests.load.worst_models import operation_models
from tests.load.worst_operators import operator_cases
from tests.support.oip_wire import Input

# The default limits of a type's text, in bytes, and of a list.
TYPE_BYTES = 1 << 20
ENTRIES = 65_536


def _table() -> str:
    """A quantile type with as many entries as 16 bits have codes."""
    return "!quant.quantile<i16:f32, {" + ",".join(f"{each:.8g}" for each in sorted(numbers(ENTRIES, 1.0))) + "}>"


_SCALES = 55_000
_JSON_ELEMENTS = 6_200_000


def _conversions() -> Iterator[Case]:
    count = 1_500_000
    yield json_case("/v1/quantize", "1.5 million f32, stochastic", lambda: {
        "input": tensor(f"tensor<{count}xf32>", noise((count,))), "output_type": "!quant.uniform<i8:f32, 0.05:3>",
        "profile": "torch", "error": True})  # fmt: skip
    yield json_case("/v1/quantize", f"{_SCALES} scales along the last axis", lambda: {
        "input": tensor(f"tensor<20x{_SCALES}xf32>", noise((20, _SCALES))),
        "output_type": f"!quant.uniform<i8:f32:1, {scale_list(_SCALES)}>"})  # fmt: skip
    yield json_case("/v1/quantize", "a table of 65536 values", lambda: {
        "input": tensor("tensor<100000xf32>", noise((100_000,))),
        "output_type": f"!quant.uniform<{_table()}:f32, 0.5>", "profile": "quantile"})  # fmt: skip
    yield json_case("/v1/quantize", "f64, i48 beside", lambda: {
        "input": tensor("tensor<750000xf64>", noise((750_000,), "f8")),
        "output_type": "!quant.uniform<i32:f64, 0.0001:3>"})  # fmt: skip
    yield json_case("/v1/dequantize", "6 million i8 to f32", lambda: {
        "input": tensor(f"tensor<{_JSON_ELEMENTS}x!quant.uniform<i8:f32, 0.5:3>>",
                         noise((_JSON_ELEMENTS,), "i1"))})  # fmt: skip
    yield json_case("/v1/dequantize", "packed i2", lambda: {
        "input": tensor(f"tensor<{_JSON_ELEMENTS * 4}x!quant.uniform<i2:f32, 0.5:1>>",
                         noise((_JSON_ELEMENTS,), "i1")), "packing": "dense"})  # fmt: skip
    yield json_case("/v1/dequantize", f"{_SCALES} scales", lambda: {
        "input": tensor(f"tensor<100x{_SCALES}x!quant.uniform<i8:f32:1, {scale_list(_SCALES)}>>",
                         noise((100, _SCALES), "i1"))})  # fmt: skip
    for scheme in ("litert", "tosa", "onnx_reference", "fbgemm", "stablehlo"):
        yield json_case("/v1/requantize", f"{_SCALES} scales, {scheme}", lambda scheme=scheme: {  # type: ignore[misc]
            "input": tensor(f"tensor<{_SCALES}x!quant.uniform<i32:f32:0, {scale_list(_SCALES, zeros=False)}>>",
                             noise((_SCALES,), "i4")),
            "output_type": "!quant.uniform<i8:f32, 0.05:3>", "scheme": scheme})  # fmt: skip
    yield json_case("/v1/requantize", "65536 multipliers", lambda: {
        "input": tensor("tensor<65536xi32>", noise((65_536,), "i4")), "output_type": "!quant.uniform<i8:f32, 0.5>",
        "axis": 0, "scheme": "litert",
        "multipliers": [{"multiplier": (1 << 30) + index, "shift": -7} for index in range(65_536)]})  # fmt: skip
    yield json_case("/v1/requantize", "55000 scales on both sides", lambda: {
        "input": tensor(f"tensor<55000x!quant.uniform<i32:f32:0, {scale_list(55_000, zeros=False)}>>",
                         noise((55_000,), "i4")),
        "output_type": f"!quant.uniform<i8:f32:0, {scale_list(55_000)}>", "profile": "torch"})  # fmt: skip
    yield json_case("/v1/explain/quantize", "256 subnormals to f64", lambda: {
        "input": tensor("tensor<256xf64>", np.arange(1, 257, dtype="u8").view("f8")),
        "output_type": "!quant.uniform<i32:f64, 1.0e-300:3>"})  # fmt: skip
    yield json_case("/v1/explain/quantize", "256 elements, a table of 65536 values", lambda: {
        "input": tensor("tensor<256xf32>", noise((256,))),
        "output_type": f"!quant.uniform<{_table()}:f32, 0.5>", "profile": "quantile"})  # fmt: skip
    yield json_case(
        "/v1/explain/dequantize",
        "256 i32",
        lambda: {
            "input": tensor("tensor<256x!quant.uniform<i32:f32, 0.05:3>>", noise((256,), "i4")),
            "profile": "litert",
        },
    )
    yield json_case("/v1/explain/requantize", "256 i32", lambda: {
        "input": tensor("tensor<256x!quant.uniform<i32:f32, 0.01>>", noise((256,), "i4")),
        "output_type": "!quant.uniform<i8:f32, 0.05:3>", "profile": "torch_decomposed"})  # fmt: skip
    yield json_case("/v1/vectors", "2048 vectors of 12 sets of f64", lambda: {
        "operation": "quantize", "input_type": "f64", "output_type": "i16", "count": 2048})  # fmt: skip
    wide = (16_700_000,)
    yield npy_case(
        "/v1/npy/quantize", "16 million f32", lambda: noise(wide), output_type="!quant.uniform<i8:f32, 0.05:3>"
    )
    yield npy_case("/v1/npy/quantize", "16 million f32, stochastic", lambda: noise(wide),
               rounding="stochastic", seed="1", output_type="!quant.uniform<i8:f32, 0.05:3>")  # fmt: skip
    yield npy_case("/v1/npy/quantize", "32 million f16 to packed i2", lambda: noise((33_000_000,), "f2"),
               packing="dense", output_type="!quant.uniform<i2:f16, 0.05:1>")  # fmt: skip
    yield npy_case("/v1/npy/dequantize", "64 million i8 to f64", lambda: noise((63 << 20,), "i1"), output_type="f64",
               input_type="!quant.uniform<i8:f64, 0.05:3>")  # fmt: skip
    yield npy_case("/v1/npy/dequantize", "250 million packed i2", lambda: noise((63 << 20,), "u1"), packing="dense",
               input_type=f"tensor<{4 * (63 << 20)}x!quant.uniform<i2:f32, 0.05:1>>")  # fmt: skip
    yield npy_case("/v1/npy/requantize", "16 million i32", lambda: noise(wide, "i4"),
               input_type="!quant.uniform<i32:f32, 0.01>", output_type="!quant.uniform<i8:f32, 0.05:3>")  # fmt: skip
    yield npy_case("/v1/npy/requantize", "64 million i8, torch", lambda: noise((63 << 20,), "i1"), profile="torch",
               input_type="!quant.uniform<i8:f32, 0.01>", output_type="!quant.uniform<i8:f32, 0.05:3>")  # fmt: skip


def _type(shape: tuple[int, ...], storage: str) -> str:
    return f"tensor<{'x'.join(map(str, shape))}x!quant.uniform<{storage}:f32, 0.01>>"


def _products() -> Iterator[Case]:
    quantized = "!quant.uniform<i8:f32, 0.01:3>"

    def conv(what: str, x: tuple[int, ...], w: tuple[int, ...], storage: str = "i8", **members: Any) -> Case:
        kind = "i2" if storage == "i16" else "i1"
        return json_case("/v1/conv2d", what, lambda: {
            "input": tensor(_type(x, storage), noise(x, kind)),
            "weights": tensor(_type(w, storage), noise(w, kind)),
            "output_type": quantized, **members})  # fmt: skip

    yield conv("1x1 input, pads of 2047", (1, 1, 1, 1), (1, 16, 32, 1), pads=[2047] * 4)
    yield conv("1x1 input, kernel of a megabyte", (1, 1, 1, 1), (1, 1024, 1024, 1), pads=[2000] * 4)
    yield conv("one channel, wide kernel", (1, 1200, 1200, 1), (1, 81, 81, 1))
    yield conv("one channel to 16", (1, 1000, 1000, 1), (16, 17, 17, 1))
    yield conv("64 channels", (1, 180, 180, 64), (64, 7, 7, 64))
    yield conv("depthwise by 2", (1, 128, 128, 256), (512, 10, 10, 1), groups=256)
    yield conv("128 groups of 2", (1, 128, 128, 256), (256, 10, 10, 2), groups=128)
    yield conv("dilated, one channel", (1, 1500, 1500, 1), (1, 13, 13, 1), dilations=[3, 3])
    yield conv("16 bits", (1, 128, 128, 64), (64, 12, 12, 64), "i16", accumulator="i64", profile="stablehlo")
    yield conv("many groups", (1, 8, 8, 32768), (65536, 1, 1, 32), groups=1024)
    yield conv("stages of 65536 sums", (1, 256, 256, 1), (1, 120, 120, 1), trace=True, padding="same_upper")

    def matmul(what: str, a: tuple[int, ...], b: tuple[int, ...], storage: str = "i8", **members: Any) -> Case:
        kind = "i2" if storage == "i16" else "i1"
        return json_case("/v1/matmul", what, lambda: {
            "lhs": tensor(_type(a, storage), noise(a, kind)),
            "rhs": tensor(_type(b, storage), noise(b, kind)),
            "output_type": quantized, **members})  # fmt: skip

    yield matmul("1600 cubed", (1600, 1600), (1600, 1600))
    yield matmul("4096 by 4096, one product each", (4096, 1), (1, 4096))
    yield matmul("60000 products of 1 by 1", (60000, 1, 1), (60000, 1, 1))
    yield matmul("16 bits, 64 bits", (1200, 1200), (1200, 1200), "i16", accumulator="i64")
    yield matmul("a column of 16 bits", (1, 1400), (1400, 1400), "i16", accumulator="i64")
    yield json_case("/v1/matmul", "scales for each row and each column", lambda: {
        "lhs": tensor(f"tensor<256x1x!quant.uniform<i8:f32:0, {scale_list(256)}>>", noise((256, 1), "i1")),
        "rhs": tensor(f"tensor<1x256x!quant.uniform<i8:f32:1, {scale_list(256)}>>", noise((1, 256), "i1")),
        "output_type": quantized})  # fmt: skip
    yield json_case("/v1/matmul", "a bias of another scale for each of 55000 columns", lambda: {
        "lhs": tensor(f"tensor<1x1x{quantized}>", noise((1, 1), "i1")),
        "rhs": tensor(f"tensor<1x55000x!quant.uniform<i8:f32:1, {scale_list(55_000, zeros=False)}>>",
                       noise((1, 55_000), "i1")),
        "bias": tensor(f"tensor<55000x!quant.uniform<i32:f32:0, {scale_list(55_000, zeros=False)}>>",
                        noise((55_000,), "i4") >> 8),
        "output_type": f"!quant.uniform<i8:f32:1, {scale_list(55_000)}>"})  # fmt: skip
    yield json_case("/v1/add", "3 million, through real", lambda: {
        "lhs": tensor("tensor<3000000x!quant.uniform<i8:f32, 0.01:3>>", noise((3_000_000,), "i1")),
        "rhs": tensor("tensor<3000000x!quant.uniform<i8:f32, 0.02:3>>", noise((3_000_000,), "i1")),
        "output_type": quantized})  # fmt: skip
    yield json_case("/v1/add", "broadcast to 16 million", lambda: {
        "lhs": tensor("tensor<4096x1x!quant.uniform<i8:f32, 0.01:3>>", noise((4096, 1), "i1")),
        "rhs": tensor("tensor<1x4096x!quant.uniform<i8:f32, 0.02:3>>", noise((1, 4096), "i1")),
        "output_type": quantized, "profile": "litert_xnnpack"})  # fmt: skip


def _calibration() -> Iterator[Case]:
    count = 1_500_000

    def search(what: str, shape: tuple[int, ...], **members: Any) -> Case:
        text = "x".join(map(str, shape))
        return json_case("/v1/parameters/tensor", what, lambda: {
            "input": tensor(f"tensor<{text}xf32>", noise(shape)), "storage": "i8", **members})  # fmt: skip

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
        yield json_case("/v1/parameters/tensor", f"{method}, 256 tensors", lambda method=method: {  # type: ignore[misc]
            "inputs": [tensor("tensor<5000xf32>", (1 + index / 256) * noise((5000,))) for index in range(256)],
            "storage": "i8", "method": method})  # fmt: skip
    yield json_case("/v1/parameters/tensor", "percentile, 60 tensors of 1000 channels, each reaching further", lambda: {
        "inputs": [tensor("tensor<1000x20xf32>", (1 + index / 60) * noise((1000, 20))) for index in range(60)],
        "storage": "i8", "method": "percentile", "granularity": "per_axis", "axis": 0})  # fmt: skip
    yield json_case("/v1/parameters/tensor", "percentile, 256 tensors of 500 channels", lambda: {
        "inputs": [tensor("tensor<500x10xf32>", noise((500, 10))) for _ in range(256)],
        "storage": "i8", "method": "percentile", "granularity": "per_axis", "axis": 0})  # fmt: skip
    yield json_case("/v1/parameters/tensor", "percentile of magnitudes, 60 tensors of 900 channels", lambda: {
        "inputs": [tensor("tensor<900x20xf32>", (1 + index / 60) * noise((900, 20))) for index in range(60)],
        "storage": "i8", "method": "percentile", "magnitudes": True, "granularity": "per_axis", "axis": 0,
        "bins": 512})  # fmt: skip
    for scheme in ("litert", "torch_observer", "onnxruntime", "onednn"):
        yield json_case("/v1/parameters/range", f"65536 ranges, {scheme}", lambda scheme=scheme: {  # type: ignore[misc]
            "minimums": [-each for each in numbers(ENTRIES)], "maximums": numbers(ENTRIES, 1.0), "axis": 0,
            "storage": "i8", "scheme": scheme})  # fmt: skip
    yield json_case("/v1/parameters/bias", "65536 scales", lambda: {
        "input_scale": 0.5, "weight_scales": numbers(ENTRIES), "scheme": "litert",
        "bias": tensor("tensor<65536xf32>", noise((ENTRIES,)))})  # fmt: skip
    for scheme in ("litert", "tosa", "fbgemm"):
        yield json_case("/v1/parameters/multiplier", f"4096 factors, {scheme}", lambda scheme=scheme: {  # type: ignore[misc]
            "factors": [f"{each!r}" for each in numbers(4096)], "scheme": scheme})  # fmt: skip
    yield json_case("/v1/parameters/multiplier", "4096 triples of long texts", lambda: {
        "scales": [dict.fromkeys(("input", "weight", "output"), f"{each:.100f}") for each in numbers(4096)],
        "scheme": "litert"})  # fmt: skip
    yield json_case("/v1/fake_quantize", "65536 ranges", lambda: {
        "input": tensor("tensor<10x65536xf32>", noise((10, ENTRIES))),
        "minimums": [-each for each in numbers(ENTRIES)], "maximums": numbers(ENTRIES, 1.0), "axis": 1})  # fmt: skip
    yield json_case("/v1/fake_quantize", "1.5 million f32", lambda: {
        "input": tensor(f"tensor<{count}xf32>", noise((count,))),
        "minimums": [-1.0], "maximums": [1.0]})  # fmt: skip


def _texts() -> Iterator[Case]:
    yield json_case("/v1/types/parse", f"{_SCALES} scales", lambda: {
        "text": f"tensor<{_SCALES}x!quant.uniform<i8:f32:0, {scale_list(_SCALES)}>>"})  # fmt: skip
    yield json_case("/v1/types/parse", "60000 short scales", lambda: {
        "text": f"tensor<60000x!quant.uniform<i8:f32:0, {{{', '.join(['0.5'] * 60_000)}}}>>"})  # fmt: skip
    yield json_case(
        "/v1/types/parse",
        "blocks in 32 dimensions",
        lambda: {"text": "!quant.uniform<i8:f32:{0:1, 1:2}, {" + ", ".join(["{0.5, 0.25}"] * 30_000) + "}>"},
    )
    yield json_case(
        "/v1/types/parse",
        "16000 scales of 60 digits",
        lambda: {
            "text": "tensor<16000x!quant.uniform<i8:f64:0, {"
            + ", ".join(f"{each:.60f}" for each in numbers(16_000))
            + "}>>"
        },
    )
    yield json_case(
        "/v1/types/parse",
        "a table of 65536 values",
        lambda: {"text": _table()},
    )
    yield json_case(
        "/v1/types/translate",
        f"{_SCALES} scales to all systems",
        lambda: {"type": f"tensor<{_SCALES}x!quant.uniform<i8:f32:0, {scale_list(_SCALES, zeros=False)}>>"},
    )
    yield json_case(
        "/v1/types/translate",
        "60000 scales with zero points",
        lambda: {"type": f"tensor<60000x!quant.uniform<i8:f32:0, {scale_list(60_000, 1.0)[:TYPE_BYTES]}>>"},
    )
    yield json_case("/v1/types/translate", f"{ENTRIES} scales of onnx", lambda: {
        "onnx": {"x_type": "i8", "x_scale": numbers(ENTRIES), "scale_shape": [ENTRIES], "axis": 0,
                 "x_zero_point": [index % 100 for index in range(ENTRIES)]}, "shape": [ENTRIES]})  # fmt: skip
    yield json_case("/v1/types/translate", "4096 multipliers of tosa", lambda: {
        "tosa": {"input": f"tensor<4096x!quant.uniform<i8:f32:0, {scale_list(4096, zeros=False)}>>",
                 "output_type": "i8", "multiplier": [(1 << 30) + index for index in range(4096)], "shift": [30] * 4096,
                 "per_channel": True}})  # fmt: skip
    yield json_case("/v1/compare", "3 million i8", lambda: {
        "a": tensor("tensor<3000000x!quant.uniform<i8:f32, 0.5>>", noise((3_000_000,), "i1")),
        "b": tensor("tensor<3000000x!quant.uniform<i8:f32, 0.25:3>>", noise((3_000_000,), "i1")),
        "max_reported": 100})  # fmt: skip
    yield json_case("/v1/compare", "25000 scales on both sides", lambda: {
        "a": tensor(f"tensor<100x25000x!quant.uniform<i8:f32:1, {scale_list(25_000)}>>", noise((100, 25_000), "i1")),
        "b": tensor(f"tensor<100x25000x!quant.uniform<i8:f32:1, {scale_list(25_000, 2e-3)}>>",
                     noise((100, 25_000), "i1"))})  # fmt: skip
    yield json_case(
        "/v1/tosa/rescale",
        "65536 multipliers",
        lambda: {
            "input": tensor("tensor<1x65536xi32>", noise((1, ENTRIES), "i4")),
            "output_type": "i8",
            "multiplier": [(1 << 30) + index for index in range(ENTRIES)],
            "shift": [35] * ENTRIES,
            "per_channel": True,
        },
    )
    yield json_case("/v1/tosa/rescale", "750000 i48", lambda: {
        "input": tensor("tensor<750000xi48>", noise((750_000,), "i4").astype("i8")), "output_type": "i16",
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
        "Q8_0",
    )
    for name in formats:
        yield json_case("/v1/blocks/quantize", f"1.5 million, {name}", lambda name=name: {  # type: ignore[misc]
            "input": tensor(f"tensor<{count}xf32>", noise((count,))), "format": name})  # fmt: skip
        yield model_case(
            "quantize_blocks", f"16 million, {name}", lambda: [Input("x", noise((16_700_032,)))], format=name
        )
    yield json_case(
        "/v1/blocks/dequantize",
        "6 million, mxfp8",
        lambda: {
            "format": "mxfp8_e4m3",
            "output_type": f"tensor<{5 << 20}xf32>",
            "elements": tensor(f"tensor<{5 << 20}xf8E4M3FN>", noise((5 << 20,), "u1") & 0x7E),
            "scales": tensor(f"tensor<{(5 << 20) // 32}xf8E8M0FNU>", noise(((5 << 20) // 32,), "u1") & 0x7F),
        },
    )
    yield json_case("/v1/blocks/dequantize", "9 million, Q4_0", lambda: {
        "format": "Q4_0", "output_type": f"tensor<{280_000 * 32}xf32>",
        "blocks": tensor("tensor<280000x18xui8>", noise((280_000, 18), "u1"))})  # fmt: skip
    yield model_case("dequantize_blocks", "60 million, mxfp8",
                 lambda: [Input("elements", noise((60 << 20,), "u1") & 0x7E),
                          Input("scales", noise(((60 << 20) // 32,), "u1") & 0x7F)],
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
    yield json_case("/v1/lower", "2490 operations, 16 passes", lambda: {
        "module": chain(2490, adds), "passes": ["stablehlo-legalize-quant-to-math"] * 16})  # fmt: skip
    yield json_case("/v1/lower", "casts, lowered", lambda: {
        "module": chain(780, casts), "passes": ["lower-quant-ops", "strip-func-quant-types"]})  # fmt: skip
    yield json_case("/v1/lower", "quantized additions", lambda: {
        "module": chain(860, sums, type_=short), "passes": ["stablehlo-legalize-quant-to-math"]})  # fmt: skip
    yield json_case("/v1/lower", "a constant of 30000 elements", lambda: {
        "module": "func.func @main() -> tensor<30000xi32> {\n%c = stablehlo.constant dense<["
        + ",".join(str(index % 1000) for index in range(30_000)) + "]> : tensor<30000xi32>\n"
        "return %c : tensor<30000xi32>\n}"})  # fmt: skip
    yield json_case("/v1/evaluate", "2490 additions", lambda: {
        "module": chain(2490, adds), "inputs": [{"type": "tensor<8xf32>", "values": [0.0] * 8}]})  # fmt: skip
    side = 640
    matrix = f"tensor<{side}x{side}xf32>"
    yield json_case("/v1/evaluate", "products of matrices", lambda: {
        "module": f"func.func @main(%x: {matrix}) -> {matrix} {{\n%0 = stablehlo.dot %x, %x : ({matrix}, {matrix}) -> "
        f"{matrix}\nreturn %0 : {matrix}\n}}",
        "inputs": [tensor(matrix, noise((side, side)))]})  # fmt: skip
    yield json_case("/v1/evaluate", "a convolution", lambda: {
        "module": "func.func @main(%x: tensor<1x64x64x32xf32>, %w: tensor<5x5x32x32xf32>) -> tensor<1x60x60x32xf32> {\n"
        "%0 = stablehlo.convolution(%x, %w) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f], window = {} "
        "{batch_group_count = 1 : i64, feature_group_count = 1 : i64} : "
        "(tensor<1x64x64x32xf32>, tensor<5x5x32x32xf32>) -> tensor<1x60x60x32xf32>\n"
        "return %0 : tensor<1x60x60x32xf32>\n}",
        "inputs": [tensor("tensor<1x64x64x32xf32>", noise((1, 64, 64, 32))),
                   tensor("tensor<5x5x32x32xf32>", noise((5, 5, 32, 32)))]})  # fmt: skip


def _models() -> Iterator[Case]:
    yield model_case("quantize", "16 million f32", lambda: [Input("x", noise((16_700_000,)))],
                 output_type="!quant.uniform<i8:f32, 0.05:3>")  # fmt: skip
    yield model_case("quantize", "60000 channels", lambda: [
        Input("x", noise((250, 60_000))), Input("scale", positive((60_000,)))],
        storage_type="i8", axis=1)  # fmt: skip
    yield model_case("dequantize", "60 million i8", lambda: [Input("x", noise((60 << 20,), "i1"))],
                 input_type="!quant.uniform<i8:f32, 0.05:3>")  # fmt: skip
    yield model_case(
        "explain_quantize",
        "256 subnormals to f64",
        lambda: [Input("x", np.arange(1, 257, dtype="u8").view("f8"))],
        output_type="!quant.uniform<i32:f64, 1.0e-300:3>",
    )
    yield model_case("explain_dequantize", "256 i32", lambda: [Input("x", noise((256,), "i4"))],
                     input_type="!quant.uniform<i32:f32, 0.05:3>", profile="litert")  # fmt: skip
    yield model_case("explain_requantize", "256 i32", lambda: [Input("x", noise((256,), "i4"))],
                     input_type="!quant.uniform<i32:f32, 0.01>", output_type="!quant.uniform<i8:f32, 0.05:3>",
                     profile="torch_decomposed")  # fmt: skip
    yield model_case("vectors", "2048 vectors of 12 sets", list, operation="tosa.RESCALE", input_type="i32",
                     output_type="i8", count=2048)  # fmt: skip
    yield model_case("requantize", "16 million i32", lambda: [Input("x", noise((16_700_000,), "i4"))],
                 input_type="!quant.uniform<i32:f32, 0.01>", output_type="!quant.uniform<i8:f32, 0.05:3>")  # fmt: skip
    yield model_case("requantize", "50000 scales on both sides",
                     lambda: [Input("x", noise((250, 50_000), "i4"))], profile="torch",
                     input_type=f"!quant.uniform<i32:f32:1, {scale_list(50_000, zeros=False)}>",
                     output_type=f"!quant.uniform<i8:f32:1, {scale_list(50_000)}>")  # fmt: skip
    yield model_case("requantize", "65536 multipliers", lambda: [
        Input("x", noise((200, ENTRIES), "i4")), Input("multiplier", np.full(ENTRIES, 1 << 30, "i8")),
        Input("shift", np.full(ENTRIES, -7, "i4"))],
        output_type="!quant.uniform<i8:f32, 0.5>", axis=1, scheme="litert")  # fmt: skip
    yield model_case(
        "compare",
        "30 million i8",
        lambda: [Input("a", noise((30 << 20,), "i1")), Input("b", noise((30 << 20,), "i1")[::-1])],
    )


def _forms() -> Iterator[Case]:
    yield form_case("/v1/multipart/quantize", "60000 channels", lambda: {
        "x": noise((250, 60_000)), "scale": positive((60_000,))}, storage_type="i8", axis="1")  # fmt: skip
    yield form_case("/v1/multipart/quantize", "scales found, 60000 channels", lambda: {
        "x": noise((250, 60_000))}, output_type="!quant.any<i8:f32>", axis="1", method="percentile",
        output="npz")  # fmt: skip
    yield form_case("/v1/multipart/dequantize", "60 million i8, 60000 channels", lambda: {
        "x": noise((1000, 60_000), "i1"), "scale": positive((60_000,))}, storage_type="i8", axis="1")  # fmt: skip
    yield form_case("/v1/multipart/requantize", "65536 multipliers", lambda: {
        "x": noise((200, ENTRIES), "i4"), "multiplier": np.full(ENTRIES, 1 << 30, "i8"),
        "shift": np.full(ENTRIES, -7, "i4")}, input_type="i32", output_type="!quant.uniform<i8:f32, 0.5>", axis="1",
        scheme="litert")  # fmt: skip


def _protocol() -> Iterator[Case]:
    yield model_case("quantize/versions/1", "32 million f16", lambda: [Input("x", noise((32_000_000,), "f2"))],
                     output_type="!quant.uniform<i8:f16, 0.05:3>")  # fmt: skip
    yield Case("/v2/repository/index", "every model", lambda: (b"", {}))


def cases() -> Iterator[Case]:
    """Yield all of them."""
    json_routes = (_conversions, _products, _calibration, _texts, _blocks, _modules)
    for group in (*json_routes, _forms, _models, operation_models, _protocol, operator_cases):
        yield from group()
