"""Vectors of whole calls: data worth testing an operator or a product with, and what the call gives for them.

A call is the pattern: its types, parameters and shapes stay, its other tensors get new data. Of the calls that are
tried those are kept first on which other kernels, implementations or profiles give other bits, or which have another
reason, then those with outputs not seen yet.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import count, islice
from math import isnan, prod
from typing import Any

import numpy as np

from requant.arrays.calls import ArrayCall, read_option
from requant.arrays.elements import shaped
from requant.convert.vectors.conversions import stored_element
from requant.convert.vectors.subject import number_line
from requant.description import Array, Chooses, Option, Result, TensorValue
from requant.errors import RequantError
from requant.errors.cancellation import check_cancelled
from requant.formats.elements import FloatElement
from requant.identification.candidates import values_of
from requant.identification.drawn_data import KINDS, bounds_of, parameters_of, with_data
from requant.identification.outcomes import differing
from requant.mlir.types import ElementType, UniformQuantizedType, UniformType
from requant.plan.operands import kept_dtype, static_shape

MAX_COUNT = 64
# More calls are tried than are kept: so many for each one, and so many more of a call with few elements, but not more
# than are computed in a second by all rules that there are.
_TRIED, _MORE = 2, 64
_FEW = 1 << 14
_RUNS = 1 << 11
# So many vectors go through pairs of bounds, and of codes.
_OF_BOUNDS, _OF_CODES = 8, 16
_WIDEST_CODES = 8


class DataReason(StrEnum):
    """Why the data of a vector were selected, or what its outputs show."""

    GIVEN = "given"
    """The data of the call itself."""
    BOUNDS = "bounds"
    """Lowest and highest numbers, zero points and what is beside them, of floats zeros, subnormals, infinities, NaN."""
    CODES = "codes"
    """Stored numbers of at most 8 bits in their order, of several inputs as pairs."""
    DRAWN = "drawn"
    """Drawn from the seed: ties, powers of two, numbers beside these, wide and narrow ranges."""
    TIE = "tie"
    """A stage of floats lies halfway between two integers."""
    STORAGE_MINIMUM = "storage_minimum"
    """The lowest number of a quantized output is among its elements."""
    STORAGE_MAXIMUM = "storage_maximum"


@dataclass(frozen=True, slots=True)
class CallVector:
    """A call with data, and what it gives. `differing`: the choices that give other bits, or refuse the call."""

    asked: ArrayCall
    why: tuple[DataReason, ...]
    differing: tuple[str, ...]
    outputs: Mapping[str, TensorValue]
    stages: Mapping[str, TensorValue]


def choice_of(call: ArrayCall) -> Option | None:
    """Return the first option that chooses the arithmetic by a name: kernel, implementation or profile."""
    return next((each for each in call.operation.options if each.chooses is Chooses.RULES), None)


def runs_of(call: ArrayCall, most: int) -> int:
    """Return how many times at most the call is computed, with its own choice and all others."""
    return (_tried(call, most) + 1) * _choices(call)


def _choices(call: ArrayCall) -> int:
    choice = choice_of(call)
    return 1 if choice is None else len(values_of(choice))


def _tried(call: ArrayCall, most: int) -> int:
    few = sum(each.size for each in call.arrays.values()) <= _FEW
    return max(most, min(_TRIED * most + (_MORE if few else 0), _RUNS // _choices(call)))


def vectors_of_call(call: ArrayCall, most: int, seed: int) -> list[CallVector]:
    """Return at most so many vectors of a call, its own data the first. Raise what the call raises with its own data;
    what others are refused for is left out.
    """
    own = _traced(call)
    tried = [_Trial(call, DataReason.GIVEN, own.result(own.planned()))]
    for asked, reason in islice(_calls(call, seed), _tried(call, most)):
        check_cancelled()
        if (result := _result(_traced(asked), {})) is not None:
            tried.append(_Trial(asked, reason, result))
    for trial in tried:
        check_cancelled()
        trial.differing = tuple(_differing(trial))
    return [each.vector() for each in _selected(tried, most)]


class _Trial:
    """A call that was tried."""

    def __init__(self, asked: ArrayCall, reason: DataReason, result: Result) -> None:
        self.asked = asked
        self.reason = reason
        self.differing: tuple[str, ...] = ()
        self.outputs = result.outputs
        self._stages = {name: each for name, each in result.stages.items() if name not in result.outputs}

    def vector(self) -> CallVector:
        return CallVector(self.asked, tuple(self._reasons()), self.differing, self.outputs, self._stages)

    def seen(self) -> set[Any]:
        """Return what the vector shows: elements of outputs, reasons, and which choices give others."""
        elements = (
            (name, bits)
            for name, each in self.outputs.items()
            for bits in np.unique(each.data.view(f"u{each.data.itemsize}")).tolist()
        )
        return {*elements, *self._reasons(), *self.differing}

    def _reasons(self) -> Iterator[DataReason]:
        yield self.reason
        if any(_has_tie(each.data) for each in self._stages.values()):
            yield DataReason.TIE
        for each in self.outputs.values():
            if isinstance(each.type.element, UniformType) and each.data.size and each.data.dtype.kind in "iu":
                lowest, highest = bounds_of(each.type.element)
                yield from [DataReason.STORAGE_MINIMUM] if each.data.min() == lowest else []
                yield from [DataReason.STORAGE_MAXIMUM] if each.data.max() == highest else []


def _has_tie(stage: Array) -> bool:
    if stage.dtype.kind != "f":
        return False
    with np.errstate(invalid="ignore"):
        return bool(np.any(np.abs(stage - np.trunc(stage)) == 0.5))


def _traced(call: ArrayCall) -> ArrayCall:
    """Return a call that gives its stages, where it has any."""
    if call.operation.trace is None or not call.operation.has_option("trace"):
        return call
    return replace(call, options={**call.options, "trace": True})


def _result(call: ArrayCall, options: Mapping[str, Any]) -> Result | None:
    """Return what a call gives, None if it is refused."""
    try:
        return call.result(call.planned(options))
    except RequantError:
        return None


def _differing(trial: _Trial) -> Iterator[str]:
    """Yield the other choices of the arithmetic that give other bits, or refuse the call."""
    if (choice := choice_of(trial.asked)) is None:
        return
    chosen = trial.asked.options.get(choice.name, choice.resolve(choice.default))
    for name in values_of(choice):
        value = read_option(choice, name)
        if value == chosen:
            continue
        found = _result(trial.asked, {choice.name: value})
        if found is None or any(
            differing(each.data, found.outputs[output]).any() for output, each in trial.outputs.items()
        ):
            yield str(name)


def _selected(tried: Sequence[_Trial], most: int) -> list[_Trial]:
    """Return the first one, then so many of those that show most of what the ones before do not."""
    first, *left = tried
    kept, seen = [first], first.seen()
    shown = {id(each): each.seen() for each in left}
    while left and len(kept) < most:
        best = max(left, key=lambda each: _weight(shown[id(each)] - seen))
        kept.append(best)
        left.remove(best)
        seen |= shown[id(best)]
    return kept


def _weight(new: set[Any]) -> tuple[int, int]:
    """Return how much that is new shows: choices that differ and reasons before elements."""
    named = sum(isinstance(each, str) for each in new)
    return named, len(new) - named


def _calls(call: ArrayCall, seed: int) -> Iterator[tuple[ArrayCall, DataReason]]:
    """Yield calls with other data in the place of tensors that are no parameters of others."""
    kept, rng = parameters_of(call), np.random.default_rng(seed)
    types = {name: call.type_of(name) for name, each in call.arrays.items() if name not in kept and each.size}
    bounds = {name: _bounds(each.element) for name, each in types.items()}
    codes = {name: _codes(each.element) for name, each in types.items()}
    for number in count():
        if number < _OF_BOUNDS:
            yield _in_turn(call, bounds, number), DataReason.BOUNDS
        if number < _OF_CODES and all(each.size for each in codes.values()):
            yield _in_turn(call, codes, number), DataReason.CODES
        yield with_data(call, call.types, number % KINDS, rng), DataReason.DRAWN


def _bounds(element: ElementType) -> Array:
    stored, dtype = stored_element(element), kept_dtype(element, "input")
    if isinstance(stored, FloatElement):
        special = list(number_line(stored).special())
        # JSON has one NaN: the first one, which is quiet and has no sign.
        nans = [each for each in special if isnan(stored.value(each))]
        return np.array([each for each in special if each not in nans[1:]], f"u{dtype.itemsize}").view(dtype)
    lowest, highest = bounds_of(element)
    zero = element.zero_points[0] if isinstance(element, UniformQuantizedType) else 0
    found = (lowest, highest, zero, zero - 1, zero + 1, lowest + 1, highest - 1)
    return np.array([each for each in dict.fromkeys(found) if lowest <= each <= highest], dtype)


def _codes(element: ElementType) -> Array:
    """Return the stored numbers in their order; none where there are too many."""
    stored, dtype = stored_element(element), kept_dtype(element, "input")
    if stored.width > _WIDEST_CODES:
        return np.empty(0, dtype)
    if isinstance(stored, FloatElement):
        return np.arange(1 << stored.width, dtype=f"u{dtype.itemsize}").view(dtype)
    lowest, highest = bounds_of(element)
    return np.arange(lowest, highest + 1, dtype=dtype)


def _in_turn(call: ArrayCall, numbers: Mapping[str, Array], number: int) -> ArrayCall:
    """Return a call whose tensors go through numbers: the first one fastest, so that there are pairs of all."""
    arrays, period = dict(call.arrays), 1
    for name, each in numbers.items():
        type_ = call.type_of(name)
        shape = static_shape(type_)
        places = np.arange(prod(shape)) + number * prod(shape)
        arrays[name] = shaped(each[(places // period + (period > 1) * number) % each.size], type_, shape)
        period *= each.size
    return replace(call, arrays=arrays)
