"""Tokens of untrusted JSON: headers, and the index of a checkpoint.

`json` builds every value that it meets: 100 MB of `[[],[],…` are more than 2 GB of lists. Here nothing is built that is
not asked for, and nothing recurses. No step looks at more than `_WINDOW` bytes, so that other threads of the process
run in between, and the work ends soon after it is cancelled.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from itertools import count
from typing import NoReturn

from requant.errors import SafetensorsError, excerpt
from requant.errors.cancellation import check_cancelled

MAX_NESTING = 100
"""How deep a value that is skipped may be nested. serde_json, which the library reads with, stops at 128."""

_WINDOW = 1 << 16
_STEPS_BETWEEN_CHECKS = 64

_SPACE = re.compile(rb"[ \t\n\r]*+")
_AROUND = {
    character: re.compile(rb"[ \t\n\r]*+" + re.escape(character) + rb"[ \t\n\r]*+")
    for character in (b"{", b"}", b"[", b"]", b":", b",")
}
_INTEGER = re.compile(rb"(?:0|[1-9][0-9]*+)(?![0-9.eE])")
_PLAIN_STRING = re.compile(rb'"[^"\\\x00-\x1f]*+"')
_STRING = re.compile(rb'"(?:[^"\\\x00-\x1f]++|\\(?:["\\/bfnrt]|u[0-9A-Fa-f]{4}))*+"')
_SCALAR = re.compile(rb"(?:true|false|null|-?(?:0|[1-9][0-9]*+)(?:\.[0-9]++)?(?:[eE][+-]?[0-9]++)?)(?![A-Za-z0-9.+-])")
_MAX_DIGITS = len(str(2**64 - 1))
# A piece of a string, cut between two characters: the two escapes of a surrogate pair are one.
_PIECE = re.compile(
    rb'(?:[^"\\\x00-\x1f]++|\\(?:["\\/bfnrt]|u(?:(?![Dd][89A-Fa-f])[0-9A-Fa-f]{4}'
    rb"|[Dd][89ABab][0-9A-Fa-f]{2}\\u[Dd][C-Fc-f][0-9A-Fa-f]{2})))*+"
)
_LONGEST_ESCAPE = len(r"\ud83d\ude00")
_LONGEST_CHARACTER = 4


Text = bytes | bytearray


class Scanner:
    """A place in the bytes of a JSON text. Each method reads one thing there, or raises SafetensorsError."""

    def __init__(self, text: Text, text_name: str = "the header") -> None:
        self.text = text
        self.text_name = text_name
        self.at = 0

    def fail(self, expected: str) -> NoReturn:
        """Raise SafetensorsError: something other than `expected` was found here."""
        ahead = self.text[self.at : self.at + 12]
        shown = f"found {excerpt(ahead.decode('utf-8', 'replace'))!r}" if ahead else f"{self.text_name} ends"
        self.refuse(self.at, f"expected {expected}, {shown}")

    def refuse(self, at: int, detail: str) -> NoReturn:
        """Raise SafetensorsError about byte `at`."""
        raise SafetensorsError(f"byte {at} of {self.text_name}: {detail}")

    def skip_space(self) -> None:
        """Move past JSON's white space."""
        begin = -_WINDOW
        while self.at - begin >= _WINDOW:
            begin = self.at
            self.at = _SPACE.match(self.text, begin, begin + _WINDOW).end()  # type: ignore[union-attr] # it may be empty

    def take(self, character: bytes) -> bool:
        """Move past `character` and the white space around it, if it comes next."""
        match = _AROUND[character].match(self.text, self.at, self.at + _WINDOW)
        if match is None:
            return False
        self.at = match.end()
        return True

    def expect(self, character: bytes, where: str) -> None:
        """Move past `character` and the white space around it."""
        if not self.take(character):
            self.skip_space()
            self.fail(f"'{character.decode()}' {where}")

    def string(self, what: str, *, short: bool = False) -> str:
        """Read a string: UTF-8, without raw control characters, without half a surrogate pair.

        `short`: one that does not fit into a window is refused, not read.
        """
        start = self.at
        end = start + _WINDOW
        match = _PLAIN_STRING.match(self.text, start, end) or _STRING.match(self.text, start, end)
        if match is None:
            pieces = self._pieces(what)
            if short:
                next(pieces)
                self.refuse(start, f"{what} has more than {_WINDOW} bytes")
            return "".join(pieces)
        try:
            value: str = match[0].decode("utf-8")
            if match.re is _STRING:
                value = json.loads(value)
                value.encode("utf-8")
            else:
                value = value[1:-1]
        except UnicodeDecodeError:
            self.refuse(start, f"{what} is not UTF-8")
        except UnicodeEncodeError:
            self.refuse(start, f"{what} has an unpaired surrogate")
        self.at = match.end()
        return value

    def _pieces(self, what: str) -> Iterator[str]:
        """Yield the pieces of a string that is longer than a window, and move past it."""
        at = self.at + 1
        if self.text[self.at : at] != b'"':
            self.fail(f"{what}: a string, without control characters")
        while True:
            check_cancelled()
            end = min(at + _WINDOW, len(self.text))
            stop = cut = _PIECE.match(self.text, at, end).end()  # type: ignore[union-attr] # it may be empty
            closed = self.text[stop : stop + 1] == b'"'
            if not closed:
                if end == len(self.text) or stop <= end - _LONGEST_ESCAPE:
                    self.fail(f"{what}: a string, without control characters or half surrogate pairs")
                while stop - cut < _LONGEST_CHARACTER and self.text[cut] & 0xC0 == 0x80:
                    cut -= 1
            piece = self.text[at:cut]
            try:
                yield json.loads(b'"%b"' % bytes(piece)) if b"\\" in piece else piece.decode("utf-8")
            except UnicodeDecodeError:
                self.refuse(self.at, f"{what} is not UTF-8")
            if closed:
                self.at = stop + 1
                return
            at = cut

    def integer(self, what: str) -> int:
        """Read an integer in [0, 2^64), written in digits without a sign, fraction, exponent or leading zero."""
        match = _INTEGER.match(self.text, self.at, self.at + _MAX_DIGITS + 1)
        if match is None or match.end() - self.at > _MAX_DIGITS or (value := int(match[0])) >= 2**64:
            self.fail(f"{what}: an integer from 0 to 2^64 - 1, digits only")
        self.at = match.end()
        return value

    def integers(self, what: str, maximum: int) -> tuple[int, ...]:
        """Read a list of at most `maximum` integers."""
        self.expect(b"[", f"before {what}")
        values: list[int] = []
        if self.take(b"]"):
            return ()
        while True:
            if len(values) == maximum:
                self.fail(f"{what}: at most {maximum} integers")
            values.append(self.integer(what))
            if self.take(b"]"):
                return tuple(values)
            self.expect(b",", f"or ']' in {what}")

    def strings(self, what: str, max_bytes: int | None = None) -> dict[str, str]:
        """Read an object whose values are strings, and whose keys differ. One of more than `max_bytes` is refused."""
        begin = self.at
        self.expect(b"{", f"before {what}")
        strings: dict[str, str] = {}
        for start, key in self.members(f"a key of {what}", "behind a key", f"in {what}"):
            if key in strings:
                self.refuse(start, f"a second '{excerpt(key)}' in {what}")
            strings[key] = self.string(f"a value of {what}")
            if max_bytes is not None and self.at - begin > max_bytes:
                self.refuse(begin, f"{what} has more than {max_bytes} bytes")
        return strings

    def members(self, key: str, after_key: str, after_value: str, *, short: bool = False) -> Iterator[tuple[int, str]]:
        """Yield the place and the key of each member of an object whose `{` has been read, and move past its `}`.

        Whoever iterates reads the value of a member before the next one. `key`, `after_key`, `after_value`: what is
        read, and where, for messages. `short`: of keys, as in `string`.
        """
        if self.take(b"}"):
            return
        for step in count():
            if step % _STEPS_BETWEEN_CHECKS == 0:
                check_cancelled()
            start = self.at
            name = self.string(key, short=short)
            self.expect(b":", after_key)
            yield start, name
            if self.take(b"}"):
                return
            self.expect(b",", f"or '}}' {after_value}")

    def end(self) -> None:
        """Move past white space to the end."""
        self.skip_space()
        if self.at != len(self.text):
            self.fail("only whitespace after the last '}'")

    def null(self) -> bool:
        """Move past `null` if it stands here."""
        if self.text[self.at : self.at + 4] != b"null":
            return False
        self.at += 4
        return True

    def skip_value(self) -> None:
        """Move past any value, however large, without building it."""
        closing: list[bytes] = []
        for step in count():
            if step % _STEPS_BETWEEN_CHECKS == 0:
                check_cancelled()
            self.skip_space()
            first = self.text[self.at : self.at + 1]
            if first in (b"{", b"["):
                if len(closing) == MAX_NESTING:
                    self.fail(f"values nested at most {MAX_NESTING} deep")
                self.at += 1
                self.skip_space()
                closing.append(b"}" if first == b"{" else b"]")
                if not self.take(closing[-1]):
                    self._skip_key(closing)
                    continue
                closing.pop()
            elif first == b'"':
                self._skip_string("a value")
            elif (scalar := _SCALAR.match(self.text, self.at, self.at + _WINDOW)) and len(scalar[0]) < _WINDOW:
                self.at = scalar.end()
            else:
                self.fail("a value")
            while closing and self.take(closing[-1]):
                closing.pop()
            if not closing:
                return
            self.expect(b",", f"or '{closing[-1].decode()}'")
            self._skip_key(closing)

    def _skip_string(self, what: str) -> None:
        if match := _PLAIN_STRING.match(self.text, self.at, self.at + _WINDOW):
            self.at, begin = match.end(), self.at
            try:
                match[0].decode("utf-8")
            except UnicodeDecodeError:
                self.refuse(begin, f"{what} is not UTF-8")
            return
        for _ in self._pieces(what):
            pass

    def _skip_key(self, closing: list[bytes]) -> None:
        if closing[-1] == b"}":
            self._skip_string("a key")
            self.expect(b":", "behind a key")
