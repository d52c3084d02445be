"""StableHLO's passes against upstream's own, which jaxlib carries.

The same functions go through upstream's pass and ours. What comes out is equal to the letter but for names of values;
where upstream refuses a function, so do we. test_stablehlo_results.py runs both.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterator
from random import Random

import pytest

from requant.errors import LoweringError, ModuleTextError
from requant.lowering.module import read_module
from tests.core.lowering.modules import lowered, unnamed
from tests.interop.conformance import systems
from tests.interop.conformance.records import record
from tests.interop.conformance.subject import lowering
from tests.interop.stablehlo_programs import chain, convolution, elementwise, mixed_convolution, mixed_product, product
from tests.interop.stablehlo_upstream import MATH, TO_QDQ, TO_QUANTIZED, after, is_valid, loaded

pytestmark = pytest.mark.interop


@pytest.fixture(autouse=True)
def context() -> Iterator[None]:
    with loaded():
        yield


def upstream(text: str, name: str) -> str | None:
    """Return what upstream's pass makes of a module that it takes; None where it fails."""
    found = after(text, name)
    return None if found is None else unnamed(read_module(found))


def ours(text: str, name: str) -> str | None:
    try:
        return unnamed(lowered(text, name))
    except LoweringError:
        return None


@pytest.mark.parametrize(
    ("name", "make", "count"),
    [
        (MATH, elementwise, 200),
        (MATH, product, 120),
        (MATH, convolution, 60),
        (TO_QDQ, elementwise, 80),
        (TO_QDQ, product, 40),
        (TO_QDQ, convolution, 20),
        (TO_QUANTIZED, chain, 120),
    ],
)
def test_equal_to_upstream(name: str, make: Callable[..., str], count: int) -> None:
    random, found = Random(f"{name} {make.__name__}"), Counter[str]()
    for index in range(count):
        text = make(random, f"f{index}")
        theirs = upstream(text, name)
        assert ours(text, name) == theirs, text
        found["refused" if theirs is None else "equal"] += 1
    assert found["equal"] + found["refused"] == count
    assert found["equal"] > count * 0.7
    sys.stdout.write(f"{name}, {make.__name__}: {dict(found)}\n")
    record(systems.STABLEHLO, [lowering(name)], found["equal"])


@pytest.mark.parametrize("name", [MATH, TO_QDQ])
@pytest.mark.parametrize("make", [mixed_product, mixed_convolution])
def test_same_verdict_on_mixed_types(name: str, make: Callable[..., str]) -> None:
    """Operands of any storage, expressed type and granularity: refused by the verifier, by the pass, or equal."""
    random, found = Random(f"{name} {make.__name__}"), Counter[str]()
    for index in range(400):
        text = make(random, f"f{index}")
        if not is_valid(text):
            with pytest.raises(ModuleTextError):
                read_module(text)
            found["invalid"] += 1
            continue
        read_module(text)
        theirs = upstream(text, name)
        assert ours(text, name) == theirs, text
        found["refused" if theirs is None else "equal"] += 1
    assert min(found["invalid"], found["equal"]) > 60
    record(systems.STABLEHLO, [lowering(name)], found["equal"])
    sys.stdout.write(f"{name}, {make.__name__}: {dict(found)}\n")
