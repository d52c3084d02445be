"""Tokens: their kinds, their places, and what is no token."""

from __future__ import annotations

import pytest

from requant.errors import TypeTextError
from requant.mlir.lexer import TokenKind, TokenStream


def _tokens(text: str) -> list[tuple[str, str, int]]:
    stream, found = TokenStream(text), []
    while stream.token.kind is not TokenKind.END:
        token = stream.advance()
        found.append((token.kind.value, token.text, token.start))
    return found


def test_kinds_and_places() -> None:
    assert _tokens(" !quant.any // c\n 0x1F -1.5e+3:?i8->") == [
        ("dialect_type", "!quant.any", 1),
        ("hexadecimal", "0x1F", 18),
        ("punctuation", "-", 23),
        ("float", "1.5e+3", 24),
        ("punctuation", ":", 30),
        ("punctuation", "?", 31),
        ("word", "i8", 32),
        ("punctuation", "->", 34),
    ]


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("1.0e+", ["1.0", "e", "+"]),
        ("1.0f", ["1.0", "f"]),
        ("1e5", ["1", "e5"]),
        ("1.e5", ["1.e5"]),
        (".5", [".", "5"]),
        ("0x", ["0", "x"]),
        ("0X1", ["0", "X1"]),
        ("1_0", ["1", "_0"]),
        ("4x4xf32", ["4", "x4xf32"]),
        ("a.b$c_1", ["a.b$c_1"]),
        ("/ /", ["/", "/"]),
        ("\f", ["\f"]),
        ("é", ["é"]),
    ],
)
def test_division_into_tokens(text: str, parts: list[str]) -> None:
    assert [token for _, token, _ in _tokens(text)] == parts


def test_long_numbers_are_refused() -> None:
    assert _tokens("1" * 64)
    with pytest.raises(TypeTextError, match="at most 64"):
        TokenStream("1" * 65)
    assert _tokens("a" * 65)


def test_expect_names_what_was_expected_and_found() -> None:
    stream = TokenStream("< i8")
    stream.expect("<", "here")
    with pytest.raises(TypeTextError, match="expected `>` to close, found `i8`, at offset 2"):
        stream.expect(">", "to close")
