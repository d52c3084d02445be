"""The blind test: a dump is identified by what was observed alone, and its system is asked what to try next, until one
group of candidates is left.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np

from requant.arrays.calls import ArrayCall, call_on_arrays, read_option
from requant.errors import RequantError
from requant.identification.arithmetic import arithmetic_key
from requant.identification.candidates import Candidate, Candidates, options_for
from requant.identification.identification import Identification, identify
from requant.identification.probes import Probe
from requant.identification.search import Search
from requant.integer.conv2d import Window, conv2d_integers
from requant.mlir import print_type
from requant.mlir.types import TensorType, UniformPerAxisType
from tests.interop.blind.dump import DUMPED, Array, Dump, RefusedError
from tests.interop.blind.operands import product_calls
from tests.interop.blind.products import side_of
from tests.interop.blind.systems import System

MOST = 2
"""Rounds of what to try next."""
EVERY = 10
"""Of so many dumps the first six are identified by what was observed, and for one of those the system is asked anew."""
IDENTIFIED = 6


@dataclass(frozen=True)
class Found:
    """What a dump came to: after how many rounds, how many groups are left, and whether all that are in one group are
    proven to be the same arithmetic. `wrong` says why its label was excluded, if it was.
    """

    dump: Dump
    rounds: int
    groups: int
    proven: bool
    wrong: str = ""

    @property
    def is_settled(self) -> bool:
        """Whether the true system is the only group left, or the rest is proven to be equal."""
        return not self.wrong and self.groups == 1 and self.proven


def found(dump: Dump) -> Found:
    """Identify a dump, ask its system, and identify again."""
    calls = [_call(dump, dump.arrays, dump.types, dump.observed)]
    label = _Label(dump, calls[0])
    asked = 0
    while True:
        answer = identify(calls)
        groups, proven = len(answer.consistent), all(each.proven for each in answer.consistent)
        if not label.is_among(group.candidates for group in answer.consistent):
            return Found(dump, asked, groups, proven, label.why_not(answer))
        more = list(_asked(dump, calls[0], label, answer.probes)) if groups > 1 and asked < MOST else []
        if not more:
            return Found(dump, asked, groups, proven)
        calls += more
        asked += 1


def excluded(dump: Dump) -> str:
    """Name a dump whose label is excluded by what was observed; empty if it is not."""
    call = _call(dump, dump.arrays, dump.types, dump.observed)
    search = Search([call])
    search.run(Candidates([call]))
    fitting = (each.candidates for each in search.groups if each.is_consistent)
    return "" if _Label(dump, call).is_among(fitting) else str(dump)


def _call(dump: Dump, arrays: dict[str, Array], types: dict[str, str], observed: dict[str, Array]) -> ArrayCall:
    return call_on_arrays(DUMPED[dump.operation], arrays, types, dump.options).with_observed(observed)


class _Label:
    """The label of a dump, and the arithmetic that it stands for."""

    def __init__(self, dump: Dump, call: ArrayCall) -> None:
        operation = call.operation
        self._call = call
        self._options = {name: read_option(operation.option(name), value) for name, value in dump.label.items()}

    def is_among(self, groups: Iterable[Iterable[Candidate]]) -> bool:
        """Whether one of the candidates, of which those of a group are one arithmetic, is the same."""
        listed = [[options_for(each, self._call) for each in group] for group in groups]
        if any(self._options in group for group in listed):
            return True
        own = self._key(self._options)
        return own is not None and any(self._key(group[0]) == own for group in listed)

    def takes(self, call: ArrayCall) -> bool:
        """Whether the label gives something for a call."""
        try:
            call.result(call.planned(self._options))
        except RequantError:
            return False
        return True

    def why_not(self, answer: Identification) -> str:
        """Where what is computed with the label differs, or why it refuses a call."""
        for each in answer.excluded:
            if self.is_among([each.group.candidates]):
                return f"{each.group.mismatches} elements differ, first {each.group.witness}"
        for group in answer.undefined:
            if self.is_among([group.candidates]):
                return group.undefined
        return "it is no candidate"

    def _key(self, options: Mapping[str, Any]) -> Hashable | None:
        try:
            plan = self._call.planned(options).arithmetic
        except RequantError:
            return None
        return None if plan is None else arithmetic_key(plan)


def _asked(dump: Dump, call: ArrayCall, label: _Label, probes: Sequence[Probe]) -> Iterator[ArrayCall]:
    """The calls of what to try next, each with what the system gives. What the rule of the label leaves undefined, such
    as NaN in MLIR, is no question.
    """
    if dump.answer is None:
        return
    for probe in probes:
        for arrays, types in _inputs(dump, call, probe):
            with suppress(RefusedError):
                again = _call(dump, arrays, types, {})
                if label.takes(again):
                    yield again.with_observed(dump.answer(arrays, types))


def _inputs(dump: Dump, call: ArrayCall, probe: Probe) -> Iterator[tuple[dict[str, Array], dict[str, str]]]:
    """The tensors and types of calls with what is to be tried: those of a conversion in the shape that it had, those of
    a product in what the system takes.
    """
    asked = probe.asked
    if set(call.types) == {"input"}:
        yield from (({"input": array}, dump.types) for array in _filled(dump, call, probe))
    elif dump.limits is not None or call.operation.name == "conv2d":
        yield from product_calls(dump, probe.channel, _sums(asked))
    elif all(asked.options.get(name) == value for name, value in call.options.items()):
        yield dict(asked.arrays), {name: print_type(each) for name, each in asked.types.items()}


def _sums(asked: ArrayCall) -> Array:
    """The sums of a product, once each."""
    zeros = [side_of(print_type(each)).zero_points for name, each in asked.types.items() if name != "bias"]
    lhs, rhs = (np.asarray(each) for name, each in asked.arrays.items() if name != "bias")
    if asked.operation.name == "matmul":
        return np.unique((lhs.astype(np.int64) - int(zeros[0][0])) @ (rhs.astype(np.int64) - zeros[1]))
    names = ("layout", "weights_layout", "strides", "dilations", "pads", "padding", "groups")
    window = Window(**{name: asked.options[name] for name in names if name in asked.options})
    return np.unique(conv2d_integers(lhs, rhs, int(zeros[0][0]), int(zeros[1][0]), window=window))


def _axis(call: ArrayCall) -> int | None:
    """The dimension along which a conversion has its parameters."""
    target = call.options.get("output_type")
    for each in (call.types["input"].element, target.element if isinstance(target, TensorType) else target):
        if isinstance(each, UniformPerAxisType):
            return each.axis
    return None


def _filled(dump: Dump, call: ArrayCall, probe: Probe) -> Iterator[Array]:
    """The input with the values that are to be tried in the places of their channel, as often as it takes."""
    source, axis = dump.arrays["input"], _axis(call)
    given, places = np.asarray(probe.asked.arrays["input"]), np.arange(source.size)
    if axis is not None:
        places = np.flatnonzero(np.indices(source.shape)[axis].ravel() == probe.channel)
        given = np.take(given, probe.channel, axis)
    bits = np.ascontiguousarray(given).reshape(-1).view(f"u{source.itemsize}")
    # Each once: zeros are behind them, where a tail matters.
    values = bits[np.sort(np.unique(bits, return_index=True)[1])].view(source.dtype)
    for start in range(0, len(values), len(places)):
        some = values[start : start + len(places)]
        array = source.ravel().copy()
        array[places[: len(some)]] = some
        yield array.reshape(source.shape)


def check_rounds(system: System) -> None:
    """Fail if a dump's label is excluded. Print after how many rounds one group was left, and what is not decided."""
    rounds: Counter[int] = Counter()
    unproven: Counter[str] = Counter()
    wrong: list[str] = []
    several: Counter[str] = Counter()
    count = 0
    for place, dump in enumerate(system.dumps()):
        # Kinds of dumps come in turn: another kind is asked each time.
        if place % EVERY >= IDENTIFIED:
            continue
        count += 1
        if place % EVERY != place // EVERY % IDENTIFIED:
            wrong += filter(None, [excluded(dump)])
            continue
        each = found(dump)
        if each.wrong:
            wrong.append(f"{dump}: {each.wrong}")
        elif each.groups > 1:
            several[dump.operation] += 1
        elif each.proven:
            rounds[each.rounds] += 1
        else:
            unproven[dump.operation] += 1
    settled = ", ".join(f"{number} after {asked} rounds" for asked, number in sorted(rounds.items()))
    rest = "".join(f", {number} of {name} not proven" for name, number in sorted(unproven.items()))
    rest += "".join(f", {number} of {name} with several groups" for name, number in sorted(several.items()))
    sys.stdout.write(f"identified of {system}: {count}, wrongly {len(wrong)}; of those asked {settled}{rest}\n")
    assert not wrong, f"{len(wrong)} of {count} labels are excluded\n" + "\n".join(wrong[:20])
