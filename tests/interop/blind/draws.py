"""What dumps have at random: parameters, and tensors in which rules differ, or do not.

Half of the scales are powers of two, whose products and quotients have ties; the others have all of their bits. Half of
the tensors are full of ties and what lies beside them. Most are small, and some are larger than any vector.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tests.interop.blind.dump import Answer, Arrays, Dump, Types, dumped, tensor_text
from tests.interop.casts.cast_data import DTYPES as DTYPES_OF
from tests.interop.casts.cast_data import WIDE, chosen, stored_data
from tests.interop.integer.quantized_tensors import DTYPES, Quantized
from tests.interop.quantized_case import NUMPY, Case, bounds, representable
from tests.support.float_samples import SPECIAL, patterns

Array = NDArray[Any]


def scale(rng: np.random.Generator, low: float = -7, high: float = 0, expressed: str = "f32") -> float:
    """A power of two between 2^low and 2^high, or any number."""
    exponent = rng.uniform(low, high)
    return float(representable(np.exp2(np.floor(exponent) if rng.random() < 0.5 else exponent), expressed))


def scales(rng: np.random.Generator, count: int, low: float = -8, high: float = -3) -> Array:
    """As many for an axis, f32: all powers of two, or any."""
    exponents = rng.uniform(low, high, count)
    return np.exp2(np.floor(exponents) if rng.random() < 0.5 else exponents).astype(np.float32)


def zero_point(rng: np.random.Generator, storage: str) -> int:
    """None, one of the ends, or any."""
    lowest, highest = bounds(storage)
    return int(rng.choice([0, lowest, highest, *rng.integers(lowest, highest + 1, 3).tolist()]))


def shape(rng: np.random.Generator, rank: int = 0, most: int = 4000) -> tuple[int, ...]:
    """Of 1 to 3 dimensions, or `rank`: a few elements, tens, or up to `most`."""
    rank = rank or int(rng.choice([1, 1, 2, 3]))
    size = np.exp2(rng.uniform(1, np.log2(most)))
    return tuple(max(1, int(each)) for each in size ** (1 / rank) * rng.uniform(0.7, 1.4, rank))


def case(
    rng: np.random.Generator,
    storage: str,
    expressed: str = "f32",
    *,
    per_axis: bool | None = None,
    last_axis: bool = False,
    symmetric: bool = False,
    sizes: tuple[int, ...] | None = None,
    reach: tuple[float, float] = (-7, 3),
) -> Case:
    """A tensor with one scale, or in a third of the cases one for each index of an axis."""
    if per_axis is None:
        per_axis = rng.random() < 0.35
    sizes = sizes or shape(rng, rank=int(rng.integers(2, 4)) if per_axis else 0)
    symmetric = symmetric or storage.startswith("f")
    if not per_axis:
        point = 0 if symmetric else zero_point(rng, storage)
        return Case(sizes, storage, expressed, np.array(scale(rng, *reach, expressed)), np.array(point))
    axis = len(sizes) - 1 if last_axis else int(rng.integers(len(sizes)))
    # A single scale along an axis is one scale to some systems.
    count = max(2, sizes[axis])
    sizes = (*sizes[:axis], count, *sizes[axis + 1 :])
    found = np.array([scale(rng, *reach, expressed) for _ in range(count)])
    points = [0 if symmetric else zero_point(rng, storage) for _ in range(count)]
    return Case(sizes, storage, expressed, found, np.array(points), axis)


def reals(rng: np.random.Generator, of: Case, *, odd: bool = True) -> Array:
    """Reals to quantize: over the storage and beyond both ends; with ties and what lies beside them, or without; with
    NaN, infinities and other odd values in some, if `odd`.
    """
    size = prod(of.shape)
    lowest, highest = bounds(of.storage)
    step, zero = of.for_each(of.scales).astype(np.float64), of.for_each(of.zero_points)
    width = (highest - lowest) * float(rng.choice([0.2, 1.0, 1.3]))
    centre = (highest + lowest) / 2 - zero
    values = (centre + width * rng.uniform(-0.5, 0.5, size)) * step
    if rng.random() < 0.5:
        halves = np.floor(values / step) + 0.5
        beside = rng.choice([1, 1, 1 + 2.0**-23, 1 - 2.0**-23], size)
        values = np.where(rng.random(size) < 0.6, halves * step * beside, values)
    with np.errstate(all="ignore"):
        found = values.astype(NUMPY[of.expressed])
        if odd and rng.random() < 0.3:
            places = rng.integers(0, size, max(1, size // 8))
            found[places] = rng.choice(SPECIAL, places.size).astype(NUMPY[of.expressed])
    return np.asarray(found.reshape(of.shape))


def stored(rng: np.random.Generator, of: Case) -> Array:
    """Stored numbers: over all of the storage, or near its middle; small floats as their codes."""
    if of.storage.startswith("f"):
        codes = of.stored_data(rng).reshape(-1)
        return rng.permutation(codes).reshape(of.shape)
    lowest, highest = bounds(of.storage)
    found = rng.integers(lowest, highest + 1, of.shape)
    if rng.random() < 0.3:
        found = (found - (lowest + highest) // 2) // 8 + (lowest + highest) // 2
    return found.astype(of.dtype)


def numbers(rng: np.random.Generator, side: Quantized, *sizes: int) -> Array:
    """Stored numbers of an operand: all over the storage, near its zero point, or at the ends only."""
    limits = np.iinfo(DTYPES[side.storage])
    kind = rng.random()
    if kind < 0.2:
        signs = rng.random((*sizes[:-1], 1)) < 0.5
        return np.broadcast_to(np.where(signs, limits.min, limits.max), sizes).astype(limits.dtype)
    found = rng.integers(limits.min, limits.max + 1, sizes)
    if kind < 0.5:
        # Small numbers: sums repeat, and powers of two make ties of many.
        centre = int(side.zero_points.ravel()[0])
        found = np.clip(centre + found // 16 - (limits.min + limits.max + 1) // 32, limits.min, limits.max)
    return found.astype(limits.dtype)


def output_scale(rng: np.random.Generator, sums: Array, per_sum: float, highest: float) -> float:
    """A scale that most sums lie within, or beyond which many saturate; a power of two or not."""
    largest = float(np.abs(np.asarray(sums, np.float64)).max())
    reach = largest * per_sum / highest * float(rng.choice([0.3, 0.9, 1.5, 4.0]))
    # A factor of 256 is too large for XNNPACK.
    reach = max(reach, per_sum / 100)
    return float(np.float32(2.0 ** np.ceil(np.log2(reach)) if rng.random() < 0.5 else reach))


def reals_to_cast(rng: np.random.Generator, source: str, target: str) -> Array:
    """Values of a target's codes, ties between them and what lies beside both; or reals near 1; odd ones in some."""
    size = int(np.exp2(rng.uniform(1, 11)))
    singles = rng.choice(chosen(target), size)
    if rng.random() < 0.4:
        singles = (np.exp2(rng.uniform(-8, 8, size)) * rng.choice([-1, 1], size)).astype(np.float32)
    if rng.random() < 0.2:
        singles[rng.integers(0, size, 1 + size // 8)] = patterns(1 + size // 8, rng)
    with np.errstate(all="ignore"):
        if source == "f64":
            return np.asarray(singles.astype(np.float64) * rng.choice([1, 1 + 2.0**-30, 1 - 2.0**-30], size))
        return np.asarray(singles.astype(DTYPES_OF[source]))


def codes_to_cast(rng: np.random.Generator, source: str) -> Array:
    """Codes of a format, in a random order, as they are stored."""
    codes = stored_data(source)
    return np.asarray(rng.choice(codes, int(np.exp2(rng.uniform(2, 11)))))


def typed(array: Array, element: str) -> Array:
    """Codes of a float as an array of its numbers; other arrays as they are."""
    return array.view(DTYPES_OF[element]) if element in DTYPES_OF and array.dtype.kind == "u" else array


Run = Callable[[Array], Array]
"""A system's conversion, from one array to one."""


def _answer(run: Run, source: Array, element: str) -> Answer:
    """What takes and gives arrays as a dump has them, by a conversion of arrays such as `source` to an element type."""

    def answer(arrays: Arrays, _: Types) -> dict[str, Array]:
        return {"output": typed(run(arrays["input"].view(source.dtype)), element)}

    return answer


def quantize_dump(of: Case, source: Array, run: Run, *, label: dict[str, str], **options: Any) -> Dump:
    """A quantize of reals."""
    types = {"input": tensor_text(of.shape, of.expressed)}
    arrays, answer = {"input": typed(source, of.expressed)}, _answer(run, source, of.storage)
    return dumped("quantize", arrays, types, {"output_type": of.element, **options}, answer, label=label)


def dequantize_dump(of: Case, source: Array, run: Run, *, label: dict[str, str]) -> Dump:
    """A dequantize of stored numbers."""
    types = {"input": tensor_text(of.shape, of.element)}
    arrays, answer = {"input": typed(source, of.storage)}, _answer(run, source, of.expressed)
    return dumped("dequantize", arrays, types, {}, answer, label=label)


def requantize_dump(of: Case, output: str, source: Array, run: Run, *, label: dict[str, str]) -> Dump:
    """A requantize of stored numbers to an element type."""
    types = {"input": tensor_text(of.shape, of.element)}
    answer = _answer(run, source, "")
    return dumped("requantize", {"input": source}, types, {"output_type": output}, answer, label=label)


def cast_dump(source: Array, element: str, output: str, run: Run, *, label: dict[str, str], **options: Any) -> Dump:
    """A cast of a wide float to one of at most 16 bits, which is a quantize, or of another, which is a dequantize."""
    narrows = element in WIDE and output not in ("f32", "f64")
    types = {"input": tensor_text(source.shape, element)}
    given = {"output_type": output, **options}
    operation = "quantize" if narrows else "dequantize"
    arrays, answer = {"input": typed(source, element)}, _answer(run, source, output)
    return dumped(operation, arrays, types, given, answer, label=label)


Kind = Callable[[np.random.Generator], Dump]


def some(rng: np.random.Generator, count: int, kinds: Sequence[Kind]) -> Iterator[Dump]:
    """`count` dumps, of each kind in turn."""
    return (kinds[index % len(kinds)](rng) for index in range(count))
