"""Scales and zero points: one `scale[:zero_point]`, or nested lists of them.

Lists are long: 65,536 parameters are a normal type. Runs of plain ones are therefore read by one pattern each, and only
what it does not match (the last of a list, comments, bits, mistakes) is read in tokens.
"""

from __future__ import annotations

import re

from requant.formats.elements import FloatElement
from requant.mlir.lexer import BLANKS, DECIMAL, MAXIMUM_DEPTH, MAXIMUM_LIST_LENGTH, MAXIMUM_NUMBER_LENGTH, TokenStream
from requant.mlir.terminals import read_float, read_integer
from requant.mlir.verifier import scale_fault

_PARAMETER_AND_COMMA = re.compile(
    rf"{BLANKS}(?P<scale>{DECIMAL}){BLANKS}(?::{BLANKS}(?P<zero_point>-?+[0-9]++){BLANKS})?+,"
)
_INT64 = (-(1 << 63), (1 << 63) - 1)


class ParameterReader:
    """Reads parameters from a stream into `scales` and `zero_points`, flat.

    Scales must be legal for `expressed`. Zero points must lie in `zero_point_range`; outside
    sub-channel types that is all of int64, since the dialect does not compare them with the storage.
    """

    def __init__(
        self, stream: TokenStream, expressed: FloatElement, zero_point_range: tuple[int, int] = _INT64
    ) -> None:
        self.scales: list[float] = []
        self.zero_points: list[int] = []
        self._stream = stream
        self._expressed = expressed
        self._zero_point_range = zero_point_range

    def read_parameter(self) -> None:
        """Take one parameter. Raises TypeTextError."""
        stream = self._stream
        start = stream.token.start
        scale = read_float(stream, "scale")
        zero_point, zero_point_start = 0, start
        if stream.accept(":"):
            zero_point_start = stream.token.start
            zero_point = read_integer(stream, "zero point")
        self._add(scale, start, zero_point, zero_point_start)

    def read_list(self, depth: int = 1) -> tuple[int, ...]:
        """Take a list and return the shape of its nesting, which must be rectangular. Raises TypeTextError."""
        stream = self._stream
        hint = "write the parameters as a list: `{0.5, 0.25:3}`; a type without axis has one without braces"
        opening = stream.expect("{", "to open the list of scales", hint)
        if depth > MAXIMUM_DEPTH:
            raise stream.error(opening.start, f"lists nested more than {MAXIMUM_DEPTH} deep")
        count = 0
        inner: tuple[int, ...] | None = None
        while True:
            start = stream.token.start
            if stream.looks_at("{"):
                shape = self.read_list(depth + 1)
            else:
                count += self._read_run()
                self.read_parameter()
                shape = ()
            if inner is None:
                inner = shape
            elif shape != inner:
                raise stream.error(start, f"ragged list: {_named(inner)} before, {_named(shape)} here")
            count += 1
            stream.count_entries(1, start)
            if not stream.accept(","):
                break
        stream.expect("}", "or `,` in the list of scales")
        return (count, *inner)

    def _read_run(self) -> int:
        """Take as many parameters that a comma follows as stand here in plain decimal, and return their number."""
        text, position, count = self._stream.text, self._stream.token.start, 0
        while match := _PARAMETER_AND_COMMA.match(text, position):
            scale, zero_point = match.groups()
            if len(scale) > MAXIMUM_NUMBER_LENGTH or (zero_point and len(zero_point) > MAXIMUM_NUMBER_LENGTH):
                break
            self._add(float(scale), match.start("scale"), int(zero_point or 0), match.start("zero_point"))
            position = match.end()
            count += 1
        if count:
            self._stream.count_entries(count, position)
            self._stream.rewind(position)
        return count

    def _add(self, scale: float, start: int, zero_point: int, zero_point_start: int) -> None:
        if len(self.scales) == MAXIMUM_LIST_LENGTH:
            raise self._stream.error(start, f"a list of more than {MAXIMUM_LIST_LENGTH} parameters")
        if not self._expressed.smallest <= scale <= self._expressed.largest:
            raise self._stream.error(start, scale_fault(scale, self._expressed) or "")
        lowest, highest = self._zero_point_range
        if not lowest <= zero_point <= highest:
            raise self._stream.error(
                zero_point_start,
                f"zero point {zero_point} is outside {lowest} to {highest}",
                None
                if self._zero_point_range == _INT64
                else "MLIR would cut a sub-channel zero point to the width of the storage; here it must fit",
            )
        self.scales.append(scale)
        self.zero_points.append(zero_point)


def _named(shape: tuple[int, ...]) -> str:
    return f"lists of shape {list(shape)}" if shape else "scales"
