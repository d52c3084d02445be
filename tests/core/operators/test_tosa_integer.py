"""TOSA's MUL, TABLE, AVG_POOL2D and MAX_POOL2D beside exact integers, and what they refuse."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from requant.description import TensorValue, Value
from requant.errors import ParameterError, PreconditionError, RequantError, TypeFitError, UnsupportedError
from tests.oracles import tosa_integer as oracle
from tests.support.cases import EXHAUSTIVE
from tests.support.operator_calls import run, tensor

Array = NDArray[Any]
BOUNDS = {"i8": (-128, 127), "i16": (-(2**15), 2**15 - 1), "i32": (-(2**31), 2**31 - 1)}
ROUNDS = 30 if EXHAUSTIVE else 4


def draw(rng: np.random.Generator, name: str, *shape: int) -> Array:
    """All magnitudes, and the bounds."""
    low, high = BOUNDS[name]
    usual = rng.integers(low, high + 1, shape) >> rng.integers(0, 32, shape)
    found: Array = np.where(rng.random(shape) < 0.2, rng.choice(np.array([low, high, 0, 1, -1]), shape), usual)
    return found


def operands(name: str, a: Any, b: Any, shift: int) -> dict[str, TensorValue]:
    return {"input1": tensor(name, a), "input2": tensor(name, b), "shift": tensor("i8", [shift])}


@pytest.mark.parametrize("name", BOUNDS)
def test_products(name: str) -> None:
    rng = np.random.default_rng(1)
    for _ in range(ROUNDS):
        a, b = draw(rng, name, 7, 9), draw(rng, name, 7, 1)
        found = run("tosa.MUL", operands(name, a, b, 0))["output"]
        pairs = zip(*(each.ravel().tolist() for each in np.broadcast_arrays(a, b)), strict=True)
        assert found.ravel().tolist() == [oracle.multiply(x, y, 0) for x, y in pairs]


def test_products_with_a_shift() -> None:
    """Also odd products of a factor that make ties, and results that i32 does not hold, at which it says where."""
    rng = np.random.default_rng(2)
    refused = 0
    for _, shift in itertools.product(range(ROUNDS), range(1, 64)):
        a, b = draw(rng, "i32", 40), draw(rng, "i32", 40)
        odd = (2 * rng.integers(-(1 << 29), 1 << 29, 40) + 1) >> max(shift - 31, 0)
        ties = rng.random(40) < 0.5
        a, b = np.where(ties, odd, a), np.where(ties, 1 << min(shift - 1, 30), b)
        expected = [oracle.multiply(x, y, shift) for x, y in zip(a.tolist(), b.tolist(), strict=True)]
        kept = np.array([each is not None for each in expected])
        inputs = operands("i32", a[kept], b[kept], shift)
        if kept.any():
            assert run("tosa.MUL", inputs)["output"].tolist() == [each for each in expected if each is not None]
        if not kept.all():
            with pytest.raises(PreconditionError) as caught:
                run("tosa.MUL", operands("i32", a, b, shift))
            assert caught.value.index == expected.index(None)
            refused += 1
    assert refused
    lowest = [-(2**31)]
    assert run("tosa.MUL", operands("i32", lowest, lowest, 63))["output"].tolist() == [-1]


def test_tables() -> None:
    rng = np.random.default_rng(3)
    eight = np.arange(-128, 128)
    table = draw(rng, "i8", 256)
    found = run("tosa.TABLE", {"input1": tensor("i8", eight), "table": tensor("i8", table)})["output"]
    assert found.tolist() == [oracle.of_8_bits(each, table.tolist()) for each in eight.tolist()]
    for _ in range(ROUNDS):
        table = np.cumsum(rng.integers(-2000, 2001, 513)).clip(*BOUNDS["i16"])
        if rng.random() < 0.5:
            # The steepest slopes that there are, up and down.
            table = np.where(np.arange(513) % 2, rng.choice([32767, -32768]), rng.choice([0, -1]))
        x = np.concatenate([draw(rng, "i16", 300), np.arange(-300, 300), [-32768, 32767]])
        expected = [oracle.of_16_bits(each, table.tolist()) for each in x.tolist()]
        inputs = {"input1": tensor("i16", x), "table": tensor("i16", table)}
        if None in expected:
            with pytest.raises(PreconditionError) as caught:
                run("tosa.TABLE", inputs)
            assert caught.value.index == expected.index(None)
        else:
            assert run("tosa.TABLE", inputs)["output"].tolist() == expected


WINDOWS = [
    ((5, 6), (1, 1), (1, 1), (0, 0, 0, 0)), ((5, 6), (2, 3), (1, 1), (1, 1, 2, 2)),
    ((5, 7), (3, 3), (2, 2), (0, 0, 0, 0)), ((4, 5), (4, 5), (1, 1), (0, 0, 0, 0)),
    ((4, 4), (5, 6), (1, 1), (1, 0, 0, 2)), ((7, 1), (3, 1), (3, 1), (1, 1, 0, 0)),
    ((1, 1), (3, 3), (1, 1), (2, 2, 2, 2)), ((8, 9), (2, 3), (3, 3), (0, 0, 0, 0)),
    ((6, 6), (6, 3), (7, 3), (5, 2, 0, 0)),
]  # fmt: skip


def pooling(name: str, x: Array, zeros: tuple[int, int] | None = None) -> dict[str, TensorValue]:
    given = {"input": tensor(name, x)}
    return given | (
        {} if zeros is None else {"input_zp": tensor(name, [zeros[0]]), "output_zp": tensor(name, [zeros[1]])}
    )


@pytest.mark.parametrize("size", WINDOWS)
@pytest.mark.parametrize("name", ["i8", "i16"])
def test_pools(name: str, size: tuple[Any, ...]) -> None:
    rng = np.random.default_rng(4)
    (height, width), kernel, stride, pad = size
    attributes: dict[str, Value] = {"kernel": kernel, "stride": stride, "pad": pad}
    for number in range(ROUNDS):
        x = draw(rng, name, 2, height, width, 3)
        if number % 4 == 3:
            x = np.full_like(x, BOUNDS[name][number // 4 % 2])
        zeros = (0, 0)
        if name == "i8":
            zeros = (int(rng.choice([-128, 127, 0, 3])), int(rng.choice([-128, 127, 0, -5])))
        means = run("tosa.AVG_POOL2D", pooling(name, x, zeros), attributes)["output"]
        largest = run("tosa.MAX_POOL2D", pooling(name, x), attributes)["output"]
        assert means.shape == largest.shape
        for n, row, column, channel in np.ndindex(means.shape):
            rows = oracle.window(height, kernel[0], stride[0], pad[0], row)
            columns = oracle.window(width, kernel[1], stride[1], pad[2], column)
            seen = [int(x[n, i, j, channel]) for i in rows for j in columns]
            assert means[n, row, column, channel] == oracle.average(seen, zeros, BOUNDS[name])
            assert largest[n, row, column, channel] == max(seen)


def test_means_of_ties_go_away_from_zero() -> None:
    """The reciprocal is a little above 1 / n. Of large windows that is enough to change other means too."""
    attributes: dict[str, Value] = {"kernel": [1, 2], "stride": [1, 2], "pad": [0, 0, 0, 0]}
    x = np.array([-1, -2, 1, 2, -3, -4]).reshape(1, 1, 6, 1)
    assert run("tosa.AVG_POOL2D", pooling("i8", x, (0, 0)), attributes)["output"].ravel().tolist() == [-2, 2, -4]
    for rows, columns in ((1, 3), (1, 999), (255, 257), (256, 256)):
        count = rows * columns
        # A sum just below a tie.
        x = np.full((1, rows, columns, 1), 32767)
        x.ravel()[:1] = 32767 - (count // 2 + 1)
        attributes["kernel"] = [rows, columns]
        found = run("tosa.AVG_POOL2D", pooling("i16", x, (0, 0)), attributes)["output"].ravel().tolist()
        assert found == [oracle.average(x.ravel().tolist(), (0, 0), BOUNDS["i16"])]
        assert found == [32767 if count > 1 << 14 else 32766]


def test_a_trace_has_the_reciprocal() -> None:
    x = np.arange(12).reshape(1, 3, 4, 1)
    attributes: dict[str, Value] = {"kernel": [3, 4], "stride": [1, 1], "pad": [0, 0, 0, 0], "trace": True}
    found = run("tosa.AVG_POOL2D", pooling("i8", x, (1, 2)), attributes)
    assert {name: each.ravel().tolist() for name, each in found.items()} == {
        "accumulator": [66 - 12], "multiplier": [(2**30 + 1) * 16 // 12], "shift": [34], "scaled": [5], "output": [7],
    }  # fmt: skip


X = np.zeros((1, 4, 4, 1), int)
POOL: dict[str, Value] = {"kernel": [2, 2], "stride": [2, 2], "pad": [0, 0, 0, 0]}
LARGE = np.zeros((1, 257, 256, 1), int)
REFUSED: list[tuple[str, dict[str, TensorValue], dict[str, Value], type[RequantError], str]] = [
    ("MUL", operands("i32", [1], [1], 64), {}, ParameterError, "/inputs/shift"),
    ("MUL", operands("i32", [1], [1], -1), {}, ParameterError, "/inputs/shift"),
    ("MUL", operands("i8", [1], [1], 1), {}, ParameterError, "/inputs/shift"),
    ("MUL", operands("i8", [1], [1, 2, 3], 0) | {"input1": tensor("i8", [1, 2])}, {}, TypeFitError, "/inputs/input2"),
    ("MUL", operands("i8", [1], [[1]], 0), {}, TypeFitError, "/inputs/input2"),
    ("MUL", operands("i8", np.zeros((0,)), [1], 0), {}, TypeFitError, "/inputs/input1"),
    ("MUL", operands("i8", [1], [1], 0) | {"input2": tensor("i16", [1])}, {}, UnsupportedError, "/inputs/input2"),
    ("MUL", operands("i8", [1], [1], 0) | {"shift": tensor("i8", 0)}, {}, TypeFitError, "/inputs/shift"),
    ("TABLE", {"input1": tensor("i8", [1]), "table": tensor("i8", [0] * 255)}, {}, TypeFitError, "/inputs/table"),
    ("TABLE", {"input1": tensor("i16", [1]), "table": tensor("i8", [0] * 256)}, {}, UnsupportedError, "/inputs/table"),
    ("MAX_POOL2D", pooling("i8", X[0]), POOL, TypeFitError, "/inputs/input"),
    ("MAX_POOL2D", pooling("i8", X[:0]), POOL, TypeFitError, "/inputs/input"),
    ("MAX_POOL2D", pooling("i8", X), POOL | {"kernel": [3, 2]}, TypeFitError, "/inputs/input"),
    ("MAX_POOL2D", pooling("i8", X), POOL | {"kernel": [6, 2]}, TypeFitError, "/inputs/input"),
    ("MAX_POOL2D", pooling("i8", X), POOL | {"kernel": [2]}, ParameterError, "/attributes/kernel"),
    ("MAX_POOL2D", pooling("i8", X), POOL | {"kernel": [0, 2]}, ParameterError, "/attributes/kernel"),
    ("MAX_POOL2D", pooling("i8", X), POOL | {"stride": [2, 0]}, ParameterError, "/attributes/stride"),
    ("MAX_POOL2D", pooling("i8", X), POOL | {"pad": [2, 0, 0, 0]}, ParameterError, "/attributes/pad"),
    ("MAX_POOL2D", pooling("i8", X), POOL | {"pad": [0, -1, 0, 0]}, ParameterError, "/attributes/pad"),
    ("AVG_POOL2D", pooling("i16", X, (1, 0)), POOL, ParameterError, "/inputs/input_zp"),
    ("AVG_POOL2D", pooling("i16", X, (0, 1)), POOL, ParameterError, "/inputs/output_zp"),
    ("AVG_POOL2D", pooling("i16", LARGE, (0, 0)), POOL | {"kernel": [257, 256]}, ParameterError, "/attributes/kernel"),
]


@pytest.mark.parametrize(("name", "inputs", "attributes", "error", "pointer"), REFUSED)
def test_refusals(
    name: str, inputs: dict[str, TensorValue], attributes: dict[str, Value], error: type[RequantError], pointer: str
) -> None:
    with pytest.raises(error) as caught:
        run(f"tosa.{name}", inputs, attributes)
    assert caught.value.pointer == pointer
