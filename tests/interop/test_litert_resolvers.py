"""The table of docs/cookbook/which_litert.md: by which profile or scheme LiteRT's resolvers compute each operator.

Each cell is run by its resolver on a tensor full of ties, with a rest behind the last full vector, and each row tells
its cells apart.
"""

from __future__ import annotations

import platform
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from requant.convert.dequantize import plan_dequantize
from requant.convert.quantize import plan_quantize
from requant.convert.requantize import plan_requantize
from requant.integer.add import plan_add
from requant.integer.conv2d import Padding, WeightsLayout, Window, plan_conv2d
from requant.integer.matmul import plan_matmul
from tests.interop.integer.quantized_tensors import (
    Array,
    per_axis,
    per_tensor,
    run_product,
    tensor,
)
from tests.support.page_table import page_table

pytest.importorskip("flatbuffers")
pytest.importorskip("ai_edge_litert")

from ai_edge_litert.interpreter import OpResolverType

from tests.interop.integer import litert_operators
from tests.interop.integer.litert_operators import operand
from tests.interop.litert_models import DEQUANTIZE, QUANTIZE, Operand, one_operator, run_inputs

pytestmark = [
    pytest.mark.interop,
    pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="the table is that of x86-64"),
]

TABLE = {row[0]: row[1:] for row in page_table("cookbook/which_litert.md", "Operators")}
COLUMNS = (
    (OpResolverType.AUTO, OpResolverType.BUILTIN),
    (OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES,),
    (OpResolverType.BUILTIN_REF,),
)
RULES: dict[str, dict[str, str]] = {
    "`litert`": {"profile": "litert"},
    "`litert_xnnpack`": {"profile": "litert_xnnpack"},
    "scheme `arm_vector`": {"profile": "litert", "scheme": "arm_vector"},
}
_CELL = re.compile(r"(.+?)(?:; last [nc] mod (\d+): (.+))?")


@dataclass(frozen=True)
class Operation:
    """An operator as a model with its inputs, and as ours under a rule."""

    model: bytes
    inputs: list[Array]
    ours: Callable[..., Array]


def flat(plan: Any, *inputs: Array) -> Array:
    target = np.empty(inputs[0].size, plan.output_dtype)
    plan.run(*(np.ascontiguousarray(array).ravel() for array in inputs), target)
    return target.reshape(inputs[0].shape)


def quantize(storage: str, channels: int | None = None) -> Operation:
    # 0.5 and a quarter of it make a tie of every fourth element, the last ones among them.
    x = (np.arange(4096 + 7) % 200 - 99).astype(np.float32) * np.float32(0.25)
    side = per_tensor(storage, 0.5, 3 if storage == "i8" else 101)
    if channels is not None:
        x, side = x[:4000].reshape(-1, channels), per_axis(storage, np.full(channels, 0.5), 1)
    source = tensor("x".join(map(str, x.shape)) + "xf32")
    return Operation(
        one_operator(QUANTIZE, x.shape, Operand("f32"), operand(side)),
        [x],
        # XNNPACK's profile has no scales along an axis; these are all the same.
        lambda profile: flat(
            plan_quantize(source, per_tensor(storage, 0.5, int(side.zero_points[0])).element, profile), x
        ),
    )


def requantize(source: str, target: str) -> Operation:
    given, wanted = (
        per_tensor(source, 0.25, 0 if source == "i16" else 3),
        per_tensor(target, 1.0, 100 if target == "u8" else -5),
    )
    x = (np.arange(4096 + 15) % 256 - 128).astype(np.int16 if source == "i16" else np.int8)
    return Operation(
        one_operator(QUANTIZE, x.shape, operand(given), operand(wanted)),
        [x],
        lambda **rule: flat(plan_requantize(given.tensor(x.size), wanted.element, **rule), x),
    )


def dequantize(zero_point: int) -> Operation:
    side = per_tensor("i8", 0.0237, zero_point)
    x = (np.arange(4096) % 256 - 128).astype(np.int8)
    return Operation(
        one_operator(DEQUANTIZE, x.shape, operand(side), Operand("f32")),
        [x],
        lambda profile: flat(plan_dequantize(side.tensor(x.size), None, profile), x),
    )


