"""The slow truth of MXFP4, in exact fractions, importing nothing of ours: one number of a code and the byte of a scale,
rounded or not.

Written from transformers 5.23.0, `convert_moe_packed_tensors` (`integrations/mxfp4.py`) for gpt-oss, and
`Fp8Dequantize._dequantize_one` (`integrations/finegrained_fp8.py`) for DeepSeek.
"""

from __future__ import annotations

import math
from fractions import Fraction

from tests.oracles.profiles import FORMATS

MAGNITUDES = (0, Fraction(1, 2), 1, Fraction(3, 2), 2, 3, 4, 6)


def value(code: int, byte: int, to: str, *, largest: str = "2^128") -> float:
    """The number of a code from 0 to 15, rounded. `largest`: what the byte 255 stands for, `2^128`, `infinity` or
    `NaN`."""
    exact = number(code, byte, largest=largest)
    return math.copysign(FORMATS[to].round(Fraction(exact)), exact) if math.isfinite(exact) else exact


def number(code: int, byte: int, *, largest: str = "2^128") -> float:
    """The number itself: all of them are an f64."""
    sign = -1.0 if code & 8 else 1.0
    magnitude = MAGNITUDES[code & 7]
    if byte == 255 and largest != "2^128":
        return math.nan if largest == "NaN" or magnitude == 0 else sign * math.inf
    return math.copysign(float(magnitude * Fraction(2) ** (byte - 127)), sign)
