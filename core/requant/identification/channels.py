"""Unknown parameters of which there are several: scales along an axis or of blocks, and multipliers with their shifts.

The elements that decide about a channel are a row; all rows are computed at once by the real kernels, with a parameter
of their own each. Multipliers have a row for each shift, scales one for each zero point.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any

import numpy as np

from requant.arrays.calls import ArrayCall
from requant.arrays.elements import numpy_dtype
from requant.calibration.finished_type import Granularity, PerAxis, PerBlock, PerTensor, finish_type
from requant.description import Array
from requant.errors import ParameterError, RequantError, UnsupportedError
from requant.errors.cancellation import check_cancelled
from requant.formats.elements import IntegerElement
from requant.identification.arithmetic import arithmetic_key
from requant.identification.candidates import Candidate, options_for
from requant.identification.outcomes import check_size
from requant.identification.scales import ScaleSearch, Side, element_of, open_side
from requant.identification.unknowns import (
    MARGIN,
    Contradiction,
    Interval,
    MultiplierInterval,
    ScaleInterval,
    as_f64,
    bisect,
    domain,
    extremes,
    faults,
    needed,
)
from requant.mlir.types import (
    ElementType,
    TensorType,
    UniformPerAxisType,
    UniformQuantizedType,
    UniformType,
)
from requant.plan.operands import static_shape
from requant.profiles import PROFILES, Operation
from requant.schemes import Multiplier, Scheme, scheme_named

_INPUT, _OUTPUT = "input", "output"
# So many elements are computed at once.
_AT_ONCE = 1 << 20
_MAX_ROWS = 1 << 15


def granularity_of(call: ArrayCall, axis: int | None, block_sizes: Sequence[int] | None) -> Granularity:
    """Return of what there are parameters: the tensor, the indices of an axis, or blocks. Raise ParameterError."""
    shape = static_shape(call.types[_INPUT])
    if block_sizes is not None:
        if axis is not None:
            raise ParameterError("unknown_axis and unknown_block_sizes exclude each other", pointer="/unknown_axis")
        if len(block_sizes) != len(shape):
            detail = f"there are {len(block_sizes)} block_sizes for {len(shape)} dimensions"
            raise ParameterError(detail, pointer="/unknown_block_sizes")
        return PerBlock(shape, tuple(block_sizes))
    if axis is None:
        return PerTensor()
    if axis >= len(shape):
        raise ParameterError(f"axis {axis} is none of {len(shape)} dimensions", pointer="/unknown_axis")
    return PerAxis(axis, shape[axis])


def search_for(call: ArrayCall, axis: int | None, block_sizes: Sequence[int] | None) -> ScaleSearch | RowSearch | None:
    """Return the search for what is not known of a call; None where all is known."""
    side = open_side(call)
    if side is None:
        if leaves_multipliers_open(call):
            _check_observed(call)
            own = call.options.get("axis")
            return MultiplierSearch(call, granularity_of(call, axis if own is None else own, block_sizes))
        return None
    if _INPUT not in call.types:
        raise UnsupportedError("unknown scales are looked for in quantize, dequantize and requantize only")
    _check_observed(call)
    granularity = granularity_of(call, axis, block_sizes)
    if isinstance(granularity, PerTensor):
        return ScaleSearch(call, side)
    return ChannelScaleSearch(call, side, granularity)


def _check_observed(call: ArrayCall) -> None:
    """Raise TypeFitError unless each element of the input has an observed output, UnsupportedError without any."""
    if _OUTPUT not in call.observed:
        raise UnsupportedError("unknown scales and multipliers are looked for where the output is observed")
    check_size(_OUTPUT, call.observed[_OUTPUT].size, prod(static_shape(call.types[_INPUT])))


def channels_of(granularity: Granularity, shape: Sequence[int]) -> Array:
    """Return the index of the parameters of each element, flat."""
    places: Array
    match granularity:
        case PerTensor():
            return np.zeros(int(np.prod(shape)), np.int64)
        case PerAxis(axis=axis):
            places = np.arange(shape[axis]).reshape([-1 if index == axis else 1 for index in range(len(shape))])
            return np.broadcast_to(places, shape).reshape(-1)
        case PerBlock(block_sizes=sizes):
            grid = np.indices(shape).reshape(len(shape), -1)
            indices = tuple(along // size for along, size in zip(grid, sizes, strict=True))
            return np.ravel_multi_index(indices, granularity.scale_shape)


@dataclass(frozen=True, slots=True)
class _Rows:
    """Of each row its channel, its zero point or shift, and bounds of the number that is looked for."""

    channels: Array
    others: Array
    low: Array
    high: Array

    def among(self, kept: Array | slice) -> _Rows:
        return _Rows(self.channels[kept], self.others[kept], self.low[kept], self.high[kept])

    def __len__(self) -> int:
        return int(self.channels.size)


class RowSearch(ABC):
    """The parameters of one call, of which there are several.

    `_places`: the flat indices of the elements that decide about each channel, as many for all, some of them twice.
    """

    def __init__(self, call: ArrayCall, granularity: Granularity) -> None:
        self._call = call
        self._granularity = granularity
        self._of_element = channels_of(granularity, static_shape(call.types[_INPUT]))

    @property
    @abstractmethod
    def _places(self) -> Array: ...

    @abstractmethod
    def example(self, candidate: Candidate) -> ArrayCall:
        """Return the call with parameters that may be possible."""

    @abstractmethod
    def _rows(self, candidate: Candidate) -> _Rows: ...

    @abstractmethod
    def _filled(self, rows: _Rows, numbers: Array, candidate: Candidate) -> ArrayCall:
        """Return the call of these rows with these numbers as parameters."""

    @abstractmethod
    def _signs(self, rows: _Rows) -> Array: ...

    @abstractmethod
    def _interval(self, row: _Rows, lowest: int, highest: int) -> Interval: ...

    @abstractmethod
    def _contradiction(self, row: _Rows, small: Array, large: Array) -> Contradiction: ...

    _grows: bool

    def intervals(self, candidate: Candidate) -> Iterator[Interval | Contradiction]:
        """Yield for each channel, and each zero point or shift that is possible at all, what fits under a candidate, or
        why nothing does. Raise RequantError where its rules are not defined for the call.
        """
        options = options_for(candidate, self._call)
        rows = self._rows(candidate)
        size = max(1, min(_MAX_ROWS, _AT_ONCE // max(1, self._places.shape[1])))
        for start in range(0, len(rows), size):
            part = rows.among(slice(start, start + size))
            try:
                yield from list(self._solved(part, candidate, options))
            except RequantError:
                yield from self._solved_alone(part, candidate, options)

    def _solved_alone(
        self, rows: _Rows, candidate: Candidate, options: Mapping[str, Any]
    ) -> Iterator[Interval | Contradiction]:
        """Yield what fits for each row, where rules are defined. Raise RequantError where they are for none."""
        refused: RequantError | None = None
        found = 0
        for index in range(len(rows)):
            row = rows.among(slice(index, index + 1))

            def attempt(number: int, row: _Rows = row) -> object:
                return self._compared(row, np.array([number]), candidate, options)

            try:
                low, high = domain(int(row.low[0]), int(row.high[0]), attempt)
                inner = _Rows(row.channels, row.others, np.array([low]), np.array([high]))
                solved = list(self._solved(inner, candidate, options))
            except RequantError as error:
                refused = error
                continue
            found += 1
            yield from solved
        if refused is not None and not found:
            raise refused

    def _solved(
        self, rows: _Rows, candidate: Candidate, options: Mapping[str, Any]
    ) -> Iterator[Interval | Contradiction]:
        def compared(numbers: Array) -> tuple[Array, Array]:
            return self._compared(rows, np.clip(numbers, rows.low, rows.high), candidate, options)

        def fits_from_below(numbers: Array) -> Array:
            fits: Array = np.asarray(~compared(numbers)[0].any(axis=1))
            return fits

        def is_too_large(numbers: Array) -> Array:
            large: Array = np.asarray(compared(numbers)[1].any(axis=1))
            return large

        lowest = bisect(rows.low, rows.high + 1, fits_from_below)
        above = bisect(lowest, rows.high + 1, is_too_large)
        small, large = compared(lowest - 1)[0], compared(lowest)[1]
        for index in range(len(rows)):
            row = rows.among(slice(index, index + 1))
            if above[index] > lowest[index]:
                yield self._interval(row, int(lowest[index]), int(above[index]) - 1)
            else:
                yield self._contradiction(row, small[index], large[index])

    def _compared(
        self, rows: _Rows, numbers: Array, candidate: Candidate, options: Mapping[str, Any]
    ) -> tuple[Array, Array]:
        """Return which elements of each row say that its number is too small, and which that it is too large."""
        check_cancelled()
        filled = self._filled(rows, numbers, candidate)
        value = filled.result(filled.planned(options)).outputs[_OUTPUT]
        places = self._places[rows.channels]
        computed = as_f64(value.data, value.type.element).reshape(places.shape)
        observed = self._observed_numbers[places]
        return faults(self._signs(rows), computed > observed, computed < observed, grows=self._grows)

    @property
    @abstractmethod
    def _observed_numbers(self) -> Array: ...

    def _taken(self, name: str, places: Array) -> Array:
        array = self._call.arrays[name] if name == _INPUT else self._call.observed[name]
        taken: Array = np.ascontiguousarray(array).reshape(-1)[places]
        return taken


def _padded(places: Sequence[Array]) -> Array:
    """Return rows of places, each filled up with its first."""
    longest = max((each.size for each in places), default=0)
    return np.stack([np.concatenate([each, np.full(longest - each.size, each[0])]) for each in places])


class ChannelScaleSearch(RowSearch):
    """The scales of a call of quantize, dequantize or requantize along an axis, or of blocks.

    The other type has one scale, if any, or one each along the same axis. Raise UnsupportedError for other calls.
    """

    def __init__(self, call: ArrayCall, side: Side, granularity: Granularity) -> None:
        super().__init__(call, granularity)
        self._side = side
        self._grows = side is Side.INPUT
        given = call.types[_INPUT].element if side is Side.OUTPUT else element_of(call.options.get("output_type"))
        self._other = given
        order = np.argsort(self._of_element, kind="stable")
        ends = np.searchsorted(self._of_element[order], np.arange(granularity.count + 1))
        self._members = np.split(order, ends[1:-1])
        self._searches: dict[int, ScaleSearch] = {}
        self._all_rows: _Rows | None = None
        places = []
        for channel, members in enumerate(self._members):
            check_cancelled()
            search = ScaleSearch(self._of_channel(channel, members), side)
            if search.places.size:
                self._searches[channel] = search
                places.append(members[search.places])
        if not places:
            raise UnsupportedError("there is no element that says anything about a scale")
        first = next(iter(self._searches.values()))
        self._storage, self._expressed = first.storage, first.expressed
        self._number_of = first.number_of
        padded = _padded(places)
        self._table = np.zeros((granularity.count, padded.shape[1]), np.int64)
        self._table[list(self._searches)] = padded
        self._inputs, self._seen = np.zeros(self._of_element.size), np.zeros(self._of_element.size)
        for channel, search in self._searches.items():
            members = self._members[channel]
            self._inputs[members], self._seen[members] = search.inputs, search.observed

    @property
    def _places(self) -> Array:
        return self._table

    @property
    def _observed_numbers(self) -> Array:
        return self._seen

    def _of_channel(self, channel: int, members: Array) -> ArrayCall:
        options, types = dict(self._call.options), self._call.types[_INPUT].element
        if self._side is Side.OUTPUT:
            types = self._alone(self._other, channel)
            options["output_type"] = element_of(options["output_type"])
        elif self._other is not None:
            options["output_type"] = self._alone(self._other, channel)
        return replace(
            self._call,
            types={_INPUT: TensorType((members.size,), types)},
            arrays={_INPUT: self._taken(_INPUT, members)},
            observed={_OUTPUT: self._taken(_OUTPUT, members)},
            options=options,
        )

    def _alone(self, element: ElementType, channel: int) -> ElementType:
        if not isinstance(element, UniformPerAxisType):
            return element
        if not (isinstance(self._granularity, PerAxis) and self._granularity.axis == element.axis):
            raise UnsupportedError("unknown scales go along the axis of the other type, if that has one")
        return UniformType(element.storage, element.expressed, element.scales[channel], element.zero_points[channel])

    def _type_of(self, scales: Sequence[float], zero_points: Sequence[int], shape: tuple[int, int]) -> ElementType:
        granularity: Granularity = PerAxis(0, shape[0])
        if isinstance(self._granularity, PerBlock):
            granularity = PerBlock(shape, (1, shape[1]))
        return finish_type(self._storage, self._expressed, scales, zero_points, granularity)

    def _filled(self, rows: _Rows, numbers: Array, candidate: Candidate) -> ArrayCall:
        places = self._table[rows.channels]
        shape = (places.shape[0], places.shape[1])
        dtype = numpy_dtype(self._expressed)
        scales = numbers.astype(f"u{dtype.itemsize}").view(dtype).astype(np.float64)
        opened = self._type_of(scales.tolist(), rows.others.tolist(), shape)
        other = self._other
        if isinstance(other, UniformPerAxisType):
            chosen = [(other.scales[each], other.zero_points[each]) for each in rows.channels]
            other = replace(other, axis=0, scales=tuple(s for s, _ in chosen), zero_points=tuple(z for _, z in chosen))
        source, target = (opened, other) if self._side is Side.INPUT else (other, opened)
        options = dict(self._call.options)
        if "output_type" in options:
            options["output_type"] = target
        return replace(
            self._call,
            types={_INPUT: TensorType(shape, source)},
            arrays={_INPUT: self._taken(_INPUT, places)},
            observed={},
            options=options,
        )

    def example(self, candidate: Candidate) -> ArrayCall:
        rows = self._rows(candidate)
        firsts = np.unique(rows.channels, return_index=True)[1] if len(rows) else np.zeros(0, np.int64)
        kept = rows.among(firsts)
        if not len(kept):
            channel = next(iter(self._searches))
            one = np.array([self._searches[channel].bits_of(1.0)])
            kept = _Rows(np.array([channel]), np.array([0]), one, one)
        return self._filled(kept, kept.low + (kept.high - kept.low) // 2, candidate)

    def intervals(self, candidate: Candidate) -> Iterator[Interval | Contradiction]:
        impossible = False
        for channel, search in self._searches.items():
            if search.impossible is not None:
                impossible = True
                pair = search.real_contradiction(search.impossible)
                yield Contradiction(search.impossible, self._in_tensor(channel, pair), channel)
        if not impossible or any(search.brackets for search in self._searches.values()):
            yield from super().intervals(candidate)

    def _in_tensor(self, channel: int, elements: tuple[int, ...]) -> tuple[int, ...]:
        members = self._members[channel]
        return tuple(sorted(int(members[each]) for each in elements))

    def _rows(self, candidate: Candidate) -> _Rows:
        if self._all_rows is None:
            found = [np.zeros((4, 0), np.int64)]
            for channel, search in self._searches.items():
                check_cancelled()
                zero_points = np.array(list(search.brackets), np.int64)
                low, high = np.array(list(search.brackets.values())).reshape(-1, 2).T
                channels = np.full(zero_points.size, channel)
                found.append(np.stack([channels, zero_points, *map(search.bits_of_each, (low, high))]))
            self._all_rows = _Rows(*np.concatenate(found, axis=1))
        return self._all_rows

    def _signs(self, rows: _Rows) -> Array:
        inputs = self._inputs[self._table[rows.channels]]
        if self._side is Side.INPUT:
            return np.sign(inputs - rows.others[:, np.newaxis])
        if isinstance(self._other, UniformQuantizedType):
            zeros = np.array(self._other.zero_points)
            return np.asarray(np.sign(inputs - (zeros[0] if zeros.size == 1 else zeros[rows.channels][:, np.newaxis])))
        return np.sign(inputs)

    def _interval(self, row: _Rows, lowest: int, highest: int) -> Interval:
        ends = self._number_of(lowest), self._number_of(highest)
        return ScaleInterval(int(row.others[0]), *ends, channel=int(row.channels[0]))

    def _contradiction(self, row: _Rows, small: Array, large: Array) -> Contradiction:
        channel, zero_point = int(row.channels[0]), int(row.others[0])
        search = self._searches[channel]
        size = search.places.size
        pair = search.real_contradiction(zero_point, small=small[:size], large=large[:size])
        return Contradiction(zero_point, self._in_tensor(channel, pair), channel)


def leaves_multipliers_open(call: ArrayCall) -> bool:
    """Return whether a call of requantize takes plain integers, and has no multipliers."""
    return (
        call.operation.name == "requantize"
        and isinstance(call.types[_INPUT].element, IntegerElement)
        and not call.numbers
        and isinstance(element_of(call.options.get("output_type")), UniformType)
    )


class MultiplierSearch(RowSearch):
    """The multipliers and shifts of a requantization of plain integers, in the conventions of each scheme."""

    _grows = True

    def __init__(self, call: ArrayCall, granularity: Granularity) -> None:
        super().__init__(call, granularity)
        if isinstance(granularity, PerBlock):
            raise UnsupportedError("multipliers are looked for along an axis, not of blocks")
        self._target: UniformType = element_of(call.options["output_type"])
        self._inputs = as_f64(call.arrays[_INPUT], call.types[_INPUT].element)
        self._seen = as_f64(call.observed[_OUTPUT], self._target)
        self._channels = list(range(granularity.count))
        places = []
        for channel in self._channels:
            members = np.flatnonzero(self._of_element == channel)
            places.append(members[extremes(self._seen[members], self._inputs[members])])
        self._table = _padded(places)
        self._known: dict[Hashable, list[Interval | Contradiction]] = {}
        self._factors = {channel: self._real_factors(self._table[channel]) for channel in self._channels}

    @property
    def _places(self) -> Array:
        return self._table

    @property
    def _observed_numbers(self) -> Array:
        return self._seen

    def _real_factors(self, places: Array) -> tuple[Array, Array]:
        """Return the least and the largest factor of each element, in real numbers."""
        storage = self._target.storage
        bounds = float(storage.minimum), float(storage.maximum)
        inputs = self._inputs[places]
        low, high = needed(self._seen[places], np.array(float(self._target.zero_point)), bounds)
        with np.errstate(all="ignore"):
            ends = np.sort(np.stack([low / inputs, high / inputs]), axis=0)
        fits = (low <= 0) & (high >= 0)
        lowest = np.where(inputs == 0, np.where(fits, -np.inf, np.inf), ends[0])
        highest = np.where(inputs == 0, np.where(fits, np.inf, -np.inf), ends[1])
        return lowest, highest

    def intervals(self, candidate: Candidate) -> Iterator[Interval | Contradiction]:
        # Many candidates have one scheme, and differ in what needs no multiplier.
        plan = self.example(candidate).planned(options_for(candidate, self._call)).arithmetic
        key = self._scheme(candidate).name, arithmetic_key(plan)
        if key not in self._known:
            self._known[key] = list(self._found(candidate))
        yield from self._known[key]

    def _found(self, candidate: Candidate) -> Iterator[Interval | Contradiction]:
        rows = self._rows(candidate)
        for channel, (lowest, highest) in self._factors.items():
            if not np.any(rows.channels == channel):
                pair = {int(self._table[channel][each]) for each in (np.argmax(lowest), np.argmin(highest))}
                yield Contradiction(None, tuple(sorted(pair)), channel)
        yield from super().intervals(candidate)

    def _scheme(self, candidate: Candidate) -> Scheme:
        """Return the scheme of a candidate. Raise UnsupportedError where it has none, and so no multipliers."""
        chosen = {**self._call.operation.defaults, **self._call.options, **options_for(candidate, self._call)}
        name = chosen["scheme"] or PROFILES[chosen["profile"]].rule(Operation.REQUANTIZE).scheme
        if name is None:
            raise UnsupportedError(f"profile {chosen['profile']} requantizes without multipliers")
        return scheme_named(name)

    def _rows(self, candidate: Candidate) -> _Rows:
        scheme = self._scheme(candidate)
        (least, largest), (first, last) = scheme.multipliers, scheme.shifts
        shifts = np.arange(first, last + 1)
        rights = np.array([scheme.right_shift(int(each)) for each in shifts])
        found = []
        for channel in self._channels:
            lowest, highest = self._factors[channel][0].max(), self._factors[channel][1].min()
            with np.errstate(all="ignore"):
                ends = np.ldexp(lowest, rights), np.ldexp(highest, rights)
            # Integers in bounds a little wider than those of real numbers, which may be negative.
            low = np.maximum(np.ceil(np.minimum(ends[0] / MARGIN, ends[0] * MARGIN)), least)
            high = np.minimum(np.floor(np.maximum(ends[1] / MARGIN, ends[1] * MARGIN)), largest)
            possible = (low <= high) & (lowest <= highest)
            low, high = (np.where(possible, each, 0) for each in (low, high))
            columns = (np.full(shifts.size, channel), shifts, low.astype(np.int64), high.astype(np.int64))
            found.append(np.stack(columns)[:, possible])
        return _Rows(*np.concatenate(found, axis=1))

    def example(self, candidate: Candidate) -> ArrayCall:
        scheme = self._scheme(candidate)
        factors = np.ones(self._granularity.count)
        for channel in self._channels:
            lowest, highest = self._factors[channel][0].max(), self._factors[channel][1].min()
            if 0 < lowest <= highest < np.inf:
                factors[channel] = (lowest + highest) / 2
        derived = [scheme.derive(float(each)) for each in factors]
        return self._with_multipliers(self._call, derived, getattr(self._granularity, "axis", None))

    @staticmethod
    def _with_multipliers(call: ArrayCall, multipliers: Sequence[Multiplier], axis: int | None) -> ArrayCall:
        numbers = {
            "multipliers": np.array([each.multiplier for each in multipliers], np.int64),
            "shifts": np.array([each.shift for each in multipliers], np.int64),
        }
        options = dict(call.options) if axis is None else {**call.options, "axis": axis}
        return replace(call, numbers=numbers, options=options)

    def _filled(self, rows: _Rows, numbers: Array, candidate: Candidate) -> ArrayCall:
        places = self._table[rows.channels]
        shape = (places.shape[0], places.shape[1])
        reduced = replace(
            self._call,
            types={_INPUT: TensorType(shape, self._call.types[_INPUT].element)},
            arrays={_INPUT: self._taken(_INPUT, places)},
            observed={},
            options={**self._call.options, "output_type": self._target},
        )
        pairs = [Multiplier(int(m), int(s)) for m, s in zip(numbers, rows.others, strict=True)]
        return self._with_multipliers(reduced, pairs, 0)

    def _signs(self, rows: _Rows) -> Array:
        signs: Array = np.sign(self._inputs[self._table[rows.channels]])
        return signs

    def _interval(self, row: _Rows, lowest: int, highest: int) -> Interval:
        return MultiplierInterval(int(row.others[0]), lowest, highest, int(row.channels[0]))

    def _contradiction(self, row: _Rows, small: Array, large: Array) -> Contradiction:
        channel = int(row.channels[0])
        lowest, highest = self._factors[channel]
        places = self._table[channel]
        first = int(np.argmax(small if small.any() else lowest))
        second = int(np.argmax(large) if large.any() else np.argmin(highest))
        pair = tuple(sorted({int(places[first]), int(places[second])}))
        return Contradiction(None, pair, channel, int(row.others[0]))