X = per_tensor("i8", 0.5, 3)
# A scale that leaves some tens of ties in each product.
Y = per_tensor("i8", 2.0, -5)
SEED = 21
RNG = np.random.default_rng(SEED)


@pytest.fixture(autouse=True)
def seeded() -> None:
    """Each operator draws the same numbers, whichever come before it."""
    RNG.bit_generator.state = np.random.default_rng(SEED).bit_generator.state


def weights(*shape: int) -> Array:
    return RNG.integers(-16, 17, shape).astype(np.int8)


def bias(count: int) -> Array:
    return RNG.integers(-500, 500, count).astype(np.int32)


def fully_connected(channels: int, of_weights: str = "i8", depth: int = 32) -> Operation:
    """`channels` scales of 64 output channels: one or all."""
    half = min(1 << (int(of_weights[1:]) - 1), 16)
    scales = (2.0 ** RNG.integers(-7, -4, channels) * 16 / half).astype(np.float32)
    x, w, b = X.data(RNG, 300, depth), np.clip(weights(64, depth), -half, half - 1), bias(64)
    sides = X.tensor(*x.shape), per_axis(of_weights, scales, 1).tensor(depth, 64)
    return Operation(
        litert_operators.fully_connected(X, 300, (per_axis(of_weights, scales, 0), w), Y, b, version=12),
        [x],
        lambda **rule: run_product(plan_matmul(*sides, Y.element, bias=tensor("64xi32"), **rule), x, w.T, b),
    )


def convolution(*, depthwise: bool) -> Operation:
    channels = 12
    axis, shape = (3, (1, 3, 3, channels)) if depthwise else (0, (channels, 3, 3, channels))
    window = Window(
        weights_layout=WeightsLayout.IHWO if depthwise else WeightsLayout.OHWI,
        padding=Padding.VALID,
        groups=channels if depthwise else 1,
    )
    scales = (2.0 ** RNG.integers(-7, -4, channels)).astype(np.float32)
    side = per_axis("i8", scales, axis)
    x, w, b = X.data(RNG, 1, 40, 40, channels), weights(*shape), bias(channels)

    def ours(**rule: Any) -> Array:
        sides = X.tensor(*x.shape), side.tensor(*shape)
        plan = plan_conv2d(*sides, Y.element, window=window, bias=tensor(f"{channels}xi32"), **rule)
        return run_product(plan, x, w, b)

    model = litert_operators.convolution(
        (X, x.shape), (side, w), (Y, (1, 38, 38, channels)), b, window, multiplier=1 if depthwise else None
    )
    return Operation(model, [x], ours)


def batch_matmul() -> Operation:
    a, b = X.data(RNG, 3, 30, 5) // 4, X.data(RNG, 3, 5, 40) // 4
    y = per_tensor("i8", 16.0, 5)
    return Operation(
        litert_operators.batch_matmul((X, X, y), a, b),
        [a, b],
        lambda **rule: run_product(plan_matmul(X.tensor(*a.shape), X.tensor(*b.shape), y.element, **rule), a, b),
    )


def add() -> Operation:
    numbers = np.arange(-128, 128).astype(np.int8)
    a, b = np.repeat(numbers, 256), np.tile(numbers, 256)
    sides = [per_tensor("i8", scale, zero) for scale, zero in ((0.1, 3), (0.3, -128), (0.2, 127))]
    return Operation(
        litert_operators.add(a.shape, sides),
        [a, b],
        lambda profile: flat(
            plan_add(sides[0].tensor(a.size), sides[1].tensor(a.size), sides[2].element, profile), a, b
        ),
    )


