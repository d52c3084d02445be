"""Casts alone, in every rounding: of number formats as documents define them, and of the libraries that check hardware.

All round an f64 once. Where a document has no instruction from one format to another, the cast follows the same rule.
"""

from __future__ import annotations

from dataclasses import replace

from requant.formats.rounding import Rounding
from requant.profiles.cast import F8_ONNX, FINITE, CastRule, FiniteNan, FloatOverflow, NanCode
from requant.profiles.rule import Profile

_EVEN, _AWAY, _ZERO = Rounding.NEAREST_EVEN, Rounding.NEAREST_AWAY, Rounding.TOWARD_ZERO
_DOWN, _UP, _ODD, _STOCHASTIC = Rounding.FLOOR, Rounding.CEILING, Rounding.ODD, Rounding.STOCHASTIC
_IEEE = (_EVEN, _AWAY, _ZERO, _DOWN, _UP)
"""Those of IEEE 754."""
_INWARD = "rounded toward zero, or against its sign, an overflow gives the largest finite value"
_DRAWN = (
    "stochastic: with r the highest `random_bits` of the 32 bits that are drawn for the element, away from zero where "
    "floor(d * 2^random_bits) + r >= 2^random_bits, d the distance toward zero in last places"
)


def _casts_only(name: str, title: str, summary: str, source: str, casts: CastRule) -> Profile:
    return Profile(name=name, title=title, summary=summary, source=source, operations={}, casts=casts)


_OFP8_FORMATS = ("f8E4M3FN", "f8E5M2")
_OFP8 = CastRule(
    authority="OFP8",
    saturation="overflow and infinity give the largest value with the sign; with saturate=false infinity in f8E5M2 and "
    f"NaN in f8E4M3FN, but {_INWARD}, as does one rounded to odd",
    nan="a NaN with the sign: the highest mantissa bit only",
    notes="The document defines rounding to nearest, ties to even. The other roundings overflow as IEEE 754 says. "
    f"{_DRAWN}.",
    formats=_OFP8_FORMATS,
    overflow=FloatOverflow.SATURATING,
    chosen_saturation=_OFP8_FORMATS,
    roundings={"": (*_IEEE, _ODD, _STOCHASTIC)},
    f64_once=_OFP8_FORMATS,
)

OFP8 = _casts_only(
    "ofp8",
    "OCP OFP8",
    "Casts to E4M3 and E5M2 as the OCP 8-bit Floating Point Specification defines them, saturating or not, in every "
    "rounding.",
    "OCP 8-bit Floating Point Specification (OFP8), 1.0",
    _OFP8,
)

_GFLOAT_FORMATS = ("f16", "bf16", "f32", *F8_ONNX, "f8E4M3", "f8E3M4", "f8E4M3B11FNUZ", *FINITE)
GFLOAT = _casts_only(
    "gfloat",
    "gfloat",
    "gfloat's round_float and encode_float, between all floats but f8E8M0FNU: OCP's, IEEE 754's, and as a FormatInfo "
    "those that it does not list.",
    "gfloat 0.5.2",
    replace(
        _OFP8,
        authority="gfloat",
        saturation="overflow and infinity give infinity where the format has one, else NaN, with the sign unless it is "
        f"NaN, but {_INWARD}; with saturate=true they give the largest value with the sign. f4 and f6 always saturate",
        nan="all bits set, the sign too; f4 and f6: an error",
        notes=f"{_DRAWN[0].upper()}{_DRAWN[1:]}: gfloat's StochasticFastest.",
        formats=_GFLOAT_FORMATS,
        overflow=FloatOverflow.NON_SATURATING,
        chosen_saturation=tuple(name for name in _GFLOAT_FORMATS if name not in FINITE),
        roundings={"": (*_IEEE, _STOCHASTIC)},
        nans={"": NanCode.NEGATIVE_ONES},
        finite_nan=FiniteNan.ERROR,
        f64_once=_GFLOAT_FORMATS,
    ),
)

