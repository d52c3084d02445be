"""TOSA's operators under their own names: the casts against the block oracle, RESCALE against the integer oracle."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from requant.description import TensorValue
from requant.errors import (
    InvalidRequestError,
    ParameterError,
    PreconditionError,
    RequantError,
    TypeFitError,
    UnknownNameError,
    UnsupportedError,
)
from requant.operators.tosa.block_scaled import MX_FORMATS
from tests.oracles import blocks as block_oracle
from tests.oracles.quantization import f32, from_bits
from tests.oracles.small_floats import FORMATS, decode
from tests.oracles.tosa import Rescale, Unpredictable, rescaled
from tests.support.cases import sample
from tests.support.operator_calls import output_types, run, tensor
from tests.support.rescale_case import numbers, stored

Array = NDArray[Any]
CODES = {"i8": 256, **{name: FORMATS[name].codes for name in MX_FORMATS if name != "i8"}}


def blocks_of_f32() -> Array:
    """Blocks of many magnitudes, of ties, and of what is not finite."""
    rng = np.random.default_rng(11)
    usual = rng.standard_normal((40, 32)) * 2.0 ** rng.integers(-140, 120, (40, 1))
    ties = rng.integers(-64, 65, (40, 32)) / 8 * 2.0 ** rng.integers(-130, 120, (40, 1))
    special = np.zeros((6, 32))
    special[1], special[2, 3], special[3, 0], special[4, 9], special[5] = -0.0, np.nan, np.inf, -np.nan, 2.0**-140
    with np.errstate(over="ignore"):
        return np.concatenate([usual, ties, special]).astype(np.float32)


def bf16_codes(x: Array) -> Array:
    """f32 numbers cut to bf16."""
    return (x.view(np.uint32) >> 16).astype(np.uint16)


@pytest.mark.parametrize("source", ["f32", "bf16"])
@pytest.mark.parametrize("element", MX_FORMATS)
def test_cast_to_blocks_against_the_oracle(element: str, source: str) -> None:
    x = blocks_of_f32()
    given = tensor("f32", x)
    if source == "bf16":
        codes = bf16_codes(x)
        given, x = tensor("bf16", codes), (codes.astype(np.uint32) << 16).view(np.float32)
    found = run("tosa.CAST_TO_BLOCK_SCALED", {"input_data": given}, {"output_data_type": element})
    expected = [block_oracle.quantize_mx(MX_FORMATS[element], "tosa", block) for block in x.tolist()]
    assert found["output_scale"].tolist() == [[block.scale] for block in expected]
    assert found["output_data"].view(np.uint8).tolist() == [block.elements for block in expected]


def bf16_of(value: float) -> float:
    """The nearest bf16, ties to even, of an f32."""
    if not math.isfinite(value) or value == 0:
        return value
    exponent = max(math.frexp(value)[1] - 8, -133)
    rounded = round(Fraction(value) / Fraction(2) ** exponent) * Fraction(2) ** exponent
    return math.copysign(math.inf if abs(rounded) >= 2**128 else float(abs(rounded)), value)


def real_of(element: str, code: int) -> float:
    """The number that a code stands for."""
    if element == "i8":
        return (code - 256 * (code > 127)) / 64
    return from_bits(decode(element, code))


@pytest.mark.parametrize("target", ["f32", "bf16"])
@pytest.mark.parametrize("element", MX_FORMATS)
def test_every_code_at_every_scale_is_cast_back(element: str, target: str) -> None:
    """All codes of the element by all 256 scales, in blocks of 32."""
    count = CODES[element]
    width = -(-count // 32) * 32
    codes = np.tile((np.arange(width) % count).astype(np.uint8), (256, 1))
    scales = np.tile(np.arange(256, dtype=np.uint8)[:, None], (1, width // 32))
    inputs = {
        "input_data": tensor(element, codes.view(np.int8) if element == "i8" else codes),
        "input_scale": tensor("f8E8M0FNU", scales),
    }
    (found,) = run("tosa.CAST_FROM_BLOCK_SCALED", inputs, {"output_data_type": target}).values()
    got = found.astype(np.float64) if target == "f32" else (found.astype(np.uint32) << 16).view(np.float32)
    reals = [real_of(element, code % count) for code in range(width)]
    for scale in {*sample(range(256), 15), 0, 1, 126, 127, 128, 253, 254}:
        for index, real in enumerate(reals):
            exact = math.nan if scale == 255 else real * 2.0 ** (scale - 127)
            if math.isfinite(exact) and abs(exact) < 2.0**128:
                exact = math.copysign(f32(Fraction(exact)), exact)
            elif math.isfinite(exact):
                exact = math.copysign(math.inf, exact)
            expected = exact if target == "f32" else bf16_of(exact)
            ours = float(got[scale, index])
            assert (ours == expected and math.copysign(1, ours) == math.copysign(1, expected)) or (
                math.isnan(ours) and math.isnan(expected)
            ), (scale, index, ours, expected)


def test_casts_have_the_types_of_tosa() -> None:
    x = {"input_data": tensor("f32", np.zeros((2, 3, 64)))}
    assert output_types("tosa.CAST_TO_BLOCK_SCALED", x, {"output_data_type": "f6E3M2FN"}) == {
        "output_data": "tensor<2x3x64xf6E3M2FN>",
        "output_scale": "tensor<2x3x2xf8E8M0FNU>",
    }


ONES = tensor("f8E4M3FN", np.zeros((2, 64)))
SCALES = tensor("f8E8M0FNU", np.zeros((2, 2)))


@pytest.mark.parametrize(
    ("name", "inputs", "attributes", "error", "pointer"),
    [
        ("TO", {"input_data": tensor("f16", np.zeros(32))}, {}, UnsupportedError, "/inputs/input_data"),
        ("TO", {"input_data": tensor("f32", np.zeros(48))}, {}, TypeFitError, "/inputs/input_data"),
        ("TO", {"input_data": tensor("f32", np.zeros(()))}, {}, TypeFitError, "/inputs/input_data"),
        ("TO", {"input_data": tensor("f32", np.zeros((0, 32)))}, {}, TypeFitError, "/inputs/input_data"),
        (
            "TO",
            {"input_data": tensor("f32", np.zeros(32))},
            {"output_data_type": "f8E3M4"},
            UnknownNameError,
            "/attributes/output_data_type",
        ),
        (
            "TO",
            {"input_data": tensor("f32", np.zeros(32))},
            {"block_size": "BLOCK_SIZE_1"},
            UnknownNameError,
            "/attributes/block_size",
        ),
        ("FROM", {"input_data": ONES}, {}, InvalidRequestError, None),
        (
            "FROM",
            {"input_data": ONES, "input_scale": tensor("f8E8M0FNU", np.zeros((2, 1)))},
            {},
            TypeFitError,
            "/inputs/input_scale",
        ),
        (
            "FROM",
            {"input_data": ONES, "input_scale": tensor("f8E8M0FNU", np.zeros(4))},
            {},
            TypeFitError,
            "/inputs/input_scale",
        ),
        (
            "FROM",
            {"input_data": ONES, "input_scale": tensor("f8E4M3FN", np.zeros((2, 2)))},
            {},
            UnsupportedError,
            "/inputs/input_scale",
        ),
        (
            "FROM",
            {"input_data": tensor("ui8", np.zeros((2, 64))), "input_scale": SCALES},
            {},
            UnsupportedError,
            "/inputs/input_data",
        ),
        (
            "FROM",
            {"input_data": ONES, "input_scale": SCALES},
            {"output_data_type": "f16"},
            UnknownNameError,
            "/attributes/output_data_type",
        ),
    ],
)
def test_casts_that_are_refused(
    name: str,
    inputs: dict[str, TensorValue],
    attributes: dict[str, Any],
    error: type[RequantError],
    pointer: str | None,
) -> None:
    given = {"output_data_type": "f4E2M1FN" if name == "TO" else "f32", **attributes}
    with pytest.raises(error) as caught:
        run(f"tosa.CAST_{name}_BLOCK_SCALED", inputs, given)
    assert caught.value.pointer == pointer


CASE = Rescale(
    in_t="i32",
    out_t="i8",
    shape=(2, 2),
    multiplier=(1 << 30, 1431655765),
    shift=(38, 39),
    output_zp=-1,
    per_channel=True,
)
DATA = [1000, -2000, 3000, 70000]


def operands(case: Rescale, data: list[int]) -> dict[str, TensorValue]:
    """A case's operands as TOSA has them."""
    return {
        "input": tensor(case.in_t, stored(data, case.in_t).reshape(case.shape)),
        "multiplier": tensor("i32" if case.scale32 else "i16", case.multiplier),
        "shift": tensor("i8", case.shift),
        "input_zp": tensor(case.in_t, stored([case.input_zp], case.in_t)),
        "output_zp": tensor(case.out_t, stored([case.output_zp], case.out_t)),
    }


