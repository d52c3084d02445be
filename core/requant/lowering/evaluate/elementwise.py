"""Element by element: StableHLO's functions of one and two operands, as its interpreter computes them.

Integers wrap. Floats are computed in their own type; functions that are not exactly rounded in binary64 and
rounded once, as the interpreter does with the C library.

The same bits on every platform: integers, what IEEE 754 rounds exactly (_EXACT, add to remainder), rsqrt and
round_nearest_afz, which are made of that. The others are numpy's, on its vectors or by the C library's function, whose
last bit in binary64 is not the same everywhere. Nor are the sign and the payload of a NaN.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from requant.errors import PreconditionError
from requant.lowering.evaluate.arrays import Array, is_float

_EXACT: Mapping[str, Callable[[Array], Array]] = {
    "abs": np.abs, "ceil": np.ceil, "floor": np.floor, "negate": np.negative, "round_nearest_even": np.rint,
    "sign": np.sign, "sqrt": np.sqrt,
}  # fmt: skip
_IN_BINARY64: Mapping[str, Callable[[Array], Array]] = {
    "cbrt": np.cbrt, "cosine": np.cos, "exponential": np.exp, "exponential_minus_one": np.expm1, "log": np.log,
    "log_plus_one": np.log1p, "logistic": lambda x: 1.0 / (1.0 + np.exp(-x)), "rsqrt": lambda x: 1.0 / np.sqrt(x),
    "sine": np.sin, "tan": np.tan, "tanh": np.tanh,
    "round_nearest_afz": lambda x: np.copysign(np.floor(np.abs(x) + 0.5), x),
}  # fmt: skip


def unary(name: str, value: Array) -> Array | None:
    """Return the function `name` of each element, None where there is none of that name for such elements."""
    if name == "not":
        return np.logical_not(value) if value.dtype == np.bool_ else np.invert(value)
    if name in _EXACT and (is_float(value) or name in ("abs", "negate", "sign")):
        return _EXACT[name](value).astype(value.dtype)
    if name in _IN_BINARY64 and is_float(value):
        return _IN_BINARY64[name](value.astype(np.float64)).astype(value.dtype)
    return None


def binary(name: str, left: Array, right: Array) -> Array | None:
    """Return the function `name` of each pair, None where there is none of that name for such elements."""
    floats, flags = is_float(left), left.dtype == np.bool_
    if name in ("add", "subtract", "multiply") and flags:
        return {"add": left | right, "subtract": left ^ right, "multiply": left & right}[name]
    plain: dict[str, Callable[..., Any]] = {"add": np.add, "subtract": np.subtract, "multiply": np.multiply}
    if name in plain:
        result: Array = plain[name](left, right)
        return result.astype(left.dtype)
    if name in ("maximum", "minimum"):
        chosen: Array = (np.maximum if name == "maximum" else np.minimum)(left, right)
        return chosen
    if name in ("and", "or", "xor") and not floats:
        bits: dict[str, Callable[..., Any]] = {"and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor}
        combined: Array = bits[name](left, right)
        return combined
    if name in ("divide", "remainder"):
        return _quotient(name, left, right, floats=floats)
    if floats and name in ("power", "atan2"):
        exact: Array = (np.power if name == "power" else np.arctan2)(left.astype(np.float64), right.astype(np.float64))
        return exact.astype(left.dtype)
    if name.startswith("shift_") and not floats and not flags:
        return _shifted(name, left, right)
    return None


def _quotient(name: str, left: Array, right: Array, *, floats: bool) -> Array:
    if floats:
        quotient: Array = (np.divide if name == "divide" else np.fmod)(left, right)
        return quotient.astype(left.dtype)
    zeros = np.flatnonzero(right.reshape(-1) == 0)
    if zeros.size:
        raise PreconditionError("a division of integers by zero", index=int(zeros[0]))
    remainder: Array = np.fmod(left, right)
    return remainder if name == "remainder" else ((left - remainder) // right).astype(left.dtype)


def _shifted(name: str, left: Array, right: Array) -> Array:
    """Shift by `right` places; as many as there are bits, or more, leave zeros or the sign."""
    bits = 8 * left.dtype.itemsize
    inside = (right >= 0) & (right < bits)
    places = np.where(inside, right, 0).astype(left.dtype)
    if name == "shift_left":
        return np.where(inside, left << places, 0).astype(left.dtype)
    if name == "shift_right_logical":
        unsigned = left.view(f"u{left.dtype.itemsize}")
        return np.where(inside, unsigned >> places.view(unsigned.dtype), 0).astype(unsigned.dtype).view(left.dtype)
    return np.where(inside, left >> places, np.where(left < 0, -1, 0)).astype(left.dtype)


def compare(direction: str, left: Array, right: Array) -> Array:
    """Compare each pair by value; NaN is not equal to anything."""
    result: Array = {
        "EQ": np.equal, "NE": np.not_equal, "GE": np.greater_equal, "GT": np.greater, "LE": np.less_equal,
        "LT": np.less,
    }[direction](left, right)  # fmt: skip
    return result
