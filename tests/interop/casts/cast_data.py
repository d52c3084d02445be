"""What the tests of casts against real systems share: the data, and our own answer as the arrays that go in and out."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from requant.convert.dequantize import plan_dequantize
from requant.convert.quantize import plan_quantize
from requant.convert.small_floats import SMALL_FLOATS, decode_table
from requant.mlir import parse_type
from requant.mlir.types import TensorType
from requant.profiles import Rounding
from tests.interop.seed_of_the_day import generator
from tests.support.float_samples import SPECIAL, neighbours, patterns

Array = NDArray[Any]

FORMATS = tuple(SMALL_FLOATS)
WIDE = ("f16", "bf16", "f32", "f64")
DTYPES: dict[str, Any] = {
    "f16": np.float16,
    "bf16": ml_dtypes.bfloat16,
    "f8E4M3FN": ml_dtypes.float8_e4m3fn,
    "f8E4M3FNUZ": ml_dtypes.float8_e4m3fnuz,
    "f8E5M2": ml_dtypes.float8_e5m2,
    "f8E5M2FNUZ": ml_dtypes.float8_e5m2fnuz,
    "f8E4M3": ml_dtypes.float8_e4m3,
    "f8E3M4": ml_dtypes.float8_e3m4,
    "f8E4M3B11FNUZ": ml_dtypes.float8_e4m3b11fnuz,
    "f4E2M1FN": ml_dtypes.float4_e2m1fn,
    "f6E2M3FN": ml_dtypes.float6_e2m3fn,
    "f6E3M2FN": ml_dtypes.float6_e3m2fn,
    "f8E8M0FNU": ml_dtypes.float8_e8m0fnu,
    "f32": np.float32,
    "f64": np.float64,
}
"""numpy's dtypes, small floats those of ml_dtypes."""
RESULTS: dict[str, Any] = {"f16": np.float16, "bf16": ml_dtypes.bfloat16, "f32": np.float32, "f64": np.float64}


def _tensor(size: int, element: str) -> TensorType:
    parsed = parse_type(f"tensor<{size}x{element}>")
    assert isinstance(parsed, TensorType)
    return parsed


def chosen(name: str) -> Array:
    """The values of all codes, the ties between them and the neighbours of both; specials; powers of two."""
    with np.errstate(all="ignore"):
        values = decode_table(name)
        finite = np.unique(values[np.isfinite(values)]).astype(np.float64)
        finite = finite[:: max(1, finite.size // 2000)]
        ties = (finite[:-1] + finite[1:]) / 2
        powers = np.exp2(np.arange(-149, 128))
        edges = np.array([480.0, 488.0, 495.9, 496.0, 61440.0, 65535.0, 65536.0])
        found = np.concatenate([finite, ties, edges, -edges, powers, -powers, 1.5 * powers[:-1]]).astype(np.float32)
    return np.concatenate([SPECIAL, neighbours(found)])


def _short(source: str) -> Iterator[Array]:
    """NaN of both signs with numbers beside them, at the end of tensors of all lengths modulo 16; and one NaN anywhere
    in tensors of 1 to 70 elements."""
    values = np.array([np.nan, 1.5, -np.nan, np.nan, -np.inf, 0.1], np.float32)
    short = [values[(np.arange(size) - size) % values.size] for size in (*range(1, 17), 29, 39)]
    rng = generator(82)
    for size in range(1, 71):
        lone = (rng.integers(-9, 10, size) / np.float32(4)).astype(np.float32)
        lone[rng.integers(size)] = rng.choice(values[[0, 2]])
        short.append(lone)
    for found in short:
        if source == "bf16":
            yield (found.view(np.uint32) >> 16).astype(np.uint16)
        else:
            yield found.astype(RESULTS[source])


def real_data(source: str, target: str) -> Iterator[Array]:
    """What is cast to `target`: short tensors; all patterns of 16 bits; else chosen values,
    random patterns, and random values near 1.

    The f64 lie at, and 2^-30 of their size beside, such f32. bf16 are patterns.
    """
    yield from _short(source)
    if source in ("f16", "bf16"):
        yield np.arange(1 << 16, dtype=np.uint16).view(np.float16 if source == "f16" else np.uint16)
        return
    rng = np.random.default_rng(81)
    near = np.exp2(rng.uniform(-20, 18, 500_000)) * rng.choice([-1.0, 1.0], 500_000)
    for single in (chosen(target), patterns(500_000, rng), near.astype(np.float32)):
        if source == "f32":
            yield single
            continue
        with np.errstate(invalid="ignore"):
            double = single.astype(np.float64)
        yield np.concatenate([double, double * (1 + 2.0**-30), double * (1 - 2.0**-30)])


def stored_data(name: str) -> Array:
    """Every code of a format."""
    width = SMALL_FLOATS[name].width
    return np.arange(1 << width).astype(np.uint16 if width > 8 else np.uint8)


def narrowed(
    data: Array,
    source: str,
    target: str,
    profile: str,
    saturate: bool | None = None,
    rounding: Rounding | None = None,
    **random: Any,
) -> Array:
    """Our answer, as codes. `random`: seed and random_bits of stochastic rounding."""
    plan = plan_quantize(
        _tensor(data.size, source), parse_type(target), profile, saturate=saturate, rounding=rounding, **random
    )
    codes = np.empty(data.size, plan.output_dtype)
    plan.run(data, codes)
    return codes.view(f"u{codes.itemsize}")


def widened(codes: Array, source: str, target: str, profile: str) -> Array:
    """Our answer, as an array of the target's numbers."""
    plan = plan_dequantize(_tensor(codes.size, source), parse_type(target), profile)
    real = np.empty(codes.size, plan.output_dtype)
    plan.run(codes.view(plan.input_dtype), real)
    return real.view(RESULTS[target])


def is_nan(array: Array) -> Array:
    """Where an array of any of the wide floats is NaN."""
    with np.errstate(invalid="ignore"):
        return np.isnan(array.astype(np.float64))


def onnx_choices(target: str) -> list[tuple[bool | None, Rounding | None]]:
    """The attributes of ONNX's Cast that a target has: saturate, and for f8E8M0FNU round_mode."""
    if target == "f8E8M0FNU":
        return [(saturate, rounding) for saturate in (None, True, False) for rounding in (None, *ROUND_MODES)]
    return [(None, None), (True, None), (False, None)] if target.startswith("f8") else [(None, None)]


ROUND_MODES = {Rounding.CEILING: "up", Rounding.FLOOR: "down", Rounding.NEAREST_UP: "nearest"}
"""What ONNX calls them."""


def numpy_cast(source: Array, source_name: str, target: str) -> Array:
    """A cast by numpy and ml_dtypes."""
    with np.errstate(all="ignore"):
        return np.asarray(source.view(DTYPES[source_name]).astype(DTYPES[target]))
