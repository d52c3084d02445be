"""The blind test: a dump is identified by what was observed alone, and its system is asked what to try next, until one
group of candidates is left.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from requant.arrays.calls import ArrayCall, call_on_arrays, read_option
from requant.errors import RequantError
from requant.identification.arithmetic import arithmetic_key
from requant.identification.candidates import Candidate, Candidates, options_for
from requant.identification.identification import Identification, identify
from requant.identification.probes import Probe, places_of_block
from requant.identification.search import Search
from requant.integer.conv2d import Window, conv2d_integers
from requant.mlir import print_type
from requant.mlir.types import TensorType, UniformPerAxisType, UniformSubChannelType
from requant.operations.conversions import CONVERSIONS
from requant.plan.operands import static_shape
from requant.profiles.rule import Accumulator
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
class Unproven:
    """Calls of which groups are left that no input told apart, and that are not proven to be equal: why that is so."""

    reason: str
    holds: Callable[[Dump], bool]


UNPROVEN = (
    Unproven(
        "inputs of 32 bits that become reals or as many bits: only a sweep would show it, and `equivalence` has that",
        lambda dump: (
            dump.operation in CONVERSIONS
            and dump.arrays["input"].itemsize >= 4
            and (dump.operation == "dequantize" or dump.observed["output"].itemsize >= 4)
        ),
    ),
    Unproven(
        "casts to f8E8M0FNU, for which there are no steps, of more than 16 bits",
        lambda dump: dump.options.get("output_type") == "f8E8M0FNU" and dump.arrays["input"].itemsize > 2,
    ),
    Unproven(
        "additions of 16 bits, which have 2^32 pairs",
        lambda dump: dump.operation == "add" and dump.arrays["lhs"].itemsize > 1,
    ),
    Unproven(
        "blocks of MX, whose rules may differ in infinities and in the smallest scale alone, as tosa and even do",
        lambda dump: dump.operation == "quantize_blocks" and str(dump.label.get("format")).startswith("mx"),
    ),
    Unproven(
        "blocks of NVFP4, where a division and a product with a reciprocal may differ beside ties alone",
        lambda dump: dump.operation == "quantize_blocks" and dump.label.get("format") == "nvfp4",
    ),
    Unproven(
        "ranges and fake quantization, which have several real numbers",
        lambda dump: dump.operation in ("derive_from_range", "fake_quantize"),
    ),
)
"""All that may be left without a proof."""
REFUSED = "what tells the rest apart is an input that the system or its rule has nothing for"
STOCHASTIC = "stochastic rounding may give what was observed: it depends on the place, so that no input decides"
"""The only reasons for which several groups may be left."""


@dataclass(frozen=True)
class Found:
    """What a dump came to: after how many rounds, how many groups are left, and whether all that are in one group are
    proven to be the same arithmetic. `refused`: all that would tell the groups apart is an input for which a system has
    no rule of ours, or its rule nothing. `stochastic`: all others round so. `wrong` says why its label was excluded, if
    it was.
    """

    dump: Dump
    rounds: int
    groups: int
    proven: bool
    refused: bool = False
    stochastic: bool = False
    wrong: str = ""

    @property
    def exception(self) -> str:
        """Why it is not settled: the true system is the only group left, or the rest proven to be equal."""
        if self.groups > 1:
            return REFUSED if self.refused else STOCHASTIC if self.stochastic else ""
        return next((each.reason for each in UNPROVEN if each.holds(self.dump)), "")

    @property
    def is_settled(self) -> bool:
        return self.groups == 1 and self.proven


def found(dump: Dump) -> Found:
    """Identify a dump, ask its system, and identify again."""
    calls = [_call(dump, dump.arrays, dump.types, dump.observed)]
    label = _Label(dump, calls[0])
    asked = 0
    while True:
        answer = identify(calls)
        groups, proven = len(answer.consistent), all(each.proven for each in answer.consistent)
        if not label.is_among(group.candidates for group in answer.consistent):
            return Found(dump, asked, groups, proven, wrong=label.why_not(answer))
        if groups == 1:
            return Found(dump, asked, groups, proven)
        more = [each for probe in answer.probes for each in _asked(dump, calls[0], label, probe)]
        answered = [each for each in more if each is not None]
        if asked == MOST or not answered:
            others = [each for each in answer.consistent if not label.is_among([each.candidates])]
            stochastic = all(("rounding", "stochastic") in one for each in others for one in each.candidates)
            refused = bool(more) and not answered
            return Found(dump, asked, groups, proven, refused=refused, stochastic=stochastic)
        calls += answered
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


def _asked(dump: Dump, call: ArrayCall, label: _Label, probe: Probe) -> list[ArrayCall | None]:
    """The calls of what to try next, each with what the system gives; None for one that it does not take. What the rule
    of the label leaves undefined, such as NaN in MLIR, is no question.
    """
    found = [_answered(dump, label, *each) for each in _inputs(dump, call, probe)]
    if None in found and dump.operation in CONVERSIONS:
        found = [_answered(dump, label, {"input": each}, dump.types) for each in _filled(dump, call, probe, alone=True)]
    # No operands that the system takes have these sums.
    return found or [None] * (dump.limits is not None)


def _answered(dump: Dump, label: _Label, arrays: dict[str, Array], types: dict[str, str]) -> ArrayCall | None:
    again = _call(dump, arrays, types, {})
    if dump.answer is None or not label.takes(again):
        return None
    try:
        return again.with_observed(dump.answer(arrays, types))
    except RefusedError:
        return None


def _inputs(dump: Dump, call: ArrayCall, probe: Probe) -> Iterator[tuple[dict[str, Array], dict[str, str]]]:
    """The tensors and types of calls with what is to be tried: those of a conversion in the shape that it had, those of
    a product in what the system takes.
    """
    asked = probe.asked
    if dump.operation in CONVERSIONS:
        yield from (({"input": array}, dump.types) for array in _filled(dump, call, probe))
    elif dump.limits is not None or dump.operation == "conv2d":
        yield from product_calls(dump, probe.channel, _sums(asked))
    elif all(asked.options.get(name) == value for name, value in call.options.items()):
        types = {name: print_type(each) for name, each in asked.types.items() if name in dump.types}
        yield {**asked.arrays, **asked.numbers}, types


def _sums(asked: ArrayCall) -> Array:
    """The sums of a product, once each."""
    zeros = [side_of(print_type(each)).zero_points for name, each in asked.types.items() if name != "bias"]
    lhs, rhs = (np.asarray(each) for name, each in asked.arrays.items() if name != "bias")
    if asked.operation.name == "matmul":
        return np.unique((lhs.astype(np.int64) - int(zeros[0][0])) @ (rhs.astype(np.int64) - zeros[1]))
    names = ("layout", "weights_layout", "strides", "dilations", "pads", "padding", "groups")
    window = Window(**{name: asked.options[name] for name in names if name in asked.options})
    sums = conv2d_integers(lhs, rhs, int(zeros[0][0]), zeros[1], window=window, accumulator=Accumulator.I64)
    return np.unique(sums)


def _places(call: ArrayCall, channel: int) -> Array:
    """Which elements of a conversion have the parameters of a channel or a block."""
    shape, target = static_shape(call.types["input"]), call.options.get("output_type")
    for each in (call.types["input"].element, target.element if isinstance(target, TensorType) else target):
        if isinstance(each, UniformPerAxisType):
            return np.flatnonzero(np.indices(shape)[each.axis].reshape(-1) == channel)
        if isinstance(each, UniformSubChannelType):
            return places_of_block(call, channel)
    return np.arange(prod(shape))


def _filled(dump: Dump, call: ArrayCall, probe: Probe, *, alone: bool = False) -> Iterator[Array]:
    """The input with the values that are to be tried in the places of their channel, as often as it takes; or each
    alone, without the zeros that others are among.
    """
    source, places = dump.arrays["input"], _places(call, probe.channel)
    given = np.asarray(probe.asked.arrays["input"]).reshape(-1)[_places(probe.asked, probe.channel)]
    bits = np.ascontiguousarray(given).view(f"u{source.itemsize}")
    # Each once: zeros are behind them, where a tail matters.
    values = bits[np.sort(np.unique(bits, return_index=True)[1])].view(source.dtype)
    values = values[values.view(bits.dtype) != 0] if alone and len(values) > 1 else values
    size = 1 if alone else len(places)
    for start in range(0, len(values), size):
        some = values[start : start + size]
        array = source.ravel().copy()
        array[places[: len(some)]] = some
        yield array.reshape(source.shape)


def check_rounds(system: System) -> None:
    """Fail if a dump's label is excluded, or if one is not settled and no exception. Print after how many rounds one
    group was left, and the exceptions.
    """
    rounds: Counter[int] = Counter()
    exceptions: Counter[str] = Counter()
    wrong: list[str] = []
    unsettled: list[str] = []
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
        elif each.is_settled:
            rounds[each.rounds] += 1
        elif each.exception:
            exceptions[each.exception] += 1
        else:
            unsettled.append(f"{dump}: {each.groups} groups after {each.rounds} rounds, proven: {each.proven}")
    settled = ", ".join(f"{number} after {asked}" for asked, number in sorted(rounds.items())) or "none"
    rest = "".join(f"; {number} are not: {reason}" for reason, number in sorted(exceptions.items()))
    sys.stdout.write(
        f"identified of {system}: {count}, wrongly {len(wrong)}; {rounds.total()} are settled after rounds of what to "
        f"try next: {settled}{rest}\n"
    )
    assert not wrong, f"{len(wrong)} of {count} labels are excluded\n" + "\n".join(wrong[:20])
    assert not unsettled, f"{len(unsettled)} dumps are not settled\n" + "\n".join(unsettled[:20])
