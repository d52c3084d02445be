"""The blind test: a dump is identified by what was observed alone, and its system is asked what to try next, until one
group of candidates is left.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from requant.arrays.calls import ArrayCall, call_on_arrays, read_option
from requant.errors import RequantError
from requant.identification.arithmetic import arithmetic_key
from requant.identification.candidates import Candidate, options_for
from requant.identification.identification import Identification, identify
from requant.identification.separation import Probe
from requant.mlir.types import TensorType, UniformPerAxisType
from tests.interop.blind.dump import DUMPED, Array, Dump

MOST = 2
"""Rounds of what to try next."""


@dataclass(frozen=True)
class Found:
    """What a dump came to: whether its label was ever excluded, how many rounds of what to try next there were, how
    many groups are left, and whether these are proven to be the same arithmetic.
    """

    dump: Dump
    is_wrong: bool
    rounds: int
    groups: int
    proven: bool
    detail: str = ""

    @property
    def is_settled(self) -> bool:
        """Whether the true system is the only group left, or the rest is proven to be equal."""
        return not self.is_wrong and self.groups == 1 and self.proven


def found(dump: Dump) -> Found:
    """Identify a dump."""
    first = call_on_arrays(DUMPED[dump.operation], dump.arrays, dump.types, dump.options).with_observed(dump.observed)
    calls = [first]
    asked = 0
    while True:
        answer = identify(calls)
        wrong = not any(_is_label(dump, first, each) for group in answer.consistent for each in group.candidates)
        groups, proven = len(answer.consistent), all(each.proven for each in answer.consistent)
        if wrong or groups == 1 or asked == MOST or dump.answer is None or not answer.probes:
            return Found(dump, wrong, asked, groups, proven, _detail(dump, first, answer) if wrong else "")
        calls += _asked(dump, first, answer.probes)
        asked += 1


def _detail(dump: Dump, call: ArrayCall, answer: Identification) -> str:
    """Where what is computed with the label differs, or why it refuses a call."""
    for excluded in answer.excluded:
        if any(_is_label(dump, call, each) for each in excluded.group.candidates):
            return f"{excluded.group.mismatches} elements differ, first {excluded.group.witness}"
    for undefined in answer.undefined:
        if any(_is_label(dump, call, each) for each in undefined.candidates):
            return undefined.undefined
    return "no candidate"


def _is_label(dump: Dump, call: ArrayCall, candidate: Candidate) -> bool:
    """Whether a candidate is the same arithmetic as the label of a dump."""
    operation = call.operation
    label = {name: read_option(operation.option(name), value) for name, value in dump.label.items()}
    try:
        keys = [
            arithmetic_key(call.planned(options).arithmetic)
            for options in (label, options_for(candidate, call))
        ]
    except RequantError:
        return False
    return keys[0] == keys[1] if keys[0] is not None else options_for(candidate, call) == label


def _asked(dump: Dump, call: ArrayCall, probes: Sequence[Probe]) -> Iterator[ArrayCall]:
    """The calls of what to try next, each with what the system gives."""
    assert dump.answer is not None
    for channel in dict.fromkeys(each.channel for each in probes):
        values = np.array([each.value for each in probes if each.channel == channel])
        for array in _filled(dump, call, channel, values):
            observed = dump.answer({"input": array}, dump.types)
            yield replace(call, arrays=call.arrays | {"input": call_on_arrays(call.operation, {"input":array}, dump.types, dump.options).arrays["input"]}, observed=observed)


def _filled(dump: Dump, call: ArrayCall, channel: int, values: Array) -> Iterator[Array]:
    """The input with these values in the places of a channel, as often as it takes."""
    source = dump.arrays["input"]
    places = np.arange(source.size)
    target = call.options.get("output_type")
    for each in (call.types["input"].element, target.element if isinstance(target, TensorType) else target):
        if isinstance(each, UniformPerAxisType):
            along = np.broadcast_to(
                np.arange(source.shape[each.axis]).reshape([-1 if k == each.axis else 1 for k in range(source.ndim)]),
                source.shape,
            )
            places = np.flatnonzero(along.ravel() == channel)
    for start in range(0, len(values), len(places)):
        some = values[start : start + len(places)]
        array = source.copy().ravel()
        array[places[: len(some)]] = some.view(source.dtype)
        yield array.reshape(source.shape)
