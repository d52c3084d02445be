"""Identification ends about when its time has passed, whatever the data, and says what it did not try."""

from __future__ import annotations

from time import thread_time
from typing import Any

import numpy as np
import pytest

from requant.arrays.calls import read_calls
from requant.description import Array
from requant.equality.rules import quantization
from requant.equality.staircases import staircase
from requant.errors.cancellation import LateError, deadline
from requant.functions import FUNCTIONS
from requant.identification import identification
from requant.identification.separation import separate
from requant.identification.unknowns import first_that
from requant.mlir import parse_type
from requant.operations import IDENTIFY

_SECONDS = 0.25
_COUNT = 64
_HUGE = 1 << 20


def quantize(given: Any, observed: Any, output_type: str = "!quant.any<i8:f32>") -> dict[str, Any]:
    arguments = {"input": np.asarray(given, np.float32), "output_type": output_type}
    return {"operation": "quantize", "arguments": arguments, "observed": {"output": observed}}


def filled(number: int, dtype: Any = np.int8) -> Array:
    return np.full(_COUNT, number, dtype)


_ALTERNATING = np.where(np.arange(_COUNT) % 2, 127, -128).astype(np.int8)
_TWO = np.where(np.arange(_HUGE) % 2, 1, -1)
_CALLS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "saturated": (quantize(np.full(_COUNT, 3), filled(127)), {}),
    "equal": (quantize(np.full(_COUNT, 3), filled(5)), {}),
    "equal, 16 bits": (quantize(np.full(_COUNT, 3), filled(5, np.int16), "!quant.any<i16:f32>"), {}),
    "extremes": (quantize(np.where(_ALTERNATING > 0, 1e30, -1e30), _ALTERNATING), {}),
    "one": (quantize([3], np.array([5], np.int8)), {}),
    "NaN": (quantize(np.full(_COUNT, np.nan), filled(0)), {}),
    "infinity": (quantize(np.where(_ALTERNATING > 0, np.inf, -np.inf), _ALTERNATING), {}),
    "huge": (quantize(_TWO, (10 * _TWO).astype(np.int16), "!quant.any<i16:f32>"), {}),
    "zero points of channels": (
        quantize(np.full((16, 64), 3), np.full((16, 64), 5, np.int16), "!quant.any<i16:f32>"),
        {"unknown_axis": 0},
    ),
    "staircases": (
        quantize((np.arange(24) - 12) / 8, filled(-15337, np.int16)[:24], "!quant.uniform<i16:f32, 20.48:-15337>"),
        {},
    ),
}


@pytest.mark.sample(1)
@pytest.mark.parametrize("name", _CALLS)
def test_the_budget_holds(name: str) -> None:
    call, options = _CALLS[name]
    FUNCTIONS["identify"]([call], max_compute_seconds=1e-3, **options)
    begun = thread_time()
    answer = FUNCTIONS["identify"]([call], max_compute_seconds=_SECONDS, **options)
    # A call of a kernel, or of numpy, is not ended.
    assert thread_time() - begun < 1.3 * _SECONDS + 0.15
    undecided = [each for each in answer["consistent"] if not each["proven"]]
    assert answer["not_tried"] or undecided


def test_a_staircase_ends_when_it_is_late() -> None:
    rule = quantization(parse_type("f32"), parse_type("!quant.uniform<i16:f32, 0.5>"))
    with pytest.raises(LateError), deadline(lambda: True):
        staircase(rule, rule.parts[0])


def test_candidates_are_not_proven_to_be_one_by_calls_that_were_not_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    """Additions are compared after what has staircases."""
    late = False

    def separate_until_late(*arguments: Any) -> Any:
        nonlocal late
        found = separate(*arguments)
        late = True
        return found

    monkeypatch.setattr(identification, "separate", separate_until_late)
    zeros = np.zeros(2, np.int8)
    type_ = "!quant.uniform<i8:f32, 0.5>"
    arguments = {"lhs": zeros, "lhs_type": type_, "rhs": zeros, "rhs_type": type_, "output_type": type_}
    said = [{"operation": "add", "arguments": arguments, "observed": {"output": zeros}}]
    assert IDENTIFY.calls is not None
    found = identification.identify(read_calls(IDENTIFY.calls, said), is_late=lambda: late)
    assert any(len(each.groups) > 1 for each in found.consistent)
    assert not any(each.proven for each in found.consistent if len(each.groups) > 1)


@pytest.mark.parametrize("guess", [None, *range(-1, 12)])
def test_the_first_number_is_found_from_any_guess(guess: int | None) -> None:
    for high in range(10):
        for first in range(high + 1):
            assert first_that(0, high, lambda number, first=first: number >= first, guess) == first  # type: ignore[misc]
