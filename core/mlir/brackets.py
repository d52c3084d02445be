"""Brackets in text that is not yet tokens: the body of a dialect type, and the encoding of a tensor.

MLIR finds the end of a dialect type by counting brackets before it reads a token of it.
"""

from __future__ import annotations

import re

from core.mlir.diagnostics import shown, text_error

MAXIMUM_DEPTH = 64

_CLOSING = {"<": ">", "{": "}", "(": ")", "[": "]"}
# A string that is not closed on its line matches as its quote alone.
_STRING = r'"(?:[^"\\\n\v\f\r\0]++|\\[^\n\v\f\r\0])*+"'
_BODY = re.compile(rf'->|{_STRING}|[<>{{}}()\[\]"\0]')
_ENCODING = re.compile(rf'->|{_STRING}|//[^\r\n]*+|[<>{{}}()\[\],"\0]')


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
        found = match[0]
        if found in _CLOSING:
            opened.append(match.start())
            if len(opened) > MAXIMUM_DEPTH:
                raise text_error(text, match.start(), f"brackets nested more than {MAXIMUM_DEPTH} deep")
        elif found in (">", "}", ")", "]"):
            expected = _CLOSING.get(text[opened[-1]], ">")
            if found != expected:
                raise text_error(text, match.start(), f"unbalanced brackets: expected `{expected}`, found `{found}`")
            opened.pop()
            if not opened:
                return comments, match.end()
        elif found == "," and len(opened) == 1:
            raise text_error(text, match.start(), "expected `>` after the encoding of the tensor, found `,`")
        elif found.startswith("//"):
            comments.append(match.span())
        elif found == '"':
            raise text_error(text, match.start(), "a string that is not closed on its line")
        elif found == "\0":
            raise text_error(text, match.start(), f"expected text, found {shown(found)}")
    detail = f"unbalanced brackets: the `{text[opened[-1]]}` at offset {opened[-1]} is not closed"
    raise text_error(text, len(text), detail)
