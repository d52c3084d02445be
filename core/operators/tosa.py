"""TOSA's own demands on its operators. RESCALE: spec/mlir.md 5.2."""

from __future__ import annotations

from core.errors import UnsupportedError, about
from core.operands import QuantizedOperand

# ERROR_IF 1 to 3: where a zero point may be other than 0, and which ones a 16-bit unsigned side may have.
_ANY_ZERO_POINT = ("i8", "u8")
_UINT16_ZERO_POINTS = (0, 32768)


def _check_zero_points(operand: QuantizedOperand, side: str) -> None:
    if operand.storage in _ANY_ZERO_POINT:
        return
    if operand.storage == "u16":
        for zero_point in operand.zero_points:
            if zero_point not in _UINT16_ZERO_POINTS:
                raise UnsupportedError(f"RESCALE takes u16 with zero point 0 or 32768; the {side} has {zero_point}")
        return
    operand.check_symmetric(side, f"RESCALE takes {operand.storage} only with zero point 0")


def check_rescale(source: QuantizedOperand, target: QuantizedOperand) -> None:
    """Raise UnsupportedError where one of RESCALE's ERROR_IF conditions on types and zero points holds."""
    for operand, side in ((source, "input"), (target, "output")):
        with about(side):
            _check_zero_points(operand, side)
    names = (source.storage, target.storage)
    unsigned = [name for name in names if name.startswith("u")]
    if len(unsigned) == 2:
        raise UnsupportedError(f"RESCALE takes at most one unsigned side; these are {names[0]} and {names[1]}")
    if unsigned and "i32" in names:
        raise UnsupportedError(f"RESCALE does not convert between i32 and {unsigned[0]}")
