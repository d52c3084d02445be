"""Scales and zero points from ranges, ranges from data, biases, fake quantization, and comparisons."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np

from requant.calibration.bias import BIAS_RULES, BiasRule, bias_scales, quantize_bias
from requant.calibration.fake_quantize import FAKE_QUANTIZE_SCHEMES, plan_fake_quantize
from requant.calibration.finished_type import Granularity, PerAxis, PerTensor
from requant.calibration.methods import CALIBRATION_METHODS, CalibrationOptions, Target
from requant.calibration.methods.observed import Observed
from requant.calibration.ranges import RANGE_RULES, RangeOptions
from requant.calibration.ranges.rule import RangeRule
from requant.comparison.comparison import plan_comparison
from requant.errors import RequantError
from requant.formats.elements import FLOATS
from requant.mlir import parse_storage
from requant.mlir.types import StorageType
from tests.digests.cases import Case, Found, number, tensor
from tests.digests.patterns import ELEMENTS, SHAPE, any_f32, bits_of, finite_f32, integers, reals

_OPTIONS = {
    "": RangeOptions(),
    "symmetric": RangeOptions(symmetric=True),
    "narrow": RangeOptions(narrow=True),
    "reduced": RangeOptions(reduced=True),
    "power of two": RangeOptions(power_of_two=True),
    "preserving sparsity": RangeOptions(symmetric=True, preserve_sparsity=True),
    "minimum range": RangeOptions(minimum_real_range=0.01),
}


def range_cases() -> Iterator[Case]:
    for rule in RANGE_RULES.values():
        for storage in ("i4", "u4", "i8", "u8", "i16", "u16", "i32", "f8E4M3FN"):
            for name, options in _OPTIONS.items():
                # A logarithm of the C library.
                if name == "power of two" and rule.name == "torch_choose_qparams":
                    continue
                try:
                    rule.derive_all(np.array([-1.0]), np.array([1.0]), parse_storage(storage), options)
                except RequantError:
                    continue
                yield Case(f"range {rule.name} {storage} {name}".strip(), partial(_ranges, rule, storage, options))


def _ranges(rule: RangeRule, storage: str, options: RangeOptions) -> Found:
    """Yield the parameters of all ranges; of each by itself, where one is refused, since that refuses all."""
    lows, highs = finite_f32(200, 100, 90, 150), finite_f32(200, 102, 90, 150)
    ends = np.sort(np.stack([lows, highs]).astype(np.float64), axis=0)
    ends[0, ::3], ends[1, ::3] = np.minimum(ends[0, ::3], 0.0), np.maximum(ends[1, ::3], 0.0)
    stored = parse_storage(storage)
    try:
        found = rule.derive_all(ends[0], ends[1], stored, options)
    except RequantError:
        for low, high in ends.T:
            yield from _range(rule, low, high, stored, options)
        return
    yield np.asarray(found.scales)
    yield np.asarray(found.zero_points)


def _range(rule: RangeRule, low: float, high: float, stored: StorageType, options: RangeOptions) -> Found:
    try:
        found = rule.derive_all(np.array([low]), np.array([high]), stored, options)
    except RequantError as error:
        yield np.frombuffer(error.code.encode(), np.uint8)
        return
    yield np.asarray(found.scales)
    yield np.asarray(found.zero_points)


def bias_cases() -> Iterator[Case]:
    for rule in BIAS_RULES.values():
        for kind, smallest, largest in (("near", 120, 130), ("wide", 60, 190)):
            yield Case(f"bias {rule.name} {kind}", partial(_biases, rule, smallest, largest))


def _biases(rule: BiasRule, smallest: int, largest: int) -> Found:
    values = finite_f32(600, 104, smallest, largest)
    weights = np.abs(finite_f32(600, 105, 118, 126)).astype(np.float64)
    weights = np.where(weights > 1.0e-30, weights, 0.5)
    scales = bias_scales(rule, 0.0235, weights)
    made = quantize_bias(rule, values, scales)
    yield scales
    yield made.values
    yield np.array([made.saturated_low, made.saturated_high])


def fake_cases() -> Iterator[Case]:
    for scheme, rule in FAKE_QUANTIZE_SCHEMES.items():
        for bits in (2, 4, 8, 16):
            for narrow in (False, True):
                for low, high in ((-1.0, 1.0), (0.0, 6.0), (-0.3, 12.7), (-1.0e-3, 1.0e-38), (-3.0e38, 1.0)):
                    name = f"fake quantize {scheme} {bits} bits {'narrow ' * narrow}{low} to {high}"
                    yield Case(name, partial(_fake, scheme, bits, narrow, low, high, None))
                if rule.per_axis:
                    yield Case(
                        f"fake quantize {scheme} {bits} bits {'narrow ' * narrow}along the last axis",
                        partial(_fake, scheme, bits, narrow, -1.0, 1.0, 1),
                    )


def _fake(scheme: str, bits: int, narrow: bool, low: float, high: float, axis: int | None) -> Found:
    count = 1 if axis is None else SHAPE[axis]
    growing = 1.0 + np.arange(count) / 16
    plan = plan_fake_quantize(
        tensor("f32", SHAPE),
        low * growing,
        high * growing,
        num_bits=bits,
        narrow_range=narrow,
        scheme=scheme,
        axis=axis,
    )
    target = np.zeros(ELEMENTS, np.float32)
    plan.run(any_f32(ELEMENTS, 106), target)
    yield target


def calibration_cases() -> Iterator[Case]:
    for name in CALIBRATION_METHODS:
        for element in ("f32", "f16", "bf16", "f64"):
            # What is found does not depend on both: an element's values, then integers.
            for storage in ("i8", "u8") if element == "f32" else ("i8",):
                for granularity in (PerTensor(), PerAxis(0, SHAPE[0])):
                    kind = "whole" if isinstance(granularity, PerTensor) else "axis 0"
                    yield Case(
                        f"calibrate {name} {element} {storage} {kind}",
                        partial(_calibrated, name, element, storage, granularity),
                    )


def _calibrated(name: str, element: str, storage: str, granularity: Granularity) -> Found:
    method = CALIBRATION_METHODS[name]
    expressed = FLOATS[element]
    arrays = tuple(
        bits_of(element, integers(-4096, 4095, ELEMENTS, stream) / 64.0 * (1 + stream % 2)).view(expressed.tensor_dtype)
        for stream in (107, 110)
    )
    if name == "entropy_model_optimizer":
        arrays = arrays[:1]
    blocks = SHAPE if isinstance(granularity, PerTensor) else (1, SHAPE[1])
    observed = Observed(expressed, SHAPE, blocks, arrays, ("/inputs/0", "/inputs/1")[: len(arrays)])
    target = Target(
        RANGE_RULES[method.scheme_for(blocks=False)], RangeOptions(), parse_storage(storage), expressed, granularity
    )
    found = method.find_ranges(observed, CalibrationOptions(), target)
    yield found.minimums
    yield found.maximums
    made = method.parameters(found, target)
    yield np.asarray(made.scales)
    yield np.asarray(made.zero_points)


def comparison_cases() -> Iterator[Case]:
    for element in ("f16", "bf16", "f32", "f64"):
        yield Case(f"compare {element}", partial(_compared, element))
    for storage, dtype in (("i8", "i1"), ("i16", "<i2"), ("i32", "<i4")):
        yield Case(f"compare {storage} with f32", partial(_compared_reals, storage, dtype))


def _compared(element: str) -> Found:
    bits = reals(element)
    other = bits + (integers(0, 7, ELEMENTS, 112) == 0).astype(bits.dtype)
    dtype = FLOATS[element].tensor_dtype
    plan = plan_comparison(tensor(element, SHAPE), tensor(element, SHAPE))
    yield from _report(plan.run(bits.view(dtype), other.view(dtype), 50))


def _compared_reals(storage: str, dtype: str) -> Found:
    info = np.iinfo(dtype)
    stored = integers(int(info.min), int(info.max), ELEMENTS, 113).astype(dtype)
    real = (stored.astype(np.float64) * 0.5 + integers(-1, 1, ELEMENTS, 114)).astype(np.float32)
    plan = plan_comparison(tensor(f"!quant.uniform<{storage}:f32, {number(0.5)}>", SHAPE), tensor("f32", SHAPE))
    yield from _report(plan.run(stored, real, 50))


def _report(report: object) -> Found:
    """Yield all but the signal-to-noise ratio, which is a logarithm."""
    histogram, error = report.histogram, report.error  # type: ignore[attr-defined]
    yield np.array([report.mismatches, report.bit_mismatches or 0, histogram.undefined])  # type: ignore[attr-defined]
    yield np.array([(each.low, each.high, each.count) for each in histogram.buckets], np.float64)
    yield np.array([each.index for each in report.first])  # type: ignore[attr-defined]
    if error is not None:
        yield np.array([error.max_absolute_error, error.mean_absolute_error, error.left_out], np.float64)


def cases() -> Iterator[Case]:
    yield from range_cases()
    yield from bias_cases()
    yield from fake_cases()
    yield from calibration_cases()
    yield from comparison_cases()
