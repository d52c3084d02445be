"""The fields of a message, counted before it is parsed: each of them becomes an object, whatever its length.

Two bytes may be an empty tensor, a parameter or an element of `bytes_contents`, which takes a hundred bytes and more.
Packed numbers are one field.
"""

from __future__ import annotations

from typing import Any

from requant.errors import LimitError
from requant.errors.cancellation import check_cancelled

MAX_FIELDS = 1 << 16
"""Fields of a message and of the messages in it: 256 tensors with 32 parameters each have half as many."""
_MAX_DEPTH = 8
_CHECKED = 1 << 12
_LENGTH_DELIMITED = 2
_SIZES = {1: 8, 5: 4}


def check_field_count(message: memoryview, descriptor: Any) -> None:
    """Raise LimitError if a message has more than `MAX_FIELDS` fields in all.

    Of what is no message, what can be read is counted: the parser refuses it.
    """
    count = 0
    waiting = [(0, len(message), descriptor, 0)]
    while waiting:
        at, end, kind, depth = waiting.pop()
        messages = {
            field.number: field.message_type
            for field in kind.fields_by_number.values()
            if field.message_type is not None
        }
        while at < end:
            count += 1
            if count > MAX_FIELDS:
                raise LimitError(f"the message has more than {MAX_FIELDS} fields in all", limit=MAX_FIELDS)
            if not count % _CHECKED:
                check_cancelled()
            tag, at = _varint(message, at, end)
            wire_type = tag & 7
            if wire_type == 0:
                _, at = _varint(message, at, end)
            elif wire_type == _LENGTH_DELIMITED:
                length, at = _varint(message, at, end)
                inner = messages.get(tag >> 3)
                if inner is not None and depth < _MAX_DEPTH:
                    waiting.append((at, min(end, at + length), inner, depth + 1))
                at += length
            else:
                # The ends of groups have no value: what is in them is counted as if it were outside.
                at += _SIZES.get(wire_type, 0)


def _varint(message: memoryview, at: int, end: int) -> tuple[int, int]:
    """Return a varint, and the place after it. One without an end goes to the end."""
    value = shift = 0
    while at < end:
        byte = message[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
        if shift > 63:
            return value, end
    return value, end
