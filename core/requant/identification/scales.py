"""Unknown scales: which scales and zero points give what was observed, under a candidate.

One type of the call, that of the input or of the output, is `any`: its storage is known, its parameters are not. For
one zero point, the scales that give every observed element are an interval, because a larger scale of the output brings
no element away from the zero point, and a larger one of the input none nearer to it. Its ends are found by bisection
over the numbers of the expressed type, with the real kernels, so that they are exact: one ulp outside, an element
contradicts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from enum import Enum, auto
from typing import Any

import numpy as np

from requant.arrays.calls import ArrayCall
from requant.arrays.elements import numpy_dtype
from requant.description import Array
from requant.errors import UnsupportedError
from requant.errors.cancellation import check_cancelled
from requant.formats.elements import FLOATS, FloatElement, IntegerElement
from requant.identification.candidates import Candidate, options_for
from requant.identification.outcomes import outcome_of, stored_float
from requant.mlir.types import AnyType, ElementType, StorageType, TensorType, UniformType

_INPUT, _OUTPUT = "input", "output"


class Side(Enum):
    """The type whose parameters are not known."""

    INPUT = auto()
    OUTPUT = auto()


@dataclass(frozen=True, slots=True)
class ScaleInterval:
    """All scales from `lowest` to `highest`, numbers of the expressed type, give what was observed."""

    zero_point: int
    lowest: float
    highest: float


@dataclass(frozen=True, slots=True)
class Contradiction:
    """No scale fits, with that zero point: the flat index of one element, or of two that no scale fits together."""

    zero_point: int
    elements: tuple[int, ...]


def _element(type_: Any) -> Any:
    return type_.element if isinstance(type_, TensorType) else type_


def open_side(call: ArrayCall) -> Side | None:
    """Return the side whose parameters are unknown. Raise UnsupportedError for two of them."""
    sides = [Side.INPUT for each in call.types.values() if isinstance(each.element, AnyType)]
    if isinstance(_element(call.options.get("output_type")), AnyType):
        sides.append(Side.OUTPUT)
    if len(sides) > 1:
        raise UnsupportedError("the parameters of two types are unknown; those of one of them have to be known")
    return sides[0] if sides else None


class ScaleSearch:
    """The scales of one call of quantize, dequantize or requantize, whose other type has one scale.

    Raise UnsupportedError for other calls.
    """

    def __init__(self, call: ArrayCall, side: Side) -> None:
        if set(call.types) != {_INPUT} or set(call.observed) != {_OUTPUT}:
            raise UnsupportedError("unknown scales are looked for in quantize, dequantize and requantize only")
        self._side = side
        self._call = call
        opened = _element(call.types[_INPUT] if side is Side.INPUT else call.options["output_type"])
        self._storage: StorageType = opened.storage
        self._expressed: FloatElement = opened.expressed or FLOATS["f32"]
        if not isinstance(self._storage.element, IntegerElement):
            raise UnsupportedError("unknown scales are looked for in storages of integers only")
        for each in (call.types[_INPUT].element, _element(call.options.get("output_type"))):
            if not isinstance(each, AnyType | UniformType | FloatElement | None):
                raise UnsupportedError("an unknown scale is looked for where the other type has one scale, if any")
        self._inputs, self._observed = self._numbers()
        # Of all elements with one stored number, those with the least and the largest other number decide.
        keys, others = (self._observed, self._inputs)
        if side is Side.INPUT and call.operation.name == "dequantize":
            keys, others = others, keys
        self._places = _extremes(keys, others)
        self._few = self._reduced()
        self._brackets = dict(self._plausible())

    def _numbers(self) -> tuple[Array, Array]:
        """Return the inputs and the observed outputs as f64. Every stored number of at most 32 bits is one."""
        filled = self._filled(self._call, 1.0, 0)
        output = filled.options.get("output_type")
        source = filled.types[_INPUT].element
        return _as_f64(filled.arrays[_INPUT], source), _as_f64(filled.observed[_OUTPUT], _element(output))

    def _reduced(self) -> ArrayCall:
        """Return the call of the elements that decide."""
        call, places = self._call, self._places
        options = dict(call.options)
        if "output_type" in options:
            options["output_type"] = _element(options["output_type"])
        return replace(
            call,
            types={_INPUT: TensorType((places.size,), call.types[_INPUT].element)},
            arrays={_INPUT: call.arrays[_INPUT].reshape(-1)[places]},
            observed={_OUTPUT: call.observed[_OUTPUT].reshape(-1)[places]},
            options=options,
        )

    def _filled(self, call: ArrayCall, scale: float, zero_point: int) -> ArrayCall:
        """Return a call with these parameters in the open type."""
        element = UniformType(self._storage, self._expressed, scale, zero_point)
        if self._side is Side.INPUT:
            return replace(call, types={_INPUT: TensorType(call.types[_INPUT].shape, element)})
        given = call.options["output_type"]
        filled: Any = TensorType(given.shape, element) if isinstance(given, TensorType) else element
        return replace(call, options={**call.options, "output_type": filled})

    def with_a_scale(self) -> ArrayCall:
        """Return the call with a scale and a zero point that are possible, if any are."""
        for zero_point, (lowest, highest) in self._brackets.items():
            return self._filled(self._call, self._number(self._bits(lowest * 0.5 + highest * 0.5)), zero_point)
        return self._filled(self._call, 1.0, 0)

    # Real numbers: which zero points are possible at all

    def _plausible(self) -> Iterator[tuple[int, tuple[float, float]]]:
        """Yield the zero points that are possible under any rule, with bounds of the scale.

        A rule rounds to one of the integers beside the quotient, up to what the precision of f16 or bf16 loses.
        """
        inputs, observed = self._inputs[self._places], self._observed[self._places]
        zero_points = np.arange(self._storage.minimum, self._storage.maximum + 1)
        spread = np.unique(np.linspace(0, inputs.size - 1, _SPREAD).astype(int))
        for among in (spread, slice(None)):
            lowest, highest = self._real_bounds(inputs[among], observed[among], zero_points)
            fits = lowest <= highest
            zero_points, lowest, highest = zero_points[fits], lowest[fits], highest[fits]
        for zero_point, *ends in zip(zero_points.tolist(), lowest.tolist(), highest.tolist(), strict=True):
            yield zero_point, (ends[0], ends[1])

    def _real_bounds(self, inputs: Array, observed: Array, zero_points: Array) -> tuple[Array, Array]:
        """Return the least and the largest scale for each zero point; where none is possible, the least is larger."""
        bits = 64

        def first_that(fails: Callable[[Array], Array]) -> Array:
            low, high = np.full(zero_points.size, _LEAST), np.full(zero_points.size, _LARGEST)
            for _ in range(bits):
                middle = np.sqrt(low) * np.sqrt(high)
                failed = fails(middle)
                low, high = np.where(failed, middle, low), np.where(failed, high, middle)
            return high

        lowest = first_that(lambda scales: self._real_faults(inputs, observed, zero_points, scales)[0])
        highest = first_that(lambda scales: ~self._real_faults(inputs, observed, zero_points, scales)[1])
        return lowest / _MARGIN, highest * _MARGIN

    def _real_faults(self, inputs: Array, observed: Array, zero_points: Array, scales: Array) -> tuple[Array, Array]:
        """Return for each zero point whether its scale is too small and whether it is too large, in real numbers."""
        z, s = zero_points[:, np.newaxis], scales[:, np.newaxis]
        signs, real = self._real(inputs, z, s)
        minimum, maximum = self._bounds_of_output
        slack = _STEP * (maximum > minimum) + _RELATIVE * np.abs(observed - (z if self._side is Side.OUTPUT else 0))
        real = np.clip(real, minimum, maximum) if maximum > minimum else real
        above, below = real > observed + slack, real < observed - slack
        return self._faults(signs, above, below)

    def _real(self, inputs: Array, zero_points: Array, scales: Array) -> tuple[Array, Array]:
        """Return the sign of each real input, and the real result."""
        call = self._call
        source, target = call.types[_INPUT].element, _element(call.options.get("output_type"))
        with np.errstate(all="ignore"):
            if self._side is Side.OUTPUT:
                real = (inputs - source.zero_point) * source.scale if isinstance(source, UniformType) else inputs
                return np.sign(real), real / scales + zero_points
            real = (inputs - zero_points) * scales
            if isinstance(target, UniformType):
                return np.sign(inputs - zero_points), real / target.scale + target.zero_point
            return np.sign(inputs - zero_points), real

    def _faults(self, signs: Array, above: Array, below: Array) -> tuple[Array, Array]:
        """Return whether any element of the last axis says that the scale is too small, and too large.

        An element whose real input is 0 does not change with the scale: if it differs, the scale is both.
        """
        away = np.where(signs > 0, above, below) | ((signs == 0) & (above | below))
        near = np.where(signs > 0, below, above) | ((signs == 0) & (above | below))
        small, large = (away, near) if self._side is Side.OUTPUT else (near, away)
        return small.any(axis=-1), large.any(axis=-1)

    @property
    def _bounds_of_output(self) -> tuple[float, float]:
        """The bounds of stored outputs; of floats, none."""
        output = self._storage
        if self._side is Side.INPUT:
            target = _element(self._call.options.get("output_type"))
            if not isinstance(target, UniformType):
                return 0.0, 0.0
            output = target.storage
        return float(output.minimum), float(output.maximum)

    # The kernels: which scales fit exactly

    def intervals(self, candidate: Candidate) -> Iterator[ScaleInterval | Contradiction]:
        """Yield for each zero point that is possible at all the scales that fit under a candidate, or why none does.

        Raise RequantError where its rules are not defined for the call.
        """
        options = options_for(candidate, self._call)
        for zero_point, bracket in self._brackets.items():
            check_cancelled()
            yield self._interval(options, zero_point, bracket)

    def _interval(
        self, options: Mapping[str, Any], zero_point: int, bracket: tuple[float, float]
    ) -> ScaleInterval | Contradiction:
        low, high = (self._bits(end) for end in bracket)
        lowest = self._first(low, high, lambda bits: not self._exact_faults(options, bits, zero_point)[0].any())
        above = self._first(lowest, high + 1, lambda bits: bool(self._exact_faults(options, bits, zero_point)[1].any()))
        if above <= lowest:
            small, large = (
                self._exact_faults(options, bits, zero_point)[index] for index, bits in enumerate((lowest - 1, lowest))
            )
            places = {int(self._places[int(np.argmax(faults))]) for faults in (small, large) if faults.any()}
            return Contradiction(zero_point, tuple(sorted(places)))
        ends = [self._number(bits) for bits in (lowest, above - 1)]
        for scale in ends:
            filled = self._filled(self._call, scale, zero_point)
            outcome = outcome_of(filled, filled.planned(options))
            if outcome.first is not None:
                return Contradiction(zero_point, (outcome.first.index,))
        return ScaleInterval(zero_point, *ends)

    @staticmethod
    def _first(low: int, high: int, holds: Callable[[int], bool]) -> int:
        """Return the first of the numbers from `low` to before `high` for which something holds from there on, or
        `high`.
        """
        while low < high:
            middle = (low + high) // 2
            if holds(middle):
                high = middle
            else:
                low = middle + 1
        return low

    def _exact_faults(self, options: Mapping[str, Any], bits: int, zero_point: int) -> tuple[Array, Array]:
        """Return which of the deciding elements say that a scale is too small, and which that it is too large."""
        filled = self._filled(self._few, self._number(bits), zero_point)
        value = filled.result(filled.planned(options)).outputs[_OUTPUT]
        computed, observed = _as_f64(value.data, value.type.element), self._observed[self._places]
        inputs = self._inputs[self._places]
        source = self._call.types[_INPUT].element
        origin = zero_point if self._side is Side.INPUT else getattr(source, "zero_point", 0)
        signs = np.sign(inputs - origin)[:, np.newaxis]
        above, below = ((computed > observed), (computed < observed))
        return self._faults(signs, above[:, np.newaxis], below[:, np.newaxis])

    def _bits(self, scale: float) -> int:
        """Return the bits of the number of the expressed type nearest to a scale, which is positive and finite."""
        dtype = numpy_dtype(self._expressed)
        with np.errstate(all="ignore"):
            number = np.array(min(max(scale, self._expressed.smallest), self._expressed.largest)).astype(dtype)
        return int(number.view(f"u{dtype.itemsize}"))

    def _number(self, bits: int) -> float:
        dtype = numpy_dtype(self._expressed)
        return float(np.array(bits, f"u{dtype.itemsize}").view(dtype))


# Of elements whose zero point is looked for, first so many.
_SPREAD = 32
# The range in which scales lie, as roots that can be multiplied.
_LEAST, _LARGEST = 1e-300, 1e300
_MARGIN = 1.01
_STEP = 1.01
_RELATIVE = 2.0**-6


def _as_f64(elements: Array, element: ElementType | None) -> Array:
    """Return elements as numbers: of floats their values, of others what is stored."""
    flat = np.ascontiguousarray(elements).reshape(-1)
    stored = stored_float(element) if element is not None else None
    if stored is not None and flat.dtype.kind == "u":
        flat = flat.view(numpy_dtype(stored))
    numbers: Array = flat.astype(np.float64)
    return numbers


def _extremes(keys: Array, values: Array) -> Array:
    """Return the places of the least and the largest value of each key, in order, without those of NaN."""
    places = np.flatnonzero(~np.isnan(keys) & ~np.isnan(values))
    order = places[np.lexsort((values[places], keys[places]))]
    sorted_keys = keys[order]
    starts = np.flatnonzero(np.concatenate([[True], sorted_keys[1:] != sorted_keys[:-1]])) if order.size else order
    ends = np.concatenate([starts[1:] - 1, [order.size - 1]]).astype(int) if order.size else order
    found: Array = np.unique(order[np.concatenate([starts, ends])])
    return found
