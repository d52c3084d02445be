"""What a pass changes: random functions evaluated before it and after it.

Passes that only rewrite change nothing of numbers that are in the bounds of their types. What others change is
tests/service/json_api/test_pass_differences.py.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import numpy as np
import pytest

from tests.core.lowering.carried import Array, evaluated, numbers
from tests.core.lowering.modules import lowered
from tests.interop.stablehlo_programs import carried, chain, convolution, elementwise, product
from tests.support.cases import examples

TO_QDQ = "stablehlo-legalize-quantized-op-to-qdq"
TO_QUANTIZED = "stablehlo-legalize-qdq-to-quantized-op"


def both(make: Callable[..., str], random: Random, draw: np.random.Generator, name: str) -> tuple[str, Array, Array]:
    text, arguments, _ = carried(make(random, "main"))
    given = [numbers(argument, draw, inside=True) for argument in arguments]
    before = evaluated(text, arguments, given)
    return text, before, evaluated(lowered(text, name).write(), arguments, given)


@pytest.mark.parametrize(
    ("name", "make", "count"),
    [(TO_QDQ, elementwise, 120), (TO_QDQ, product, 60), (TO_QDQ, convolution, 30), (TO_QUANTIZED, chain, 100)],
)
def test_rewriting_keeps_every_bit(name: str, make: Callable[..., str], count: int) -> None:
    random, draw = Random(f"before {name} {make.__name__}"), np.random.default_rng(1)
    for _ in range(examples(count)):
        text, before, after = both(make, random, draw, name)
        assert before.tobytes() == after.tobytes(), text
