"""`stablehlo-quant-legalize-to-tosa-rescale` and `tosa-rescale-legalize-to-stablehlo`, run by three.

Each rescale of a lowered function runs in TOSA's reference model, with the i32 operation between them in numpy; all of
it in our evaluator; and what the second pass makes of it on StableHLO's interpreter, unmodified.
"""

from __future__ import annotations

import operator
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any, cast

import numpy as np
import pytest

from requant.errors import PreconditionError
from requant.lowering.dialects.tosa import Const, Rescale
from requant.lowering.evaluate.arrays import dtype_of
from requant.lowering.quantized import element_part, storage_type
from tests.core.lowering.carried import Array, element_type, evaluated
from tests.core.lowering.modules import lowered
from tests.interop.conformance import systems
from tests.interop.conformance.records import record
from tests.interop.conformance.subject import lowering
from tests.interop.stablehlo_programs import carried, function
from tests.interop.stablehlo_upstream import interpreted, loaded
from tests.oracles import tosa as tosa_oracle

tosa_model = pytest.importorskip("tests.interop.tosa_model")

pytestmark = pytest.mark.interop

TO_RESCALE, TO_STABLEHLO = "stablehlo-quant-legalize-to-tosa-rescale", "tosa-rescale-legalize-to-stablehlo"
MATH = "stablehlo-legalize-quant-to-math"
COUNT = 120


def divide(left: Array, right: Array) -> Array:
    quotient = np.abs(left.astype(np.int64)) // np.abs(right.astype(np.int64))
    return cast(Array, quotient * np.sign(left) * np.sign(right)).astype(np.int32)


OPERATIONS: dict[str, Callable[..., Any]] = {
    "abs": np.abs, "add": np.add, "subtract": np.subtract, "multiply": np.multiply, "divide": divide,
    "maximum": np.maximum, "minimum": np.minimum, "compare": operator.lt,
}  # fmt: skip


@pytest.fixture(autouse=True)
def context(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The model starts gdb for each error and waits for its backtrace; if there is none, it may wait for ever."""
    debugger = tmp_path / "gdb"
    debugger.write_text("#!/bin/sh\n")
    debugger.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    with loaded():
        yield


def program(random: Random, name: str) -> str:
    storage, shape = random.choice(("i8", "i8", "i16", "i8<-100:101>")), random.choice(("6", "2x3", "1x2x3"))
    types = []
    for _ in range(3):
        point = 0 if storage == "i16" else random.choice((0, -1, 5, -20))
        types.append(f"tensor<{shape}x!quant.uniform<{storage}:f32, {random.uniform(0.01, 2.0):.4f}:{point}>>")
    if name == "abs":
        return function("f", types[:1], [f"%r = stablehlo.abs %a0 : ({types[0]}) -> {types[1]}"], types[1])
    if name == "compare":
        result = f"tensor<{shape}xi1>"
        line = f"%r = stablehlo.compare LT, %a0, %a1 : ({types[0]}, {types[1]}) -> {result}"
        return function("f", types[:2], [line], result)
    line = f"%r = stablehlo.{name} %a0, %a1 : ({types[0]}, {types[1]}) -> {types[2]}"
    return function("f", types[:2], [line], types[2])


def by_the_model(op: Rescale, source: Array) -> Array | None:
    """One rescale in TOSA's reference model; None where its verdict is not VALID."""
    numbers = [
        int(cast(Any, cast(Const, each.owner).values).get_values()[0])
        for each in (op.multiplier, op.shift, op.input_zp, op.output_zp)
    ]
    in_t, out_t = (str(element_part(storage_type(each.type))) for each in (op.input, op.output))
    case = tosa_oracle.Rescale(
        in_t=in_t,
        out_t=out_t,
        shape=source.shape,
        multiplier=(numbers[0],),
        shift=(numbers[1],),
        input_zp=numbers[2],
        output_zp=numbers[3],
    )
    _, found = tosa_model.rescale(case, source)
    return None if found is None else cast(Array, found.reshape(source.shape).astype(f"int{out_t[1:]}"))


def with_the_model(text: str, name: str, given: list[Array]) -> Array | None:
    rescales = [op for op in lowered(text, TO_RESCALE).operation.walk() if isinstance(op, Rescale)]
    sides = [by_the_model(op, array) for op, array in zip(rescales, given, strict=False)]
    if any(side is None for side in sides):
        return None
    with np.errstate(over="ignore"):
        between = OPERATIONS[name](*sides)
    return cast(Array, between) if name == "compare" else by_the_model(rescales[-1], between)


@pytest.mark.parametrize("name", OPERATIONS)
def test_equal_in_all_three(name: str, capfd: pytest.CaptureFixture[str]) -> None:
    random, draw, found = Random(name), np.random.default_rng(5), Counter[str]()
    for _ in range(COUNT // len(OPERATIONS)):
        text, arguments, element = carried(program(random, name))
        reach = 1 << (7 if "i8" in arguments[0].element else random.choice((10, 13, 15)))
        given = [
            draw.integers(-reach, reach, each.shape).astype(dtype_of(element_type(each.element))) for each in arguments
        ]
        if name == "divide":
            # The zero point is a divisor of 0, which integers do not have.
            point = int(arguments[1].type.rpartition(":")[2].rstrip(">")) if ":" in arguments[1].type[20:] else 0
            given[1][given[1] == point] += 1
        theirs = with_the_model(text, name, given)
        rescaled = lowered(text, TO_RESCALE).write()
        plain = lowered(rescaled, TO_STABLEHLO, MATH).write()
        assert "tosa" not in plain
        assert "quant" not in plain
        inputs = [(argument.element, array) for argument, array in zip(arguments, given, strict=True)]
        run = interpreted(plain, inputs, dtype_of(element_type(element)))
        assert evaluated(plain, arguments, given).tobytes() == run.tobytes(), text
        if theirs is None:
            # What RESCALE does not define of its values: we say so, and the second pass computes all the same.
            with pytest.raises(PreconditionError):
                evaluated(rescaled, arguments, given)
            found["not defined by RESCALE"] += 1
            continue
        assert evaluated(rescaled, arguments, given).tobytes() == theirs.astype(run.dtype).tobytes(), text
        assert theirs.astype(run.dtype).tobytes() == run.tobytes(), text
        found["equal"] += 1
    capfd.readouterr()
    record(systems.TOSA, [lowering(TO_RESCALE)], found["equal"])
    record(systems.STABLEHLO, [lowering(TO_STABLEHLO)], found.total())
    sys.stdout.write(f"{TO_RESCALE}, {name}: {dict(found)}\n")
