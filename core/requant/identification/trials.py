"""What to try next of operations that are no rules of single numbers: calls with other data, on which rules differ.

Data are drawn where bugs live: ties, powers of two and their neighbours, subnormal numbers, extremes. Of all that were
tried the fewest are kept; nothing is claimed of data that were not, unless all there are were computed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from math import prod
from typing import Any

import numpy as np

from requant.arrays.calls import ArrayCall
from requant.arrays.elements import numpy_dtype
from requant.description import Array, Kind, NumbersInput
from requant.errors import RequantError
from requant.errors.cancellation import LateError, check_cancelled
from requant.formats.elements import FloatElement, IntegerElement
from requant.identification.candidates import Candidate, options_for
from requant.identification.outcomes import compared_outputs
from requant.identification.probes import Probe, outcomes_of
from requant.identification.separation import fewest, first_of_each_split
from requant.integer.add import AddPlan
from requant.mlir.types import (
    AnyType,
    ElementType,
    TensorType,
    UniformPerAxisType,
    UniformQuantizedType,
    UniformSubChannelType,
)
from requant.plan.operands import kept_dtype, static_shape

# So many calls are made at most, and so many pairs of operands.
_TRIALS = 64
_PAIRS = 1 << 16
# The numbers of the first ones are none for which many systems have an exception.
_ORDINARY = 48
# Two f32 are beside each other after as many halvings, unless 0 is between them.
_HALVINGS = 32
# Of calls with as many elements every other one has its own shapes.
_WHOLE = 1 << 14
# A dimension that has no parameters of its own is this long at most.
_LONGEST = 64


def compare_on_trials(
    index: int, call: ArrayCall, candidates: Sequence[Candidate], is_late: Callable[[], bool]
) -> tuple[list[Probe], list[bytes], bool]:
    """Return calls that tell candidates apart, what each gives for all that were tried, and whether those were all
    that there are. Candidates that refuse a call which others take are not told apart by it.
    """
    rng = np.random.default_rng(0)
    work = call.planned(options_for(candidates[0], call))
    if isinstance(work.arithmetic, AddPlan):
        return _pairs(index, call, candidates, rng)
    table: list[list[int]] = []
    tried: list[Probe] = []
    ordinary = 0
    drawn = enumerate(_drawn(call, options_for(candidates[0], call), rng))
    for number, trial in ((number, one) for number, each in drawn for one in (each, *_at_steps(each, candidates[0]))):
        try:
            check_cancelled()
            found = outcomes_of(trial, candidates, compared_outputs(call))
        except LateError:
            break
        texts = [_text(each) for each in found]
        if len(set(texts)) > 1:
            tried.append(Probe(index, 0, replace(trial, observed={}), found))
            table.append([texts.index(each) for each in texts])
            ordinary += number < _ORDINARY
            if len(set(zip(*table, strict=True))) == len(candidates):
                break
    if not tried:
        return [], [b""] * len(candidates), False
    rows = np.array(table).T
    kept = fewest(rows, fewest(rows[:, :ordinary]))
    return [tried[place] for place in kept], [row.tobytes() for row in rows], False


def _text(outputs: Iterable[Array]) -> bytes:
    """Return what is equal for equal outputs."""
    return b"".join(repr(each.tolist()).encode() if each.dtype == object else each.tobytes() for each in outputs)


def _drawn(call: ArrayCall, options: Mapping[str, Any], rng: np.random.Generator) -> Iterator[ArrayCall]:
    """Yield calls with other data, of few elements where the operation takes them with these options."""
    small = {name: TensorType(_short(each), each.element) for name, each in call.types.items()}
    takes = _planned(options, _with_data(call, small, 0, np.random.default_rng(0)))
    # Operators of images and of rows need their shapes.
    whole = not takes or sum(each.size for each in call.arrays.values()) <= _WHOLE
    for number in range(_TRIALS):
        types = call.types if whole and (not takes or number % 2) else small
        yield _with_data(call, types, number, rng)


def _with_data(call: ArrayCall, types: Mapping[str, TensorType], number: int, rng: np.random.Generator) -> ArrayCall:
    """Return a call with other data of these types. `number`: which kind of data."""
    kept = _parameters(call)
    arrays = {
        name: each
        if name in kept
        else _tensor(types[name if name in types else name.rpartition("_")[0]], each, number, rng)
        for name, each in call.arrays.items()
    }
    numbers = {each.name: _numbers(each, call.numbers[each.name], number, rng) for each in _listed(call)}
    types = {name: call.types[name] if name in kept else each for name, each in types.items()}
    return replace(call, types=types, arrays=arrays, numbers={**call.numbers, **numbers})


def _parameters(call: ArrayCall) -> set[str]:
    """Return the inputs that are parameters of others: single numbers, and plain integers such as shapes and axes."""
    plain = {
        name
        for name, each in call.types.items()
        if isinstance(each.element, IntegerElement) and each.element.width > 16
    }
    single = {name for name, each in call.arrays.items() if each.size == 1}
    found = plain | single
    return set() if found >= set(call.types) else found


def _at_steps(call: ArrayCall, candidate: Candidate) -> Iterator[ArrayCall]:
    """Yield calls with the floats before and behind some steps of a candidate, if the elements of its only output are
    each of one of the input: where others have steps beside these, they differ there.
    """
    array = call.arrays.get("input")
    if (
        set(call.types) != {"input"}
        or compared_outputs(call) != ("output",)
        or array is None
        or array.dtype.kind != "f"
    ):
        return
    low = np.sort(array.reshape(-1))

    def outputs(elements: Array) -> Array | None:
        asked = replace(call, arrays={"input": elements.reshape(array.shape)})
        [found] = outcomes_of(asked, [candidate], ("output",))
        return found[0] if found and found[0].size == elements.size else None

    high, first = np.append(low[1:], low[-1:]), outputs(low)
    for _ in range(_HALVINGS):
        with np.errstate(all="ignore"):
            middle = low / 2 + high / 2
        found = outputs(middle)
        if first is None or found is None:
            return
        same = found == first
        low, high = np.where(same, middle, low), np.where(same, high, middle)
    yield from (replace(call, arrays={"input": each.reshape(array.shape)}) for each in (low, high))


def _listed(call: ArrayCall) -> list[NumbersInput]:
    return [each for each in call.operation.numbers if each.name in call.numbers]


def _planned(options: Mapping[str, Any], call: ArrayCall) -> bool:
    try:
        call.planned(options)
    except RequantError:
        return False
    return True


def _short(type_: TensorType) -> tuple[int, ...]:
    """Return the shape of a small tensor of the same element type. Dimensions that have parameters stay."""
    shape = static_shape(type_)
    if isinstance(type_.element, UniformPerAxisType | UniformSubChannelType):
        return shape
    return tuple(min(size, 1 if place < len(shape) - 1 else _LONGEST) for place, size in enumerate(shape))


def _tensor(type_: TensorType, like: Array, number: int, rng: np.random.Generator) -> Array:
    shape = static_shape(type_)
    element = type_.element
    stored = element.storage.element if isinstance(element, UniformQuantizedType | AnyType) else element
    if isinstance(stored, FloatElement):
        dtype = numpy_dtype(stored)
        with np.errstate(all="ignore"):
            finite = np.abs(like.astype(np.float64, copy=False).reshape(-1)) if like.dtype.kind != "u" else np.ones(1)
        finite = finite[np.isfinite(finite)]
        largest = float(finite.max(initial=0)) or 1.0
        with np.errstate(all="ignore"):
            reals: Array = _reals(prod(shape), largest, number, rng).astype(dtype).reshape(shape)
        return reals
    lowest, highest = _bounds(element)
    integers = rng.integers(lowest, highest, prod(shape), endpoint=True)
    integers[rng.random(integers.size) < 0.1] = rng.choice([lowest, highest])
    stored_integers: Array = integers.astype(kept_dtype(element, "input")).reshape(shape)
    return stored_integers


def _bounds(element: ElementType) -> tuple[int, int]:
    if isinstance(element, UniformQuantizedType):
        return int(element.storage.minimum), int(element.storage.maximum)
    if isinstance(element, IntegerElement):
        bits = min(element.width, 32) - element.signed
        return (-(1 << bits) if element.signed else 0), (1 << bits) - 1
    return 0, 1


def _reals(count: int, largest: float, number: int, rng: np.random.Generator) -> Array:
    """Return numbers up to about a magnitude: one of several kinds."""
    signs: Array = rng.choice([-1.0, 1.0], count)
    power = 2.0 ** np.floor(np.log2(largest))
    found: Array
    match number % 7:
        case 0:
            found = rng.normal(0, largest, count)
        case 1:
            # Few bits: halves and quarters of a block's unit.
            found = signs * rng.integers(0, 65, count) / 64 * power
        case 2:
            # A power of two, and what lies beside it in f32.
            found = signs * power * 2.0 ** rng.integers(-8, 2, count) * (1 + rng.integers(-2, 3, count) * 2.0**-23)
        case 3:
            found = signs * largest * 2.0 ** rng.uniform(-30, 8, count)
        case 4:
            # The largest magnitude is just above or below what the formats of blocks hold.
            found = signs * rng.integers(0, 97, count) / 96 * power * rng.choice([1.0, 1.5, 1.75, 1.875, 1.9375])
            found *= 1 + rng.integers(-1, 2) * 2.0**-12
        case 5:
            found = signs * rng.integers(0, 1 << 12, count) * 2.0**-149
        case _:
            found = rng.normal(0, largest, count)
            found[rng.random(count) < 0.5] = rng.choice([0.0, -0.0])
    return found


def _numbers(given: NumbersInput, like: Array, number: int, rng: np.random.Generator) -> Array:
    """Return as many numbers as a call has: near those that it has and in their order; near powers of two, at ties of
    31 and of 15 bits, and of any bits. They are of f32 if those of the call are.
    """
    if given.kind is Kind.INTEGER:
        return like
    with np.errstate(all="ignore"):
        reals = np.array([_real(each) for each in like.reshape(-1)])
    count = like.size
    scales = 2.0 ** (np.floor(np.log2(np.maximum(np.abs(reals), 1e-30))) + rng.integers(-3, 4, count))
    found = _near(reals, number // 2) if number % 2 else np.copysign(_of_few_bits(scales, number // 2, rng), reals)
    found = found.reshape(like.shape)
    with np.errstate(over="ignore"):
        singles = found.astype(np.float32)
    if np.array_equal(reals, reals.astype(np.float32)) and np.isfinite(singles).all():
        found = singles.astype(np.float64)
    if like.dtype != object:
        numbers: Array = found.astype(like.dtype)
        return numbers
    texts = np.empty(like.shape, object)
    for place, each in np.ndenumerate(found):
        texts[place] = repr(float(each))
    return texts


def _near(reals: Array, number: int) -> Array:
    """Return numbers times factors, which are the same for all lists of a trial, so that the ends of ranges stay in
    order; some of one sign; of the last trials some are 0, or all subnormal.
    """
    rng = np.random.default_rng(number)
    powers = rng.integers(-20, 20, reals.size).astype(np.float64)
    if number >= _ORDINARY // 2:
        found: Array = reals * (2.0 ** (powers - 130) if number % 2 else rng.random(reals.size) < 0.5)
        return found
    scaled = reals * (2.0**powers if number % 2 else rng.uniform(0.5, 2, reals.size))
    signed: tuple[Array, ...] = scaled, np.abs(scaled), -np.abs(scaled)
    return signed[number // 2 % 3]


def _of_few_bits(scales: Array, number: int, rng: np.random.Generator) -> Array:
    count, found = scales.size, scales
    match number % 4:
        case 0:
            found = scales * (1 - 2.0 ** -rng.integers(8, 40, count).astype(np.float64))
        case 1:
            found = scales * (rng.integers(1 << 30, 1 << 31, count) + 0.5) * 2.0**-31
        case 2:
            found = scales * (rng.integers(1 << 14, 1 << 15, count) + 0.5) * 2.0**-15
        case _:
            found = scales * rng.uniform(0.5, 1, count)
    return found


def _real(number: Any) -> float:
    try:
        return float.fromhex(number) if isinstance(number, str) and "0x" in number.lower() else float(number)
    except (TypeError, ValueError):
        return 1.0


def _pairs(
    index: int, call: ArrayCall, candidates: Sequence[Candidate], rng: np.random.Generator
) -> tuple[list[Probe], list[bytes], bool]:
    """Compare additions on all pairs of stored numbers, or on many."""
    names = list(call.types)
    elements = [call.types[name].element for name in names]
    if any(isinstance(each, UniformPerAxisType | UniformSubChannelType) for each in elements):
        return [], [b""] * len(candidates), False
    bounds = [_bounds(each) for each in elements]
    sizes = [highest - lowest + 1 for lowest, highest in bounds]
    complete = prod(sizes) <= _PAIRS
    if complete:
        codes = np.stack(np.meshgrid(*(np.arange(low, high + 1) for low, high in bounds), indexing="ij")).reshape(2, -1)
    else:
        codes = np.stack([rng.integers(low, high, _PAIRS, endpoint=True) for low, high in bounds])
    found = outcomes_of(_of_pairs(call, codes), candidates, ("output",))
    if not all(found):
        return [], [b""] * len(candidates), False
    outcomes = np.stack([each.astype(np.int64) for (each,) in found])
    columns = first_of_each_split(outcomes)
    kept = columns[fewest(outcomes[:, columns])]
    signatures = [row.tobytes() for row in outcomes[:, columns]]
    if not kept.size:
        return [], signatures, complete
    asked = _of_pairs(call, codes[:, kept])
    return [Probe(index, 0, asked, outcomes_of(asked, candidates, ("output",)))], signatures, complete


def _of_pairs(call: ArrayCall, codes: Array) -> ArrayCall:
    names = list(call.types)
    types = {name: TensorType((codes.shape[1],), call.types[name].element) for name in names}
    arrays = {name: row.astype(kept_dtype(types[name].element, name)) for name, row in zip(names, codes, strict=True)}
    options = dict(call.options)
    target = options.get("output_type")
    if isinstance(target, TensorType):
        options["output_type"] = target.element
    return replace(call, types=types, arrays=arrays, options=options, observed={})
