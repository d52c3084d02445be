"""Assertions for tests: arrays have the bits that a system gives, or the failure says at which step they part.

    assert_bits_equal(mine, operation="requantize", input=sums, input_type=..., output_type=..., profile="litert")

docs/testing.md shows what a failure prints.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from io import BytesIO
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from requant.arrays.calls import ArrayCall, read_calls
from requant.arrays.comparison import compare
from requant.arrays.elements import Array, as_array, shaped
from requant.comparison.comparison import ComparisonReport, Mismatch
from requant.convert.explain.explanation import Step
from requant.description import TensorOutput
from requant.errors import RequantError
from requant.functions import run_operation
from requant.identification.candidates import options_for
from requant.identification.divergence import steps_of_element
from requant.identification.patterns import in_words
from requant.mlir.types import Type
from requant.operations import CALL_VECTORS, IDENTIFY
from requant.operations.vectors import VECTORS

_SECONDS = 5.0
"""So long a failing assertion looks for rules that give the bits."""
_SHOWN_RULES = 5


def assert_bits_equal(
    actual: ArrayLike,
    expected: ArrayLike | None = None,
    *,
    type: str | Type | None = None,
    operation: str | None = None,
    shown: int = 5,
    **arguments: Any,
) -> None:
    """Raise AssertionError unless an array has the shape, the dtype and the bits that are expected.

    expected: an array; absent, what `operation` gives.
    type: of both, in MLIR syntax, to show the real numbers that stored ones stand for.
    operation, arguments: the call that should have given `actual`: the name of an operation, such as "requantize", or
    of an operator, such as "litert.MUL", and the arguments of its function. A failure then shows the steps of the first
    element that differs, and which rules give the bits of `actual`.
    shown: how many elements a failure lists.

    Raise TypeError without `expected` and `operation`, and what the operation raises.
    """
    __tracebackhide__ = True
    call = None if operation is None else _call(operation, arguments)
    if expected is None:
        if call is None:
            raise TypeError("assert_bits_equal needs the expected array, or the operation that gives it")
        value = next(iter(call.result(call.planned(options_for((), call))).outputs.values()))
        expected, type = shaped(value.data, value.type, value.shape), value.type.element if type is None else type
    found, wanted = as_array(actual), as_array(expected)
    for what, one, other in (("shape", found.shape, wanted.shape), ("dtype", found.dtype, wanted.dtype)):
        if one != other:
            raise AssertionError(f"the {what} is {one}; expected {other}")
    report = compare(wanted, found, type, max_reported=shown)
    if report.mismatches or report.bit_mismatches:
        raise AssertionError("\n".join(_failure(report, call, arguments, found)))


def _call(operation: str, arguments: Mapping[str, Any]) -> ArrayCall:
    """Return the call of an operation with the arguments of its function."""
    assert CALL_VECTORS.calls is not None
    [call] = read_calls(CALL_VECTORS.calls, {"operation": operation, "arguments": arguments})
    return call


def _failure(
    report: ComparisonReport, call: ArrayCall | None, arguments: Mapping[str, Any], actual: Array
) -> Iterator[str]:
    count = report.bit_mismatches or report.mismatches
    yield f"{count} of {report.elements} elements have other bits than expected"
    yield from (f"  {_element(each)}" for each in report.first)
    if call is None:
        return
    if report.first and (steps := list(_steps(call, report.first[0]))):
        yield ""
        yield f"element {list(report.first[0].position)}, by {call.operation.name}:"
        yield from (f"  {each}" for each in steps)
    yield ""
    yield from _identified(call, arguments, actual)


def _element(mismatch: Mismatch) -> str:
    said = f"{list(mismatch.position)}: {mismatch.b}, expected {mismatch.a}"
    if mismatch.real_a is None or mismatch.real_b is None:
        return said
    return f"{said}, which stand for {mismatch.real_b} and {mismatch.real_a}"


def _steps(call: ArrayCall, mismatch: Mismatch) -> Iterator[str]:
    """Yield the steps of an element of a conversion, a product or a sum; of operators their stages of its place."""
    try:
        steps: Sequence[Step] = steps_of_element(call, mismatch.index, ())
    except RequantError:
        return
    for each in steps:
        inserted = "" if each.inserted in (each.formula, each.value) else f" = {each.inserted}"
        exact = f", exactly {each.unrounded}" if each.unrounded else ""
        yield f"{each.symbol} = {each.formula}{inserted} = {each.value}{exact}{' (a tie)' if each.tie else ''}"
    if not steps and call.operation.trace is not None and call.operation.has_option("trace"):
        traced = replace(call, options={**call.options, "trace": True})
        result = traced.result(traced.planned(options_for((), traced)))
        size = next(iter(result.outputs.values())).data.size
        for name, stage in result.stages.items():
            if stage.data.size == size:
                yield f"{name} = {stage.data[mismatch.index]}"


def _identified(call: ArrayCall, arguments: Mapping[str, Any], actual: Array) -> Iterator[str]:
    """Yield which rules give the bits that were found."""
    operation = call.operation
    chosen = {each.name for each in operation.options if each.chooses is not None}
    output = next(each.name for each in operation.reply if isinstance(each, TensorOutput))
    asked = {
        "operation": operation.name,
        "arguments": {name: value for name, value in arguments.items() if name not in chosen},
        "observed": {output: actual},
    }
    try:
        reply = run_operation(IDENTIFY, {"calls": [asked]}, {}, {"max_compute_seconds": _SECONDS}).report
    except RequantError:
        return
    rules = [each for group in reply["consistent"] for each in group["candidates"]]
    if rules:
        yield "these bits are those of:"
        for each in rules[:_SHOWN_RULES]:
            yield f"  {', '.join(f'{name} {value}' for name, value in each.items())}"
        if len(rules) > _SHOWN_RULES:
            yield f"  and of {len(rules) - _SHOWN_RULES} others"
    else:
        yield "no rule gives all of these bits"
        yield from (f"  {in_words(each)}" for each in reply.get("patterns", ()))


@dataclass(frozen=True, slots=True)
class TestVector:
    """An input worth testing, and its expected result. `parameters`: scales, zero points, multipliers, shifts by name;
    `why`: the reasons for its selection.
    """

    __test__ = False  # a class that pytest would collect

    input: np.generic
    expected: np.generic
    parameters: Mapping[str, np.generic]
    why: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.input}-{'-'.join(self.why)}"


def test_vectors(operation: str, input_type: str, **options: Any) -> list[TestVector]:
    """Return the vectors of an operation, with the arguments of `requant.vectors`: ties, bounds, and what is beside."""
    found = run_operation(
        VECTORS, {}, {}, {"operation": operation, "input_type": input_type, **options, "format": "npz"}
    )
    assert found.file is not None
    with np.load(BytesIO(found.file)) as arrays:
        names = [name.removeprefix("parameter_") for name in arrays if name.startswith("parameter_")]
        parameters = {name: arrays[f"parameter_{name}"] for name in names if name not in ("set", "why")}
        rows = zip(arrays["input"], arrays["expected"], arrays["parameter_set"], arrays["why"], strict=True)
        return [
            TestVector(value, expected, {name: each[place] for name, each in parameters.items()}, tuple(why.split(",")))
            for value, expected, place, why in rows
        ]


test_vectors.__test__ = False  # type: ignore[attr-defined]
