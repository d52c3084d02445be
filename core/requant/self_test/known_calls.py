"""Known answers of all that is neither a conversion by a profile nor a sum of products, for
`requant.self_test.self_test`.

Each call gives arrays that hold everything its kernels write, so that no wrong element stays unseen. The inputs are
multiples of 1/4 with few bits: sums and squares of them are exact in any order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from requant.calibration.fake_quantize import plan_fake_quantize
from requant.calibration.finished_type import PerAxis
from requant.calibration.methods import CALIBRATION_METHODS, CalibrationOptions, Target
from requant.calibration.methods.histograms import MagnitudeHistogram, ValueHistogram
from requant.calibration.methods.observed import Observed, Rows
from requant.calibration.ranges import RangeOptions, range_rule_named
from requant.comparison.comparison import plan_comparison
from requant.convert.blocks.gguf import dequantize_gguf, quantize_gguf
from requant.convert.blocks.mx import dequantize_mx, quantize_mx
from requant.convert.blocks.nvfp4 import dequantize_nvfp4, quantize_nvfp4
from requant.convert.requantize import plan_requantize
from requant.formats.elements import FLOATS
from requant.kernels.statistics.divergence import model_optimizer_divergence, onnxruntime_divergence
from requant.kernels.statistics.error_sums import SQUARED_ERROR
from requant.kernels.statistics.reduce import MINIMUM_MAXIMUM
from requant.kernels.statistics.torch_histogram import torch_histc, torch_linspace, torch_search, torch_stretch
from requant.mlir import parse_storage, parse_type
from requant.mlir.types import TensorType
from requant.plan.channels import Channels, channels_of
from requant.plan.float_arrays import f16_of_f32, f32_of_f16
from requant.plan.plan import pack, unpack
from requant.self_test.digest import digest

Array = NDArray[Any]

# Longer than the blocks of every kernel, and divisible by those of the block formats.
SHAPE = (34, 64)
ELEMENTS = prod(SHAPE)
BINS = 37

# Higher bits of `integers` do not vary much.
_BITS_OF_INTEGERS = 32


@dataclass(frozen=True, slots=True)
class KnownCall:
    """A call, and the start of the SHA-256 of the bytes of all that it gives."""

    name: str
    call: Callable[[], Iterable[Array]]
    digest: str

    def actual(self) -> str:
        """Return what this machine gives, as `digest`."""
        return digest(self.call())


def integers(count: int, bits: int, first: int = 0) -> Array:
    """Return the low `bits` bits of k * 2654435761 / 2^7, for k from `first` on, as signed numbers."""
    k = np.arange(first, first + count, dtype=np.uint64)
    low = (k * 2654435761 >> 7 & (1 << bits) - 1).astype(np.int64)
    return low - (1 << (bits - 1))


def reals(dtype: str = "<f4", first: int = 0) -> Array:
    """Return multiples of 1/4 from -128 to 127.75."""
    return (integers(ELEMENTS, 10, first) * 0.25).astype(dtype)


def tensor(element: str, *shape: int) -> TensorType:
    """Return the type of a tensor of `SHAPE`, or of another."""
    parsed = parse_type(f"tensor<{''.join(f'{size}x' for size in shape or SHAPE)}{element}>")
    assert isinstance(parsed, TensorType)
    return parsed


def _mx(name: str) -> Iterable[Array]:
    made = quantize_mx(reals().reshape(SHAPE), name)
    return made.scales, made.elements, dequantize_mx(made)


def _nvfp4() -> Iterable[Array]:
    made = quantize_nvfp4(reals().reshape(SHAPE))
    return made.scales, made.elements, dequantize_nvfp4(made)


def _gguf(name: str) -> Iterable[Array]:
    made = quantize_gguf(reals().reshape(SHAPE), name)
    return made.data, dequantize_gguf(made)


def codes(width: int, dtype: str) -> Array:
    """Return an odd number of signed codes, of which every bit varies."""
    count = ELEMENTS - 3
    if width <= _BITS_OF_INTEGERS:
        return integers(count, width).astype(dtype)
    low = integers(count, _BITS_OF_INTEGERS, 9999) & ((1 << _BITS_OF_INTEGERS) - 1)
    return (integers(count, width - _BITS_OF_INTEGERS) << _BITS_OF_INTEGERS | low).astype(dtype)


def _packed(width: int, dtype: str = "|i1") -> Iterable[Array]:
    stored = codes(width, dtype)
    packed = pack(stored, width)
    return packed, unpack(packed, width, stored.size, stored.dtype)


def _fake_quantized(scheme: str, axis: int | None = None) -> Iterable[Array]:
    highs = np.array([20.0]) if axis is None else np.arange(SHAPE[axis]) + 1.0
    plan = plan_fake_quantize(tensor("f32"), -highs / 2, highs, scheme=scheme, axis=axis, num_bits=6)
    target = np.empty(ELEMENTS, np.float32)
    plan.run(reals(), target)
    return (target,)


def _looked_up() -> Iterable[Array]:
    """As many elements as it takes for a table to be made, where there are tables."""
    shape = (1 << 16) + 64
    plan = plan_requantize(
        tensor("!quant.uniform<i8:f32, 0.75:-3>", shape), parse_type("!quant.uniform<i8:f32, 0.5:3>"), "litert"
    )
    target = np.empty(shape, plan.output_dtype)
    report = plan.run((np.arange(shape) % 256).astype(np.uint8).view(np.int8), target)
    return target, np.array([report.saturated_low, report.saturated_high])


def compared(dtype: str, other: str = "") -> tuple[Array, Array]:
    """Return two arrays of which every seventh element differs, the second as `other`."""
    a = reals(dtype) if dtype[1] == "f" else integers(ELEMENTS, 8).astype(dtype)
    b = a.astype(other or dtype)
    apart = np.arange(1, b[::7].size + 1) % 100
    b[::7] += apart.astype(b.dtype)
    return a, b


def _compared(element: str, dtype: str, other: str = "", other_dtype: str = "") -> Iterable[Array]:
    a, b = compared(dtype, other_dtype)
    plan = plan_comparison(tensor(element), tensor(other or element))
    report = plan.run(a, b, 500)
    histogram = [(each.low, each.high, each.count) for each in report.histogram.buckets if each.count]
    error = report.error
    return (
        np.array([report.mismatches, report.bit_mismatches or 0, report.histogram.undefined, error.left_out]),
        np.array(histogram).ravel(),
        np.array([each.index for each in report.first]),
        # A logarithm is not the same to the last bit everywhere.
        np.array([error.max_absolute_error, error.mean_absolute_error, round(error.sqnr_db or 0.0, 9)]),
    )


def _layout(*, cycle: bool) -> Channels:
    """Return that of parameters along the last axis, as one cycle, or along the first, as runs."""
    channels = channels_of(SHAPE, (SHAPE[0], 1) if cycle else (1, SHAPE[1]))
    if not cycle:
        return channels.as_runs()
    return Channels(1, channels.channels, channels.group, channels.groups, cycle=True)


def _extremes(dtype: str, *, cycle: bool) -> Iterable[Array]:
    bits = reals(dtype).view(f"<i{dtype[2]}")
    lows, highs = np.full((2, SHAPE[cycle]), [[np.iinfo(bits.dtype).max], [np.iinfo(bits.dtype).min]], bits.dtype)
    MINIMUM_MAXIMUM[8 * bits.itemsize, cycle](bits, 0, *_layout(cycle=cycle).scalars, lows, highs)
    return lows, highs


def _ordered(dtype: str) -> Iterable[Array]:
    element = FLOATS["f32" if dtype == "<f4" else "f64"]
    rows, _ = Observed(element, SHAPE, (SHAPE[0], 3), (reals(dtype),), ("/inputs/0",)).rows(0)
    return rows.values, rows.offsets


def rows_of(dtype: str, first: int, scale: float) -> Rows:
    """Return two rows of different lengths."""
    return Rows(reals(dtype, first) * np.dtype(dtype).type(scale), np.array([0, 300, ELEMENTS]))


def _counted(dtype: str, kind: type[ValueHistogram] | type[MagnitudeHistogram]) -> Iterable[Array]:
    made = kind.of(0, rows_of(dtype, 0, 1.0), BINS)
    made.add(rows_of(dtype, 9999, 1.5))
    return made.counts, made.bins


PERCENTILE = 80.0


def _percentiles(*, magnitudes: bool) -> Iterable[Array]:
    """Return the ranges of channels of three, as the operation finds them."""
    channels = -(-SHAPE[1] // 3)
    observed = Observed(FLOATS["f32"], SHAPE, (SHAPE[0], 3), (reals(),), ("/inputs/0",))
    options = CalibrationOptions(percentile=PERCENTILE, bins=BINS, magnitudes=magnitudes)
    target = Target(
        range_rule_named("onnxruntime"), RangeOptions(), parse_storage("i8"), FLOATS["f32"], PerAxis(1, channels)
    )
    ranges = CALIBRATION_METHODS["percentile"].find_ranges(observed, options, target)
    return ranges.minimums, ranges.maximums


def counts_of_bins(bins: int) -> Array:
    """Return counts that are high in the middle, and none in some bins."""
    distance = np.abs(np.arange(bins) - bins // 2)
    counts: Array = np.maximum(0, 60 - distance + integers(bins, 5)) * (np.arange(bins) % 11 != 3)
    return counts


def _onnxruntime_divergence() -> Iterable[Array]:
    starts, ends = np.zeros((2, 1), np.int64)
    onnxruntime_divergence(counts_of_bins(130), np.array([130]), 130, 16, starts, ends)
    return starts, ends


def _model_optimizer_divergence() -> Iterable[Array]:
    ends = np.zeros(1, np.int64)
    model_optimizer_divergence(counts_of_bins(130)[60:].copy(), np.array([70]), 70, 16, 20, ends)
    return (ends,)


def _squared_errors(dtype: str, *, cycle: bool) -> Iterable[Array]:
    layout, sums = _layout(cycle=cycle), np.zeros(SHAPE[cycle])
    owners = layout.lay_out(np.arange(SHAPE[cycle]), "<i8")
    SQUARED_ERROR[cycle](reals(dtype), reals(dtype, 77), 0, *layout.scalars, owners, sums)
    return (sums,)


FIRST, LAST = np.float32(-100.25), np.float32(90.75)


def _torch_histogram() -> Iterable[Array]:
    counts, edges, wider, bounds = (np.zeros(size, np.float32) for size in (BINS, BINS + 1, BINS, 2))
    torch_histc(reals(), FIRST, LAST, counts)
    torch_linspace(FIRST, LAST, edges)
    torch_stretch(counts, FIRST, LAST, FIRST * 2, LAST * 3, wider)
    torch_search(wider, FIRST * 2, LAST * 3, 16, bounds)
    return counts, edges, wider, bounds


F16_CODES = np.arange(0, 1 << 16, 7, dtype=np.uint16)
"""Zeros, subnormals, normals, quiet and signalling NaN; no infinity."""


def _f16() -> Iterable[Array]:
    exact = f32_of_f16(F16_CODES)
    between = (exact.view(np.uint32) ^ np.uint32(0x1000)).view(np.float32)
    return exact, f16_of_f32(exact), f16_of_f32(between)


KNOWN_CALLS = (
    KnownCall("f16 to f32 and back", _f16, "8fc7bee36f555062"),
    KnownCall("mxfp8_e4m3", lambda: _mx("mxfp8_e4m3"), "da49427391b17989"),
    KnownCall("mxint8", lambda: _mx("mxint8"), "b6df928a12a59db4"),
    KnownCall("nvfp4", _nvfp4, "e19f092c6c46f24d"),
    KnownCall("Q8_0", lambda: _gguf("Q8_0"), "6bf0176fbcfab814"),
    KnownCall("Q4_1", lambda: _gguf("Q4_1"), "b6ae3dbad787d74d"),
    KnownCall("packed i4", lambda: _packed(4), "8acc7fe0219ccb79"),
    KnownCall("packed i3", lambda: _packed(3), "7070428e52b9e729"),
    KnownCall("packed i12", lambda: _packed(12, "<i2"), "78d0f0f70eabdeda"),
    KnownCall("packed i24", lambda: _packed(24, "<i4"), "6313bd3edfaff51f"),
    KnownCall("packed i48", lambda: _packed(48, "<i8"), "8763849014adfa12"),
    KnownCall("packed i61", lambda: _packed(61, "<i8"), "e211f371ebe4a2db"),
    KnownCall("tf_fake_quant", lambda: _fake_quantized("tf_fake_quant"), "84fc03ee3e7b5f1e"),
    KnownCall("tf_fake_quant per channel", lambda: _fake_quantized("tf_fake_quant", 1), "fa47e4793f7405c1"),
    KnownCall("tf_fake_quant_vars", lambda: _fake_quantized("tf_fake_quant_vars"), "1e971c7e36224877"),
    KnownCall("litert fake quantize", lambda: _fake_quantized("litert"), "bcfdb95b61e263b0"),
    KnownCall("table of bytes", _looked_up, "f609eaaaea46e556"),
    KnownCall("compare i8", lambda: _compared("i8", "|i1"), "d1accdd1b85622c0"),
    KnownCall("compare i16", lambda: _compared("i16", "<i2"), "62946990010ef82f"),
    KnownCall("compare i32", lambda: _compared("i32", "<i4"), "62946990010ef82f"),
    KnownCall("compare i64", lambda: _compared("i64", "<i8"), "62946990010ef82f"),
    KnownCall("compare f8", lambda: _compared("f8E4M3FN", "|u1"), "97c8e2088502ff40"),
    KnownCall("compare f32", lambda: _compared("f32", "<f4"), "0b0f5219b3e8885b"),
    KnownCall("compare f64", lambda: _compared("f64", "<f8"), "ef9957469713a854"),
    KnownCall(
        "compare reals", lambda: _compared("!quant.uniform<i8:f32, 0.5:3>", "|i1", "f32", "<f4"), "6d4a2b0203ca8eab"
    ),
    KnownCall("extremes f16", lambda: _extremes("<f2", cycle=False), "269f550c846421aa"),
    KnownCall("extremes f16 in a cycle", lambda: _extremes("<f2", cycle=True), "881b5d6b7a510be9"),
    KnownCall("extremes f32", lambda: _extremes("<f4", cycle=False), "e8f9173cd2727174"),
    KnownCall("extremes f32 in a cycle", lambda: _extremes("<f4", cycle=True), "a7b8b7456590f1a6"),
    KnownCall("extremes f64", lambda: _extremes("<f8", cycle=False), "64a8a233f6cf9075"),
    KnownCall("extremes f64 in a cycle", lambda: _extremes("<f8", cycle=True), "65e83f6d40ff2931"),
    KnownCall("channel order f32", lambda: _ordered("<f4"), "4c5419e287d0753e"),
    KnownCall("channel order f64", lambda: _ordered("<f8"), "97ddf5a6b6fda56f"),
    KnownCall("histogram f32", lambda: _counted("<f4", ValueHistogram), "84dcb64be3f8de27"),
    KnownCall("histogram f64", lambda: _counted("<f8", ValueHistogram), "84dcb64be3f8de27"),
    KnownCall("histogram of magnitudes f32", lambda: _counted("<f4", MagnitudeHistogram), "bfcfcf345d6d8f0f"),
    KnownCall("histogram of magnitudes f64", lambda: _counted("<f8", MagnitudeHistogram), "bfcfcf345d6d8f0f"),
    KnownCall("percentile", lambda: _percentiles(magnitudes=False), "4340819dd866fb1c"),
    KnownCall("percentile of magnitudes", lambda: _percentiles(magnitudes=True), "b0683463e78fd48d"),
    KnownCall("entropy", _onnxruntime_divergence, "15dad7969dc66667"),
    KnownCall("entropy_model_optimizer", _model_optimizer_divergence, "a06f129fc52abf60"),
    KnownCall("squared error f32", lambda: _squared_errors("<f4", cycle=False), "2e2fd1370cb804c2"),
    KnownCall("squared error f32 in a cycle", lambda: _squared_errors("<f4", cycle=True), "cc53d03e96411e82"),
    KnownCall("squared error f64", lambda: _squared_errors("<f8", cycle=False), "2e2fd1370cb804c2"),
    KnownCall("squared error f64 in a cycle", lambda: _squared_errors("<f8", cycle=True), "cc53d03e96411e82"),
    KnownCall("torch_histogram", _torch_histogram, "f9235a3f4e18091e"),
)
