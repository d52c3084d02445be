"""RESCALE in core: the reference model's vectors; and against the oracle ties, the bounds of REQUIREs, and refusals."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from requant.errors import ParameterError, PreconditionError, RequantError, TypeFitError, UnsupportedError
from requant.mlir import parse_type
from requant.mlir.types import TensorType
from requant.operators.tosa.rescale_plan import plan_rescale
from tests.oracles.tosa import OUTPUTS, ROUNDINGS, WIDTHS, Rescale, Unpredictable, errors_if, inexact_bounds, rescaled
from tests.support.cases import examples
from tests.support.rescale_case import numbers, plan, run, stored
from tests.vector_cases.rescale import RescaleVector, rescales


def rescale(case: Rescale, values: Sequence[int]) -> list[int]:
    """The numbers that core makes of numbers."""
    target = run(case, stored(values, case.in_t))
    return numbers(target, case.out_t, unsigned=case.output_unsigned)


@pytest.mark.parametrize("vector", [pytest.param(vector, id=vector.name) for vector in rescales()])
def test_vector(vector: RescaleVector) -> None:
    if vector.error is not None:
        with pytest.raises(RequantError) as caught:
            rescale(vector.case, vector.values)
        assert caught.value.code == vector.error
        return
    assert tuple(rescale(vector.case, vector.values)) == vector.output


def test_the_oracle_equals_the_vectors() -> None:
    elements = inexact = 0
    for vector in rescales():
        assert bool(errors_if(vector.case)) == (vector.error == "unsupported"), vector
        if vector.error == "unsupported":
            continue
        results = [rescaled(vector.case, x, index) for index, x in enumerate(vector.values)]
        if vector.error is not None:
            assert any(isinstance(result, Unpredictable) for result in results), vector
            continue
        assert tuple(results) == vector.output, vector
        elements += len(results)
        for index, bounds in enumerate(vector.inexact_bounds):
            assert inexact_bounds(vector.case, vector.values[index], index) == bounds, vector
            inexact += 1
    assert (elements, inexact) == (2801, 660)


@st.composite
def cases(draw: st.DrawFn) -> Rescale:
    """Any RESCALE without an ERROR_IF, per channel or not, whose multipliers and shifts are as REQUIRE wants them."""
    scale32 = draw(st.booleans())
    in_t = draw(st.sampled_from([t for t in WIDTHS if not (scale32 and t == "i48")]))
    out_t = draw(st.sampled_from(OUTPUTS))
    narrow = {in_t, out_t} <= {"i8", "i16"}
    signs = [(False, False), (True, False), (False, True)] if narrow else [(False, False)]
    unsigned_in, unsigned_out = draw(st.sampled_from(signs))
    per_channel = draw(st.booleans())
    shape = draw(st.sampled_from([(3,), (2, 3), (1, 2, 3)] if per_channel else [(), (6,), (2, 3)]))
    count = shape[-1] if per_channel else 1
    bits = 31 if scale32 else 15
    multipliers = st.one_of(st.integers(0, 2**bits - 1), st.integers(2 ** (bits - 1), 2**bits - 1))
    shifts = st.one_of(st.integers(2, 62), st.integers(bits - 3, bits + 10))
    case = Rescale(
        in_t=in_t,
        out_t=out_t,
        shape=shape,
        multiplier=tuple(draw(st.lists(multipliers, min_size=count, max_size=count))),
        shift=tuple(draw(st.lists(shifts, min_size=count, max_size=count))),
        scale32=scale32,
        rounding_mode=draw(st.sampled_from([mode for mode in ROUNDINGS if scale32 or mode != "DOUBLE_ROUND"])),
        per_channel=per_channel,
        input_unsigned=unsigned_in,
        output_unsigned=unsigned_out,
    )

    def zero_points(element: str, unsigned: bool, bounds: tuple[int, int]) -> st.SearchStrategy[int]:
        return st.integers(*bounds) if element == "i8" else st.sampled_from([0, 32768] if unsigned else [0])

    return replace(
        case,
        input_zp=draw(zero_points(in_t, unsigned_in, case.input_bounds)),
        output_zp=draw(zero_points(out_t, unsigned_out, case.output_bounds)),
    )


def near(case: Rescale, channel: int) -> st.SearchStrategy[int]:
    """Inputs at and beside ties, REQUIRE's bounds and the type's, and anywhere."""
    low, high = case.input_bounds
    m, shift, zero = max(case.multiplier[channel], 1), case.shift[channel], case.input_zp
    half = 1 << (shift - 1)
    beside = st.integers(-1, 1)
    ends = [s << shift for s in (-(2**31), 2**31 - 1 - case.output_zp, 2**31, -(2**31) - case.output_zp)]
    numbers_near = st.one_of(
        st.builds(lambda k, d: zero + ((2 * k + 1) * half) // m + d, st.integers(-(2**17), 2**17), beside),
        st.builds(lambda end, d: zero + (end - half) // m + d, st.sampled_from(ends), beside),
        st.builds(lambda bound, d: zero + bound + d, st.sampled_from([-half, half, 0]), beside),
        st.sampled_from([low, high]),
        st.integers(low, high),
    )
    return numbers_near.map(lambda x: min(max(x, low), high))


@settings(max_examples=examples(600))
@given(st.data(), cases())
def test_near_ties_and_bounds(data: st.DataObject, case: Rescale) -> None:
    size = int(np.prod(case.shape))
    values = [data.draw(near(case, case.channel(index))) for index in range(size)]
    expected = [rescaled(case, x, index) for index, x in enumerate(values)]
    failed = [index for index, result in enumerate(expected) if isinstance(result, Unpredictable)]
    if failed:
        with pytest.raises(PreconditionError) as caught:
            rescale(case, values)
        assert caught.value.index == failed[0]
        require = expected[failed[0]]
        assert isinstance(require, Unpredictable)
        words = {"value": "2^(shift-1)", "result": "scaled value", "sum": "output zero point"}
        assert words[require.require] in caught.value.detail
        return
    assert rescale(case, values) == expected
    if case.rounding_mode == "INEXACT_ROUND":
        # What the model computes is within what TOSA permits.
        for index, x in enumerate(values):
            low, high = inexact_bounds(case, x, index)
            assert low <= expected[index] <= high  # type: ignore[operator]


@settings(max_examples=examples(300))
@given(cases(), st.data())
def test_multipliers_and_shifts_that_fail_a_requirement(case: Rescale, data: st.DataObject) -> None:
    bits = 31 if case.scale32 else 15
    channel = data.draw(st.integers(0, len(case.multiplier) - 1))
    multiplier, shift = list(case.multiplier), list(case.shift)
    if data.draw(st.booleans()):
        multiplier[channel] = data.draw(st.one_of(st.just(-1), st.integers(-(2**bits), -1)))
        operand = "multiplier"
    else:
        shift[channel] = data.draw(st.one_of(st.sampled_from([0, 1, 63]), st.integers(-128, 1), st.integers(63, 127)))
        operand = "shift"
    case = replace(case, multiplier=tuple(multiplier), shift=tuple(shift))
    assert rescaled(case, case.input_zp, channel) == Unpredictable(operand)
    with pytest.raises(PreconditionError) as caught:
        plan(case)
    assert caught.value.index == channel
    assert caught.value.pointer == f"/{operand}/{channel}"
    assert f"requires {'2 <= shift <= 62' if operand == 'shift' else 'multiplier >= 0'}" in caught.value.detail


@settings(max_examples=examples(600))
@given(st.data())
def test_errors_if(data: st.DataObject) -> None:
    """UnsupportedError exactly where the oracle finds a condition, pointing at an operand that one of them names."""
    draw, flags = data.draw, st.booleans()
    shape = draw(st.sampled_from([(), (2,), (2, 1)]))
    per_channel = draw(flags)
    count = shape[-1] if per_channel and shape else 1
    case = Rescale(
        in_t=draw(st.sampled_from(list(WIDTHS))),
        out_t=draw(st.sampled_from(OUTPUTS)),
        shape=shape,
        multiplier=(1 << 14,) * count,
        shift=(14,) * count,
        scale32=draw(flags),
        rounding_mode=draw(st.sampled_from(ROUNDINGS)),
        per_channel=per_channel,
        input_unsigned=draw(flags),
        output_unsigned=draw(flags),
    )
    zero_points = [
        draw(st.sampled_from([z for z in (0, 1, -1, 32767, 32768, 65535) if low <= z <= high]))
        for low, high in (case.input_bounds, case.output_bounds)
    ]
    # Zero points are int32, whatever the input's type has room for.
    assume(max(zero_points) < 2**31)
    case = replace(case, input_zp=zero_points[0], output_zp=zero_points[1])
    conditions = errors_if(case)
    if not conditions:
        assert plan(case).elements == int(np.prod(shape))
        return
    with pytest.raises(UnsupportedError) as caught:
        plan(case)
    pointers: dict[int, set[str]] = {
        1: {"/input_zp"}, 2: {"/output_zp"}, 3: {"/input_zp", "/output_zp"}, 4: {"/scale32"}, 5: {"/rounding_mode"},
        6: {"/output_unsigned"}, 7: {"/input_unsigned"}, 8: {"/output_unsigned"}, 9: {"/per_channel"},
    }  # fmt: skip
    assert caught.value.pointer in set.union(*(pointers[number] for number in conditions)), (case, caught.value.detail)


I8: dict[str, Any] = {"in_t": "i8", "out_t": "i8", "shape": (2,), "multiplier": (1 << 30,), "shift": (30,)}


@pytest.mark.parametrize(
    ("change", "pointer", "says"),
    [
        ({"in_t": "i16", "input_zp": 1}, "/input_zp", "i16 only with zero point 0; the input has 1"),
        ({"out_t": "i32", "output_zp": -7}, "/output_zp", "i32 only with zero point 0; the output has -7"),
        ({"in_t": "i16", "input_unsigned": True, "input_zp": 5}, "/input_zp", "unsigned i16 only with zero point 0 or"),
        ({"out_t": "i16", "output_unsigned": True, "output_zp": 32767}, "/output_zp", "0 or 32768; the output has"),
        ({"in_t": "i48"}, "/scale32", "scale32 does not take i48"),
        (
            {"scale32": False, "multiplier": (1,), "rounding_mode": "DOUBLE_ROUND"},
            "/rounding_mode",
            "only with scale32",
        ),
        ({"input_unsigned": True, "output_unsigned": True}, "/output_unsigned", "at most one unsigned side"),
        ({"in_t": "i32", "input_unsigned": True}, "/input_unsigned", "unsigned i32 and the output i8"),
        ({"out_t": "i32", "input_unsigned": True}, "/input_unsigned", "unsigned i8 and the output i32"),
        ({"out_t": "i32", "output_unsigned": True}, "/output_unsigned", "i8 and the output unsigned i32"),
        ({"in_t": "i32", "output_unsigned": True}, "/output_unsigned", "i32 and the output unsigned i8"),
        ({"shape": (), "per_channel": True}, "/per_channel", "rank 0"),
    ],
)
def test_each_error_if_has_its_message(change: dict[str, Any], pointer: str, says: str) -> None:
    with pytest.raises(UnsupportedError) as caught:
        plan(Rescale(**(I8 | change)))
    assert caught.value.pointer == pointer
    assert says in caught.value.detail


@pytest.mark.parametrize(
    ("change", "error", "pointer"),
    [
        ({"multiplier": ()}, TypeFitError, "/multiplier"),
        ({"multiplier": (1, 1)}, TypeFitError, "/multiplier"),
        ({"shift": (3, 3)}, TypeFitError, "/shift"),
        ({"per_channel": True}, TypeFitError, "/multiplier"),
        ({"per_channel": True, "multiplier": (1, 1)}, TypeFitError, "/shift"),
        ({"multiplier": (1 << 31,)}, ParameterError, "/multiplier/0"),
        ({"multiplier": (1 << 15,), "scale32": False}, ParameterError, "/multiplier/0"),
        ({"multiplier": (10**5000,)}, ParameterError, "/multiplier/0"),
        ({"shift": (128,)}, ParameterError, "/shift/0"),
        ({"input_zp": 128}, ParameterError, "/input_zp"),
        ({"input_zp": 256, "input_unsigned": True}, ParameterError, "/input_zp"),
        ({"output_zp": -129, "output_unsigned": True}, ParameterError, "/output_zp"),
    ],
)
def test_operands_that_do_not_fit(change: dict[str, Any], error: type[RequantError], pointer: str) -> None:
    with pytest.raises(error) as caught:
        plan(Rescale(**(I8 | change)))
    assert caught.value.pointer == pointer


@pytest.mark.parametrize(
    ("input_type", "output_type", "error", "side"),
    [
        ("tensor<2xui8>", "i8", UnsupportedError, "input"),
        ("tensor<2xsi8>", "i8", UnsupportedError, "input"),
        ("tensor<2xi4>", "i8", UnsupportedError, "input"),
        ("tensor<2xf32>", "i8", UnsupportedError, "input"),
        ("tensor<2x!quant.uniform<i8:f32, 1.0>>", "i8", UnsupportedError, "input"),
        ("tensor<2xi8>", "i48", UnsupportedError, "output"),
        ("tensor<2xi8>", "ui8", UnsupportedError, "output"),
        ("tensor<2xi8>", "tensor<3xi8>", TypeFitError, "output"),
        ("tensor<2x0xi8>", "i8", TypeFitError, "input"),
        ("tensor<?xi8>", "i8", TypeFitError, "input"),
        ("tensor<*xi8>", "i8", TypeFitError, "input"),
    ],
)
def test_types_that_are_not_taken(input_type: str, output_type: str, error: type[RequantError], side: str) -> None:
    parsed = parse_type(input_type)
    assert isinstance(parsed, TensorType)
    with pytest.raises(error) as caught:
        plan_rescale(parsed, parse_type(output_type), [1 << 30], [30])
    assert caught.value.side == side
    if "ui8" in (output_type, parsed.element.name if hasattr(parsed.element, "name") else ""):
        assert f"set {side}_unsigned" in caught.value.detail


@pytest.mark.parametrize(("given", "number"), [(200, 200), (-56, 200), (0, 0), (-128, 128), (127, 127)])
def test_a_zero_point_of_an_unsigned_side_may_be_its_bit_pattern(given: int, number: int) -> None:
    case = Rescale(**(I8 | {"input_unsigned": True, "out_t": "i16", "input_zp": given}))
    assert run(case, np.array([-1, 0], np.int8)).tolist() == [255 - number, -number]


def test_any_pieces_give_the_same_bits() -> None:
    rng = np.random.default_rng(8)
    case = Rescale(**(I8 | {"out_t": "i16", "shape": (700, 3), "per_channel": True, "output_unsigned": True}))
    case = replace(case, multiplier=(1 << 30, 3 << 28, 7), shift=(30, 32, 10), output_zp=32768, input_zp=-3)
    source = rng.integers(-128, 128, 2100).astype(np.int8)
    planned = plan(case)
    whole = run(case, source)
    assert whole.dtype == np.int16
    for size in (1, 7, 1000):
        target, counts = np.empty(2100, np.int16), planned.new_counts()
        for start in range(0, 2100, size):
            planned.step(source[start : start + size], target[start : start + size], start, counts)
        assert target.tobytes() == whole.tobytes()
