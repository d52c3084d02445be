"""Real numbers as callers write them: decimal or C99 hexadecimal text to the nearest double."""

from __future__ import annotations

import math
import re

from requant.errors import ParameterError, excerpt

_LONGEST = 128
# Every alternative begins with another character or is a prefix-free repetition, so matching is linear.
_DECIMAL = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?", re.ASCII)
_HEXADECIMAL = re.compile(r"[+-]?0[xX](?:[0-9a-fA-F]+(?:\.[0-9a-fA-F]*)?|\.[0-9a-fA-F]+)(?:[pP][+-]?[0-9]+)?", re.ASCII)


def parse_factor(text: str) -> float:
    """Return the f64 nearest to the number in `text` (RNE). Raise ParameterError if it is none, or not finite."""
    if len(text) > _LONGEST:
        raise ParameterError(f"a factor may have at most {_LONGEST} characters; this one has {len(text)}")
    try:
        if _DECIMAL.fullmatch(text):
            value = float(text)
        elif _HEXADECIMAL.fullmatch(text):
            value = float.fromhex(text)
        else:
            raise ParameterError(
                f"'{excerpt(text)}' is not a number; expected decimal text such as 0.0123 or 1e-3, "
                "or a C99 hexadecimal float such as 0x1.8p-5"
            )
    except OverflowError:
        value = math.inf
    if not math.isfinite(value):
        raise ParameterError(f"'{excerpt(text)}' is larger than the largest double")
    return value
