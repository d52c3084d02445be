"""The caret stands under the wrong character, whatever the text is made of."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from requant.mlir.diagnostics import WINDOW, caret, shown, text_error


def test_window_around_a_far_place() -> None:
    text = "a" * 1000 + "!" + "b" * 1000
    line, pointer = caret(text, 1000).split("\n")
    assert len(line) == WINDOW
    assert line[len(pointer) - 1] == "!"


def test_control_characters_are_escaped() -> None:
    assert caret("a\n\0b\x1b[31m", 3) == "a\\n\\x00b\\x1b[31m\n       ^"


def test_end_of_text() -> None:
    assert caret("abc", 3) == "abc\n   ^"
    assert caret("", 0) == "\n^"


def test_error_holds_everything() -> None:
    error = text_error("i9x", 2, "wrong", "write `i9`")
    assert (error.detail, error.offset, error.caret, error.hint) == (
        "wrong, at offset 2",
        2,
        "i9x\n  ^",
        "write `i9`",
    )


def test_shown_is_short() -> None:
    assert shown("") == "the end of the text"
    assert shown("a") == "`a`"
    assert len(shown("a" * 1000)) < 40


@given(st.text(max_size=300), st.data())
def test_caret_points_at_the_character(text: str, data: st.DataObject) -> None:
    offset = data.draw(st.integers(0, len(text)))
    line, pointer = caret(text, offset).split("\n")
    assert line.isprintable()
    assert pointer == " " * (len(pointer) - 1) + "^"
    if offset < len(text) and " " <= text[offset] <= "~":
        assert line[len(pointer) - 1] == text[offset]
    assert len(line) <= 10 * WINDOW
