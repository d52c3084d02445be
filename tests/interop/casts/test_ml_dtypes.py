"""Profile `ml_dtypes` against ml_dtypes and numpy: every cast between the floats that they have."""

from __future__ import annotations

import pytest

from requant.convert.small_floats import SMALL_FLOATS
from tests.interop.casts.cast_data import (
    FORMATS,
    WIDE,
    is_nan,
    narrowed,
    numpy_cast,
    real_data,
    stored_data,
    widened,
)
from tests.interop.comparison import Comparison
from tests.interop.conformance import systems
from tests.interop.conformance.subject import profile

pytestmark = pytest.mark.interop


@pytest.mark.parametrize("source", WIDE)
@pytest.mark.parametrize("target", FORMATS)
def test_narrow(target: str, source: str) -> None:
    if source == target:
        return
    comparison = Comparison(f"ml_dtypes cast {source} to {target}", systems.ML_DTYPES, profile("ml_dtypes", "cast"))
    for data in real_data(source, target):
        theirs = numpy_cast(data, source, target)
        codes = theirs.view(f"u{theirs.dtype.itemsize}")
        comparison.add(target, data, narrowed(data, source, target, "ml_dtypes"), codes)
    comparison.finish(65_536 if source in ("f16", "bf16") else 1_000_000)


@pytest.mark.parametrize("target", WIDE)
@pytest.mark.parametrize("source", FORMATS)
def test_widen(source: str, target: str) -> None:
    """Every code. The sign and payload of a NaN are numpy's affair."""
    if source == target:
        return
    comparison = Comparison(f"ml_dtypes cast {source} to {target}", systems.ML_DTYPES, profile("ml_dtypes", "cast"))
    codes = stored_data(source)
    theirs, ours = numpy_cast(codes, source, target), widened(codes, source, target, "ml_dtypes")
    nan = is_nan(theirs)
    assert (is_nan(ours) == nan).all()
    comparison.add(source, codes, ours, theirs, {"nan_bits": nan})
    comparison.finish((1 << SMALL_FLOATS[source].width) - 2100)
