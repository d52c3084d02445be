"""Protobuf's wire format: messages whose fields are counted, or cut apart, before any of them is parsed.

Each field becomes an object, whatever its length: two bytes may be an empty tensor, a parameter or an element of
`bytes_contents`, which takes a hundred bytes and more. So they are counted first. Packed numbers are one field.

The parser would copy each tensor out of a request. So `raw_input_contents` is found here, and protobuf parses the rest.
The `id` is cut out too: what is left is the same for all requests that ask for the same.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from google.protobuf.message import DecodeError

from requant.errors import LimitError, MalformedRequestError
from requant.errors.cancellation import check_cancelled

MAX_FIELDS = 1 << 16
"""Fields of a message and of the messages in it: 256 tensors with 32 parameters each have half as many."""
MAX_OUTER_FIELDS = 1024
"""More outermost fields than the limits on tensors and parameters allow: the error is about one of those."""

_VARINT, _FIXED64, _LENGTH_DELIMITED, _FIXED32 = 0, 1, 2, 5
_SIZES = {_FIXED64: 8, _FIXED32: 4}
# Protobuf's own limits: bytes of a varint of 32 and of 64 bits, and the length of a field.
_MAX_BYTES_32, _MAX_BYTES_64 = 5, 10
_LONGEST = (1 << 31) - 1

_MAX_DEPTH = 8
_CHECKED = 1 << 12

# What comes before a field of a request: its number times 8, and its wire type.
_ID = 3 << 3 | _LENGTH_DELIMITED
_RAW_INPUT_CONTENTS = 7 << 3 | _LENGTH_DELIMITED
# Fields 1 to 7 of that wire type, which are all that the protocol has.
_USUAL = frozenset(range(1 << 3 | 2, 7 << 3 | 3, 8))


def parse(kind: Any, message: bytes | memoryview) -> Any:
    """Return a message of some kind. Raise MalformedRequestError."""
    try:
        return kind.FromString(message)
    except DecodeError:
        raise MalformedRequestError(f"the message is not a {kind.DESCRIPTOR.name} as protobuf writes it") from None


def read_varint(
    message: bytes | memoryview, at: int, end: int, max_bytes: int = _MAX_BYTES_64, *, shortest: bool = False
) -> tuple[int, int]:
    """Return the varint at a place and the place after it, which is -1 if it has no end.

    `shortest`: one that is longer than it needs to be counts as none.
    """
    value = shift = 0
    for place in range(at, min(at + max_bytes, end)):
        byte = message[place]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (value, place + 1) if byte or place == at or not shortest else (0, -1)
        shift += 7
    return 0, -1


def written_varint(number: int) -> bytes:
    """Return a number as a varint."""
    written = bytearray()
    while number >= 0x80:
        written.append(number & 0x7F | 0x80)
        number >>= 7
    written.append(number)
    return bytes(written)


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
            tag, at = read_varint(message, at, end)
            wire_type, length = tag & 7, 0
            if at >= 0 and wire_type in (_VARINT, _LENGTH_DELIMITED):
                length, at = read_varint(message, at, end)
            if at < 0:
                break
            if wire_type == _LENGTH_DELIMITED:
                inner = messages.get(tag >> 3)
                if inner is not None and depth < _MAX_DEPTH:
                    waiting.append((at, min(end, at + length), inner, depth + 1))
                at += length
            else:
                # The ends of groups have no value: what is in them is counted as if it were outside.
                at += _SIZES.get(wire_type, 0)


class RequestParts(NamedTuple):
    """The parts of a request message.

    `head`: the message without its `id` and its `raw_input_contents`. `id`: undecoded, None if there is none.
    """

    head: bytes
    id: bytes | None
    raw: list[memoryview]


def request_parts(message: bytes | memoryview) -> RequestParts | None:
    """Cut a request. None: it is no message, or is not written as usual.

    Only messages as writers of protobuf make them are cut. Whatever else may be a message (groups, varints that are
    longer than they need to be, two ids) is left to protobuf, if it is short. Raise LimitError if it has more than
    `MAX_OUTER_FIELDS` fields: nothing that can be meant has.
    """
    whole = memoryview(message)
    kept: list[bytes] = []
    raw: list[memoryview] = []
    part: bytes | None = None
    size, at, kept_to = len(message), 0, 0
    for _ in range(MAX_OUTER_FIELDS):
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
                if part is not None:
                    return None
                part = bytes(whole[value:at])
            else:
                raw.append(whole[value:at])
    else:
        if at < size:
            raise LimitError(f"the message has more than {MAX_OUTER_FIELDS} fields", limit=MAX_OUTER_FIELDS)
    if at != size:
        return None
    if kept_to < size:
        kept.append(bytes(whole[kept_to:]))
    return RequestParts(kept[0] if len(kept) == 1 else b"".join(kept), part, raw)


def _field(message: bytes | memoryview, at: int) -> tuple[int, int, int]:
    """Return the tag of a field, the place of its value, -1 if there is no usual field, and the length of that."""
    tag, at = read_varint(message, at, len(message), _MAX_BYTES_32, shortest=True)
    wire_type = tag & 7
    if at < 0 or not 1 << 3 <= tag < 1 << 32:
        return tag, -1, 0
    if wire_type == _LENGTH_DELIMITED:
        length, at = read_varint(message, at, len(message), _MAX_BYTES_32, shortest=True)
        return tag, at if length <= _LONGEST else -1, length
    if wire_type == _VARINT:
        return tag, read_varint(message, at, len(message), shortest=True)[1], 0
    if wire_type in _SIZES:
        return tag, at, _SIZES[wire_type]
    return tag, -1, 0
