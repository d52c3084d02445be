"""Small floats against ml_dtypes: the encoding rule of its name for each of its formats, and every code decoded."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from numpy.typing import NDArray

from core.float_encoding import RULES, encode
from core.small_floats import SMALL_FLOATS, decode
from tests.float_samples import SPECIAL, neighbours, patterns
from tests.interop.comparison import Comparison

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
}


def chosen(name: str) -> Array:
    """The values of all codes, the ties between them and the neighbours of both; specials; powers of two."""
    format_ = SMALL_FLOATS[name]
    with np.errstate(all="ignore"):
        codes = np.arange(1 << format_.width).astype(np.uint16 if format_.width > 8 else np.uint8)
        values = codes.view(DTYPES[name]).astype(np.float32)
        finite = np.sort(values[np.isfinite(values)]).astype(np.float64)
        ties = (finite[:-1] + finite[1:]) / 2
        powers = np.exp2(np.arange(-149, 128))
        found = np.concatenate([finite, ties, powers, -powers, 1.5 * powers[:-1]]).astype(np.float32)
    return np.concatenate([SPECIAL, neighbours(found)])


@pytest.mark.parametrize("name", DTYPES)
def test_encode(name: str) -> None:
    rng = np.random.default_rng(81)
    comparison = Comparison(f"ml_dtypes f32 to {name}")
    near = np.exp2(rng.uniform(-20, 18, 1_000_000)) * rng.choice([-1.0, 1.0], 1_000_000)
    for source in (chosen(name), patterns(1_000_000, rng), near.astype(np.float32)):
        with np.errstate(all="ignore"):
            theirs = source.astype(DTYPES[name])
        bits = np.dtype(f"u{theirs.dtype.itemsize}")
        comparison.add(name, source, encode(source, name, RULES["ml_dtypes"]), theirs.view(bits))
    comparison.finish(2_000_000)


@pytest.mark.parametrize("name", DTYPES)
def test_decode(name: str) -> None:
    """Every code. The sign and payload of a NaN are numpy's affair."""
    comparison = Comparison(f"ml_dtypes {name} to f32")
    width = SMALL_FLOATS[name].width
    codes = np.arange(1 << width).astype(np.uint16 if width > 8 else np.uint8)
    with np.errstate(all="ignore"):
        theirs = codes.view(DTYPES[name]).astype(np.float32)
    ours = decode(codes, name)
    assert (np.isnan(ours) == np.isnan(theirs)).all()
    comparison.add(name, codes, ours, theirs, np.isnan(theirs))
    comparison.finish((1 << width) - 2100)
