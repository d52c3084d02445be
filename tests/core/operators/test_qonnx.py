"""QONNX's quantizers beside fractions: ties of each rounding, one ulp beside them, bounds, and what is refused."""

from __future__ import annotations

import itertools
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from requant.description import TensorValue, Value
from requant.errors import (
    InvalidRequestError,
    ParameterError,
    RequantError,
    TypeFitError,
    UnknownNameError,
    UnsupportedError,
)
from tests.oracles import qonnx as oracle
from tests.support.cases import EXHAUSTIVE
from tests.support.operator_calls import run, tensor

Array = NDArray[Any]
ROUNDS = 4 if EXHAUSTIVE else 1


def f32(values: Any) -> TensorValue:
    return tensor("f32", np.asarray(values, np.float32))


def beside(rng: np.random.Generator, x: Array) -> Array:
    """Each number, or one ulp beside it."""
    near = x.astype(np.float32)
    toward = rng.choice(np.array([-np.inf, np.inf], np.float32), x.shape)
    return np.where(rng.random(x.shape) < 0.5, near, np.nextafter(near, toward))


def drawn(rng: np.random.Generator, bits: int, scale: float, zero: float) -> Array:
    """Ties of halves and quarters, the bounds, and numbers of all magnitudes."""
    reach = 2.0 ** min(bits, 20)
    halves = rng.integers(-int(2 * reach), int(2 * reach) + 1, 60) / 4
    edges = np.array([0, 0.5, 1, reach / 2, reach / 2 - 0.5, reach / 2 + 0.5, reach - 1, reach - 0.5, reach, 8388609])
    usual = rng.normal(size=20) * 2.0 ** rng.integers(-20, 20, 20)
    numbers = np.concatenate([halves, edges, -edges, usual, [0.49999997, -0.49999997]])
    return beside(rng, (numbers - zero) * scale)


def same(found: Array, expected: list[Fraction]) -> bool:
    return [Fraction(float(each)) for each in found.ravel()] == expected


CASES = [*itertools.product(oracle.MODES, (1, 2, 4, 8, 26), (0, 1), (0, 1))][:: 1 if EXHAUSTIVE else 3]


def test_quant() -> None:
    rng = np.random.default_rng(1)
    for (mode, bits, signed, narrow), _ in itertools.product(CASES, range(ROUNDS)):
        scale = float(np.float32(rng.choice([0.5, 1.0, 0.1, 3.0, np.exp(rng.uniform(-8, 3))])))
        zero = float(rng.choice([0.0, 0.0, 3.0, 0.5, -2.25]))
        x = drawn(rng, bits, scale, zero)
        inputs = {"X": f32(x), "scale": f32(scale), "zeropt": f32([zero]), "bitwidth": f32(bits)}
        attributes: dict[str, Value] = {"signed": signed, "narrow": narrow, "rounding_mode": mode.lower()}
        found = run("qonnx.Quant", inputs, attributes)["Y"]
        assert np.array_equal(run("qonnx.IntQuant", inputs, attributes)["Y"], found)
        expected = [
            oracle.quant(each, scale, zero, bits, signed=bool(signed), narrow=bool(narrow), mode=mode)
            for each in x.tolist()
        ]
        assert same(found, expected), (mode, bits, signed, narrow, scale, zero)


def test_bipolar() -> None:
    x = [-1.0, -0.0, 0.0, 1e-45, -1e-45, np.nan, np.inf, -np.inf]
    found = run("qonnx.BipolarQuant", {"X": f32([x, x]), "scale": f32([[0.5], [-2]])})["Y"]
    signs = np.array([-1, 1, 1, 1, -1, -1, 1, -1], np.float32)
    assert found.tolist() == [(signs * 0.5).tolist(), (signs * -2).tolist()]


