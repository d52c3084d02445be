"""ml_dtypes: the small floats of numpy and JAX. Casts only."""

from __future__ import annotations

from requant.profiles.cast import FINITE, SCALE, CastRule, FloatOverflow, NanCode, ScaleRange
from requant.profiles.rule import Profile

ML_DTYPES = Profile(
    name="ml_dtypes",
    title="ml_dtypes",
    summary="numpy's astype between its own floats and those of the ml_dtypes package, which JAX takes its types from.",
    source="ml_dtypes 0.6.0, numpy 2.4",
    operations={},
    casts=CastRule(
        authority="ml_dtypes",
        saturation="overflow and infinity give infinity where the format has one, else NaN; f4 and f6 saturate",
        nan="a NaN with the sign: the highest mantissa bit only; to f16 from f32 and f64 the highest bits of its "
        "payload, at least 1; f4 and f6: zero of the opposite sign",
        scale="E and M are the exponent and mantissa field of x as an f32: E + (M > 2^22, or M = 2^22 and E > 0). "
        "Above 254, and for zero, all negatives, infinity and NaN: 0xFF",
        formats=(
            "f16",
            "bf16",
            "f8E4M3FN",
            "f8E4M3FNUZ",
            "f8E5M2",
            "f8E5M2FNUZ",
            "f8E4M3",
            "f8E3M4",
            "f8E4M3B11FNUZ",
            *FINITE,
            SCALE,
        ),
        overflow=FloatOverflow.NON_SATURATING,
        nans={"f16": NanCode.PAYLOAD, "bf16 f16": NanCode.QUIET},
        f64_once=("f16",),
        scale_range=ScaleRange.POSITIVE_ONLY,
    ),
)

PROFILES = (ML_DTYPES,)
