"""What RESCALE demands of element types, signs and zero points: the ERROR_IF conditions of TOSA 1.0.

The operator asks here (`requant.operators.tosa.rescale_plan`), and so does requantize in TOSA's profiles.
"""

from __future__ import annotations

from dataclasses import dataclass

from requant.errors import UnsupportedError, about
from requant.plan.operands import QuantizedOperand

_WIDE = ("i32", "i48")
_UINT16_ZERO_POINTS = (0, 32768)


@dataclass(frozen=True, slots=True)
class RescaleSide:
    """The "input" or the "output": its element type, i8, i16, i32 or i48, and whether its bits are unsigned numbers."""

    name: str
    element: str
    unsigned: bool

    @property
    def text(self) -> str:
        """The element type in words."""
        return f"unsigned {self.element}" if self.unsigned else self.element

    def check_zero_point(self, zero_point: int) -> None:
        """Raise UnsupportedError unless the side may have this zero point, a number: ERROR_IF 1 to 3."""
        if self.element == "i8":
            return
        allowed = _UINT16_ZERO_POINTS if self.element == "i16" and self.unsigned else (0,)
        if zero_point not in allowed:
            listed = " or ".join(map(str, allowed))
            raise UnsupportedError(
                f"RESCALE takes {self.text} only with zero point {listed}; the {self.name} has {zero_point}"
            )


def check_signs(source: RescaleSide, target: RescaleSide) -> None:
    """Raise UnsupportedError, about the side that may not be unsigned, if there is one: ERROR_IF 6 to 8."""
    if source.unsigned and target.unsigned:
        with about("output"):
            raise UnsupportedError(
                "RESCALE takes at most one unsigned side, and both the input and the output are unsigned"
            )
    for side, other in ((source, target), (target, source)):
        if side.unsigned and (side.element in _WIDE or other.element in _WIDE):
            with about(side.name):
                raise UnsupportedError(
                    "RESCALE takes unsigned numbers only between i8 and i16; the input is "
                    f"{source.text} and the output {target.text}"
                )


def check_rescale(source: QuantizedOperand, target: QuantizedOperand) -> None:
    """Raise UnsupportedError where one of the conditions holds for a conversion between quantized types."""
    sides = _side(source, "input"), _side(target, "output")
    for side, operand in zip(sides, (source, target), strict=True):
        with about(side.name):
            for zero_point in operand.zero_points:
                side.check_zero_point(zero_point)
    check_signs(*sides)


def _side(operand: QuantizedOperand, name: str) -> RescaleSide:
    return RescaleSide(name, operand.storage.replace("u", "i"), operand.storage.startswith("u"))
