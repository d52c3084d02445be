"""Errors that teach: where a text stops being a type, what was expected there, and a caret under the place."""

from __future__ import annotations

from requant.errors import TypeTextError, excerpt

WINDOW = 80
SHOWN_TOKEN = 24


def caret(text: str, offset: int) -> str:
    """Return two lines: at most `WINDOW` characters of `text` around `offset`, and `^` under the one at `offset`.

    Everything that is not printable ASCII is shown as an escape, so that the caret stands where it should.
    """
    start = max(0, min(offset - WINDOW // 2, len(text) - WINDOW))
    before, after = _escaped(text[start:offset]), _escaped(text[offset : start + WINDOW])
    return f"{before}{after}\n{' ' * len(before)}^"


def text_error(text: str, offset: int, detail: str, hint: str | None = None) -> TypeTextError:
    """Return the error for the character at `offset` of `text`; `detail` says what is wrong, without the place."""
    return TypeTextError(f"{detail}, at offset {offset}", offset=offset, caret=caret(text, offset), hint=hint)


def shown(token: str) -> str:
    """Return `token` as messages show it: quoted, shortened, or named when there is nothing to quote."""
    if not token:
        return "the end of the text"
    return f"`{excerpt(token if len(token) <= SHOWN_TOKEN else token[:SHOWN_TOKEN] + '...')}`"


def _escaped(part: str) -> str:
    return "".join(c if " " <= c <= "~" else c.encode("unicode_escape").decode("ascii") for c in part)
