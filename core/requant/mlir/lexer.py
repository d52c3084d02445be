"""Lexing of MLIR's type language: tokens, and the ends of bracketed text that is not read in tokens.

MLIR finds the end of a dialect type, and of the encoding of a tensor, by counting brackets before it reads a token of
it. Everything takes linear time.
"""

from __future__ import annotations

import re
from enum import StrEnum
from typing import NamedTuple

from requant.errors import TypeTextError
from requant.formats.elements import FLOATS, Element, IndexElement, IntegerElement, Signedness
from requant.mlir.diagnostics import float_hint, integer_hint, shown, text_error
from requant.mlir.printer import float_from_bits
from requant.mlir.verifier import integer_fault

MAXIMUM_DEPTH = 64
"""The most brackets, lists or tuples within each other."""
MAXIMUM_NUMBER_LENGTH = 64
MAXIMUM_LIST_LENGTH = 65_536
MAXIMUM_ENTRIES = 4 * MAXIMUM_LIST_LENGTH

# No quantifier here gives back what it took (`++`, `*+`, `?+`), so no text makes the matching more than linear.
BLANKS = r"[ \t\r\n]*+"
DECIMAL = r"[0-9]++\.[0-9]*+(?:[eE][-+]?+[0-9]++)?+"
_TOKEN = re.compile(
    rf"""
    (?:[ \t\r\n]++|//[^\r\n]*+)*+
    (?:
        (?P<float>{DECIMAL})
      | (?P<hexadecimal>0x[0-9a-fA-F]++)
      | (?P<integer>[0-9]++)
      | (?P<word>[A-Za-z_][A-Za-z0-9_$.]*+)
      | (?P<dialect_type>![A-Za-z_$.-][A-Za-z0-9_$.-]*+)
      | (?P<punctuation>->|[<>{{}}()\[\]:,?*-])
      | (?P<end>\Z)
      | (?P<unknown>.)
    )
    """,
    re.VERBOSE | re.DOTALL,
)

_CLOSING = {"<": ">", "{": "}", "(": ")", "[": "]"}
# A string that is not closed on its line matches as its quote alone.
_STRING = r'"(?:[^"\\\n\v\f\r\0]++|\\[^\n\v\f\r\0])*+"'
_BODY = re.compile(rf'->|{_STRING}|[<>{{}}()\[\]"\0]')
_ENCODING = re.compile(rf'->|{_STRING}|//[^\r\n]*+|[<>{{}}()\[\],"\0]')


class TokenKind(StrEnum):
    """The kinds of token. The values are the group names of `_TOKEN`."""

    FLOAT = "float"
    HEXADECIMAL = "hexadecimal"
    INTEGER = "integer"
    WORD = "word"
    DIALECT_TYPE = "dialect_type"
    PUNCTUATION = "punctuation"
    END = "end"
    UNKNOWN = "unknown"


_KINDS = {kind.value: kind for kind in TokenKind}
_NUMBERS = frozenset({TokenKind.FLOAT, TokenKind.HEXADECIMAL, TokenKind.INTEGER})


class Token(NamedTuple):
    """A token and the index of its first character. At the end of the text `text` is empty."""

    kind: TokenKind
    text: str
    start: int

    @property
    def end(self) -> int:
        return self.start + len(self.text)

    def is_punctuation(self, text: str) -> bool:
        return self.kind is TokenKind.PUNCTUATION and self.text == text


