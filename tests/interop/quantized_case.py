"""One conversion as the tests against real systems state it, with the data to run it on and our own answer.

Parameters are arrays: rank 0 per tensor, rank 1 along an axis, the tensor's rank in blocks along one axis. Scales are
values of the expressed type, so that no system has to round them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from requant.convert.dequantize import plan_dequantize
from requant.convert.quantize import plan_quantize
from requant.convert.small_floats import SMALL_FLOATS
from requant.mlir import parse_type
from requant.mlir.types import TensorType
from tests.support.float_samples import SPECIAL, around_ties, neighbours, patterns

Array = NDArray[Any]
NUMPY: dict[str, np.dtype[Any]] = {
    "f16": np.dtype(np.float16),
    "bf16": np.dtype(ml_dtypes.bfloat16),
    "f32": np.dtype(np.float32),
    "f64": np.dtype(np.float64),
}
SPREAD = 100_000
"""Random elements per combination, beside the chosen ones."""
FAR = np.array([3e10, -3e10, 3e38, np.inf, -np.inf, np.nan, 2.0**31, -(2.0**31), -(2.0**31) - 256], np.float32)
"""At the ends of int32, beyond them at scales of all sizes, and NaN."""


def bounds(storage: str) -> tuple[int, int]:
    """The lowest and highest stored integer; of small floats the largest values, as far as integers go."""
    if storage.startswith("f"):
        return -int(SMALL_FLOATS[storage].largest), int(SMALL_FLOATS[storage].largest)
    bits = int(storage[1:])
    return (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if storage[0] == "i" else (0, (1 << bits) - 1)


def zero_points(storage: str, *, symmetric: bool = False) -> list[int]:
    """Zero points that tell the rules apart: none, odd ones of both signs, both bounds; for small floats only none."""
    if symmetric or storage.startswith("f"):
        return [0]
    lowest, highest = bounds(storage)
    return sorted({0, min(3, highest), max(-5, lowest), lowest, highest})


@dataclass(frozen=True, eq=False)
class Case:
    """A tensor of `shape` quantized to `storage` from `expressed`; `axis` and `block` say where the parameters lie."""

    shape: tuple[int, ...]
    storage: str
    expressed: str
    scales: Array
    zero_points: Array
    axis: int | None = None
    block: int | None = None

    def __str__(self) -> str:
        shape = "x".join(map(str, self.shape))
        parameters = f"{self.scales.ravel()[:3].tolist()}:{self.zero_points.ravel()[:3].tolist()}"
        return f"{shape} {self.expressed} {self.storage} {parameters} axis {self.axis} block {self.block}"

    @property
    def element(self) -> str:
        """The element type as MLIR text."""
        pairs = np.empty(self.scales.shape, object)
        for index in np.ndindex(self.scales.shape):
            pairs[index] = f"{float(self.scales[index]):.17e}:{int(self.zero_points[index])}"
        head = f"!quant.uniform<{self.storage}:{self.expressed}"
        if self.axis is None:
            return f"{head}, {pairs[()]}>"
        if self.block is None:
            return f"{head}:{self.axis}, {{{', '.join(pairs)}}}>"
        others = [f"{axis}:1" for axis in range(len(self.shape)) if axis != self.axis]
        return f"{head}:{{{', '.join([*others, f'{self.axis}:{self.block}'])}}}, {_nested(pairs)}>"

    @property
    def tensor(self) -> TensorType:
        """The quantized tensor."""
        return _tensor(self.shape, self.element)

    def for_each(self, parameters: Array) -> Array:
        """Parameters laid out for each element of the flat tensor."""
        if self.axis is None:
            return np.full(prod(self.shape), parameters)
        if self.block is None:
            along = parameters.reshape([-1 if axis == self.axis else 1 for axis in range(len(self.shape))])
        else:
            index = np.arange(self.shape[self.axis]) // self.block
            along = np.take(parameters, index, self.axis)
        return np.broadcast_to(along, self.shape).ravel()

    def real_data(self, rng: np.random.Generator) -> Array:
        """Reals of the expressed type: ties and their neighbours at each element's own parameters, bit patterns,
        values all over the range, and specials in random places. A tensor of one scale begins with the chosen ones.
        What is far beyond the integers also stands where runs of one scale begin and end: there systems leave their
        vectors for other code."""
        size = prod(self.shape)
        scale, zero = self.for_each(self.scales).astype(np.float64), self.for_each(self.zero_points)
        lowest, highest = bounds(self.storage)
        with np.errstate(all="ignore"):
            whole = rng.integers(lowest - 3, highest + 4, size) - zero
            tie = neighbours(((whole + 0.5) * scale).astype(np.float32)).reshape(3, size)
            spread = (rng.uniform(1.25 * lowest - 2, 1.25 * highest + 2, size) - zero) * scale
            kinds = np.stack([*tie, spread.astype(np.float32), patterns(size, rng)])
            values = np.choose(rng.choice(5, size, p=[0.1, 0.2, 0.1, 0.5, 0.1]), kinds)
            places = rng.choice(size, min(size // 4, 8 * SPECIAL.size), replace=False)
            values[places] = np.resize(SPECIAL, places.size)
            if self.axis is None:
                chosen = around_ties(float(self.scales), int(self.zero_points), lowest, highest, rng)
                chosen = np.concatenate([SPECIAL, chosen])[:size]
                values[: chosen.size] = chosen
            ends = self.ends_of_runs()
            ends = ends[rng.random(ends.size) < 0.25] if ends.size > 8 else ends
            values[ends] = rng.choice(FAR, ends.size) * np.where(rng.random(ends.size) < 0.5, scale[ends], 1)
            values = values.astype(NUMPY[self.expressed])
        if self.expressed in ("f16", "bf16") and self.axis is None:
            # Every pattern of 16 bits.
            values.view(np.uint16)[-65536:] = np.arange(65536)[-size:]
        return values.reshape(self.shape)

    def stored_data(self, rng: np.random.Generator) -> Array:
        """Stored numbers: all that 16 bits or fewer can hold, as often as they fit; of 32 bits a sample."""
        size = prod(self.shape)
        if self.storage.startswith("f"):
            codes = np.arange(1 << SMALL_FLOATS[self.storage].width)
        else:
            lowest, highest = bounds(self.storage)
            narrow = highest - lowest < 1 << 16
            codes = np.arange(lowest, highest + 1) if narrow else rng.integers(lowest, highest + 1, size)
            codes = codes if narrow else np.concatenate([[lowest, highest, 0, -1, 1, 1 << 24, (1 << 24) + 1], codes])
        return np.resize(codes, size).astype(self.dtype).reshape(self.shape)

    def ends_of_runs(self) -> Array:
        """The first and the last element of each run of elements that share a scale."""
        parameter = self.for_each(np.arange(self.scales.size).reshape(self.scales.shape))
        starts = np.flatnonzero(np.diff(parameter, prepend=-1))
        return np.unique(np.concatenate([starts, starts[1:] - 1, [parameter.size - 1]]))

    @property
    def dtype(self) -> np.dtype[Any]:
        """How we hold stored numbers: one to an entry, small floats as their codes."""
        if self.storage.startswith("f"):
            return np.dtype(np.uint8)
        bits = max(8, 1 << (int(self.storage[1:]) - 1).bit_length())
        return np.dtype(f"{self.storage[0]}{bits // 8}")

    def call(self, operation: str, source: Array, result: Array, chosen: Array) -> dict[str, Any]:
        """Return a quantize or dequantize as a call for `identify`, arrays as bytes.

        A tensor of one scale is cut down to some of the chosen elements, and as many others.
        """
        case, places = self, np.arange(source.size)
        if self.axis is None:
            others = np.setdiff1d(places, chosen)
            places = np.concatenate([chosen[:_OF_A_CALL], others[:_OF_A_CALL]])
            case = replace(self, shape=places.shape)
        types = {"output_type": case.element, "input_type": self.expressed}
        if operation == "dequantize":
            types = {"input_type": case.element}
        return {
            "operation": operation,
            "arguments": {"input": _as_bytes(source.ravel()[places].reshape(case.shape)), **types},
            "observed": {"output": _as_bytes(result.ravel()[places].reshape(case.shape))},
        }

    def quantized(self, source: Array, profile: str, saturate: bool | None = None) -> Array:
        """Our answer to quantize."""
        plan = plan_quantize(_tensor(self.shape, self.expressed), self.tensor, profile, saturate=saturate)
        target = np.empty(source.size, plan.output_dtype)
        flat = source.ravel()
        plan.run(flat.view(np.uint16) if self.expressed == "bf16" else flat, target)
        return target.reshape(self.shape)

    def dequantized(self, source: Array, profile: str) -> Array:
        """Our answer to dequantize."""
        plan = plan_dequantize(self.tensor, None, profile)
        target = np.empty(source.size, plan.output_dtype)
        plan.run(source.ravel(), target)
        return target.view(NUMPY[self.expressed]).reshape(self.shape)


_OF_A_CALL = 64


def _as_bytes(array: Array) -> dict[str, Any]:
    plain = array.view(np.uint16) if array.dtype == NUMPY["bf16"] else array
    return {"dtype": plain.dtype.str, "shape": plain.shape, "bytes": plain.tobytes().hex()}


def _tensor(shape: tuple[int, ...], element: str) -> TensorType:
    parsed = parse_type(f"tensor<{''.join(f'{size}x' for size in shape)}{element}>")
    assert isinstance(parsed, TensorType)
    return parsed


def _nested(pairs: Any) -> str:
    if isinstance(pairs, str):
        return pairs
    return "{" + ", ".join(_nested(each) for each in pairs) + "}"


def per_tensor(storage: str, expressed: str, scale: float, zero_point: int) -> Case:
    """One scale for an odd number of reals: the random ones, and 4,000 chosen ones or all patterns of 16 bits."""
    more = 70_001 if expressed in ("f16", "bf16") else 4_001
    return Case((SPREAD + more,), storage, expressed, representable(np.array(scale), expressed), np.array(zero_point))


def per_stored_tensor(storage: str, expressed: str, scale: float, zero_point: int) -> Case:
    """One scale for a vector of stored numbers, long enough for all of up to 16 bits; no length is a round number."""
    bits = SMALL_FLOATS[storage].width if storage.startswith("f") else int(storage[1:])
    size = 1031 if bits <= 8 else 65_537 if bits <= 16 else SPREAD + 7
    return Case((size,), storage, expressed, representable(np.array(scale), expressed), np.array(zero_point))


def parameter_counts(shape: tuple[int, ...], axis: int, block: int | None) -> tuple[int, ...]:
    """The shape of the parameters along an axis, or in blocks along it."""
    if block is None:
        return (shape[axis],)
    return tuple(-(-size // block) if index == axis else size for index, size in enumerate(shape))


def spread_parameters(
    counts: tuple[int, ...], storage: str, expressed: str, rng: np.random.Generator, *, symmetric: bool = False
) -> tuple[Array, Array]:
    """Scales of all sizes that leave the ties finite, and zero points of the whole storage, or 0 where `symmetric`."""
    low, high = (-12, 2) if expressed == "f16" else (-90, 90)
    scales = representable(np.exp2(rng.uniform(low, high, counts)), expressed)
    if symmetric or storage.startswith("f"):
        return scales, np.zeros(counts, np.int64)
    lowest, highest = bounds(storage)
    chosen = rng.choice(zero_points(storage), counts)
    return scales, np.where(rng.random(counts) < 0.5, chosen, rng.integers(lowest, highest + 1, counts))


def representable(scales: Array, expressed: str) -> Array:
    """Scales rounded to the expressed type, as f64."""
    return scales.astype(np.float32).astype(NUMPY[expressed]).astype(np.float64)