def attributes_of(case: Rescale) -> dict[str, Any]:
    names = ("scale32", "rounding_mode", "per_channel", "input_unsigned", "output_unsigned")
    return {name: getattr(case, name) for name in names}


@pytest.mark.parametrize(
    "case",
    [
        CASE,
        replace(CASE, rounding_mode="DOUBLE_ROUND"),
        replace(CASE, rounding_mode="INEXACT_ROUND"),
        replace(CASE, in_t="i48", scale32=False, multiplier=(1 << 14, 21845), shift=(22, 23)),
        replace(CASE, in_t="i16", out_t="i16", output_zp=32768, output_unsigned=True, shift=(31, 32)),
        replace(CASE, in_t="i8", out_t="i16", input_zp=200, output_zp=0, input_unsigned=True, shift=(30, 30)),
    ],
    ids=str,
)
def test_rescale_against_the_oracle(case: Rescale) -> None:
    low, high = case.input_bounds
    data = [min(max(each, low), high) for each in DATA]
    (found,) = run("tosa.RESCALE", operands(case, data), attributes_of(case)).values()
    expected = [rescaled(case, x, index) for index, x in enumerate(data)]
    assert numbers(found.reshape(-1), case.out_t, unsigned=case.output_unsigned) == expected
    assert not any(isinstance(each, Unpredictable) for each in expected)