class TokenStream:
    """The text, the token that is looked at, and the end of the one before it.

    One token of look-ahead is enough for the whole language. Two places read otherwise than in tokens, lists of
    parameters and shapes (`4x4xf32` is one number and one word), and both go on with `rewind`.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        self.previous_end = 0
        self._entries = 0
        self.token = self._read(0)

    def advance(self) -> Token:
        """Return the token looked at and look at the next one."""
        token = self.token
        self.previous_end = token.end
        self.token = self._read(token.end)
        return token

    def rewind(self, position: int) -> None:
        """Look at the token that starts at or after `position`, whichever was looked at before."""
        self.previous_end = position
        self.token = self._read(position)

    def looks_at(self, punctuation: str) -> bool:
        return self.token.is_punctuation(punctuation)

    def accept(self, punctuation: str) -> bool:
        """Take the token if it is `punctuation`, and say whether it was."""
        if not self.token.is_punctuation(punctuation):
            return False
        self.advance()
        return True

    def expect(self, punctuation: str, purpose: str, hint: str | None = None) -> Token:
        """Take the token, which must be `punctuation`; `purpose` ends the sentence of the error otherwise."""
        if not self.token.is_punctuation(punctuation):
            raise self.unexpected(f"`{punctuation}` {purpose}", hint)
        return self.advance()

    def unexpected(self, expected: str, hint: str | None = None) -> TypeTextError:
        """Return the error that says what should have stood in place of the token looked at."""
        return self.error(self.token.start, f"expected {expected}, found {shown(self.token.text)}", hint)

    def error(self, offset: int, detail: str, hint: str | None = None) -> TypeTextError:
        return text_error(self.text, offset, detail, hint)

    def count_entries(self, count: int, start: int) -> None:
        """Count entries of lists, the last of which starts at `start`: a text has at most `MAXIMUM_ENTRIES`."""
        self._entries += count
        if self._entries > MAXIMUM_ENTRIES:
            raise self.error(start, f"more than {MAXIMUM_ENTRIES} entries in the lists of one text")

    def _read(self, position: int) -> Token:
        match = _TOKEN.match(self.text, position)
        # One of `unknown` and `end` always matches.
        assert match is not None
        assert match.lastgroup is not None
        token = Token(_KINDS[match.lastgroup], match[match.lastgroup], match.start(match.lastgroup))
        if len(token.text) > MAXIMUM_NUMBER_LENGTH and token.kind in _NUMBERS:
            detail = f"a number of {len(token.text)} characters; a number has at most {MAXIMUM_NUMBER_LENGTH} here"
            raise self.error(token.start, detail)
        return token


def body_end(text: str, start: int) -> int:
    """Return the index after the bracket that closes the one at `start`.

    Comments count, as they do for MLIR. Raises TypeTextError when brackets are unbalanced or nested deeper than
    `MAXIMUM_DEPTH`.
    """
    return _scan(text, start, _BODY, opened=[])[1]


def encoding_end(text: str, start: int) -> tuple[str, int]:
    """Return the text from `start` to the `>` that closes the tensor, without comments, and the index of that `>`.

    Raises TypeTextError when brackets are unbalanced, and on a comma outside brackets: a tensor has one encoding.
    """
    comments, end = _scan(text, start, _ENCODING, opened=[start - 1])
    pieces, position = [], start
    for comment_start, comment_end in comments:
        pieces.append(text[position:comment_start])
        position = comment_end
    pieces.append(text[position : end - 1])
    return " ".join(pieces).strip(" \t\r\n"), end - 1


def _scan(text: str, start: int, pattern: re.Pattern[str], opened: list[int]) -> tuple[list[tuple[int, int]], int]:
    """Return the spans of comments and the index after the closing bracket. `opened` holds opening indices.

    An opening index that is no bracket stands for a `<` that was read before.
    """
    comments: list[tuple[int, int]] = []
    for match in pattern.finditer(text, start):
        matched = match[0]
        if matched in _CLOSING:
            opened.append(match.start())
            if len(opened) > MAXIMUM_DEPTH:
                raise text_error(text, match.start(), f"brackets nested more than {MAXIMUM_DEPTH} deep")
        elif matched in (">", "}", ")", "]"):
            expected = _CLOSING.get(text[opened[-1]], ">")
            if matched != expected:
                raise text_error(text, match.start(), f"unbalanced brackets: expected `{expected}`, found `{matched}`")
            opened.pop()
            if not opened:
                return comments, match.end()
        elif matched == "," and len(opened) == 1:
            raise text_error(text, match.start(), "expected `>` after the encoding of the tensor, found `,`")
        elif matched.startswith("//"):
            comments.append(match.span())
        elif matched == '"':
            raise text_error(text, match.start(), "a string that is not closed on its line")
        elif matched == "\0":
            raise text_error(text, match.start(), f"expected text, found {shown(matched)}")
    detail = f"unbalanced brackets: the `{text[opened[-1]]}` at offset {opened[-1]} is not closed"
    raise text_error(text, len(text), detail)


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
        if fault := integer_fault(width):
            raise stream.error(token.start, fault)
        return IntegerElement(width, _SIGNEDNESS[match[1]])
    if token.text == "index":
        return IndexElement()
    return FLOATS.get(token.text)
