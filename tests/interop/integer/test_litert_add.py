"""add against LiteRT's ADD: the reference kernel, and XNNPACK as the default interpreter runs it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from requant.integer.add import plan_add
from tests.interop.comparison import Comparison
from tests.interop.conformance import systems
from tests.interop.conformance.subject import profile as row
from tests.interop.integer.quantized_tensors import DTYPES, per_tensor

pytest.importorskip("ai_edge_litert")

from tests.interop.integer.litert_operators import add
from tests.interop.litert_models import DEFAULT, REFERENCE, run_inputs

pytestmark = pytest.mark.interop

# Ties, ratios far from 1 and close to it, and scales with all of their bits.
SCALES = (
    (0.5, 0.5, 0.5), (0.5, 0.25, 1.0), (0.1, 0.3, 0.2), (1.0, 0.001, 0.7), (0.02, 0.9, 0.9), (0.0371, 0.0113, 0.0254),
    (0.25, 0.125, 0.5), (2.0, 1.0, 0.011), (0.01, 0.01, 2.5),
)  # fmt: skip


def data(storage: str) -> tuple[Any, Any]:
    """Every pair of bytes; of 16 bits a sample with the bounds."""
    if storage != "i16":
        limits = np.iinfo(DTYPES[storage])
        numbers = np.arange(limits.min, limits.max + 1).astype(DTYPES[storage])
        return np.repeat(numbers, 256), np.tile(numbers, 256)
    rng = np.random.default_rng(1)
    drawn = rng.integers(-32768, 32768, (2, 65536)).astype(np.int16)
    drawn[:, :4] = [[-32768, -32768, 32767, 32767], [-32768, 32767, -32768, 32767]]
    return drawn[0], drawn[1]


@pytest.mark.parametrize(
    ("storage", "profile", "resolver"),
    [
        *((storage, "litert", REFERENCE) for storage in ("i8", "u8", "i16")),
        *((storage, "litert_xnnpack", DEFAULT) for storage in ("i8", "u8")),
    ],
)
def test_add(storage: str, profile: str, resolver: Any) -> None:
    comparison = Comparison(f"LiteRT ADD {storage}, {profile}", systems.LITERT, row(profile, "add"))
    a, b = data(storage)
    zeros = {"i8": ((0, 0, 0), (3, -128, 127)), "u8": ((128, 128, 128), (3, 0, 255)), "i16": ((0, 0, 0),)}[storage]
    for scales in SCALES:
        for points in zeros:
            sides = [per_tensor(storage, scale, zero) for scale, zero in zip(scales, points, strict=True)]
            plan = plan_add(sides[0].tensor(a.size), sides[1].tensor(a.size), sides[2].element, profile)
            ours = np.empty(a.size, plan.output_dtype)
            plan.run(a, b, ours)
            theirs = run_inputs(add((a.size,), sides), [a, b], resolver)
            comparison.add(f"{scales} {points}", a, ours, theirs)
    comparison.finish(500_000)
