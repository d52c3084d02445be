"""Unknown scales: which scales and zero points give what was observed, under a candidate.

One type of the call, that of the input or of the output, is `any`: its storage is known, its parameters are not. For
one zero point, the scales that give every observed element are an interval, because a larger scale of the output brings
no element away from the zero point, and a larger one of the input none nearer to it. Its ends are found by bisection
over the numbers of the expressed type, with the real kernels, so that they are exact: one ulp outside, an element
contradicts.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from enum import Enum, auto
from typing import Any

import numpy as np

from requant.arrays.calls import ArrayCall
from requant.arrays.elements import numpy_dtype
from requant.description import Array
from requant.errors import RequantError, UnsupportedError
from requant.errors.cancellation import check_cancelled
from requant.formats.elements import FLOATS, FloatElement, IntegerElement
from requant.identification.candidates import Candidate, options_for
from requant.identification.outcomes import outcome_of
from requant.identification.unknowns import (
    LARGEST,
    LEAST,
    MARGIN,
    Contradiction,
    ScaleInterval,
    as_f64,
    domain,
    extremes,
    faults,
    first_that,
    needed,
)
from requant.mlir.types import AnyType, StorageType, TensorType, UniformType

_INPUT, _OUTPUT = "input", "output"


class Side(Enum):
    """The type whose parameters are not known."""

    INPUT = auto()
    OUTPUT = auto()


def element_of(type_: Any) -> Any:
    return type_.element if isinstance(type_, TensorType) else type_


def open_side(call: ArrayCall) -> Side | None:
    """Return the side whose parameters are unknown. Raise UnsupportedError for two of them.

    With `calibration` they are not unknown: the call derives them.
    """
    if call.options.get("calibration") is not None:
        return None
    sides = [Side.INPUT for each in call.types.values() if isinstance(each.element, AnyType)]
    if isinstance(element_of(call.options.get("output_type")), AnyType):
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
        opened = element_of(call.types[_INPUT] if side is Side.INPUT else call.options["output_type"])
        self.storage: StorageType = opened.storage
        self.expressed: FloatElement = opened.expressed or FLOATS["f32"]
        if not isinstance(self.storage.element, IntegerElement):
            raise UnsupportedError("unknown scales are looked for in storages of integers only")
        self.width = self.storage.element.width
        for each in (call.types[_INPUT].element, element_of(call.options.get("output_type"))):
            if not isinstance(each, AnyType | UniformType | FloatElement | None):
                raise UnsupportedError("an unknown scale is looked for where the other type has one scale, if any")
        self.inputs, self.observed = self._numbers()
        keys, others = (self.observed, self.inputs)
        if side is Side.INPUT and call.operation.name == "dequantize":
            keys, others = others, keys
        self.places = extremes(keys, others)
        self._few = self._reduced()
        self.impossible: int | None = None
        self._ends: dict[int, tuple[int, int]] = {}
        self._domain: tuple[Mapping[str, Any], tuple[int, int]] | None = None
        self.brackets = dict(self._plausible())

    def _numbers(self) -> tuple[Array, Array]:
        """Return the inputs and the observed outputs as f64."""
        filled = self._filled(self._call, 1.0, 0)
        # What is dequantized is of the expressed type, if no other is stated.
        output = element_of(filled.options.get("output_type")) or self.expressed
        source = filled.types[_INPUT].element
        return as_f64(filled.arrays[_INPUT], source), as_f64(filled.observed[_OUTPUT], output)

    def _reduced(self) -> ArrayCall:
        """Return the call of the elements that decide."""
        call, places = self._call, self.places
        options = dict(call.options)
        if "output_type" in options:
            options["output_type"] = element_of(options["output_type"])
        return replace(
            call,
            types={_INPUT: TensorType((places.size,), call.types[_INPUT].element)},
            arrays={_INPUT: call.arrays[_INPUT].reshape(-1)[places]},
            observed={_OUTPUT: call.observed[_OUTPUT].reshape(-1)[places]},
            options=options,
        )

    def _filled(self, call: ArrayCall, scale: float, zero_point: int) -> ArrayCall:
        """Return a call with these parameters in the open type."""
        element = UniformType(self.storage, self.expressed, scale, zero_point)
        if self._side is Side.INPUT:
            return replace(call, types={_INPUT: TensorType(call.types[_INPUT].shape, element)})
        given = call.options["output_type"]
        filled: Any = TensorType(given.shape, element) if isinstance(given, TensorType) else element
        return replace(call, options={**call.options, "output_type": filled})

    def example(self, candidate: Candidate) -> ArrayCall:
        """Return the call with a scale and a zero point that are possible, if any are, under any candidate."""
        del candidate
        for zero_point, (lowest, highest) in self.brackets.items():
            return self._filled(self._call, self.number_of(self.bits_of(lowest * 0.5 + highest * 0.5)), zero_point)
        return self._filled(self._call, 1.0, 0)

    # Real numbers: which zero points are possible at all

    def _plausible(self) -> Iterator[tuple[int, tuple[float, float]]]:
        """Yield the zero points that are possible under any rule, with bounds of the scale."""
        inputs, observed = self.inputs[self.places], self.observed[self.places]
        # Accumulators have none.
        one = self.width > _MAX_WIDTH
        zero_points = np.zeros(1, int) if one else np.arange(self.storage.minimum, self.storage.maximum + 1)
        for size in (_FIRST, _MOST):
            check_cancelled()
            count = min(inputs.size, max(_FIRST, size // zero_points.size))
            among = np.unique(np.linspace(0, inputs.size - 1, count).astype(int))
            lowest, highest = self._real_bounds(inputs[among], observed[among], zero_points)
            fits = lowest <= highest
            if not fits.any():
                with np.errstate(all="ignore"):
                    self.impossible = int(zero_points[np.argmin(lowest / highest)])
                return
            zero_points, lowest, highest = zero_points[fits], lowest[fits], highest[fits]
        for zero_point, *ends in zip(zero_points.tolist(), lowest.tolist(), highest.tolist(), strict=True):
            yield zero_point, (ends[0], ends[1])

    def _real_bounds(self, inputs: Array, observed: Array, zero_points: Array) -> tuple[Array, Array]:
        """Return the least and the largest scale for each zero point; where none is possible, the least is larger."""
        lowest, highest = self._scales_of_each(inputs, observed, zero_points)
        ends = lowest.max(axis=-1, initial=LEAST), highest.min(axis=-1, initial=LARGEST)
        return ends[0] / MARGIN, ends[1] * MARGIN

    def _scales_of_each(self, inputs: Array, observed: Array, zero_points: Array) -> tuple[Array, Array]:
        """Return the least and the largest scale of each element, in real numbers, for each zero point."""
        z = zero_points[:, np.newaxis]
        real, origin = self._real(inputs, z)
        low, high = needed(observed, origin, self._bounds_of_output)
        # A negative result is a positive one, mirrored.
        low, high = np.where(real < 0, -high, low), np.where(real < 0, -low, high)
        size = np.abs(real)
        with np.errstate(all="ignore"):
            if self._side is Side.OUTPUT:
                lowest = np.where(high > 0, size / high, np.inf)
                highest = np.where(low > 0, size / low, np.inf)
            else:
                lowest = np.where(low > 0, low / size, 0.0)
                highest = np.where(high >= 0, high / size, 0.0)
        fits = (low <= 0) & (high >= 0)
        lowest = np.where(size == 0, np.where(fits, 0.0, np.inf), lowest)
        highest = np.where(size == 0, np.where(fits, np.inf, 0.0), highest)
        endless = ~np.isfinite(size)
        return np.where(endless, 0.0, lowest), np.where(endless, np.inf, highest)

    def _real(self, inputs: Array, zero_points: Array) -> tuple[Array, Array]:
        """Return what is scaled by the unknown scale, or by its reciprocal, and the zero point of the output."""
        source, target = self._call.types[_INPUT].element, element_of(self._call.options.get("output_type"))
        if self._side is Side.OUTPUT:
            real = (inputs - source.zero_point) * source.scale if isinstance(source, UniformType) else inputs
            shape = np.broadcast_shapes(real.shape, zero_points.shape)
            return np.broadcast_to(real, shape), np.broadcast_to(zero_points, shape).astype(np.float64)
        real = inputs - zero_points
        if isinstance(target, UniformType):
            return real / target.scale, np.full(real.shape, float(target.zero_point))
        return real, np.zeros(real.shape)

    def _faults(self, signs: Array, above: Array, below: Array) -> tuple[Array, Array]:
        """Return which elements say that the scale is too small, and which that it is too large.

        An element whose real input is 0 does not change with the scale: if it differs, the scale is both.
        """
        return faults(signs, above, below, grows=self._side is Side.INPUT)

    @property
    def _bounds_of_output(self) -> tuple[float, float]:
        """The bounds of stored outputs; of floats, none."""
        output = self.storage
        if self._side is Side.INPUT:
            target = element_of(self._call.options.get("output_type"))
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
        if self.impossible is not None:
            yield Contradiction(self.impossible, self.real_contradiction(self.impossible))
        refused: RequantError | None = None
        found = 0
        for zero_point, bracket in self.brackets.items():
            try:
                yield self._interval(options, zero_point, bracket)
            except RequantError as error:
                refused = error
            else:
                found += 1
        if refused is not None and not found:
            raise refused

    def _interval(
        self, options: Mapping[str, Any], zero_point: int, bracket: tuple[float, float]
    ) -> ScaleInterval | Contradiction:
        low, high = (self.bits_of(end) for end in bracket)
        try:
            return self._between(options, zero_point, low, high)
        except RequantError:

            def attempt(bits: int) -> object:
                return self._exact_faults(options, bits, zero_point)

            if self._domain is None or self._domain[0] != options:
                everywhere = self.bits_of(self.expressed.smallest), self.bits_of(self.expressed.largest)
                self._domain = options, domain(*everywhere, attempt)
            # It is the same for all zero points, usually.
            first, last = self._domain[1]
            inner = domain(low, high, attempt, (max(low, first), min(high, last)))
            return self._between(options, zero_point, *inner, bracketed=(low, high) == inner)

    def _between(
        self, options: Mapping[str, Any], zero_point: int, low: int, high: int, *, bracketed: bool = True
    ) -> ScaleInterval | Contradiction:
        """Return the scales that fit between two. `bracketed`: real numbers say that those outside do not."""

        def fits_from_below(bits: int) -> bool:
            return not self._exact_faults(options, bits, zero_point)[0].any()

        def is_too_large(bits: int) -> bool:
            return bool(self._exact_faults(options, bits, zero_point)[1].any())

        # Most candidates have the ends of the one before.
        guesses = self._ends.get(zero_point, (None, None))
        lowest = first_that(low, high + 1, fits_from_below, guesses[0])
        above = first_that(lowest, high + 1, is_too_large, guesses[1])
        self._ends[zero_point] = lowest, above
        if above <= lowest and (fit := self._fitting(options, zero_point, low, high)) is not None:
            lowest, above = self._around(options, zero_point, low, fit, high)
        if above <= lowest:
            # One element says that all scales before are too small, and one that this and all after are too large.
            small = self._exact_faults(options, lowest - 1, zero_point)[0] if lowest > low else None
            large = self._exact_faults(options, lowest, zero_point)[1] if lowest <= high else None
            if bracketed or (small is not None and large is not None):
                return Contradiction(zero_point, self.real_contradiction(zero_point, small=small, large=large))
            [one] = [each for each in (small, large) if each is not None]
            return Contradiction(zero_point, self._named(int(np.argmax(one))))
        wrong = self._wrong_at_ends(options, zero_point, lowest, above)
        if wrong is not None and wrong not in self.places:
            # It decides, too, by what the rule rounds.
            self.places = np.union1d(self.places, [wrong])
            self._few = self._reduced()
            return self._between(options, zero_point, low, high, bracketed=bracketed)
        if wrong is not None and (fit := self._fitting(options, zero_point, low, high)) is not None:
            lowest, above = self._around(options, zero_point, low, fit, high)
            wrong = self._wrong_at_ends(options, zero_point, lowest, above)
        if wrong is not None:
            return Contradiction(zero_point, (wrong,))
        return ScaleInterval(zero_point, self.number_of(lowest), self.number_of(above - 1))

    def _wrong_at_ends(self, options: Mapping[str, Any], zero_point: int, lowest: int, above: int) -> int | None:
        """Return the first element that is computed otherwise with the least or the largest scale, None without one."""
        for bits in (lowest, above - 1):
            check_cancelled()
            filled = self._filled(self._call, self.number_of(bits), zero_point)
            first = outcome_of(filled, filled.planned(options)).first
            if first is not None:
                return first.index
        return None

    def _fitting(self, options: Mapping[str, Any], zero_point: int, low: int, high: int) -> int | None:
        """Return a scale that fits though those between seem too small and too large alike: of scales that are
        very small, factors may wrap. Those near the largest one are tried.
        """
        largest = self.number_of(high)
        for part in _TRIED_PARTS:
            bits = self.bits_of(largest * part)
            if low <= bits <= high and not any(each.any() for each in self._exact_faults(options, bits, zero_point)):
                return bits
        return None

    def _around(self, options: Mapping[str, Any], zero_point: int, low: int, fit: int, high: int) -> tuple[int, int]:
        """Return the first scale of those around one that fits, and the one behind the last."""

        def fits(bits: int) -> bool:
            return not any(each.any() for each in self._exact_faults(options, bits, zero_point))

        return first_that(low, fit, fits), first_that(fit, high + 1, lambda bits: not fits(bits))

    def real_contradiction(
        self, zero_point: int, *, small: Array | None = None, large: Array | None = None
    ) -> tuple[int, ...]:
        """Return the element with the largest least scale, and that with the least largest one, in real numbers; or
        those that are known to say that a scale is too small, or too large.
        """
        check_cancelled()
        few = self.inputs[self.places], self.observed[self.places]
        lowest, highest = (each[0] for each in self._scales_of_each(*few, np.array([zero_point])))
        first = int(np.argmax(lowest if small is None or not small.any() else small))
        second = int(np.argmin(highest) if large is None or not large.any() else np.argmax(large))
        return self._named(first, second)

    def _named(self, *few: int) -> tuple[int, ...]:
        return tuple(sorted({int(self.places[each]) for each in few}))

    def _exact_faults(self, options: Mapping[str, Any], bits: int, zero_point: int) -> tuple[Array, Array]:
        """Return which of the deciding elements say that a scale is too small, and which that it is too large."""
        check_cancelled()
        filled = self._filled(self._few, self.number_of(bits), zero_point)
        value = filled.result(filled.planned(options)).outputs[_OUTPUT]
        computed, observed = as_f64(value.data, value.type.element), self.observed[self.places]
        inputs = self.inputs[self.places]
        source = self._call.types[_INPUT].element
        origin = zero_point if self._side is Side.INPUT else getattr(source, "zero_point", 0)
        return self._faults(np.sign(inputs - origin), computed > observed, computed < observed)

    def bits_of(self, scale: float) -> int:
        """Return the bits of the number of the expressed type nearest to a scale, which is positive and finite."""
        return int(self.bits_of_each(np.array([scale]))[0])

    def bits_of_each(self, scales: Array) -> Array:
        dtype = numpy_dtype(self.expressed)
        with np.errstate(all="ignore"):
            numbers = np.clip(scales, self.expressed.smallest, self.expressed.largest).astype(dtype)
        bits: Array = numbers.view(f"u{dtype.itemsize}").astype(np.int64)
        return bits

    def number_of(self, bits: int) -> float:
        dtype = numpy_dtype(self.expressed)
        return float(np.array(bits, f"u{dtype.itemsize}").view(dtype))


# Zero points are looked for first in so many elements, then in so many pairs of an element and a zero point.
_FIRST, _MOST = 32, 1 << 20
# Where no scale seems to fit, these parts of the largest one are tried.
_TRIED_PARTS = (0.98, 0.9, 0.7, 0.4, 0.1)
# Storages of more bits than that have zero point 0.
_MAX_WIDTH = 16