_SOFTFLOAT_FORMATS = ("f16", "bf16", "f32")
SOFTFLOAT = _casts_only(
    "softfloat",
    "Berkeley SoftFloat",
    "f32_to_f16, f64_to_f16, f64_to_f32 and f32_to_bf16 in the six roundings of SoftFloat, as it is built for RISC-V.",
    "Berkeley SoftFloat 3e, specialization RISCV",
    CastRule(
        authority="SoftFloat",
        saturation=f"overflow and infinity give infinity, but {_INWARD}, as does one rounded to odd",
        nan="the default NaN, without sign: the highest mantissa bit only",
        notes="Rounding: near_even, near_maxMag, minMag, min, max and odd, in this order. There is no function from "
        "f64 to bf16, and none between f16 and bf16. Other specializations differ in NaN alone.",
        formats=_SOFTFLOAT_FORMATS,
        overflow=FloatOverflow.NON_SATURATING,
        roundings={"": (*_IEEE, _ODD)},
        nans={"": NanCode.POSITIVE_QUIET},
        f64_once=_SOFTFLOAT_FORMATS,
    ),
)

_RISCV_FORMATS = (*_SOFTFLOAT_FORMATS, *_OFP8_FORMATS)
RISCV = _casts_only(
    "riscv",
    "RISC-V",
    "Conversions between floats of the RISC-V extensions D, Zfh, Zfbfmin and Zvfofp8min: fcvt, vfncvt, vfncvtbf16 and "
    "their saturating forms, in the roundings of frm and vfncvt.rod.",
    "The RISC-V Instruction Set Manual, volume I; Zvfofp8min 0.2.1",
    CastRule(
        authority="RISC-V",
        saturation="overflow and infinity give infinity, in f8E4M3FN NaN, but "
        f"{_INWARD}, as does one rounded to odd; with saturate=true (vfncvt.sat) f8E4M3FN and f8E5M2 give the largest "
        "value with the sign",
        nan="the canonical NaN, without sign: the highest mantissa bit only; f8E4M3FN and f8E5M2 0x7F",
        notes="Rounding: RNE, RMM, RTZ, RDN and RUP, in this order, and odd. There are instructions from f64 to f32, "
        "from both to f16, from f32 to bf16, and from f32 and bf16 to 8 bits; round to odd is vfncvt.rod.f.f.w.",
        formats=_RISCV_FORMATS,
        overflow=FloatOverflow.NON_SATURATING,
        chosen_saturation=_OFP8_FORMATS,
        roundings={"": _IEEE, "f16": (*_IEEE, _ODD), "f32": (*_IEEE, _ODD)},
        nans={"": NanCode.POSITIVE_QUIET, **dict.fromkeys(_OFP8_FORMATS, NanCode.POSITIVE_ONES)},
        f64_once=_RISCV_FORMATS,
    ),
)

_PTX_FORMATS = (*_SOFTFLOAT_FORMATS, *_OFP8_FORMATS, *FINITE)
_FOUR = (_EVEN, _ZERO, _DOWN, _UP)
PTX = _casts_only(
    "ptx",
    "PTX cvt",
    "The conversions between floats of NVIDIA's PTX: cvt.rn, .rz, .rm and .rp, with .satfinite or without.",
    "PTX ISA 9.0, cvt",
    CastRule(
        authority="PTX",
        saturation="to at most 8 bits overflow and infinity give the largest value with the sign (.satfinite, which is "
        f"mandatory there); else infinity, but {_INWARD}, and with saturate=true (.satfinite) the largest value",
        nan="a NaN without sign, all mantissa bits; f4 and f6: the largest value, without sign",
        notes="Rounding: .rn; to f16 and f32 also .rz, .rm and .rp, to bf16 .rz. There is no instruction from f64 to "
        "bf16 or to 8 bits and fewer. Stochastic rounding (.rs) is left out: it was not compared with anything.",
        formats=_PTX_FORMATS,
        overflow=FloatOverflow.SATURATING,
        chosen_saturation=("f16", "bf16"),
        roundings={"f16": _FOUR, "f32": _FOUR, "bf16": (_EVEN, _ZERO)},
        nans={"": NanCode.POSITIVE_ONES},
        finite_nan=FiniteNan.LARGEST,
        f64_once=_PTX_FORMATS,
    ),
)

PROFILES = (OFP8, GFLOAT, SOFTFLOAT, RISCV, PTX)