@pytest.mark.sample(1)
@pytest.mark.parametrize("mode", oracle.MODES)
def test_trunc(mode: str) -> None:
    rng = np.random.default_rng(2)
    for widths, signed, narrow in itertools.product(((8, 4), (10, 3), (4, 4), (3, 6)), (0, 1), (0, 1)):
        for _ in range(ROUNDS):
            scale = float(np.float32(rng.choice([0.5, 0.1, np.exp(rng.uniform(-8, 3))])))
            zero = float(rng.choice([0.0, 4.0, 1.5]))
            x = drawn(rng, widths[0], scale, zero)
            inputs = {"X": f32(x), "scale": f32(scale), "zeropt": f32(zero)}
            inputs |= {"in_bitwidth": f32(widths[0]), "out_bitwidth": f32(widths[1])}
            found = run("qonnx.Trunc", inputs, {"rounding_mode": mode}, opset=1)["Y"]
            assert same(found, [oracle.trunc_1(each, scale, zero, widths, mode) for each in x.tolist()])
            out_scale = float(np.float32(scale * 2.0 ** rng.integers(-2, 6) * rng.uniform(0.75, 1.35)))
            attributes: dict[str, Value] = {"rounding_mode": mode, "signed": signed, "narrow": narrow}
            found = run("qonnx.Trunc", inputs | {"out_scale": f32(out_scale)}, attributes, opset=2)["Y"]
            expected = [
                oracle.trunc_2(
                    each, scale, zero, out_scale, widths[1], signed=bool(signed), narrow=bool(narrow), mode=mode
                )
                for each in x.tolist()
            ]
            assert same(found, expected), (scale, zero, out_scale, widths)


FORMATS = [
    (4, 3, 7, 448.0), (5, 2, 15, 57344.0), (2, 1, 1, 6.0), (3, 2, 3, 28.0), (2, 3, 1, 7.5), (0, 4, 0, 99.0),
    (8, 7, 127, 3e38),
]  # fmt: skip


@pytest.mark.parametrize("mode", oracle.MODES)
@pytest.mark.parametrize("form", FORMATS)
def test_float_quant(form: tuple[int, int, int, float], mode: str) -> None:
    """Ties of every exponent, subnormal ones too; numbers just below powers of two; and what is beyond the largest."""
    rng = np.random.default_rng(3)
    e, m, bias, largest = form
    for _ in range(ROUNDS):
        scale = float(np.float32(rng.choice([1.0, 0.5, 0.3, np.exp(rng.uniform(-3, 3))])))
        exponents = rng.integers(-bias - m - 2, min(2**e - bias + 1, 120), 80)
        ties = rng.integers(-(2 << m), (2 << m) + 1, 80) / 2.0 ** (m + 1) * 2.0**exponents
        powers = 2.0 ** rng.integers(-bias - m - 2, min(2**e - bias + 1, 120), 20) * rng.choice([-1, 1], 20)
        edges = np.array([largest, -largest, largest * 1.01, 3e37, 0, 1e-40, -1e-45])
        x = beside(rng, np.concatenate([ties, powers, edges]) * scale)
        named = ("exponent_bitwidth", e), ("mantissa_bitwidth", m), ("exponent_bias", bias), ("max_val", largest)
        inputs = {"X": f32(x), "scale": f32(scale), **{name: f32(value) for name, value in named}}
        expected = [oracle.float_quant(each, scale, *form, mode) for each in x.tolist()]
        found = run("qonnx.FloatQuant", inputs, {"rounding_mode": mode})["Y"]
        assert same(found, [value for value, _ in expected]), (form, scale)
        for flag, of_beyond in (("has_inf", np.isinf), ("has_nan", np.isnan)):
            found = run("qonnx.FloatQuant", inputs, {"rounding_mode": mode, "saturation": 0, flag: 1})["Y"]
            assert of_beyond(found).tolist() == [beyond for _, beyond in expected]
            assert same(found[np.isfinite(found)], [value for value, beyond in expected if not beyond])


def test_what_is_not_finite() -> None:
    odd = f32([np.nan, np.inf, -np.inf])
    inputs = {"X": odd, "scale": f32(1), "zeropt": f32(0), "bitwidth": f32(4)}
    assert np.array_equal(run("qonnx.Quant", inputs)["Y"], [np.nan, 7, -8], equal_nan=True)
    assert np.array_equal(run("qonnx.Quant", {**inputs, "bitwidth": f32(1)})["Y"], [-1, 1, -1])
    named = {"exponent_bitwidth": f32(4), "mantissa_bitwidth": f32(3), "exponent_bias": f32(7), "max_val": f32(448)}
    assert np.isnan(run("qonnx.FloatQuant", {"X": odd, "scale": f32(1), **named})["Y"]).all()
    # What rounds beyond f32 is NaN where there is no largest number.
    named |= {"exponent_bitwidth": f32(8), "exponent_bias": f32(0), "max_val": f32(np.inf)}
    inputs = {"X": f32([3.4e38, -3.4e38]), "scale": f32(1), **named}
    assert np.isnan(run("qonnx.FloatQuant", inputs, {"saturation": 0, "has_nan": 1})["Y"]).all()
    assert run("qonnx.FloatQuant", inputs, {"saturation": 0, "has_inf": 1})["Y"].tolist() == [np.inf, -np.inf]


