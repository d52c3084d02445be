"""The terminals of the type language: number literals and the names of builtin element types."""

from __future__ import annotations

import re

from requant.formats.elements import FLOATS, Element, IndexElement, IntegerElement, Signedness
from requant.mlir.diagnostics import shown
from requant.mlir.float_text import float_from_bits
from requant.mlir.hints import float_hint, integer_hint
from requant.mlir.lexer import MAXIMUM_NUMBER_LENGTH, TokenKind, TokenStream
from requant.mlir.verifier import integer_fault

_INTEGER = re.compile(rf"(i|si|ui)([0-9]{{1,{MAXIMUM_NUMBER_LENGTH}}})\Z")
_SIGNEDNESS = {"i": Signedness.SIGNLESS, "si": Signedness.SIGNED, "ui": Signedness.UNSIGNED}


def read_integer(stream: TokenStream, purpose: str, bits: int = 64) -> int:
    """Take an integer that fits `bits` bits signed. `purpose` names it in errors.

    Raises TypeTextError. MLIR reads `true` and `false` here as -1 and 0; they are refused (docs/types.md).
    """
    start = stream.token.start
    negative = stream.accept("-")
    token = stream.token
    if token.kind not in (TokenKind.INTEGER, TokenKind.HEXADECIMAL):
        raise stream.unexpected(f"an integer ({purpose})", integer_hint(stream.text, token.start))
    magnitude = int(token.text, 16 if token.kind is TokenKind.HEXADECIMAL else 10)
    value = -magnitude if negative else magnitude
    if not -(1 << (bits - 1)) <= value < 1 << (bits - 1):
        raise stream.error(start, f"the {purpose} {shown(str(value))} does not fit a signed {bits}-bit integer")
    stream.advance()
    return value


def read_float(stream: TokenStream, purpose: str) -> float:
    """Take a float: decimal with a mandatory dot, rounded to the nearest f64, or the 64 bits of one as `0x...`.

    Raises TypeTextError.
    """
    start = stream.token.start
    negative = stream.accept("-")
    token = stream.token
    if token.kind is TokenKind.FLOAT:
        value = float(token.text)
    elif token.kind is TokenKind.HEXADECIMAL:
        if negative:
            hint = "the sign is the highest of the 64 bits: add 0x8000000000000000 instead of `-`"
            raise stream.error(start, "a float written as bits cannot have a `-`", hint)
        bits = int(token.text, 16)
        if bits >> 64:
            raise stream.error(start, f"{shown(token.text)} has more than the 64 bits of an f64")
        value = float_from_bits(bits)
    else:
        expected = f"a floating-point number with a decimal point ({purpose})"
        raise stream.unexpected(expected, float_hint(stream.text, token.start))
    stream.advance()
    return -value if negative else value


def element_at(stream: TokenStream) -> Element | None:
    """Return the builtin element type that the token looked at names (`i8`, `ui16`, `f32`, `index`), or None.

    The token is not taken. Raises TypeTextError for an integer wider than MLIR has.
    """
    token = stream.token
    if token.kind is not TokenKind.WORD:
        return None
    if match := _INTEGER.match(token.text):
        width = int(match[2])
        if found := integer_fault(width):
            raise stream.error(token.start, found)
        return IntegerElement(width, _SIGNEDNESS[match[1]])
    if token.text == "index":
        return IndexElement()
    return FLOATS.get(token.text)
