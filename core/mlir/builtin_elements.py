"""The builtin element types by their MLIR names: `i8`, `ui16`, `f32`, `index`."""

from __future__ import annotations

import re

from core.formats.elements import FLOATS, Element, IndexElement, IntegerElement, Signedness
from core.mlir.lexer import MAXIMUM_NUMBER_LENGTH, TokenKind, TokenStream
from core.mlir.verifier import integer_fault

_INTEGER = re.compile(rf"(i|si|ui)([0-9]{{1,{MAXIMUM_NUMBER_LENGTH}}})\Z")
_SIGNEDNESS = {"i": Signedness.SIGNLESS, "si": Signedness.SIGNED, "ui": Signedness.UNSIGNED}


def element_at(stream: TokenStream) -> Element | None:
    """Return the element type that the token looked at names, or None. The token is not taken.

    Raises TypeTextError for an integer wider than MLIR has.
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
