"""QONNX's quantizers beside the package that defines them: at least a million elements each, in every rounding mode."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pytest

from requant.description import Value
from tests.interop.conformance import systems
from tests.interop.operators.counting import Tally
from tests.interop.operators.typed_arrays import Array, same
from tests.interop.seed_of_the_day import generator
from tests.oracles.qonnx import MODES
from tests.support.cases import EXHAUSTIVE
from tests.support.operator_calls import run, tensor

pytest.importorskip("onnx")
pytest.importorskip("qonnx")

import qonnx.custom_op.general
from onnx import helper
from qonnx.custom_op.registry import getCustomOp

pytestmark = pytest.mark.interop

SIZE = 14_000 if EXHAUSTIVE else 200
Calls = Iterator[tuple[dict[str, Array], dict[str, Any]]]


def by_qonnx(operator: str, opset: int, inputs: Mapping[str, Array], attributes: Mapping[str, Any]) -> Array:
    node = helper.make_node(operator, [*inputs], ["Y"], domain=qonnx.custom_op.general.__name__, **attributes)
    context = dict(inputs)
    with np.errstate(all="ignore"):
        getCustomOp(node, onnx_opset_version=opset).execute_node(context, None)
    return np.asarray(context["Y"])


def by_us(operator: str, opset: int, inputs: Mapping[str, Array], attributes: Mapping[str, Value]) -> Array:
    return run(
        f"qonnx.{operator}", {name: tensor("f32", each) for name, each in inputs.items()}, attributes, opset=opset
    )["Y"]


def check(operator: str, calls: Calls, opset: int = 1) -> None:
    tally = Tally(systems.QONNX)
    for inputs, attributes in calls:
        ours, theirs = by_us(operator, opset, inputs, attributes), by_qonnx(operator, opset, inputs, attributes)
        differ: Any = np.flatnonzero(ours.ravel() != theirs.ravel())[:4] if ours.shape == theirs.shape else []
        shown = [(int(each), ours.ravel()[each], theirs.ravel()[each]) for each in differ]
        small = {key: each for key, each in inputs.items() if each.size < 8}
        what = f"{operator} {small} {attributes}: {ours.shape}, {theirs.shape} (index, ours, theirs): {shown}"
        tally.add(f"qonnx.{operator}", opset, same(ours, theirs), what, ours.size)
    compared = sum(tally.elements.values())
    tally.finish(1)
    assert compared >= (1_000_000 if EXHAUSTIVE else 1)


def one(value: float) -> Array:
    return np.array(value, np.float32)


def real(rng: np.random.Generator, scale: Array, zero: Array, reach: float) -> Array:
    """Ties of halves and quarters, one ulp beside them, bounds, numbers of all magnitudes, and what is not finite."""
    size = (SIZE // 64, 64)
    quarters = rng.integers(-int(2 * reach), int(2 * reach) + 1, size) / 4
    edges = rng.choice([reach, reach / 2, reach / 2 - 0.5, reach - 1, -reach / 2 - 0.5, 0.49999997, 8388609, 0], size)
    usual = rng.normal(size=size) * 2.0 ** rng.integers(-40, 40, size)
    odd = rng.choice([np.nan, np.inf, -np.inf, -0.0, 1e-45, 3e38], size)
    drawn = np.choose(rng.choice(4, size, p=[0.6, 0.2, 0.15, 0.05]), [quarters, edges, usual, odd])
    with np.errstate(all="ignore"):
        x = ((drawn - zero) * scale.astype(np.float64)).astype(np.float32)
        near = np.nextafter(x, np.where(rng.random(size) < 0.5, np.float32(np.inf), np.float32(-np.inf)))
    return np.where(rng.random(size) < 0.4, near, x)


def scales(rng: np.random.Generator) -> Array:
    """One, or of each column; powers of two and tenths among them, also a zero, a subnormal and a negative one."""
    shape = [(), (1,), (64,), (1, 64)][rng.integers(4)]
    usual = np.exp(rng.uniform(-8, 3, shape))
    found = np.choose(rng.integers(0, 3, shape), [usual, 2.0 ** rng.integers(-9, 4, shape), np.full(shape, 0.1)])
    if rng.random() < 0.1:
        found = np.where(rng.random(shape) < 0.5, rng.choice([0.0, -0.5, 1e-40, np.inf]), found)
    return np.asarray(found, np.float32)


def zeros(rng: np.random.Generator) -> Array:
    shape = [(), (), (1,), (64,)][rng.integers(4)]
    return np.asarray(rng.choice([0.0, 3.0, -128.0, 0.5, -2.25], shape), np.float32)


def cased(rng: np.random.Generator, mode: str) -> str:
    return mode if rng.random() < 0.7 else mode.lower()


def quant_calls(rng: np.random.Generator) -> Calls:
    for mode, signed, narrow in itertools.product(MODES, (0, 1), (0, 1)):
        for bits in rng.permutation([1, 2, 3, 4, 8, 16, 26, 33, 127])[:3]:
            scale, zero = scales(rng), zeros(rng)
            x = real(rng, scale, zero, 2.0 ** min(int(bits), 24))
            inputs = {"X": x, "scale": scale, "zeropt": zero, "bitwidth": one(bits)}
            yield inputs, {"signed": signed, "narrow": narrow, "rounding_mode": cased(rng, mode)}


def bipolar_calls(rng: np.random.Generator) -> Calls:
    for _ in range(80):
        scale = scales(rng)
        yield {"X": real(rng, scale, one(0), 4), "scale": scale}, {}


def trunc_calls(rng: np.random.Generator, opset: int) -> Calls:
    for number, mode in itertools.product(range(10), MODES):
        scale, zero = scales(rng), zeros(rng)
        of_in, of_out = int(rng.integers(1, 17)), int(rng.integers(1, 17))
        inputs = {"X": real(rng, scale, zero, 2.0**of_in), "scale": scale, "zeropt": zero, "in_bitwidth": one(of_in)}
        attributes: dict[str, Any] = {"rounding_mode": cased(rng, mode)}
        if opset == 2:
            ratio = 2.0 ** rng.integers(-3, 12, scale.shape)
            # Also near the middle between two powers of two.
            near = np.float32(2**0.5) * (1 + rng.integers(-4, 5, scale.shape) * 2.0**-23)
            ratio = ratio * np.choose(rng.integers(0, 3, scale.shape), [1.0, near, rng.uniform(0.7, 1.5, scale.shape)])
            with np.errstate(all="ignore"):
                inputs["out_scale"] = np.asarray(scale * ratio, np.float32)
            attributes |= {"signed": number % 2, "narrow": number // 2 % 2}
        yield inputs | {"out_bitwidth": one(of_out)}, attributes


def float_calls(rng: np.random.Generator) -> Calls:
    """Formats of 4 to 16 bits; ties of every exponent, numbers beside powers of two, and the largest number."""
    formats = [(4, 3, 7, 448), (5, 2, 15, 57344), (2, 1, 1, 6), (3, 2, 3, 28), (2, 3, 1, 7.5), (0, 4, 0, 99),
               (8, 7, 127, 3.3895314e38), (5, 10, 15, 65504), (8, 3, 0, np.inf), (4, 0, 7, 256)]  # fmt: skip
    for number, ((e, m, bias, largest), mode) in enumerate(itertools.product(formats, MODES)):
        scale, size = scales(rng) if number % 3 else one(1), (SIZE // 64, 64)
        exponents = rng.integers(-bias - m - 2, min(2**e - bias + 1, 120), size)
        ties = rng.integers(-(2 << m), (2 << m) + 1, size) / 2.0 ** (m + 1) * 2.0**exponents
        powers = 2.0**exponents * (1 + rng.integers(-9, 10, size) * 2.0**-24)
        edges = rng.choice(
            [largest, -largest, 1.01 * largest, 1e-40, -0.0, np.nan, np.inf, -np.inf, 3e38, 3.4e38], size
        )
        drawn = np.choose(rng.choice(3, size, p=[0.6, 0.3, 0.1]), [ties, powers, edges])
        with np.errstate(all="ignore"):
            x = (drawn * scale.astype(np.float64)).astype(np.float32)
            near = np.nextafter(x, np.where(rng.random(size) < 0.5, np.float32(np.inf), np.float32(-np.inf)))
        flags = {"saturation": number // 2 % 2, "has_inf": number % 2, "has_nan": 1, "has_subnormal": number // 4 % 2}
        named = ("exponent_bitwidth", e), ("mantissa_bitwidth", m), ("exponent_bias", bias), ("max_val", largest)
        inputs = {"X": np.where(rng.random(size) < 0.4, near, x), "scale": scale}
        yield inputs | {name: one(value) for name, value in named}, flags | {"rounding_mode": cased(rng, mode)}


@pytest.mark.parametrize("operator", ["Quant", "IntQuant"])
def test_quant(operator: str) -> None:
    check(operator, quant_calls(generator(1)))


def test_bipolar_quant() -> None:
    check("BipolarQuant", bipolar_calls(generator(2)))


@pytest.mark.parametrize("opset", [1, 2])
def test_trunc(opset: int) -> None:
    check("Trunc", trunc_calls(generator(3, opset), opset), opset)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_float_quant() -> None:
    check("FloatQuant", float_calls(generator(4)))
