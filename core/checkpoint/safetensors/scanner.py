"""Tokens of JSON from anyone's hands: headers, and the index of a checkpoint.

`json` builds every value that it meets: 100 MB of `[[],[],…` are more than 2 GB of lists. Here nothing is built that is
not asked for, and nothing recurses.
"""

from __future__ import annotations

import json
import re
from typing import NoReturn

from core.errors import SafetensorsError, excerpt

MOST_NESTING = 100
"""How deep a value that is skipped may be nested. serde_json, which the library reads with, stops at 128."""

_SPACE = re.compile(rb"[ \t\n\r]*+")
_AROUND = {
    character: re.compile(rb"[ \t\n\r]*+" + re.escape(character) + rb"[ \t\n\r]*+")
    for character in (b"{", b"}", b"[", b"]", b":", b",")
}
_INTEGER = re.compile(rb"(?:0|[1-9][0-9]*+)(?![0-9.eE])")
_PLAIN_STRING = re.compile(rb'"[^"\\\x00-\x1f]*+"')
_STRING = re.compile(rb'"(?:[^"\\\x00-\x1f]++|\\(?:["\\/bfnrt]|u[0-9A-Fa-f]{4}))*+"')
_SCALAR = re.compile(rb"(?:true|false|null|-?(?:0|[1-9][0-9]*+)(?:\.[0-9]++)?(?:[eE][+-]?[0-9]++)?)(?![A-Za-z0-9.+-])")
_MOST_DIGITS = len(str(2**64 - 1))


class Scanner:
    """A place in the bytes of a JSON text. Each method reads one thing there, or raises SafetensorsError."""

    def __init__(self, text: bytes, text_name: str = "the header") -> None:
        self.text = text
        self.text_name = text_name
        self.at = 0

    def fail(self, expected: str) -> NoReturn:
        """Raise SafetensorsError: something other than `expected` was found here."""
        found = self.text[self.at : self.at + 12]
        shown = f"found {excerpt(found.decode('utf-8', 'replace'))!r}" if found else f"{self.text_name} ends"
        self.refuse(self.at, f"expected {expected}, {shown}")

    def refuse(self, at: int, detail: str) -> NoReturn:
        """Raise SafetensorsError about byte `at`."""
        raise SafetensorsError(f"byte {at} of {self.text_name}: {detail}")

    def skip_space(self) -> None:
        """Move past JSON's white space."""
        self.at = _SPACE.match(self.text, self.at).end()  # type: ignore[union-attr] # it matches nothing, too

    def take(self, character: bytes) -> bool:
        """Move past `character` and the white space around it, if it comes next."""
        found = _AROUND[character].match(self.text, self.at)
        if found is None:
            return False
        self.at = found.end()
        return True

    def expect(self, character: bytes, where: str) -> None:
        """Move past `character` and the white space around it."""
        if not self.take(character):
            self.skip_space()
            self.fail(f"'{character.decode()}' {where}")

    def string(self, what: str) -> str:
        """Read a string: UTF-8, without raw control characters, without half a surrogate pair."""
        start = self.at
        found = _PLAIN_STRING.match(self.text, start) or _STRING.match(self.text, start)
        if found is None:
            self.fail(f"{what}: a string, without control characters")
        try:
            value: str = found[0].decode("utf-8")
            if found.re is _STRING:
                value = json.loads(value)
                value.encode("utf-8")
            else:
                value = value[1:-1]
        except UnicodeDecodeError:
            self.refuse(start, f"{what} is not UTF-8")
        except UnicodeEncodeError:
            self.refuse(start, f"{what} has an unpaired surrogate")
        self.at = found.end()
        return value

    def integer(self, what: str) -> int:
        """Read an integer in [0, 2^64), written in digits without a sign, fraction, exponent or leading zero."""
        found = _INTEGER.match(self.text, self.at)
        if found is None or found.end() - self.at > _MOST_DIGITS or (value := int(found[0])) >= 2**64:
            self.fail(f"{what}: an integer from 0 to 2^64 - 1, digits only")
        self.at = found.end()
        return value

    def integers(self, what: str, most: int) -> tuple[int, ...]:
        """Read a list of at most `most` integers."""
        self.expect(b"[", f"before {what}")
        values: list[int] = []
        if self.take(b"]"):
            return ()
        while True:
            if len(values) == most:
                self.fail(f"{what}: at most {most} integers")
            values.append(self.integer(what))
            if self.take(b"]"):
                return tuple(values)
            self.expect(b",", f"or ']' in {what}")

    def strings(self, what: str) -> dict[str, str]:
        """Read an object whose values are strings, and whose keys differ."""
        self.expect(b"{", f"before {what}")
        found: dict[str, str] = {}
        ended = self.take(b"}")
        while not ended:
            start = self.at
            key = self.string(f"a key of {what}")
            if key in found:
                self.refuse(start, f"a second '{excerpt(key)}' in {what}")
            self.expect(b":", "behind a key")
            found[key] = self.string(f"a value of {what}")
            ended = self.take(b"}")
            if not ended:
                self.expect(b",", f"or '}}' in {what}")
        return found

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
        while True:
            self.skip_space()
            first = self.text[self.at : self.at + 1]
            if first in (b"{", b"["):
                if len(closing) == MOST_NESTING:
                    self.fail(f"values nested at most {MOST_NESTING} deep")
                self.at += 1
                self.skip_space()
                closing.append(b"}" if first == b"{" else b"]")
                if not self.take(closing[-1]):
                    self._skip_key(closing)
                    continue
                closing.pop()
            elif first == b'"':
                self.string("a value")
            elif scalar := _SCALAR.match(self.text, self.at):
                self.at = scalar.end()
            else:
                self.fail("a value")
            while closing and self.take(closing[-1]):
                closing.pop()
            if not closing:
                return
            self.expect(b",", f"or '{closing[-1].decode()}'")
            self._skip_key(closing)

    def _skip_key(self, closing: list[bytes]) -> None:
        if closing[-1] == b"}":
            self.string("a key")
            self.expect(b":", "behind a key")
