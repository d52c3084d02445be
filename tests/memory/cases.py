"""Calls of core's public operations, and of the kernels themselves, with values and sizes at every limit.

A case draws its own arguments. What core refuses is an answer; a kernel is given whatever its comments allow.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from requant.calibration.bias import BIAS_RULES, quantize_bias
from requant.calibration.fake_quantize import FAKE_QUANTIZE_SCHEMES, plan_fake_quantize
from requant.calibration.finished_type import PerAxis, PerTensor
from requant.calibration.methods import CALIBRATION_METHODS, CalibrationOptions, Observed, Target, blocks_of
from requant.calibration.ranges import RangeOptions, range_rule_named
from requant.checkpoint.gguf.tensor_types import READABLE, TENSOR_TYPES, WRITABLE, read_elements, write_elements
from requant.checkpoint.schemes import SCHEMES as SCHEME_NAMES
from requant.checkpoint.schemes import scheme_named as weight_scheme_named
from requant.checkpoint.weights.awq import Awq
from requant.checkpoint.weights.blocks import Block, first_not_below
from requant.checkpoint.weights.repack import SourceNumbers
from requant.checkpoint.weights.search import ELEMENT_E2M1, ELEMENT_E2M3, ELEMENT_E4M3, Element, squared_errors
from requant.checkpoint.weights.weight_format import StoredRows
from requant.comparison.comparison import plan_comparison
from requant.convert.blocks.gguf import GGUF_FORMATS, dequantize_gguf, quantize_gguf
from requant.convert.blocks.mx import MX_ELEMENTS, MxRule, dequantize_mx, quantize_mx
from requant.convert.blocks.nvfp4 import GlobalScale, Nvfp4Rule, dequantize_nvfp4, quantize_nvfp4
from requant.convert.dequantize import plan_dequantize
from requant.convert.quantize import NanPolicy, plan_quantize
from requant.convert.quantize_plans import ROUNDINGS
from requant.convert.requantize import plan_requantize
from requant.convert.small_floats import SMALL_FLOATS, decode_table
from requant.formats.elements import FLOATS
from requant.formats.rounding import Rounding
from requant.integer.conv2d import Padding, Window, conv2d_integers
from requant.integer.matmul import matmul_integers
from requant.kernels.contract import accumulate
from requant.kernels.contract.tile import ROWS_ARE_UNSIGNED, TILE_COLUMNS, TILE_ROWS
from requant.kernels.convert.blocks import quantize_nvfp4 as nvfp4_kernel
from requant.kernels.convert.blocks import quantize_shifted, quantize_symmetric, scale_blocks
from requant.kernels.convert.byte_table import look_up
from requant.kernels.convert.packing import unpack as unpack_kernel
from requant.kernels.convert.quantile import DEQUANTIZE_QUANTILE, QUANTIZE_QUANTILE
from requant.kernels.statistics.compare import COUNTS, compare_reals
from requant.kernels.statistics.divergence import model_optimizer_divergence, onnxruntime_divergence
from requant.kernels.statistics.histogram import EQUAL_EDGES, HISTOGRAM, HISTOGRAM_BETWEEN, bin_of_share, shift_counts
from requant.kernels.statistics.torch_histogram import torch_histc, torch_linspace, torch_search, torch_stretch
from requant.mlir import parse_storage, parse_type
from requant.mlir.types import TensorType
from requant.plan.plan import Conversion, Plan, dense_width, pack, unpack
from requant.profiles import PROFILES, Operation
from requant.profiles.rule import Accumulator, SumOverflow
from requant.schemes import SCHEMES

Array = NDArray[Any]
Rng = np.random.Generator
Case = Callable[[Rng], None]

SIZES = (0, 1, 2, 3, 7, 8, 9, 15, 16, 17, 31, 32, 33, 47, 48, 49, 63, 64, 65, 127, 128, 129, 255, 256, 257, 1023, 1025)
"""Around the vectors of every width and the blocks of four, odd counts of 4-bit codes among them."""

LARGE_SIZES = (4095, 4096, 4097, 4111, 8191, 8209)
"""Around a span."""

SCALES = ("1.0", "0.5", "0.1", "0.003921569", "65504.0", "6.2e-5")
FAR_SCALES = ("3.0e38", "1.5e-45", "1.0e-38", "6.0e-8", "1.0e30")
_F32_BITS = (
    0, 1, 0x7FFFFF, 0x800000, 0x3F000000, 0x3F800000, 0x4AFFFFFF, 0x4B000000, 0x4EFFFFFF, 0x4F000000, 0x4F000001,
    0x5EFFFFFF, 0x5F000000, 0x7F7FFFFF, 0x7F800000, 0x7F800001, 0x7FC00000, 0x7FFFFFFF,
)  # fmt: skip


def size_of(rng: Rng) -> int:
    return int(rng.choice(LARGE_SIZES if rng.random() < 0.15 else SIZES))


def f32s(rng: Rng, size: int) -> Array:
    """NaN of every kind, infinities, zeros, subnormals, and numbers around the limits of integers; or only numbers."""
    kind = rng.integers(5)
    if kind == 4:
        return rng.normal(size=size).astype(np.float32)
    if kind == 0:
        bits = rng.choice(np.array(_F32_BITS, np.uint32), size) | (rng.integers(0, 2, size, np.uint32) << 31)
        patterns: Array = bits.astype(np.uint32)
        return patterns.view(np.float32)
    if kind == 1:
        return rng.integers(0, 1 << 32, size, np.uint32).view(np.float32)
    with np.errstate(over="ignore"):
        found = (rng.normal(size=size) * 10.0 ** rng.integers(-45, 39)).astype(np.float32)
    if kind == 2 and size:
        found[rng.integers(size)] = rng.choice(np.array([np.nan, np.inf, -np.inf, -0.0, 2.0**31, -(2.0**63)]))
    return found


def reals(rng: Rng, size: int, element: str) -> Array:
    """The same in the dtype that a tensor of this element type has."""
    found = f32s(rng, size)
    if element in ("f32", "f64"):
        with np.errstate(over="ignore", invalid="ignore"):
            wide = found.astype(np.float64) * (10.0 ** rng.integers(-280, 270) if element == "f64" else 1.0)
        return wide if element == "f64" else found
    if rng.random() < 0.3:
        return rng.integers(0, 1 << 16, size, np.uint16).view(FLOATS[element].tensor_dtype)
    with np.errstate(over="ignore", invalid="ignore"):
        half = found.astype(np.float16) if element == "f16" else (found.view(np.uint32) >> 16).astype(np.uint16)
    return half.view(FLOATS[element].tensor_dtype)


def integers(rng: Rng, size: int, dtype: Any, lowest: int | None = None, highest: int | None = None) -> Array:
    """Numbers of the whole range, or of its ends."""
    limits = np.iinfo(dtype)
    low, high = (limits.min if lowest is None else lowest), (limits.max if highest is None else highest)
    if rng.random() < 0.3:
        return rng.choice(np.array([low, high, max(low, 0)], dtype), size)
    return rng.integers(low, high, size, dtype, endpoint=True)


def tensor_type(shape: tuple[int, ...], element: str) -> TensorType:
    found = parse_type(f"tensor<{''.join(f'{size}x' for size in shape)}{element}>")
    assert isinstance(found, TensorType)
    return found


def storage_text(rng: Rng) -> tuple[str, int, int]:
    """A storage type, and its numbers."""
    width = int(rng.choice([2, 3, 4, 4, 5, 8, 8, 8, 8, 8, 9, 16, 16, 24, 32, 32]))
    if rng.random() < 0.4:
        return f"u{width}" if width < 32 else "i32", 0 if width < 32 else -(1 << 31), (1 << min(width, 31)) - 1
    return f"i{width}", -(1 << (width - 1)), (1 << (width - 1)) - 1


def limits_of(storage: str) -> tuple[int, int]:
    """The least and the greatest number of an integer storage."""
    width = int(storage[1:])
    return (0, (1 << width) - 1) if storage[0] == "u" else (-(1 << (width - 1)), (1 << (width - 1)) - 1)


def quantized(rng: Rng, shape: tuple[int, ...], expressed: str = "f32", storage: str | None = None) -> str:
    """A quantized element type: per tensor, per axis or in blocks, some with zero points at the ends."""
    text, low, high = storage_text(rng)
    scales = SCALES if expressed in ("f16", "bf16") or rng.random() < 0.7 else (*SCALES, *FAR_SCALES)
    symmetric = rng.random() < 0.5
    if storage is None and rng.random() < 0.2:
        storage = str(rng.choice(list(SMALL_FLOATS)))
    if storage in SMALL_FLOATS:
        text, symmetric = str(storage), True
    elif storage is not None:
        text, (low, high) = storage, limits_of(storage)

    any_scale = rng.random() < 0.3

    def parameter() -> str:
        scale = f"{10.0 ** rng.uniform(-4, 4):.9f}" if any_scale else str(rng.choice(scales))
        return scale if symmetric else f"{scale}:{rng.choice([0, 0, low, high, max(low, -3)])}"

    axes = [axis for axis, size in enumerate(shape) if size]
    kind = rng.choice([0, 0, 1, 2]) if axes else 0
    if kind == 0:
        return f"!quant.uniform<{text}:{expressed}, {parameter()}>"
    axis = int(rng.choice(axes))
    if kind == 1:
        numbers = ", ".join(parameter() for _ in range(shape[axis]))
        return f"!quant.uniform<{text}:{expressed}:{axis}, {{{numbers}}}>"
    divisors = [each for each in range(1, shape[axis] + 1) if shape[axis] % each == 0]
    block = int(rng.choice(divisors))
    count, after = shape[axis] // block, len(shape) - axis - 1
    nested = ", ".join("{" * after + parameter() + "}" * after for _ in range(count))
    return f"!quant.uniform<{text}:{expressed}:{{{axis}:{block}}}, {'{' * (axis + 1)}{nested}{'}' * (axis + 1)}>"


def shape_of(rng: Rng) -> tuple[int, ...]:
    """Of one to three dimensions, the last of every size, or such that channels are short rows of whole vectors."""
    if rng.random() < 0.25:
        return int(rng.choice([2, 3, 5])), int(rng.choice([16, 32, 48, 64, 256]))
    size = size_of(rng)
    kind = rng.integers(3)
    if kind == 0 or size > 300:
        return (size,)
    if kind == 1:
        return int(rng.choice([1, 2, 3, 17])), size
    return int(rng.choice([1, 2, 5])), int(rng.choice([1, 3, 16, 33])), min(size, 65)


def run_plan(rng: Rng, plan: Plan, source: Array) -> None:
    """Whole, and in pieces with the numbers packed, as the service runs it."""
    plan.run(source, np.empty(plan.elements, plan.output_dtype))
    widths = dense_width(plan.input_type), dense_width(plan.output_type)
    conversion = Conversion(plan, *widths)
    entries = pack(source, widths[0]) if widths[0] else source
    target = np.empty(conversion.output_entries, conversion.output_dtype)
    counts = plan.new_counts()
    for first, last in conversion.pieces(0, plan.elements, int(rng.choice([8, 64, 264, 1 << 20]))):
        piece = entries[conversion.input_at(first) : conversion.input_at(last)]
        conversion.step(piece, target[conversion.output_at(first) : conversion.output_at(last)], first, counts)


def profile_of(rng: Rng) -> str:
    """stablehlo takes the most."""
    return "stablehlo" if rng.random() < 0.5 else str(rng.choice(list(PROFILES)))


def fitting(rng: Rng, operation: Operation) -> tuple[str, str | None, str]:
    """A profile, a storage and an expressed type: those of its rule, all rules alike, or any."""
    rules = {name: each.operations[operation] for name, each in PROFILES.items() if operation in each.operations}
    rules.pop("quantile", None)
    if rng.random() < 0.3:
        return profile_of(rng), None, str(rng.choice(["f32", "f32", "f16", "bf16", "f64"]))
    name = str(rng.choice(list(rules)))
    rule = rules[name]
    stored = [each for each in rule.storages if each in SMALL_FLOATS or int(each[1:]) in (2, 4, 5, 8, 16, 24, 32)]
    # Of equal weight: the widths for which there are kernels.
    common = [each for each in stored if each in ("i8", "u8", "i16", "u16", "i32")]
    return name, str(rng.choice(common if rng.random() < 0.6 else stored)), str(rng.choice(rule.expressed))


def quantize(rng: Rng) -> None:
    profile, storage, expressed = fitting(rng, Operation.QUANTIZE)
    shape = shape_of(rng)
    options: dict[str, Any] = {}
    if rng.random() < 0.4:
        options = {
            "rounding": Rounding(str(rng.choice(ROUNDINGS))),
            "nan": NanPolicy(str(rng.choice(list(NanPolicy)))),
            "seed": int(rng.integers(9)),
        }
    target = parse_type(quantized(rng, shape, expressed, storage))
    plan = plan_quantize(tensor_type(shape, expressed), target, profile, **options)
    run_plan(rng, plan, reals(rng, prod(shape), expressed))


def quantize_natively(rng: Rng) -> None:
    """The storages and the roundings that have kernels of their own, each profile as often as any other."""
    names = [name for name, each in PROFILES.items() if "i8" in _storages_of(name)]
    profile = str(rng.choice(names))
    storage = str(rng.choice([each for each in ("i8", "u8", "i16", "u16", "i32") if each in _storages_of(profile)]))
    halves = [each for each in ("f16", "bf16") if each in PROFILES[profile].operations[Operation.QUANTIZE].expressed]
    expressed = str(rng.choice(["f32", *halves]))
    shape = shape_of(rng)
    target = parse_type(quantized(rng, shape, expressed, storage))
    run_plan(rng, plan_quantize(tensor_type(shape, expressed), target, profile), reals(rng, prod(shape), expressed))


def _storages_of(profile: str) -> tuple[str, ...]:
    rule = PROFILES[profile].operations.get(Operation.QUANTIZE)
    return () if rule is None else rule.storages


def cast(rng: Rng) -> None:
    expressed = str(rng.choice(["f32", "f16", "bf16", "f64"]))
    shape = shape_of(rng)
    target = parse_type(str(rng.choice([*SMALL_FLOATS, "f16", "bf16"])))
    profile = "ml_dtypes" if rng.random() < 0.5 else str(rng.choice(["onnx", "onednn", "torch"]))
    saturate = bool(rng.integers(2)) if rng.random() < 0.2 else None
    plan = plan_quantize(tensor_type(shape, expressed), target, profile, saturate=saturate)
    run_plan(rng, plan, reals(rng, prod(shape), expressed))


def rounded_cast(rng: Rng) -> None:
    profile = PROFILES[str(rng.choice(["ofp8", "gfloat", "softfloat", "riscv", "ptx"]))]
    rule = profile.cast_rule()
    target = str(rng.choice(rule.formats))
    rounding = Rounding(str(rng.choice([str(each) for each in rule.roundings_to(target)])))
    expressed = "f64" if target == "f32" else str(rng.choice(rule.sources))
    shape = shape_of(rng)
    random_bits = int(rng.integers(1, 33)) if rounding is Rounding.STOCHASTIC else None
    source = tensor_type(shape, expressed)
    plan = plan_quantize(source, parse_type(target), profile.name, rounding=rounding, seed=5, random_bits=random_bits)
    run_plan(rng, plan, reals(rng, prod(shape), expressed))


def _codes(rng: Rng, plan: Plan) -> Array:
    if plan.input_dtype.kind not in "iu":
        return reals(rng, plan.elements, {2: "f16", 4: "f32", 8: "f64"}[plan.input_dtype.itemsize])
    low, high = plan.input_bounds or (None, None)
    if rng.random() < 0.1:
        low = high = None  # what the check has to refuse
    return integers(rng, plan.elements, plan.input_dtype, low, high)


def dequantize(rng: Rng) -> None:
    profile, storage, expressed = fitting(rng, Operation.DEQUANTIZE)
    shape = shape_of(rng)
    stored = quantized(rng, shape, expressed, storage) if rng.random() < 0.8 else str(rng.choice(list(SMALL_FLOATS)))
    plan = plan_dequantize(tensor_type(shape, stored), parse_type(expressed), profile)
    run_plan(rng, plan, _codes(rng, plan))


def short_rows(rng: Rng) -> None:
    """Channels of a few whole vectors, which kernels take several of in one loop, both ways."""
    shape = int(rng.choice([2, 3, 5])), int(rng.choice([16, 32, 48, 64, 256]))
    storage = str(rng.choice(["i4", "u8", "i16", "i32", "f8E4M3FN", "f8E5M2", "f4E2M1FN"]))
    scales = ", ".join(str(rng.choice(SCALES)) for _ in range(shape[0]))
    stored = f"!quant.uniform<{storage}:f32:0, {{{scales}}}>"
    source = tensor_type(shape, "f32")
    run_plan(rng, plan_quantize(source, parse_type(stored), "onnx"), f32s(rng, prod(shape)))
    plan = plan_dequantize(tensor_type(shape, stored), parse_type("f32"), "onnx")
    run_plan(rng, plan, _codes(rng, plan))


def quantiles(rng: Rng) -> None:
    width = int(rng.choice([1, 2, 3, 4, 8]))
    values = ", ".join(f"{each:.9g}" for each in np.sort(rng.normal(size=1 << width)))
    shape = shape_of(rng)
    expressed = str(rng.choice(["f32", "f64"]))
    stored = f"!quant.uniform<!quant.quantile<ui{width}:{expressed}, {{{values}}}>:{expressed}, {rng.choice(SCALES)}>"
    source = tensor_type(shape, expressed)
    run_plan(rng, plan_quantize(source, parse_type(stored), "quantile"), reals(rng, prod(shape), expressed))
    plan = plan_dequantize(tensor_type(shape, stored), parse_type(expressed), "quantile")
    run_plan(rng, plan, _codes(rng, plan))


def requantize(rng: Rng) -> None:
    profile, storage, expressed = fitting(rng, Operation.REQUANTIZE)
    shape = shape_of(rng)
    source, target = quantized(rng, shape, expressed), quantized(rng, shape, expressed, storage)
    if storage is not None and rng.random() < 0.7:
        source = quantized(rng, shape, expressed, str(rng.choice(["i8", "u8", "i16", "i32"])))
    scheme = str(rng.choice(list(SCHEMES))) if rng.random() < 0.6 else None
    plan = plan_requantize(tensor_type(shape, source), parse_type(target), profile, scheme=scheme)
    run_plan(rng, plan, _codes(rng, plan))


def blocks(rng: Rng) -> None:
    source = f32s(rng, 32 * int(rng.choice([0, 1, 2, 3, 5]))).reshape(-1, 32)
    name, rule = str(rng.choice(list(MX_ELEMENTS))), MxRule(str(rng.choice(list(MxRule))))
    dequantize_mx(quantize_mx(source, name, rule if MX_ELEMENTS[name] is not None else MxRule.OCP))
    scale = rng.choice(np.array([1e-42, 1e-30, 1.0, 1e35], np.float32))
    dequantize_nvfp4(quantize_nvfp4(source, GlobalScale.ABSENT if rng.random() < 0.5 else float(scale)))
    finite = np.nan_to_num(source, posinf=3.0, neginf=-3.0)
    quantize_nvfp4(finite, 1.0, Nvfp4Rule(str(rng.choice(list(Nvfp4Rule)))))
    dequantize_gguf(quantize_gguf(source, str(rng.choice(list(GGUF_FORMATS)))))


def gguf_blocks(rng: Rng) -> None:
    """Any bytes read, any values written, with the importance of columns and without."""
    type_ = TENSOR_TYPES[str(rng.choice([name for name in READABLE if name not in ("F32", "F16", "BF16")]))]
    count = int(rng.choice([0, 1, 2, 15, 16, 17, 33]))
    read_elements(rng.integers(0, 256, count * type_.block_bytes, np.uint8), type_)
    if type_.name in WRITABLE:
        values, rows = f32s(rng, count * type_.block), max(count, 1)
        importance = f32s(rng, values.size // rows) if rng.random() < 0.5 and count else None
        write_elements(np.where(np.isfinite(values), values, np.float32(1)), type_, importance=importance)


def compare(rng: Rng) -> None:
    shape = shape_of(rng)
    kind = rng.integers(3)
    if kind == 0:
        element = str(rng.choice(["f32", "f16", "bf16", "f64"]))
        a, b = (reals(rng, prod(shape), element) for _ in range(2))
        types = (element, element)
    elif kind == 1:
        dtype = np.dtype(str(rng.choice(["i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8"])))
        a, b = (integers(rng, prod(shape), dtype) for _ in range(2))
        types = (f"{'ui' if dtype.kind == 'u' else 'i'}{8 * dtype.itemsize}",) * 2
    else:
        a, b = (integers(rng, prod(shape), np.int8) for _ in range(2))
        types = (quantized(rng, shape, storage="i8"), quantized(rng, shape, storage="i8"))
    comparison = plan_comparison(*(tensor_type(shape, each) for each in types))
    comparison.run(a, np.where(rng.random(a.size) < rng.random(), a, b), int(rng.choice([0, 1, 10])))


def calibrate(rng: Rng) -> None:
    name = str(rng.choice([*CALIBRATION_METHODS, "mse", "mse"]))
    element = str(rng.choice(["f32", "f32", "f16", "bf16", "f64"]))
    shape = (int(rng.choice([1, 2, 7])), int(rng.choice([1, 2, 16, 33, 65])))
    axis = int(rng.integers(2)) if rng.random() < 0.5 else None
    tensors = [reals(rng, prod(shape), element) for _ in range(rng.integers(1, 4))]
    if rng.random() < 0.3:
        tensors[0][:] = tensors[0][:1]
    with np.errstate(all="ignore"):
        tensors = [each if each.dtype.kind != "f" or rng.random() < 0.2 else np.nan_to_num(each) for each in tensors]
    options: dict[str, Any] = {}
    method = CALIBRATION_METHODS[name]
    if "bins" in method.options:
        options["bins"] = int(rng.choice([1, 2, 3, 64, 128, 129, 255, 512]))
    if "quantized_bins" in method.options:
        options["quantized_bins"] = int(rng.choice([1, 2, 3, 64]))
    if "candidates" in method.options:
        options["candidates"] = int(rng.choice([1, 3]))
    if name == "mse":
        taken = ["onnx", "stablehlo", "litert"] if element == "f32" else ["stablehlo"]
        options["profile"] = str(rng.choice(taken))
        if element == "f64":
            # What scales of any size are found for.
            tensors = [rng.normal(size=each.size) for each in tensors]
    granularity = PerTensor() if axis is None else PerAxis(axis, shape[axis])
    places = tuple(f"/inputs/{index}" for index in range(len(tensors)))
    observed = Observed(FLOATS[element], shape, blocks_of(granularity, shape), tuple(tensors), places)
    storage = parse_storage(str(rng.choice(["i8", "u8", "i4"])))
    target = Target(range_rule_named("onnxruntime"), RangeOptions(), storage, FLOATS[element], granularity)
    method.find_ranges(observed, CalibrationOptions(**options), target)


def fake_quantize(rng: Rng) -> None:
    shape = shape_of(rng)
    scheme = str(rng.choice(list(FAKE_QUANTIZE_SCHEMES)))
    axis = len(shape) - 1 if "per_channel" in scheme or rng.random() < 0.2 else None
    count = 1 if axis is None else shape[axis]
    with np.errstate(all="ignore"):
        ends = np.sort(np.nan_to_num(f32s(rng, 2 * count).astype(np.float64)).reshape(2, count), axis=0)
    plan = plan_fake_quantize(tensor_type(shape, "f32"), ends[0], ends[1], scheme=scheme, axis=axis)
    plan.run(f32s(rng, prod(shape)), np.empty(prod(shape), np.float32))


def sums_of(rng: Rng) -> dict[str, Any]:
    """An accumulator, and what becomes of sums that it does not hold."""
    return {
        "accumulator": Accumulator(str(rng.choice(list(Accumulator)))),
        "overflow": SumOverflow(str(rng.choice([SumOverflow.WRAP, SumOverflow.WRAP, SumOverflow.SATURATE]))),
    }


def products(rng: Rng) -> None:
    kinds = [np.dtype(str(rng.choice(["i1", "u1", "i2", "u2"]))) for _ in range(2)]
    m, k, n = (int(rng.choice([1, 2, 3, 5, 6, 7, 15, 16, 17, 33, 63, 64, 65, 130])) for _ in range(3))
    if rng.random() < 0.2:
        k = int(rng.choice([511, 513, 1024, 1027]))
    zeros = [int(rng.choice([np.iinfo(kind).min, 0, np.iinfo(kind).max])) for kind in kinds]
    a, b = integers(rng, m * k, kinds[0]).reshape(m, k), integers(rng, k * n, kinds[1]).reshape(k, n)
    matmul_integers(a, b, *zeros, **sums_of(rng))


def convolutions(rng: Rng) -> None:
    """Few channels, of which sums are made directly, or many, which are gathered for tiles; windows half outside."""
    kinds = [np.dtype(str(rng.choice(["i1", "u1", "i2", "u2"]))) for _ in range(2)]
    gathered = rng.random() < 0.4
    groups = int(rng.choice([1, 1, 2] if gathered else [1, 2, 3, 17]))
    depth, columns = (int(rng.choice([31, 64, 65] if gathered else [1, 2, 3, 17])) for _ in range(2))
    height, width = (int(rng.choice([9, 17] if gathered else [1, 2, 5, 9])) for _ in range(2))
    tall, wide = (int(rng.choice([1, 2, 3])) for _ in range(2))
    padding = Padding(str(rng.choice(list(Padding))))
    pads = rng.choice([0, 0, 1, 3, 7], 4) if padding is Padding.EXPLICIT else np.zeros(4, np.int64)
    top, left, bottom, right = map(int, pads)
    window = Window(
        padding=padding,
        pads=(top, left, bottom, right),
        strides=(int(rng.integers(1, 4)), int(rng.integers(1, 4))),
        dilations=(int(rng.integers(1, 4)), int(rng.integers(1, 4))),
        groups=groups,
    )
    lhs = integers(rng, 2 * height * width * groups * depth, kinds[0]).reshape(2, height, width, groups * depth)
    rhs = integers(rng, groups * columns * tall * wide * depth, kinds[1]).reshape(groups * columns, tall, wide, depth)
    conv2d_integers(lhs, rhs, 1, 0, window=window, **sums_of(rng))


def packing(rng: Rng) -> None:
    """Every width, in the integers that hold it."""
    width, size = int(rng.integers(1, 64)), size_of(rng)
    item = next(each for each in (1, 2, 4, 8) if width <= 8 * each)
    dtype = np.dtype(f"{rng.choice(['i', 'u'])}{item}")
    stored = integers(rng, size, dtype)
    unpack(pack(stored.view(f"u{item}"), width), width, size, dtype)


def packed_bytes(rng: Rng) -> None:
    """Bytes as tiles have them, also on CPUs that multiply pairs only."""
    rows, depth, columns = (int(rng.choice([1, 3, 6, 7, 17, 33, 64, 65])) for _ in range(3))
    first = int(rng.integers(depth))
    taken, flip = int(rng.integers(1, depth - first + 1)), int(rng.choice([0, 128]))
    groups = -(-taken // accumulate.BYTES_OF_GROUP) * accumulate.BYTES_OF_GROUP
    source = integers(rng, rows * depth, "u1")
    dtype = np.uint8 if ROWS_ARE_UNSIGNED else np.int8
    target = np.zeros(-(-rows // TILE_ROWS) * TILE_ROWS * groups, dtype)
    accumulate.PACK_ROWS_OF_BYTES(source, depth, rows, first, taken, flip, target, np.zeros(rows, np.int64))
    source = integers(rng, depth * columns, "u1")
    skipped = int(rng.integers(columns))
    count = int(rng.integers(1, columns - skipped + 1))
    target = np.zeros(-(-count // TILE_COLUMNS) * TILE_COLUMNS * groups, np.int8)
    sums = np.zeros(count, np.int64)
    accumulate.PACK_COLUMNS_OF_BYTES(source, columns, skipped, count, first, taken, flip, target, sums)


def biases(rng: Rng) -> None:
    rule = BIAS_RULES[str(rng.choice(list(BIAS_RULES)))]
    values, scales = f32s(rng, 33), np.abs(f32s(rng, 33))
    if rng.random() < 0.5:
        values, scales = np.nan_to_num(values), np.nan_to_num(scales) + np.float32(1e-30)
    with np.errstate(all="ignore"):
        quantize_bias(rule, values, scales.astype(rule.scale_dtype))


# The kernels themselves: what core checks first does not keep these within bounds.


def histogram_kernels(rng: Rng) -> None:
    """Edges of any kind, among them those that core refuses."""
    key = str(rng.choice(["<f4", "<f8"]))
    element = {"<f4": "f32", "<f8": "f64"}[key]
    rows, stride = int(rng.choice([1, 2, 3])), int(rng.choice([1, 2, 3, 64, 129]))
    sizes = rng.integers(0, 70, rows)
    offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    values = reals(rng, int(offsets[-1]), element)
    bins = rng.integers(1, stride + 1, rows).astype(np.int64)
    firsts, lasts = reals(rng, rows, element), reals(rng, rows, element)
    if rng.random() < 0.3:
        lasts = firsts.copy()
    HISTOGRAM[key](values, offsets, firsts, lasts, bins, stride, np.zeros(rows * stride, np.int64))
    edges = reals(rng, rows * (stride + 1), "f64")
    HISTOGRAM_BETWEEN[key](values, offsets, edges, bins, stride, np.zeros(rows * stride, np.int64))


def histogram_row_kernels(rng: Rng) -> None:
    """Rows with no counts, with shifts that leave nothing free, and shares that no row has."""
    rows, most = int(rng.choice([1, 2, 3])), int(rng.choice([1, 2, 3, 64, 129]))
    bins = rng.integers(1, most + 1, rows).astype(np.int64)
    bins[0] = most
    for key, element in (("<f4", "f32"), ("<f8", "f64")):
        firsts, lasts = reals(rng, rows, element), reals(rng, rows, element)
        EQUAL_EDGES[key](firsts, lasts, bins, most + 1, np.zeros(rows * (most + 1), key))
    counts = rng.choice(np.array([0, 0, 1, 5, 1 << 40], np.int64), rows * most)
    shifts = rng.choice(np.array([0, 1, 7, 130], np.int64), rows)
    wider = int((bins + 2 * shifts).max())
    shift_counts(counts, most, bins, shifts, wider, np.zeros(rows * wider, np.int64))
    share = float(rng.choice([0.0, 0.5, 0.99999, 1.0, 2.0, np.nan]))
    bin_of_share(counts, most, share, np.zeros(rows, np.int64))


def torch_kernels(rng: Rng) -> None:
    bins = int(rng.choice([1, 2, 3, 8, 64, 257, 2048, 2050]))
    first, last, low, high = f32s(rng, 4)
    counts = np.zeros(bins, np.float32)
    torch_histc(f32s(rng, 100), first, first if rng.random() < 0.2 else last, counts)
    torch_stretch(counts, first, last, low, high, np.zeros(bins, np.float32))
    torch_linspace(first, last, np.zeros(bins + 1, np.float32))
    if bins <= 64:
        torch_search(f32s(rng, bins), first, last, 256, np.zeros(2, np.float32))


def divergences(rng: Rng) -> None:
    rows, levels = int(rng.integers(1, 3)), int(rng.choice([1, 2, 3, 8]))
    stride = int(rng.choice([max(levels, 2), levels + 1, 2 * levels + 1, 33]))
    bins = rng.integers(max(levels, 2), max(stride, levels, 2) + 1, rows).astype(np.int64)
    stride = max(stride, int(bins.max()))
    counts = rng.choice(np.array([0, 0, 1, 5, 1 << 40], np.int64), rows * stride)
    ends = np.zeros(rows, np.int64)
    onnxruntime_divergence(counts, bins, stride, levels, np.zeros(rows, np.int64), ends)
    model_optimizer_divergence(counts, bins, stride, levels, int(rng.integers(1, bins.min() + 1)), ends)


def table_kernels(rng: Rng) -> None:
    """Codes of any kind: the bytes may change after they were checked."""
    size = size_of(rng)
    codes = integers(rng, size, np.uint8)
    spans = rng.integers(0, 256, 4).astype(np.int64)
    look_up(codes, np.empty(size, np.uint8), integers(rng, 256, np.uint8), spans, np.zeros(2, np.int64))
    table = decode_table(str(rng.choice(["f4E2M1FN", "f6E2M3FN", "f8E4M3FN"])))
    block = int(rng.choice([16, 32]))
    count = size // block
    scale_blocks(codes[: count * block], table, f32s(rng, count), block, np.empty(count * block, np.float32))
    wide = integers(rng, size, np.int64)
    values, real = f32s(rng, int(rng.choice([2, 4, 256]))), np.zeros(size, np.float32)
    layout = (0, 1 << 40, 1, 1 << 40, 1)
    one = f32s(rng, 1)
    DEQUANTIZE_QUANTILE["<f4"](wide, real, *layout, one, one, 0, values, int(rng.choice([0, -2, 128])))
    thresholds = np.sort(values)[1:]
    target, counts = np.empty(size, np.int64), np.zeros(4, np.int64)
    QUANTIZE_QUANTILE["<f4"](
        f32s(rng, size), target, *layout, one, one, 0, thresholds, np.arange(values.size), values[0], values[-1], 0,
        bool(rng.integers(2)), counts,
    )  # fmt: skip


def out_of_bounds(rng: Rng) -> None:
    """Not one of CASES: a kernel that is given one byte too few, by which the guard is tested."""
    unpack_kernel(np.zeros(9, np.uint8), np.zeros(25, np.uint8), 3, 0)


def block_kernels(rng: Rng) -> None:
    count = int(rng.choice([1, 2, 3]))
    source, codes = f32s(rng, 32 * count), np.empty(32 * count, np.uint8)
    quantize_symmetric(source, 32, f32s(rng, count), codes)
    quantize_shifted(source, 32, f32s(rng, count), f32s(rng, count), np.float32(8.5), np.float32(15), codes)
    assert codes.max() <= 15
    scale = f32s(rng, 1)[0]
    nvfp4_kernel(source, np.empty(2 * count, np.uint8), codes, 16, scale, decode_table("f8E4M3FN"))
    assert codes.max() <= 15


def compare_kernels(rng: Rng) -> None:
    size = size_of(rng)
    counts, positions = np.zeros(COUNTS, np.int64), np.empty(int(rng.choice([0, 1, 10])), np.int64)
    a, b, steps = (reals(rng, size, "f64") for _ in range(3))
    compare_reals(a, b, steps, 0, counts, positions)


WEIGHT_SCHEMES = (
    *SCHEME_NAMES,
    "W8A8:asymmetric",
    "W8A16:tensor",
    "W4A16:group=5",
    "W4A16:group=24,asymmetric",
    "W4A16:channel",
    "W3A16:channel,asymmetric",
    "W6A16:group=1",
    "W8A8:mse",
    "W4A16:group=5,asymmetric,mse",
    "FP8_BLOCK:mse",
    "NVFP4A16:mse",
)
WEIGHT_COLUMNS = (1, 2, 3, 5, 15, 16, 17, 24, 31, 32, 33, 48, 63, 64, 65, 120, 127, 128, 128, 129, 160, 256, 384)


def weights(rng: Rng) -> None:
    """Weights of checkpoints, some rows at a time, and back."""
    scheme = weight_scheme_named(str(rng.choice(WEIGHT_SCHEMES)))
    form, dtype = scheme.format(str(rng.choice(scheme.profiles))), str(rng.choice(["BF16", "F16", "F32"]))
    shape = (int(rng.choice([1, 2, 3, 8, 9, 33, 64, 128, 130])), int(rng.choice(WEIGHT_COLUMNS)))
    tensors = form.stored(dtype, shape)
    if not tensors:
        # Of formats that have whole blocks only.
        shape = (128, 256)
        tensors = form.stored(dtype, shape)
    if not tensors:
        return
    bits = reals(rng, shape[0] * shape[1], dtype.lower()).view("<f4" if dtype == "F32" else "<u2").reshape(shape)
    first_not_below(bits, dtype, np.inf)
    extremes = form.extremes(bits, dtype) if form.needs_extremes else None
    stored = {region.suffix: array for region, array in form.quantize(bits, dtype, shape, 0, extremes)}
    form.dequantize(StoredRows.whole(stored, tensors, shape), str(rng.choice(["BF16", "F16", "F32"])))


ELEMENTS = (ELEMENT_E2M1, ELEMENT_E2M3, ELEMENT_E4M3, Element.integer(4), Element.integer(8))


def searched_weights(rng: Rng) -> None:
    """The squared errors by which scales are searched."""
    dtype, element = str(rng.choice(["BF16", "F16", "F32"])), ELEMENTS[rng.integers(len(ELEMENTS))]
    rows, columns = int(rng.choice([1, 5, 7, 33])), int(rng.choice(WEIGHT_COLUMNS))
    block = Block(int(rng.choice([1, 5, 128])), int(rng.choice([1, 16, 20, 128])))
    bits = reals(rng, rows * columns, dtype.lower()).view("<f4" if dtype == "F32" else "<u2").reshape(rows, columns)
    scales = np.exp(rng.normal(size=(-(-rows // block.height), -(-columns // block.width)))).astype(np.float32)
    zeros = np.rint(scales) % 7 if element is ELEMENTS[3] and rng.random() < 0.5 else None
    squared_errors(bits, dtype, block, element, scales, zeros)


def repacked_weights(rng: Rng) -> None:
    """Codes with zero points, and all that a repack asks of them."""
    dtype = str(rng.choice(["BF16", "F16", "F32"]))
    if rng.random() < 0.5:
        form: Any = Awq(8)
        shape = (8 * int(rng.integers(1, 9)), 8 * int(rng.integers(1, 9)))
    else:
        scheme = weight_scheme_named("W4A16_ASYM:group=16")
        form, shape = scheme.format(scheme.profiles[0]), (int(rng.integers(1, 40)), 16 * int(rng.integers(1, 9)))
    bits = rng.normal(size=shape).astype(np.float32)
    bits = bits if dtype == "F32" else bits.astype(np.float16).view("<u2")
    stored = {region.suffix: array for region, array in form.quantize(bits, dtype, shape, 0)}
    rows = StoredRows.whole(stored, form.stored(dtype, shape), shape)
    form.dequantize(rows, dtype)
    source = SourceNumbers(form.scaled_codes(rows), form.numbers(rows))
    block = Block(int(rng.choice([1, 5])), int(rng.choice([1, 16, 20])))
    source.peaks(block)
    scales, _ = source.scales_of_integers(block, 0.0, 15.0, zero_points=False)
    source.steps(block, scales)
    source.in_units(scales, block)


CASES: Mapping[str, Case] = {
    case.__name__: case
    for case in (
        quantize,
        quantize_natively,
        cast,
        rounded_cast,
        dequantize,
        short_rows,
        quantiles,
        requantize,
        blocks,
        gguf_blocks,
        compare,
        calibrate,
        fake_quantize,
        products,
        convolutions,
        packing,
        packed_bytes,
        biases,
        histogram_kernels,
        histogram_row_kernels,
        torch_kernels,
        divergences,
        table_kernels,
        block_kernels,
        compare_kernels,
        weights,
        searched_weights,
        repacked_weights,
    )
}
