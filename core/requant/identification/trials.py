"""What to try next of operations that are no rules of single numbers: calls with other data, on which rules differ.

Of all that were tried the fewest are kept; nothing is claimed of data that were not, unless all there are were
computed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from math import prod
from typing import Any

import numpy as np

from requant.arrays.calls import ArrayCall
from requant.description import Array
from requant.errors import RequantError
from requant.errors.cancellation import LateError, check_cancelled
from requant.identification.candidates import Candidate, options_for
from requant.identification.drawn_data import KINDS, ORDINARY_KINDS, bounds_of, with_data
from requant.identification.outcomes import compared_outputs
from requant.identification.probes import Probe, outcomes_of
from requant.identification.separation import fewest, first_of_each_split
from requant.integer.add import AddPlan
from requant.mlir.types import TensorType, UniformPerAxisType, UniformSubChannelType
from requant.plan.operands import kept_dtype, static_shape

# So many pairs of operands are made at most.
_PAIRS = 1 << 16
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
            ordinary += number < ORDINARY_KINDS
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
    takes = _planned(options, with_data(call, small, 0, np.random.default_rng(0)))
    # Operators of images and of rows need their shapes.
    whole = not takes or sum(each.size for each in call.arrays.values()) <= _WHOLE
    for number in range(KINDS):
        types = call.types if whole and (not takes or number % 2) else small
        yield with_data(call, types, number, rng)


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


def _pairs(
    index: int, call: ArrayCall, candidates: Sequence[Candidate], rng: np.random.Generator
) -> tuple[list[Probe], list[bytes], bool]:
    """Compare additions on all pairs of stored numbers, or on many."""
    names = list(call.types)
    elements = [call.types[name].element for name in names]
    if any(isinstance(each, UniformPerAxisType | UniformSubChannelType) for each in elements):
        return [], [b""] * len(candidates), False
    bounds = [bounds_of(each) for each in elements]
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
