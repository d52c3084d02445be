"""For each operation, calls within the default limits that cost as much as their shape allows, in any form.

An operation has its example with tensors as large as the body allows. Here are those where that does not work or is
not what costs most: each call attacks one part of the cost, such as elements, parameters that are all different, texts,
products, or the size of the reply beside that of the request.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import isqrt, prod
from typing import Any

import numpy as np

from requant.mlir import parse_type, print_type
from requant.mlir.types import TensorType
from requant.operators.element_names import container
from tests.load.case import Array, Call, Calls, million, noise, numbers, of, scale_list
from tests.requests.catalog import Entry

# The default limits of a type's text, in bytes, and of a list.
TYPE_BYTES = 1 << 20
ENTRIES = 65_536
_SCALES = 55_000
_SUMS = "!quant.uniform<i32:f32, 0.01>"
_I8 = "!quant.uniform<i8:f32, 0.05:3>"
_I16 = "!quant.uniform<i16:f32, 0.01>"


def fixed(*calls: Call) -> Calls:
    """Calls that are the same in every form."""
    return lambda budget: iter(calls)


def call(what: str, **body: Any) -> Call:
    """A call whose tensors are small."""
    return Call(what, lambda: body)


def along(axis: int, count: int, storage: str = "i8", *, zeros: bool = True, first: float = 1e-3) -> str:
    """A type of so many scales."""
    return f"!quant.uniform<{storage}:f32:{axis}, {scale_list(count, first, zeros)}>"


def _array(tensor: Mapping[str, Any], grows: int, times: int) -> Mapping[str, Any]:
    """A tensor of an example that is larger along one dimension; `times` 1: as it is."""
    type_ = parse_type(tensor["type"])
    assert isinstance(type_, TensorType)
    dtype, shape = container(type_.element), [size or 0 for size in type_.shape or ()]
    assert dtype is not None
    if times == 1:
        return tensor
    shape[grows] *= times
    data = noise(tuple(shape), dtype.str[1:])
    is_boolean = print_type(type_.element) in ("i1", "ui1")
    return of(data & 1 if is_boolean else data, print_type(type_.element))


def _size(tensor: Mapping[str, Any]) -> tuple[tuple[int, ...], int]:
    type_ = parse_type(tensor["type"])
    assert isinstance(type_, TensorType)
    dtype, shape = container(type_.element), tuple(size or 0 for size in type_.shape or ())
    assert dtype is not None
    return shape, dtype.itemsize * prod(shape)


_IN_STAGES = ("com.microsoft.", "litert.", "qonnx.", "tosa.AVG", "tosa.MAX", "tosa.MUL", "tosa.TABLE")
_GROWING = ("litert.PAD", "litert.RESIZE_BILINEAR", "litert.RESIZE_NEAREST_NEIGHBOR")
_MOST_IN_STAGES = 1 << 24


def grown(entry: Entry) -> Calls:
    """The example with its first tensor, and those of its shape, as large as possible; an axis of scales stays."""

    def calls(budget: int) -> Iterator[Call]:
        body = {**entry.example, "trace": False} if "trace" in entry.example else dict(entry.example)
        tensors = body["inputs"] if entry.operator else {name: body[name] for name in entry.tensors if name in body}
        sizes = {name: _size(tensor) for name, tensor in tensors.items()}
        # An operand before the tensors may be a scale.
        shape = next(each for each, _ in sizes.values() if each)
        growing = [name for name, (each, _) in sizes.items() if each == shape]
        times = (budget - 4096) // sum(sizes[name][1] for name in growing)
        if entry.model.startswith(_IN_STAGES) and "QUANTIZE" not in entry.model:
            # All of their outputs are computed in stages, and so many are the most; some have more than the input.
            most = _MOST_IN_STAGES // (4 if entry.model in _GROWING else 1)
            times = min(times, most // (len(growing) * prod(shape)))
        grows = 1 if body.get("attributes", {}).get("axis") == 0 and len(tensors) > 1 and len(shape) > 1 else 0

        def made() -> dict[str, Any]:
            larger = {name: _array(tensors[name], grows, times) for name in growing}
            return {**body, "inputs": {**tensors, **larger}} if entry.operator else {**body, **larger}

        yield Call(f"{million(prod(shape) * times)} elements", made)

    return calls


def _table() -> str:
    """A quantile type with as many entries as 16 bits have codes."""
    return "!quant.quantile<i16:f32, {" + ",".join(f"{each:.8g}" for each in sorted(numbers(ENTRIES, 1.0))) + "}>"


def _quantize(budget: int) -> Iterator[Call]:
    yield Call("stochastic", lambda: {"input": of(noise((budget // 4,))), "output_type": _I8, "rounding": "stochastic"})
    yield Call(
        "with its error",
        lambda: {"input": of(noise((budget // 4,))), "output_type": _I8, "profile": "torch", "error": True},
    )
    rows = max(1, (budget - TYPE_BYTES) // (4 * _SCALES))
    yield Call(
        f"{_SCALES} scales along the last axis",
        lambda: {"input": of(noise((rows, _SCALES))), "output_type": along(1, _SCALES)},
    )
    yield Call(
        "a table of 65536 values",
        lambda: {
            "input": of(noise((100_000,))),
            "output_type": f"!quant.uniform<{_table()}:f32, 0.5>",
            "profile": "quantile",
        },
    )
    yield Call("f64, i48 beside", lambda: {
        "input": of(noise((budget // 8,), "f8")), "output_type": "!quant.uniform<i32:f64, 0.0001:3>"})  # fmt: skip


def _dequantize(budget: int) -> Iterator[Call]:
    yield Call(
        "packed i2",
        lambda: {
            "input": {"type": f"tensor<{budget}x!quant.uniform<i2:f32, 0.5:1>>", "data": noise((budget // 4,), "i1")},
            "packing": "dense",
        },
    )
    rows = (budget - TYPE_BYTES) // _SCALES
    yield Call(f"{_SCALES} scales", lambda: {"input": of(noise((rows, _SCALES), "i1"), along(1, _SCALES))})  # fmt: skip


def _requantize(budget: int) -> Iterator[Call]:
    def sums() -> Any:
        return of(noise((_SCALES,), "i4"), along(0, _SCALES, "i32", zeros=False))

    for scheme in ("litert", "tosa", "onnx_reference", "fbgemm", "stablehlo"):
        yield Call(
            f"{_SCALES} scales, {scheme}",
            lambda scheme=scheme: {  # type: ignore[misc]
                "input": sums(),
                "output_type": _I8,
                "scheme": scheme,
            },
        )
    yield Call(
        "65536 multipliers",
        lambda: {
            "input": of(noise((budget // (4 * ENTRIES) - 12, ENTRIES), "i4")),
            "axis": 1,
            "scheme": "litert",
            "output_type": "!quant.uniform<i8:f32, 0.5>",
            "multipliers": [{"multiplier": (1 << 30) + index, "shift": -7} for index in range(ENTRIES)],
        },
    )
    yield Call(f"{_SCALES} scales on both sides", lambda: {
        "input": sums(), "output_type": along(0, _SCALES), "profile": "torch"})  # fmt: skip


def _products(first: str, second: str, name: str, *calls: tuple[str, tuple[int, ...], tuple[int, ...], Any]) -> Calls:
    """Products of two tensors of i8, or of the storage that is said."""

    def made(x: tuple[int, ...], w: tuple[int, ...], storage: str = "i8", **more: Any) -> dict[str, Any]:
        element = f"!quant.uniform<{storage}:f32, 0.01>"
        dtype = f"i{int(storage[1:]) // 8}"
        tensors = {first: of(noise(x, dtype), element), second: of(noise(w, dtype), element)}
        return {**tensors, "output_type": "!quant.uniform<i8:f32, 0.01:3>", **more}

    return fixed(*(Call(what, lambda x=x, w=w, more=more: made(x, w, **more)) for what, x, w, more in calls))  # type: ignore[misc]


_I64 = {"storage": "i16", "accumulator": "i64"}
_CONV2D = _products(
    "input", "weights", "conv2d",
    ("1x1 input, pads of 2047", (1, 1, 1, 1), (1, 16, 32, 1), {"pads": [2047] * 4}),
    ("1x1 input, kernel of a megabyte", (1, 1, 1, 1), (1, 1024, 1024, 1), {"pads": [2000] * 4}),
    ("one channel, wide kernel", (1, 1200, 1200, 1), (1, 81, 81, 1), {}),
    ("one channel to 16", (1, 1000, 1000, 1), (16, 17, 17, 1), {}),
    ("64 channels", (1, 180, 180, 64), (64, 7, 7, 64), {}),
    ("depthwise by 2", (1, 128, 128, 256), (512, 10, 10, 1), {"groups": 256}),
    ("128 groups of 2", (1, 128, 128, 256), (256, 10, 10, 2), {"groups": 128}),
    ("dilated, one channel", (1, 1500, 1500, 1), (1, 13, 13, 1), {"dilations": [3, 3]}),
    ("16 bits", (1, 128, 128, 64), (64, 12, 12, 64), {**_I64, "profile": "stablehlo"}),
    ("many groups", (1, 8, 8, 32768), (65536, 1, 1, 32), {"groups": 1024}),
    ("stages of 65536 sums", (1, 256, 256, 1), (1, 120, 120, 1), {"trace": True, "padding": "same_upper"}),
)  # fmt: skip


def _matmul(budget: int) -> Iterator[Call]:
    side, row = min(2000, isqrt(budget // 2)), isqrt(budget) - 1
    yield from _products(
        "lhs", "rhs", "matmul",
        (f"{side} cubed", (side, side), (side, side), {}),
        ("4096 by 4096, one product each", (4096, 1), (1, 4096), {}),
        (f"one row by {row} squared", (1, row), (row, row), {}),
        ("60000 products of 1 by 1", (60000, 1, 1), (60000, 1, 1), {}),
        ("16 bits, 64 bits", (1200, 1200), (1200, 1200), _I64),
        ("a column of 16 bits", (1, 1400), (1400, 1400), _I64),
        ("stages of 65536 sums", (256, 8_000), (8_000, 256), {"trace": True}),
    )(budget)  # fmt: skip
    yield Call(
        "scales for each row and each column",
        lambda: {
            "lhs": of(noise((256, 1), "i1"), along(0, 256)),
            "rhs": of(noise((1, 256), "i1"), along(1, 256)),
            "output_type": _I8,
        },
    )
    yield Call("a bias of another scale for each of 55000 columns", lambda: {
        "lhs": of(noise((1, 1), "i1"), _I8), "rhs": of(noise((1, _SCALES), "i1"), along(1, _SCALES, zeros=False)),
        "bias": of(noise((_SCALES,), "i4") >> 8, along(0, _SCALES, "i32", zeros=False)),
        "output_type": along(1, _SCALES)})  # fmt: skip


def _add(budget: int) -> Iterator[Call]:
    def sides(lhs: Array, rhs: Array, **more: Any) -> dict[str, Any]:
        return {"lhs": of(lhs, _I8), "rhs": of(rhs, "!quant.uniform<i8:f32, 0.02:3>"), "output_type": _I8, **more}

    half = noise((min(budget // 2, 1 << 24),), "i1")
    for profile in ("litert", "stablehlo", "litert_xnnpack"):
        yield Call(f"{million(half.size)}, {profile}", lambda profile=profile: sides(half, half, profile=profile))  # type: ignore[misc]
    column = noise((4096, 1), "i1")
    yield Call("broadcast to 16 million", lambda: sides(column, column.T.copy(), profile="litert_xnnpack"))


def _compare(budget: int) -> Iterator[Call]:
    yield Call(
        "all that differ",
        lambda: {
            "a": of(noise((budget // 2,), "i1"), "!quant.uniform<i8:f32, 0.5>"),
            "b": of(noise((budget // 2,), "i1"), "!quant.uniform<i8:f32, 0.25:3>"),
            "max_reported": 100,
        },
    )
    rows = (budget - TYPE_BYTES) // (2 * 25_000)
    yield Call("25000 scales on both sides", lambda: {
        "a": of(noise((rows, 25_000), "i1"), along(1, 25_000)),
        "b": of(noise((rows, 25_000), "i1"), along(1, 25_000, first=2e-3))})  # fmt: skip


_CHANNELS: dict[str, Any] = {"granularity": "per_axis", "axis": 0}
_METHODS = ("min_max", "percentile", "entropy", "moving_average", "torch_histogram", "entropy_model_optimizer")


def _derive_from_tensor(budget: int) -> Iterator[Call]:
    def search(what: str, shape: tuple[int, ...], **more: Any) -> Call:
        return Call(what, lambda: {"input": of(noise(shape)), "storage": "i8", **more})

    count = budget // 4
    width = count // ENTRIES
    rows = (ENTRIES, width)
    for method in _METHODS:
        yield search(f"{method}, one range", (count,), method=method)
    for method in _METHODS[:4]:
        yield search(f"{method}, 65536 channels", rows, method=method, **_CHANNELS)
        yield search(f"{method}, 65536 channels, last axis", rows[::-1], method=method, granularity="per_axis", axis=1)
    yield search("min_max, 65536 blocks", (4096, 256), method="min_max", granularity="sub_channel", block_sizes=[1, 16])
    for what, bins in (("percentile, 8192 bins, 30000 channels", 8192), ("percentile, 16 bins, 65536 channels", 16)):
        shape = (30_000, count // 30_000) if bins == 8192 else rows
        yield search(what, shape, method="percentile", bins=bins, **_CHANNELS)
    magnitudes = {"method": "percentile", "magnitudes": True, **_CHANNELS}
    yield search("percentile of magnitudes, 65536 channels", rows, **magnitudes)
    model_optimizer = {"method": "entropy_model_optimizer"}
    yield search("entropy_model_optimizer, 65536 channels", rows, **model_optimizer, bins=40, **_CHANNELS)
    yield search("entropy_model_optimizer, 8192 bins", (count,), **model_optimizer, bins=8192)
    yield search("entropy, most bins", (count,), method="entropy", bins=8192, quantized_bins=128)
    yield search("entropy, 1000 channels", (1000, 1000), method="entropy", bins=700, quantized_bins=2, **_CHANNELS)
    yield search("torch_histogram, 4096 bins", (count,), method="torch_histogram", bins=4096)
    candidates = 510_000_000 // count
    yield search(f"mse, {candidates} candidates", (count,), method="mse", candidates=candidates)
    yield search("mse, 8 candidates, 65536 channels", rows, method="mse", candidates=8, **_CHANNELS)

    def several(what: str, tensors: int, shape: tuple[int, ...], reach: float = 1, **more: Any) -> Call:
        factors = [np.float32(1 + reach * index / tensors) for index in range(tensors)]
        return Call(what, lambda: {"inputs": [of(each * noise(shape)) for each in factors], "storage": "i8", **more})

    for method in ("torch_histogram", "percentile", "moving_average", "min_max", "mse"):
        yield several(f"{method}, 256 tensors", 256, (5000,), method=method)
    percentile = {"method": "percentile", **_CHANNELS}
    yield several("percentile, 60 tensors of 1000 channels, each reaching further", 60, (1000, 20), **percentile)
    yield several("percentile, 256 tensors of 500 channels", 256, (500, 10), 0, **percentile)
    yield several("percentile of magnitudes, 60 tensors of 900 channels", 60, (900, 20), **magnitudes, bins=512)


def _ends() -> dict[str, Any]:
    return {"minimums": [-each for each in numbers(ENTRIES)], "maximums": numbers(ENTRIES, 1.0)}


def _fake_quantize(budget: int) -> Iterator[Call]:
    rows = budget // (4 * ENTRIES) - 8
    yield Call("65536 ranges", lambda: {"input": of(noise((rows, ENTRIES))), **_ends(), "axis": 1})


def _derive_bias(budget: int) -> Iterator[Call]:
    bias = {"input_scale": 0.5, "weight_scales": [0.25], "scheme": "torch"}
    yield Call("elements of one scale", lambda: {**bias, "bias": of(noise((budget // 4,)))})
    yield Call("65536 scales", lambda: {
        **bias, "weight_scales": numbers(ENTRIES), "scheme": "litert", "bias": of(noise((ENTRIES,)))})  # fmt: skip


def _quantize_blocks(budget: int) -> Iterator[Call]:
    for name in ("mxfp6_e2m3", "mxfp6_e3m2", "mxfp8_e4m3", "mxfp8_e5m2", "mxint8", "nvfp4", "Q4_0", "Q8_0"):
        yield Call(name, lambda name=name: {"input": of(noise((budget // 128, 32))), "format": name})  # type: ignore[misc]


def _dequantize_blocks(budget: int) -> Iterator[Call]:
    rows = budget // 34
    yield Call(
        "mxfp8",
        lambda: {
            "format": "mxfp8_e4m3",
            "output_type": f"tensor<{rows}x32xf32>",
            "elements": of(noise((rows, 32), "u1") & 0x7E, "f8E4M3FN"),
            "scales": of(noise((rows, 1), "u1") & 0x7F, "f8E8M0FNU"),
        },
    )
    yield Call("Q4_0", lambda: {
        "format": "Q4_0", "output_type": f"tensor<{budget // 18 * 32}xf32>",
        "blocks": of(noise((budget // 18, 18), "u1"))})  # fmt: skip


def _explained(source: Array, element: str = "", **more: Any) -> Calls:
    """As many elements as are explained."""
    return fixed(Call(f"{source.size} elements", lambda: {"input": of(source, element), **more}))


def _explain_quantize(budget: int) -> Iterator[Call]:
    subnormals = np.arange(1, 257, dtype="u8").view("f8")
    yield from _explained(subnormals, output_type="!quant.uniform<i32:f64, 1.0e-300:3>")(budget)
    table = f"!quant.uniform<{_table()}:f32, 0.5>"
    yield call("a table of 65536 values", input=of(noise((256,))), output_type=table, profile="quantile")


def _derive_multiplier(budget: int) -> Iterator[Call]:
    for scheme in ("litert", "tosa", "fbgemm"):
        yield call(f"4096 factors, {scheme}", factors=[repr(each) for each in numbers(4096)], scheme=scheme)
    scales = [dict.fromkeys(("input", "weight", "output"), f"{each:.100f}") for each in numbers(4096)]
    yield call("4096 triples of long texts", scales=scales, scheme="litert")


def _parse_type(budget: int) -> Iterator[Call]:
    yield call(f"{_SCALES} scales", text=f"tensor<{_SCALES}x{along(0, _SCALES)}>")
    short = ", ".join(["0.5"] * 60_000)
    yield call("60000 short scales", text=f"tensor<60000x!quant.uniform<i8:f32:0, {{{short}}}>>")
    blocks = ", ".join(["{0.5, 0.25}"] * 30_000)
    yield call("blocks in 32 dimensions", text=f"!quant.uniform<i8:f32:{{0:1, 1:2}}, {{{blocks}}}>")
    digits = ", ".join(f"{each:.60f}" for each in numbers(16_000))
    yield call("16000 scales of 60 digits", text=f"tensor<16000x!quant.uniform<i8:f64:0, {{{digits}}}>>")
    yield call("a table of 65536 values", text=_table())


def _translate_type(budget: int) -> Iterator[Call]:
    yield call(f"{_SCALES} scales to all systems", type=f"tensor<{_SCALES}x{along(0, _SCALES, zeros=False)}>")
    zeros = scale_list(60_000, 1.0)[:TYPE_BYTES]
    yield call("60000 scales with zero points", type=f"tensor<60000x!quant.uniform<i8:f32:0, {zeros}>>")
    operands = {"x_type": "i8", "x_scale": numbers(ENTRIES), "scale_shape": [ENTRIES], "axis": 0}
    yield call(
        f"{ENTRIES} scales of onnx",
        shape=[ENTRIES],
        onnx={**operands, "x_zero_point": [index % 100 for index in range(ENTRIES)]},
    )
    yield call("4096 multipliers of tosa", tosa={
        "input": f"tensor<4096x{along(0, 4096, zeros=False)}>", "output_type": "i8", "per_channel": True,
        "multiplier": [(1 << 30) + index for index in range(4096)], "shift": [30] * 4096})  # fmt: skip


def _chain(operations: int, line: str, type_: str = "tensor<8xf32>") -> str:
    lines = [line.format(index + 1, f"%{index}" if index else "%x") for index in range(operations)]
    body = "\n".join(lines)
    return f"func.func @main(%x: {type_}) -> {type_} {{\n{body}\nreturn %{operations} : {type_}\n}}"


_ADDS = _chain(2490, "%{0} = stablehlo.add {1}, {1} : tensor<8xf32>")


def _equivalence(budget: int) -> Iterator[Call]:
    source, target = "!quant.uniform<i32:f32, 0.001>", "!quant.uniform<i16:f32, 0.0025>"
    types = {"operation": "requantize", "input_type": source, "output_type": target}
    rules = {"first": {"scheme": "litert"}, "second": {"scheme": "tosa"}}
    yield call("a certificate of 65536 intervals", **types, **rules, certificate=True)
    pairs = [{"multiplier": (1 << 30) + 1000 * index, "shift": -7} for index in range(1024)]
    eight = {**types, "output_type": "!quant.uniform<i8:f32, 0.25>"}
    yield call("1024 multipliers", **eight, **rules, multipliers=pairs)
    short = {**types, "input_type": "!quant.uniform<i16:f32, 0.001>", "first": {}}
    adds = _chain(1000, "%{0} = stablehlo.add {1}, {1} : tensor<8xi16>", "tensor<8xi16>")
    yield call("a function of 1000 additions", **short, module=adds)
    target = "!quant.uniform<i8:f16, 8.0>"
    cast = _chain(1, f"%{{0}} = quant.qcast {{1}} : tensor<8xf16> to tensor<8x{target}>", "tensor<8xf16>")
    cast = cast.replace("-> tensor<8xf16>", f"-> tensor<8x{target}>").replace(
        "%1 : tensor<8xf16>", f"%1 : tensor<8x{target}>"
    )
    undefined = {"operation": "quantize", "input_type": "f16", "output_type": target, "first": {"profile": "mlir"}}
    yield call("a function that is undefined for many inputs", **undefined, module=cast)


def _lower(budget: int) -> Iterator[Call]:
    quantized, short = "tensor<8x!quant.uniform<i8:f32, 0.5:3>>", "tensor<!quant.uniform<i8:f32,1.0:3>>"
    casts = (
        f"%q{{0}} = quant.qcast {{1}} : tensor<8xf32> to {quantized}\n"
        f"%{{0}} = quant.dcast %q{{0}} : {quantized} to tensor<8xf32>"
    )
    sums = "%{0} = stablehlo.add {1},{1} : ({t},{t})->{t}".replace("{t}", short)
    to_math = ["stablehlo-legalize-quant-to-math"]
    yield call("2490 operations, 16 passes", module=_ADDS, passes=to_math * 16)
    yield call("casts, lowered", module=_chain(780, casts), passes=["lower-quant-ops", "strip-func-quant-types"])
    yield call("quantized additions", module=_chain(860, sums, short), passes=to_math)
    many = ",".join(str(index % 1000) for index in range(30_000))
    yield call("a constant of 30000 elements", module=(
        f"func.func @main() -> tensor<30000xi32> {{\n%c = stablehlo.constant dense<[{many}]> : tensor<30000xi32>\n"
        "return %c : tensor<30000xi32>\n}"))  # fmt: skip


def _evaluate(budget: int) -> Iterator[Call]:
    yield call("2490 additions", module=_ADDS, inputs=[of(np.zeros(8, "f4"))])
    matrix, x, w = "tensor<640x640xf32>", "tensor<1x64x64x32xf32>", "tensor<5x5x32x32xf32>"
    yield call(
        "products of matrices",
        inputs=[of(noise((640, 640)))],
        module=(
            f"func.func @main(%x: {matrix}) -> {matrix} {{\n%0 = stablehlo.dot %x, %x : ({matrix}, {matrix}) -> "
            f"{matrix}\nreturn %0 : {matrix}\n}}"
        ),
    )
    y = "tensor<1x60x60x32xf32>"
    yield call(
        "a convolution",
        inputs=[of(noise((1, 64, 64, 32))), of(noise((5, 5, 32, 32)))],
        module=(
            f"func.func @main(%x: {x}, %w: {w}) -> {y} {{\n"
            "%0 = stablehlo.convolution(%x, %w) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f], window = {} "
            "{batch_group_count = 1 : i64, feature_group_count = 1 : i64} : "
            f"({x}, {w}) -> {y}\nreturn %0 : {y}\n}}"
        ),
    )
    count = budget // 8
    wide = f"tensor<{count}xi8>"
    yield Call("i8, negated", lambda: {"inputs": [of(noise((count,), "i1"))], "module": (
        f"func.func @main(%x: {wide}) -> {wide} {{\n%0 = stablehlo.negate %x : {wide}\nreturn %0 : {wide}\n}}"
    )})  # fmt: skip


_VECTORS = fixed(
    call("2048 vectors of 12 sets of f64", operation="quantize", input_type="f64", output_type="i16", count=2048),
    call("2048 vectors of 12 sets", operation="tosa.RESCALE", input_type="i32", output_type="i8", count=2048),
)
_RANGES = fixed(*(
    Call(f"65536 ranges, {scheme}", lambda scheme=scheme: {  # type: ignore[misc]
        **_ends(), "axis": 0, "storage": "i8", "scheme": scheme})
    for scheme in ("litert", "torch_observer", "onnxruntime", "onednn")
))  # fmt: skip


def _observed_call(operation: str, output: Array, **arguments: Any) -> dict[str, Any]:
    return {"operation": operation, "arguments": arguments, "observed": {"output": of(output)}}


def _identify(budget: int) -> Iterator[Call]:
    size = budget // 5

    def sums() -> dict[str, Any]:
        inputs = of(noise((size,), "i4"), _SUMS)
        return {"calls": [_observed_call("requantize", noise((size,), "i1"), input=inputs, output_type=_I8)]}

    def small() -> dict[str, Any]:
        inputs = of(noise((16,), "i4"), _SUMS)
        return {"calls": [_observed_call("requantize", noise((16,), "i1"), input=inputs, output_type=_I8)] * 120}

    def products() -> dict[str, Any]:
        side = min(1000, isqrt(budget // 4))
        sides = {name: of(noise((side, side), "i1"), "!quant.uniform<i8:f32, 0.05>") for name in ("lhs", "rhs")}
        return {"calls": [_observed_call("matmul", noise((side, side), "i1"), **sides, output_type=_I8)]}

    def scales() -> dict[str, Any]:
        inputs = of(noise((budget // 6,)))
        return {"calls": [_observed_call("quantize", noise((budget // 6,), "i1"), input=inputs,
                                         output_type="!quant.any<i8:f32>")]}  # fmt: skip

    yield Call(f"{million(size)} sums of no rule", sums)
    yield Call("120 calls", small)
    yield Call("products of no rule", products)
    yield Call("an unknown scale of no rule", scales)


def _call_vectors(_budget: int) -> Iterator[Call]:
    def of_pairs(operation: str, count: int, **more: Any) -> dict[str, Any]:
        sides = {name: of(noise((count,), "i1"), "!quant.uniform<i8:f32, 0.5:3>") for name in ("input1", "input2")}
        return {"operation": operation, "arguments": {**sides, "output_type": _I8, **more}}

    def images() -> dict[str, Any]:
        arguments = {
            "input": of(noise((1, 16, 16, 8), "i1"), "!quant.uniform<i8:f32, 0.5:3>"),
            "weights": of(noise((8, 3, 3, 8), "i1"), "!quant.uniform<i8:f32, 0.5>"),
            "output_type": "!quant.uniform<i8:f32, 8.0:3>",
        }
        return {"calls": [{"operation": "conv2d", "arguments": arguments}], "count": 64}

    yield Call("64 vectors of 2,000 products", lambda: {"calls": [of_pairs("litert.MUL", 2000)], "count": 64})
    yield Call("8 calls", lambda: {"calls": [of_pairs("litert.SUB", 16)] * 8, "count": 64})
    yield Call(
        "all profiles",
        lambda: {
            "calls": [{"operation": "quantize", "arguments": {"input": of(noise((64,))), "output_type": _I8}}] * 2,
            "count": 64,
        },
    )
    yield Call("convolutions", images)


# Instead of the example that is made larger.
OWN: dict[str, Calls] = {
    "conv2d": _CONV2D,
    "matmul": _matmul,
    "add": _add,
    "explain_quantize": _explain_quantize,
    "explain_dequantize": _explained(noise((256,), "i4"), "!quant.uniform<i32:f32, 0.05:3>", profile="litert"),
    "explain_requantize": _explained(noise((256,), "i4"), _SUMS, output_type=_I8, profile="torch_decomposed"),
    "derive_from_range": _RANGES,
    "derive_from_tensor": _derive_from_tensor,
    "derive_bias": _derive_bias,
    "dequantize_blocks": _dequantize_blocks,
    "derive_multiplier": _derive_multiplier,
    "vectors": _VECTORS,
    "identify": _identify,
    "call_vectors": _call_vectors,
    "parse_type": _parse_type,
    "translate_type": _translate_type,
    "equivalence": _equivalence,
    "lower": _lower,
    "evaluate": _evaluate,
}
# Beside it.
FURTHER: dict[str, Calls] = {
    "quantize": _quantize,
    "dequantize": _dequantize,
    "requantize": _requantize,
    "compare": _compare,
    "fake_quantize": _fake_quantize,
    "quantize_blocks": _quantize_blocks,
}
