"""MUL, TABLE, AVG_POOL2D and MAX_POOL2D against TOSA's reference model: at least a million elements each.

What the specification refuses or calls unpredictable is refused here, also where the model goes on: shifts out of
bounds, and sums beyond i32, which wrap there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from requant.description import Value
from requant.errors import RequantError
from tests.interop.comparison import Comparison
from tests.interop.conformance import systems
from tests.interop.conformance.subject import operator
from tests.interop.seed_of_the_day import generator
from tests.support.cases import EXHAUSTIVE
from tests.support.operator_calls import run, tensor

pytest.importorskip("tosa_serializer")
pytest.importorskip("tosa_reference_model")

import tosa_serializer as tosa

from tests.interop.tosa_model import TYPES, Verdict
from tests.interop.tosa_model import run as run_model

pytestmark = [pytest.mark.interop, pytest.mark.usefixtures("no_debugger")]

Array = NDArray[Any]
Operands = dict[str, tuple[str, Array]]
Attributes = Mapping[str, Value]
BOUNDS = {"i8": (-128, 127), "i16": (-(2**15), 2**15 - 1), "i32": (-(2**31), 2**31 - 1)}
LARGE, ROUNDS = (30, 12) if EXHAUSTIVE else (1, 1)


def by_the_model(
    name: str, operands: Operands, attributes: Attributes, output: tuple[str, tuple[int, ...]]
) -> tuple[Verdict, Array | None]:
    """Run one operator. Operands of one dimension after the first are constants, as TOSA demands."""
    graph, names, given = tosa.TosaSerializer(), [], []
    for index, (key, (element, data)) in enumerate(operands.items()):
        if index and data.ndim == 1 and key != "input2":
            names.append(graph.addConst(list(data.shape), TYPES[element], data.astype(np.int64)).name)
        else:
            names.append(graph.addPlaceholder(list(data.shape), TYPES[element]).name)
            given.append(data)
    target = graph.addOutput(list(output[1]), TYPES[output[0]])
    stated = tosa.TosaSerializerAttribute()
    window = [attributes[each] for each in ("kernel", "stride", "pad") if each in attributes]
    match name:
        case "MUL":
            stated.MulAttribute()
        case "TABLE":
            stated.TableAttribute()
        case "AVG_POOL2D":
            stated.AvgPool2dAttribute(*window, tosa.DType.INT32)
        case _:
            stated.MaxPool2dAttribute(*window, tosa.NanPropagationMode.PROPAGATE)
    graph.addOperator(getattr(tosa.Op, name), names, [target.name], stated)
    return run_model(graph, given)


def by_us(name: str, operands: Operands, attributes: Attributes) -> Array | None:
    inputs = {key: tensor(element, data) for key, (element, data) in operands.items()}
    try:
        return run(f"tosa.{name}", inputs, attributes)["output"]
    except RequantError:
        return None


def check(name: str, cases: Iterator[tuple[Operands, Attributes, str]], elements: int) -> None:
    """Compare every bit, and which calls are refused."""
    comparison = Comparison(f"TOSA reference model {name}", systems.TOSA, operator(f"tosa.{name}"))
    refused = 0
    for operands, attributes, target in cases:
        ours = by_us(name, operands, attributes)
        shape = shape_of(name, operands, attributes) if ours is None else ours.shape
        verdict, theirs = by_the_model(name, operands, attributes, (target, shape))
        shown = {key: data.ravel()[:4] for key, (_, data) in operands.items()}, attributes
        assert (ours is None) == (verdict is not Verdict.VALID), (shown, verdict)
        if ours is None or theirs is None:
            refused += 1
            continue
        comparison.add(shown, ours, ours, theirs)
    assert refused
    comparison.finish(elements if EXHAUSTIVE else 1)


def shape_of(name: str, operands: Operands, attributes: Attributes) -> tuple[int, ...]:
    """An output shape for a call that is refused, as near as there is one."""
    shape = next(iter(operands.values()))[1].shape
    if name in ("MUL", "TABLE"):
        return shape
    kernel, stride, pad = (tuple(attributes[each]) for each in ("kernel", "stride", "pad"))  # type: ignore[arg-type]
    rows, columns = (
        max((shape[1 + axis] + pad[2 * axis] + pad[2 * axis + 1] - kernel[axis]) // stride[axis] + 1, 1)
        for axis in range(2)
    )
    return shape[0], rows, columns, shape[3]


def draw(rng: np.random.Generator, name: str, *shape: int) -> Array:
    """All magnitudes, and the bounds."""
    low, high = BOUNDS[name]
    usual = rng.integers(low, high + 1, shape) >> rng.integers(0, 32, shape)
    edges = rng.choice(np.array([low, low + 1, high, 0, 1, -1]), shape)
    return np.where(rng.random(shape) < 0.2, edges, usual).astype(f"int{name[1:]}")


def products(rng: np.random.Generator) -> Iterator[tuple[Operands, Attributes, str]]:
    """Of i32 with every shift: products that are ties or one beside, and those at the bounds of i32."""
    for name in BOUNDS:
        for shapes in (((LARGE, 7000), (1, 7000)), ((3, 1, 5), (1, 4, 5)), ((), ()), ((LARGE, 257), (LARGE, 1))):
            a, b = (draw(rng, name, *shape) for shape in shapes)
            yield {"input1": (name, a), "input2": (name, b), "shift": ("i8", np.zeros(1, np.int8))}, {}, "i32"
    for shift in range(1, 64):
        size = LARGE * 400
        a, b = draw(rng, "i32", size).astype(np.int64), draw(rng, "i32", size).astype(np.int64)
        # odd * 2^(shift - 1) is a tie, as far as it has two factors of 32 bits.
        odd = (2 * rng.integers(-(1 << 29), 1 << 29, size) + 1) >> max(shift - 31, 0)
        ties = rng.random(size) < 0.4
        a, b = np.where(ties, odd, a), np.where(ties, 1 << min(shift - 1, 30), b)
        a = np.clip(a + rng.integers(-1, 2, size), *BOUNDS["i32"])
        # Factors for which the result is a bound, or just beyond it.
        result = a * b + (1 << (shift - 1)) if shift < 63 else a * b
        beyond = (result >> shift) != (result >> shift).astype(np.int32)
        at = rng.random(size) < 0.1
        largest = np.clip((1 << min(31 + shift, 62)) // np.maximum(np.abs(b), 1) - 1, 0, 2**31 - 1)
        a = np.where(beyond | at, largest, a)
        operands = [each.astype(np.int32) for each in (a, b)]
        yield of_shift(operands[0], operands[1], shift), {}, "i32"
    for x, y, shift in ((2**31 - 1, 2, 1), (2**16, 2**15, 1), (-(2**31), -(2**31), 63), (-(2**31), 3, 1), (7, 5, 1)):
        yield of_shift(np.full(2, x, np.int32), np.full(2, y, np.int32), shift), {}, "i32"
    yield of_shift(np.ones(3, np.int32), np.ones(2, np.int32), 1), {}, "i32"


def of_shift(a: Array, b: Array, shift: int) -> Operands:
    return {"input1": ("i32", a), "input2": ("i32", b), "shift": ("i8", np.array([shift], np.int8))}


def tables(rng: np.random.Generator) -> Iterator[tuple[Operands, Attributes, str]]:
    """Every element; tables of i16 that are smooth, random within steps of 16 bits, or as steep as they may be."""
    every = np.arange(-(2**15), 2**15).astype(np.int16)
    for number in range(2 * ROUNDS):
        table = np.cumsum(rng.integers(-600, 601, 513)).clip(*BOUNDS["i16"])
        if number % 3 == 1:
            table = np.where(np.arange(513) % 2, rng.choice([32767, -32768]), rng.choice([0, -1]))
        elif number % 3 == 2:
            table = rng.integers(-(2**14), 2**14, 513)
        yield {"input1": ("i16", every), "table": ("i16", table.astype(np.int16))}, {}, "i32"
        x = rng.permutation(np.tile(np.arange(-128, 128), LARGE)).astype(np.int8).reshape(2, -1)
        yield {"input1": ("i8", x), "table": ("i8", draw(rng, "i8", 256))}, {}, "i8"
    steep = np.where(np.arange(513) % 2, 32767, -2).astype(np.int16)
    yield {"input1": ("i16", every), "table": ("i16", steep)}, {}, "i32"
    yield {"input1": ("i8", every[:5].astype(np.int8)), "table": ("i8", draw(rng, "i8", 255))}, {}, "i8"


def windows(rng: np.random.Generator, height: int, width: int) -> Attributes:
    """Kernels, strides and padding that fit, as TOSA demands."""
    found: dict[str, list[int]] = {"kernel": [], "stride": [], "pad": []}
    for size in (height, width):
        while True:
            kernel, stride = int(rng.integers(1, 6)), int(rng.integers(1, 4))
            before, after = (int(each) for each in rng.integers(0, kernel, 2))
            over = size + before + after - kernel
            if over >= 0 and over % stride == 0:
                break
        found["kernel"].append(kernel)
        found["stride"].append(stride)
        found["pad"] += [before, after]
    return found


def pools(rng: np.random.Generator, zeros: bool) -> Iterator[tuple[Operands, Attributes, str]]:
    """Windows of all forms; few numbers, so that many means are ties; bounds only; and one window of all."""
    for number in range(5 * ROUNDS):
        name = "i16" if number % 3 == 0 else "i8"
        height, width = (int(each) for each in rng.integers(5, 30, 2))
        x = draw(rng, name, 2 * LARGE, height, width, 9)
        match number % 4:
            case 0:
                x = (x % 3).astype(x.dtype)
            case 1:
                x = np.where(x > 0, *np.array(BOUNDS[name], x.dtype)[::-1])
        yield pooled(rng, name, x, zeros), windows(rng, height, width), name
    for size in ((1, 1), (200, 320), (3, 7), (64, 128)):
        x = draw(rng, "i16", 1, *size, 2)
        x[..., 1] = 32767
        yield pooled(rng, "i16", x, zeros), {"kernel": list(size), "stride": [1, 1], "pad": [0, 0, 0, 0]}, "i16"
    x = np.zeros((1, 4, 4, 1), np.int8)
    for kernel, stride, pad in (([3, 2], [2, 2], [0] * 4), ([2, 2], [2, 2], [2, 0, 0, 0]), ([5, 2], [1, 1], [0] * 4)):
        yield pooled(rng, "i8", x, zeros), {"kernel": kernel, "stride": stride, "pad": pad}, "i8"
    if zeros:
        operands: Operands = {"input": ("i16", x.astype(np.int16))}
        operands |= {"input_zp": ("i16", np.ones(1, np.int16)), "output_zp": ("i16", np.zeros(1, np.int16))}
        yield operands, {"kernel": [2, 2], "stride": [2, 2], "pad": [0] * 4}, "i16"


def pooled(rng: np.random.Generator, name: str, x: Array, zeros: bool) -> Operands:
    found: Operands = {"input": (name, x)}
    if not zeros:
        return found
    drawn = rng.choice(np.array([-128, 127, 0, int(rng.integers(-128, 128))]), 2) if name == "i8" else np.zeros(2)
    both = zip(("input_zp", "output_zp"), drawn.astype(x.dtype), strict=True)
    return found | {key: (name, each.reshape(1)) for key, each in both}


def test_multiply() -> None:
    check("MUL", products(generator(1)), 1_000_000)


def test_table() -> None:
    check("TABLE", tables(generator(2)), 1_000_000)


def test_average_pool() -> None:
    check("AVG_POOL2D", pools(generator(3), True), 1_000_000)


def test_max_pool() -> None:
    check("MAX_POOL2D", pools(generator(4), False), 1_000_000)