OPERATIONS: dict[str, Callable[[], Operation]] = {
    "QUANTIZE, f32 to i8": lambda: quantize("i8"),
    "QUANTIZE, f32 to u8": lambda: quantize("u8"),
    "QUANTIZE, f32 to i8, per channel": lambda: quantize("i8", 8),
    "QUANTIZE, i8 to i8": lambda: requantize("i8", "i8"),
    "QUANTIZE, i8 to u8": lambda: requantize("i8", "u8"),
    "QUANTIZE, i16 to i8": lambda: requantize("i16", "i8"),
    "DEQUANTIZE, i8, zero point 0": lambda: dequantize(0),
    "DEQUANTIZE, i8, zero point 7": lambda: dequantize(7),
    "FULLY_CONNECTED, i8": lambda: fully_connected(1),
    "FULLY_CONNECTED, i8, per channel": lambda: fully_connected(64),
    "FULLY_CONNECTED, i8 by i4, K even": lambda: fully_connected(64, "i4"),
    "FULLY_CONNECTED, i8 by i4, K odd": lambda: fully_connected(64, "i4", 33),
    "FULLY_CONNECTED, i8 by i2, per channel, K a multiple of 4": lambda: fully_connected(64, "i2"),
    "FULLY_CONNECTED, i8 by i2, other": lambda: fully_connected(1, "i2"),
    "CONV_2D, i8, per channel": lambda: convolution(depthwise=False),
    "DEPTHWISE_CONV_2D, i8, per channel": lambda: convolution(depthwise=True),
    "BATCH_MATMUL, i8, in batches, no constants": batch_matmul,
    "ADD, i8": add,
}


def by_cell(operation: Operation, cell: str) -> Array:
    """What a cell says: a rule, and that of the rest along the last axis behind the last full vector."""
    found = _CELL.fullmatch(cell)
    assert found is not None, cell
    rule, vector, rest = found.groups()
    result = operation.ours(**RULES[rule])
    if rest is not None:
        assert result.shape[-1] % int(vector), "no rest"
        start = result.shape[-1] // int(vector) * int(vector)
        scalar = operation.ours(**RULES[rest])[..., start:]
        assert not np.array_equal(scalar, result[..., start:]), "the rest does not tell the rules apart"
        result[..., start:] = scalar
    return result


def test_the_table_has_every_operation() -> None:
    assert list(TABLE) == list(OPERATIONS)
    assert all(len(cells) == len(COLUMNS) for cells in TABLE.values())


@pytest.mark.parametrize("operator", OPERATIONS)
def test_every_cell_has_the_bits_of_its_resolver(operator: str) -> None:
    operation = OPERATIONS[operator]()
    results: dict[str, bytes] = {}
    by_no_rule: list[bytes] = []
    for cell, resolvers in zip(TABLE[operator], COLUMNS, strict=True):
        for resolver in resolvers:
            theirs = run_inputs(operation.model, operation.inputs, resolver)
            if cell == "none":
                by_no_rule.append(theirs.tobytes())
                continue
            ours = by_cell(operation, cell)
            assert ours.dtype == theirs.dtype
            assert ours.tobytes() == theirs.tobytes(), f"{resolver.name}: {np.count_nonzero(ours != theirs)} differ"
            results[cell] = ours.tobytes()
    assert len(set(results.values())) == len(results)
    assert not set(by_no_rule) & set(results.values())


@pytest.mark.parametrize("zero_point", [3, -3])
def test_what_int32_does_not_hold_is_converted_as_by_the_reference_kernel(zero_point: int) -> None:
    x = np.array([np.nan, np.inf, -np.inf, 1e30, -1e30, 3e9, -3e9, 1.0] * 4, np.float32)
    side = per_tensor("i8", 0.5, zero_point)
    model = one_operator(QUANTIZE, x.shape, Operand("f32"), operand(side))
    theirs = run_inputs(model, [x], OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES)
    ours = {
        name: flat(plan_quantize(tensor(f"{x.size}xf32"), side.element, name), x)
        for name in ("litert", "litert_xnnpack")
    }
    assert np.array_equal(theirs, ours["litert"])
    assert not np.array_equal(theirs, ours["litert_xnnpack"])


def test_dequantize_without_delegates() -> None:
    """The formula that the page states, in full vectors: the product and that of the zero point, each rounded."""
    operation, zero_point, scale = dequantize(7), 7, np.float32(0.0237)
    theirs = run_inputs(operation.model, operation.inputs, OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES)
    assert np.array_equal(theirs, operation.inputs[0].astype(np.float32) * scale + np.float32(-zero_point) * scale)
