"""A request message, cut along its outermost fields without a copy of its tensors.

Protobuf's parser would copy each tensor out of the message. So `raw_input_contents` is found here, and protobuf parses
the rest. The `id` is cut out too: what is left is the same for all requests that ask for the same.

Only messages as writers of protobuf make them are cut. Whatever else may be a message (groups, varints that are longer
than they need to be, two ids) is left to protobuf, if it is short.
"""

from __future__ import annotations

from typing import NamedTuple

from requant.errors import LimitError

MAX_FIELDS = 1024
"""More outermost fields than the limits on tensors and parameters allow: the error is about one of those."""

# What comes before a field: its number times 8, and its wire type.
_ID = 3 << 3 | 2
_RAW_INPUT_CONTENTS = 7 << 3 | 2
_VARINT, _FIXED64, _LENGTH_DELIMITED, _FIXED32 = 0, 1, 2, 5
# Fields 1 to 7 of that wire type, which are all that the protocol has.
_USUAL = frozenset(range(1 << 3 | 2, 7 << 3 | 3, 8))
# Protobuf's own limits: bytes of a varint of 32 and of 64 bits, and the length of a field.
_MAX_BYTES_32, _MAX_BYTES_64 = 5, 10
_LONGEST = (1 << 31) - 1


class RequestParts(NamedTuple):
    """The parts of a request message.

    `head`: the message without its `id` and its `raw_input_contents`. `id`: undecoded, None if there is none.
    """

    head: bytes
    id: bytes | None
    raw: list[memoryview]


def request_parts(message: bytes | memoryview) -> RequestParts | None:
    """Cut a message. None: it is no message, or is not written as usual.

    Raise LimitError if it has more than `MAX_FIELDS` fields: nothing that can be meant has.
    """
    whole = memoryview(message)
    kept: list[bytes] = []
    raw: list[memoryview] = []
    found: bytes | None = None
    size, at, kept_to = len(message), 0, 0
    for _ in range(MAX_FIELDS):
        start = at
        if at + 1 >= size:
            break
        tag, length = message[at], message[at + 1]
        if tag in _USUAL and length < 0x80:
            value = at + 2
        else:
            tag, value, length = _field(message, at)
            if value < 0:
                return None
        at = value + length
        if at > size:
            return None
        if tag in (_RAW_INPUT_CONTENTS, _ID):
            if start > kept_to:
                kept.append(bytes(whole[kept_to:start]))
            kept_to = at
            if tag == _ID:
                if found is not None:
                    return None
                found = bytes(whole[value:at])
            else:
                raw.append(whole[value:at])
    else:
        if at < size:
            raise LimitError(f"the message has more than {MAX_FIELDS} fields", limit=MAX_FIELDS)
    if at != size:
        return None
    if kept_to < size:
        kept.append(bytes(whole[kept_to:]))
    return RequestParts(kept[0] if len(kept) == 1 else b"".join(kept), found, raw)


def _field(message: bytes | memoryview, at: int) -> tuple[int, int, int]:
    """Return the tag of a field, the place of its value, -1 if there is no usual field, and the length of that."""
    tag, at = _varint(message, at, _MAX_BYTES_32)
    wire_type = tag & 7
    if at < 0 or not 1 << 3 <= tag < 1 << 32:
        return tag, -1, 0
    if wire_type == _LENGTH_DELIMITED:
        length, at = _varint(message, at, _MAX_BYTES_32)
        return tag, at if length <= _LONGEST else -1, length
    if wire_type == _VARINT:
        return tag, _varint(message, at, _MAX_BYTES_64)[1], 0
    if wire_type in (_FIXED32, _FIXED64):
        return tag, at, 4 if wire_type == _FIXED32 else 8
    return tag, -1, 0


def _varint(message: bytes | memoryview, at: int, most_bytes: int) -> tuple[int, int]:
    """Return the varint at a place and the place after it, which is -1 if there is none in its shortest form."""
    value = shift = 0
    for place in range(at, min(at + most_bytes, len(message))):
        byte = message[place]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (value, place + 1) if byte or place == at else (0, -1)
        shift += 7
    return 0, -1
