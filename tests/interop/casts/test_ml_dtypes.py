"""Profile `ml_dtypes` against ml_dtypes and numpy: every cast between the floats that they have."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from numpy.typing import NDArray

from requant.convert.small_floats import SMALL_FLOATS
from tests.interop.casts.cast_data import FORMATS, WIDE, is_nan, narrowed, real_data, stored_data, widened
from tests.interop.comparison import Comparison
from tests.interop.conformance import systems
from tests.interop.conformance.subject import profile

pytestmark = pytest.mark.interop

Array = NDArray[Any]

DTYPES: dict[str, Any] = {
    "f16": np.float16,
    "bf16": ml_dtypes.bfloat16,
    "f8E4M3FN": ml_dtypes.float8_e4m3fn,
    "f8E4M3FNUZ": ml_dtypes.float8_e4m3fnuz,
    "f8E5M2": ml_dtypes.float8_e5m2,
    "f8E5M2FNUZ": ml_dtypes.float8_e5m2fnuz,
    "f8E4M3": ml_dtypes.float8_e4m3,
    "f8E3M4": ml_dtypes.float8_e3m4,
    "f8E4M3B11FNUZ": ml_dtypes.float8_e4m3b11fnuz,
    "f4E2M1FN": ml_dtypes.float4_e2m1fn,
    "f6E2M3FN": ml_dtypes.float6_e2m3fn,
    "f6E3M2FN": ml_dtypes.float6_e3m2fn,
    "f8E8M0FNU": ml_dtypes.float8_e8m0fnu,
    "f32": np.float32,
    "f64": np.float64,
}


def numpy_cast(source: Array, source_name: str, target: str) -> Array:
    with np.errstate(all="ignore"):
        return np.asarray(source.view(DTYPES[source_name]).astype(DTYPES[target]))


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