def test_shapes_are_broadcast() -> None:
    x = np.arange(6, dtype=np.float32).reshape(2, 3) / 4
    for scale in ([0.5], [[0.5], [1.0]], [0.5, 1.0, 2.0], [[[0.5]], [[1.0]]]):
        inputs = {"X": f32(x), "scale": f32(scale), "zeropt": f32(0), "bitwidth": f32(8)}
        found = run("qonnx.Quant", inputs)["Y"]
        assert np.array_equal(found, np.rint(x / np.array(scale, np.float32)) * np.array(scale, np.float32))
    empty = {"X": f32(np.zeros((0, 3))), "scale": f32(0.5), "zeropt": f32(0), "bitwidth": f32(8)}
    assert run("qonnx.Quant", empty)["Y"].shape == (0, 3)


QUANT = {"X": f32([1]), "scale": f32(1), "zeropt": f32(0), "bitwidth": f32(4)}
TRUNC = {"X": f32([1]), "scale": f32(1), "zeropt": f32(0), "in_bitwidth": f32(8), "out_bitwidth": f32(4)}
FLOAT = {"X": f32([1]), "scale": f32(1), "exponent_bitwidth": f32(4), "mantissa_bitwidth": f32(3),
         "exponent_bias": f32(7), "max_val": f32(448)}  # fmt: skip
REFUSED: list[tuple[str, dict[str, TensorValue], dict[str, Value], int, type[RequantError], str | None]] = [
    ("Quant", QUANT, {"rounding_mode": "ROUND_TO_ZERO"}, 1, UnknownNameError, "/attributes/rounding_mode"),
    ("Quant", QUANT | {"bitwidth": f32(2.5)}, {}, 1, ParameterError, "/inputs/bitwidth"),
    ("Quant", QUANT | {"bitwidth": f32(0)}, {}, 1, ParameterError, "/inputs/bitwidth"),
    ("Quant", QUANT | {"bitwidth": f32(np.nan)}, {}, 1, ParameterError, "/inputs/bitwidth"),
    ("Quant", QUANT | {"bitwidth": f32([4, 4])}, {}, 1, TypeFitError, "/inputs/bitwidth"),
    ("Quant", QUANT | {"X": f32([1, 2]), "scale": f32([1, 2, 3])}, {}, 1, TypeFitError, "/inputs/zeropt"),
    ("Quant", QUANT | {"X": tensor("f16", [0])}, {}, 1, UnsupportedError, "/inputs/X"),
    ("Quant", QUANT, {}, 3, UnsupportedError, "/opset"),
    ("Trunc", TRUNC, {}, 2, InvalidRequestError, None),
    ("Trunc", TRUNC | {"out_scale": f32(4)}, {}, 1, UnsupportedError, "/inputs/out_scale"),
    ("Trunc", TRUNC, {"signed": 0}, 1, UnsupportedError, "/attributes/signed"),
    ("FloatQuant", FLOAT, {"saturation": 0}, 1, ParameterError, "/attributes/saturation"),
    ("FloatQuant", FLOAT | {"mantissa_bitwidth": f32(24)}, {}, 1, ParameterError, "/inputs/mantissa_bitwidth"),
]


@pytest.mark.parametrize(("name", "inputs", "attributes", "opset", "error", "pointer"), REFUSED)
def test_refusals(
    name: str,
    inputs: dict[str, TensorValue],
    attributes: dict[str, Value],
    opset: int,
    error: type[RequantError],
    pointer: str | None,
) -> None:
    with pytest.raises(error) as caught:
        run(f"qonnx.{name}", inputs, attributes, opset=opset)
    assert caught.value.pointer == pointer
