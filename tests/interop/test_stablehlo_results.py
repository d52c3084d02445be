"""What StableHLO's passes make, run: upstream's output and ours, on the reference interpreter and in our evaluator.

The functions take and give plain numbers around what is quantized, so that the interpreter can be handed them. It runs
our lowered text unmodified, but for `dot`, which it does not have. A function of dynamic shapes is evaluated here, and
the interpreter runs the same function of static shapes.
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from random import Random

import numpy as np
import pytest

from requant.errors import LoweringError
from requant.lowering.evaluate.arrays import dtype_of
from tests.core.lowering.carried import Array, element_type, evaluated, numbers
from tests.core.lowering.modules import lowered
from tests.interop.conformance import systems
from tests.interop.conformance.records import record
from tests.interop.conformance.subject import lowering as row
from tests.interop.stablehlo_programs import carried, chain, convolution, elementwise, product
from tests.interop.stablehlo_upstream import MATH, REST, TO_QDQ, TO_QUANTIZED, after, interpreted, loaded

pytestmark = pytest.mark.interop

CHLO = "chlo-legalize-to-stablehlo"


@pytest.fixture(autouse=True)
def context() -> Iterator[None]:
    with loaded():
        yield


def same(left: Array, right: Array) -> bool:
    return left.tobytes() == right.tobytes() and left.shape == right.shape


# A pass, what makes functions for it, and how many of them.
RUNS: list[tuple[str, Callable[..., str], int]] = [
    (MATH, elementwise, 100),
    (MATH, product, 60),
    (MATH, convolution, 32),
    (TO_QDQ, elementwise, 40),
    (TO_QDQ, product, 20),
    (TO_QUANTIZED, chain, 60),
]


@pytest.mark.parametrize(("name", "make", "count"), RUNS)
def test_equal_on_the_interpreter(name: str, make: Callable[..., str], count: int) -> None:
    random, draw, found = Random(f"run {name} {make.__name__}"), np.random.default_rng(9), Counter[str]()
    for index in range(count):
        state = random.getstate()
        dynamic = carried(make(random, f"f{index}"))[0]
        random.setstate(state)
        text, arguments, element = carried(make(random, f"f{index}", dynamic=False))
        passes = (name,) if name == MATH else (name, MATH)
        theirs, made = after(text, *passes), lowering(text, *passes)
        assert (made is None) == (theirs is None), text
        if theirs is None or made is None:
            found["refused by both"] += 1
            continue
        given = [numbers(argument, draw) for argument in arguments]
        inputs = [(argument.element, array) for argument, array in zip(arguments, given, strict=True)]
        dtype, final, whole = dtype_of(element_type(element)), lowering(made, CHLO), after(theirs, REST)
        assert final is not None
        if whole is None:
            # Scales along another axis than the last: upstream's own pipeline ends here. Ours does not.
            found["upstream's pipeline fails"] += 1
            whole = final
        final, whole = general_dot(final), general_dot(whole)
        wanted = interpreted(whole, inputs, dtype)
        assert same(interpreted(final, inputs, dtype), wanted), text
        found["equal on the interpreter"] += 1
        if make is convolution:
            wanted = interpreted(wide_convolution(final), inputs, dtype)
        # Some scales are drawn for static shapes only.
        is_twin = dynamic != text and shapeless(dynamic) == shapeless(text)
        for each in (made, final, *([lowering(dynamic, *passes)] if is_twin else [])):
            assert each is not None
            assert same(evaluated(each, arguments, given), wanted), text
            found["evaluated the same"] += 1
        found["of them dynamic"] += is_twin
    record(systems.STABLEHLO, [row(name), row(CHLO)], found["equal on the interpreter"])
    sys.stdout.write(f"{name}, {make.__name__}: {count} functions: {dict(found)}\n")


def lowering(text: str, *passes: str) -> str | None:
    try:
        return lowered(text, *passes).write()
    except LoweringError:
        return None


def shapeless(text: str) -> str:
    """The module with every dimension written the same."""
    return re.sub(r"(?<=[<x])(\?|\d+)(?=x)", "_", text)


def general_dot(text: str) -> str:
    """The module with dot_general in the place of dot, which the interpreter does not have."""
    return re.sub(
        r"stablehlo.dot (%\w+), (%\w+) :", r"stablehlo.dot_general \1, \2, contracting_dims = [1] x [0] :", text
    )


def wide_convolution(text: str) -> str:
    """The module with the operands of its convolution in i32: the interpreter accumulates i8 in 8 bits."""
    found = re.search(
        r"( *)(%\w+) = stablehlo.convolution\((%\w+), (%\w+)\)(.*) : \((tensor<\S+i8>), (tensor<\S+i8>)\)", text
    )
    if found is None:
        return text
    blank, result, left, right, middle, *types = found.groups()
    wide = [each.replace("i8>", "i32>") for each in types]
    lines = [
        f"{blank}%wide{side} = stablehlo.convert {value} : ({types[side]}) -> {wide[side]}"
        for side, value in enumerate((left, right))
    ]
    lines.append(f"{blank}{result} = stablehlo.convolution(%wide0, %wide1){middle} : ({wide[0]}, {wide[1]})")
    return text[: found.start()] + "\n".join(lines) + text[found.end() :]