@pytest.mark.parametrize(
    ("changes", "attributes", "error", "pointer"),
    [
        ({"multiplier": tensor("i16", [1, 1])}, {}, TypeFitError, "/inputs/multiplier"),
        ({"multiplier": tensor("i32", [[1, 1]])}, {}, TypeFitError, "/inputs/multiplier"),
        ({"multiplier": tensor("i32", [1])}, {}, TypeFitError, "/inputs/multiplier"),
        ({"multiplier": tensor("i32", [1, -1])}, {}, PreconditionError, "/inputs/multiplier"),
        ({"shift": tensor("i8", [1, 38])}, {}, PreconditionError, "/inputs/shift"),
        ({"shift": tensor("i16", [38, 38])}, {}, UnsupportedError, "/inputs/shift"),
        ({"input_zp": tensor("i8", [0])}, {}, TypeFitError, "/inputs/input_zp"),
        ({"input_zp": tensor("i32", [1])}, {}, UnsupportedError, "/inputs/input_zp"),
        ({"output_zp": tensor("i8", [0, 0])}, {}, TypeFitError, "/inputs/output_zp"),
        ({}, {"scale32": False}, TypeFitError, "/inputs/multiplier"),
        ({}, {"input_unsigned": True}, UnsupportedError, "/attributes/input_unsigned"),
        ({}, {"rounding_mode": "ROUND"}, UnknownNameError, "/attributes/rounding_mode"),
        ({"shift": tensor("i8", [8, 38])}, {}, PreconditionError, "/inputs/input"),
        ({"input": tensor("i48", [[2**47, 0]])}, {}, UnsupportedError, "/attributes/scale32"),
    ],
)
def test_rescales_that_are_refused(
    changes: dict[str, TensorValue], attributes: dict[str, Any], error: type[RequantError], pointer: str
) -> None:
    inputs = {**operands(CASE, DATA), **changes}
    if "input" in changes:
        inputs["input_zp"] = tensor("i48", [0])
    with pytest.raises(error) as caught:
        run("tosa.RESCALE", inputs, {**attributes_of(CASE), **attributes})
    assert caught.value.pointer == pointer


def test_no_more_multipliers_than_are_taken() -> None:
    many = tensor("i32", np.ones(1 << 17))
    with pytest.raises(RequantError, match="more than 65536 elements") as caught:
        run("tosa.RESCALE", {**operands(CASE, DATA), "multiplier": many}, attributes_of(CASE))
    assert not isinstance(caught.value, ParameterError)
