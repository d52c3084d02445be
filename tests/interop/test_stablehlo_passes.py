"""StableHLO's passes against upstream's own, which jaxlib carries.

The same functions go through upstream's pass and ours. What comes out is equal to the letter but for names of values;
where upstream refuses a function, so do we. What both made of it then runs on the reference interpreter.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from random import Random
from typing import Any

import pytest

from core.errors import LoweringError
from core.lowering.module import read_module
from tests.core.lowering.modules import lowered, unnamed
from tests.interop.stablehlo_programs import chain, convolution, elementwise, product

ir: Any = pytest.importorskip("jaxlib.mlir.ir")
passes: Any = pytest.importorskip("jaxlib.mlir.passmanager")
stablehlo: Any = pytest.importorskip("jaxlib.mlir.dialects.stablehlo")
chlo: Any = pytest.importorskip("jaxlib.mlir.dialects.chlo")

pytestmark = pytest.mark.interop

MATH = "stablehlo-legalize-quant-to-math"
TO_QDQ = "stablehlo-legalize-quantized-op-to-qdq"
TO_QUANTIZED = "stablehlo-legalize-qdq-to-quantized-op"


@pytest.fixture(autouse=True)
def context() -> Iterator[None]:
    stablehlo.register_stablehlo_passes()
    with ir.Context() as opened, ir.Location.unknown():
        stablehlo.register_dialect(opened)
        chlo.register_dialect(opened)
        # Loads the quant dialect, which jaxlib has no function for.
        passes.PassManager.parse("builtin.module(vhlo-legalize-to-stablehlo)").run(ir.Module.parse("").operation)
        yield


def upstream(text: str, name: str) -> str | None:
    """Return what upstream's pass makes of a module that it takes; None where it fails."""
    module = ir.Module.parse(text)
    try:
        passes.PassManager.parse(f"builtin.module(func.func({name}))").run(module.operation)
    except ir.MLIRError:
        return None
    return unnamed(read_module(str(module)))


def ours(text: str, name: str) -> str | None:
    try:
        return unnamed(lowered(text, name))
    except LoweringError:
        return None


@pytest.mark.parametrize(
    ("name", "make", "count"),
    [
        (MATH, elementwise, 500),
        (MATH, product, 300),
        (MATH, convolution, 150),
        (TO_QDQ, elementwise, 200),
        (TO_QDQ, product, 100),
        (TO_QDQ, convolution, 50),
        (TO_QUANTIZED, chain, 300),
    ],
)
def test_equal_to_upstream(name: str, make: Callable[[Random, str], str], count: int) -> None:
    random, found = Random(f"{name} {make.__name__}"), Counter[str]()
    for index in range(count):
        text = make(random, f"f{index}")
        theirs = upstream(text, name)
        assert ours(text, name) == theirs, text
        found["refused" if theirs is None else "equal"] += 1
    assert found["equal"] + found["refused"] == count
    assert found["equal"] > count * 0.7
