"""Which rules derive, from the data that were quantized, the scales and zero points that are known or that fit.

Ranges are found by each calibration method, and made parameters by each range rule with its options, by the operations
`derive_from_tensor` and `derive_from_range` themselves. What fits is then computed once more in one call.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any

import numpy as np

from requant.arrays.calls import ArrayCall, read_option
from requant.calibration.finished_type import Granularity, PerAxis, PerBlock, PerTensor
from requant.description import Array, Chooses, Kind, Operation
from requant.errors import RequantError
from requant.errors.cancellation import check_cancelled, until_late
from requant.formats.elements import FLOATS, FloatElement
from requant.formats.float_format import round_to_format
from requant.identification.scales import element_of
from requant.identification.unknowns import Interval, ScaleInterval
from requant.mlir.types import (
    AnyType,
    StorageType,
    UniformPerAxisType,
    UniformQuantizedType,
    UniformSubChannelType,
)
from requant.plan.operands import static_shape

# What scales may have been rounded to where they were stored.
_STORED_AS = ("f16", "bf16", "f8E8M0FNU")

Fits = Callable[[Array, Array], bool]
"""Whether scales, of the expressed type, and zero points are those that are looked for."""


@dataclass(frozen=True, slots=True)
class Derivation:
    """Options of `derive_from_tensor` that give the parameters. `stored_as`: the float type that its scales are rounded
    to first, beside the expressed type.
    """

    options: tuple[tuple[str, Any], ...]
    stored_as: str | None = None


def fits_type(element: UniformQuantizedType) -> Fits:
    """Return whether parameters are those of a type."""
    scales = np.array([round_to_format(each, element.expressed) for each in element.scales])
    zeros = np.array(element.zero_points)
    return lambda found, zero_points: np.array_equal(found, scales) and np.array_equal(zero_points, zeros)


def fits_intervals(found: Sequence[Interval]) -> Fits:
    """Return whether parameters are in intervals that were found, those of all channels that have any."""
    intervals: dict[tuple[int, int], ScaleInterval] = {}
    for each in found:
        if isinstance(each, ScaleInterval):
            intervals[each.channel, each.zero_point] = each
    channels = sorted({channel for channel, _ in intervals})

    def fits(scales: Array, zero_points: Array) -> bool:
        for channel in channels:
            if channel >= scales.size:
                return False
            interval = intervals.get((channel, int(zero_points[channel])))
            if interval is None or not interval.lowest <= scales[channel] <= interval.highest:
                return False
        return bool(channels)

    return fits


class DerivationSearch:
    """The derivations of the parameters of a call of quantize, whose input is the data.

    `operations`: those by name. `granularity`: of unknown scales; a type that is known says it itself.
    """

    def __init__(self, call: ArrayCall, operations: Mapping[str, Operation], granularity: Granularity) -> None:
        self._of_tensor, self._of_range = operations["derive_from_tensor"], operations["derive_from_range"]
        element = element_of(call.options["output_type"])
        self._element = element
        source = call.types["input"]
        self._shape = static_shape(source)
        assert isinstance(source.element, FloatElement)
        self._expressed: FloatElement = element.expressed or source.element
        storage: StorageType = element.storage
        self._tensor = ArrayCall(
            operation=self._of_tensor,
            types={"input": source},
            arrays={"input_0": call.arrays["input"]},
            counts={"input": 1},
            options={"storage": storage, "expressed": self._expressed, **_along(element, granularity, self._shape)},
        )
        self._found: dict[str, tuple[Array, Array] | None] = {}
        self._known: dict[Hashable, list[tuple[str | None, Array, Array]]] = {}
        self._range = ArrayCall(operation=self._of_range, types={}, arrays={}, options=self._options_of_ranges())

    def _options_of_ranges(self) -> dict[str, Any]:
        options = dict(self._tensor.options)
        if "block_sizes" in options:
            options["shape"] = self._shape
        return options

    def derivations(self, found: Sequence[Interval] | None) -> list[Derivation]:
        """Return what derives the parameters of the type; where it leaves them open, some that are in the intervals
        that were found. Those that are not looked for before it is late are not among them.
        """
        fits = fits_intervals(found or ()) if isinstance(self._element, AnyType) else fits_type(self._element)
        return list(until_late(self._all_that(fits)))

    def _all_that(self, fits: Fits) -> Iterator[Derivation]:
        """Yield the derivations that fit: of each method and scheme, those with the fewest options."""
        known: dict[bytes, list[tuple[tuple[tuple[str, Any], ...], str | None]]] = {}
        for method in _values(self._of_tensor, "method"):
            check_cancelled()
            ranges = self._ranges(method)
            if ranges is None:
                continue
            minimums, maximums = ranges
            key = minimums.tobytes() + maximums.tobytes()
            if key not in known:
                ranged = replace(self._range, numbers={"minimums": minimums, "maximums": maximums})
                known[key] = list(self._of_ranges(ranged, fits))
            for chosen, stored_as in known[key]:
                options = (("method", method), *chosen)
                if self._stored(self._tensor, options, fits) == (True, stored_as):
                    yield Derivation(options, stored_as)

    def _ranges(self, method: str) -> tuple[Array, Array] | None:
        """Return what a method finds; None where it is refused."""
        if method not in self._found:
            try:
                numbers = self._run(self._tensor, {"method": method})
            except RequantError:
                self._found[method] = None
            else:
                self._found[method] = numbers["minimums"].reshape(-1), numbers["maximums"].reshape(-1)
        return self._found[method]

    def _of_ranges(self, ranged: ArrayCall, fits: Fits) -> Iterator[tuple[tuple[tuple[str, Any], ...], str | None]]:
        """Yield schemes and flags that fit ranges, with what their scales are rounded to."""
        flags = [
            each.name for each in self._of_range.options if each.kind is Kind.BOOLEAN and each.chooses is Chooses.PART
        ]
        for scheme in _values(self._of_range, "scheme"):
            enough: list[set[str]] = []
            for count in range(len(flags) + 1):
                for chosen in combinations(flags, count):
                    check_cancelled()
                    if any(each <= set(chosen) for each in enough):
                        continue
                    options = (("scheme", scheme), *((name, True) for name in chosen))
                    fitting, stored_as = self._stored(ranged, options, fits)
                    if fitting:
                        enough.append(set(chosen))
                        yield options, stored_as

    def _stored(self, call: ArrayCall, options: Sequence[tuple[str, Any]], fits: Fits) -> tuple[bool, str | None]:
        """Return whether the parameters of a call fit, and what their scales have to be rounded to, if to anything."""
        for stored_as, scales, zero_points in self._parameters(call, options):
            if fits(scales, zero_points):
                return True, stored_as
        return False, None

    def _parameters(self, call: ArrayCall, options: Sequence[tuple[str, Any]]) -> list[tuple[str | None, Array, Array]]:
        """Return the scales of a call as each type stores them, with the zero points; none where it is refused."""
        ranges = b"".join(each.tobytes() for each in call.numbers.values())
        key = call.operation.name, ranges, tuple(options)
        if key in self._known:
            return self._known[key]
        found: list[tuple[str | None, Array, Array]] = []
        try:
            numbers = self._run(call, dict(options))
        except RequantError:
            numbers = {}
        if numbers:
            scales, zero_points = numbers["scales"].reshape(-1), numbers["zero_points"].reshape(-1)
            for stored_as in (None, *_STORED_AS):
                rounded = scales if stored_as is None else _rounded(scales, FLOATS[stored_as])
                rounded = _rounded(rounded, self._expressed)
                if not any(np.array_equal(rounded, earlier) for _, earlier, _ in found):
                    found.append((stored_as, rounded, zero_points))
        self._known[key] = found
        return found

    def _run(self, call: ArrayCall, options: Mapping[str, Any]) -> Mapping[str, Array]:
        read = {name: read_option(call.operation.option(name), value) for name, value in options.items()}
        return call.result(call.planned(read)).numbers


def derivation_search(
    call: ArrayCall, operations: Mapping[str, Operation], granularity: Granularity
) -> DerivationSearch | None:
    """Return the search for a call of quantize of floats to uniform or open types; None for others."""
    if call.operation.name != "quantize" or not isinstance(call.types["input"].element, FloatElement):
        return None
    if not isinstance(element_of(call.options["output_type"]), AnyType | UniformQuantizedType):
        return None
    return DerivationSearch(call, operations, granularity)


def _along(element: Any, granularity: Granularity, shape: Sequence[int]) -> dict[str, Any]:
    match element:
        case UniformPerAxisType(axis=axis):
            return {"axis": axis}
        case UniformSubChannelType(blocks=blocks):
            return {"block_sizes": tuple(dict(blocks).get(axis, size) for axis, size in enumerate(shape))}
        case AnyType():
            match granularity:
                case PerAxis(axis=axis):
                    return {"axis": axis}
                case PerBlock(block_sizes=sizes):
                    return {"block_sizes": sizes}
                case PerTensor():
                    return {}
    return {}


def _values(operation: Operation, name: str) -> list[str]:
    choices = operation.option(name).choices
    assert choices is not None
    return [str(each) for each in choices.values]


def _rounded(scales: Array, element: FloatElement) -> Array:
    return np.array([round_to_format(float(each), element) for each in scales])
