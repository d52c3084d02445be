"""Casts of the profile `stablehlo` against `convert` in StableHLO's interpreter, which jaxlib carries."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from requant.errors import UnsupportedError
from requant.profiles.cast import FINITE
from tests.interop.casts.cast_data import (
    FORMATS,
    RESULTS,
    WIDE,
    chosen,
    is_nan,
    narrowed,
    real_data,
    stored_data,
    widened,
)
from tests.interop.casts.stablehlo_convert import convert
from tests.interop.comparison import Comparison
from tests.interop.conformance import systems
from tests.interop.conformance.subject import profile
from tests.interop.stablehlo_upstream import loaded

pytestmark = pytest.mark.interop

Array = NDArray[Any]

TAKEN = tuple(name for name in FORMATS if name != "f8E8M0FNU")
SIZE = 60_000
"""The interpreter takes microseconds for an element."""


@pytest.fixture(autouse=True)
def context() -> Iterator[None]:
    with loaded():
        yield


def wide_data(source: str, target: str) -> Iterator[Array]:
    for data in real_data(source, target):
        yield data if source in ("f16", "bf16") else data[:: max(1, data.size // SIZE)].copy()
    if source == "f32":
        yield chosen(target)


@pytest.mark.parametrize("source", WIDE)
@pytest.mark.parametrize("target", TAKEN)
def test_narrow(target: str, source: str) -> None:
    """f4 and f6 have no integers of their width there: they are read after a conversion to f32, which is exact."""
    if source == target:
        return
    comparison = Comparison(
        f"StableHLO interpreter cast {source} to {target}", systems.STABLEHLO, profile("stablehlo", "cast")
    )
    for data in wide_data(source, target):
        ours = narrowed(data, source, target, "stablehlo")
        if target in FINITE:
            real = widened(ours, target, "f32", "ml_dtypes")
            comparison.add(target, data, real.view(np.uint32), convert(data, source, target, "f32"))
        else:
            comparison.add(target, data, ours, convert(data, source, target))
    comparison.finish(65_536 if source in ("f16", "bf16") else 100_000)


@pytest.mark.parametrize("target", WIDE)
@pytest.mark.parametrize("source", [name for name in TAKEN if name not in FINITE])
def test_widen(source: str, target: str) -> None:
    """Every code."""
    if source == target:
        return
    comparison = Comparison(
        f"StableHLO interpreter cast {source} to {target}", systems.STABLEHLO, profile("stablehlo", "cast")
    )
    codes = stored_data(source)
    theirs, ours = convert(codes, source, target).view(RESULTS[target]), widened(codes, source, target, "stablehlo")
    nan = is_nan(theirs)
    assert (is_nan(ours) == nan).all()
    comparison.add(source, codes, ours, theirs, {"nan_bits": nan})
    comparison.finish(codes.size - 2100)


def test_the_format_that_is_refused_has_negative_codes_there() -> None:
    """f8E8M0FNU has no sign, and what the interpreter writes for -3 is the code of a large number."""
    data = np.array([3.0, -3.0], np.float32)
    assert convert(data, "f32", "f8E8M0FNU").tolist() == [0x81, 0x80 | 0x81]
    with pytest.raises(UnsupportedError):
        narrowed(data, "f32", "f8E8M0FNU", "stablehlo")
