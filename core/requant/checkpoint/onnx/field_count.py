"""Looks at a part of a model before protobuf makes objects of it: how many fields it has, and whether texts are texts.

An empty message takes two bytes in a file and some hundred in memory, so that a limit in bytes is none on memory. Field
numbers: onnx.proto of onnx 1.23. Its messages are of proto2, of which protobuf hands out texts that are not UTF-8 as
bytes.
"""

from __future__ import annotations

from collections.abc import Mapping

# The fields of each message that are messages. Others are texts, numbers, or lists of numbers.
_ENTRY: Mapping[int, str] = {}
_CHILDREN: Mapping[str, Mapping[int, str]] = {
    "model": {7: "graph", 8: "operators", 14: "entry", 20: "training", 25: "function", 26: "entry"},
    "training": {1: "graph", 2: "graph", 3: "entry", 4: "entry"},
    "function": {7: "node", 9: "operators", 11: "attribute", 12: "value", 14: "entry"},
    "graph": {
        1: "node",
        5: "tensor",
        11: "value",
        12: "value",
        13: "value",
        14: "annotation",
        15: "sparse",
        16: "entry",
    },
    "node": {5: "attribute", 9: "entry", 10: "entry"},
    "attribute": {
        5: "tensor",
        6: "graph",
        10: "tensor",
        11: "graph",
        14: "type",
        15: "type",
        22: "sparse",
        23: "sparse",
    },
    "tensor": {3: "entry", 13: "external_data", 16: "entry"},
    "sparse": {1: "tensor", 2: "tensor"},
    "annotation": {2: "entry"},
    "value": {2: "type", 4: "entry"},
    "type": {1: "tensor_type", 4: "element", 5: "element", 8: "tensor_type", 9: "element"},
    "element": {1: "type", 2: "type"},
    "tensor_type": {2: "shape"},
    "shape": {1: "entry"},
    "entry": _ENTRY,
    "external_data": _ENTRY,
    "operators": _ENTRY,
}
# The texts that are read: names, operators and domains, and where external data are.
_TEXTS: Mapping[str, frozenset[int]] = {
    "node": frozenset({1, 2, 3, 4, 7}),
    "attribute": frozenset({1}),
    "tensor": frozenset({8}),
    "value": frozenset({1}),
    "external_data": frozenset({1, 2}),
    "operators": frozenset({1}),
}
_NO_TEXTS: frozenset[int] = frozenset()
_FIXED = {1: 8, 5: 4}
_LENGTH = 2


def count_fields(data: bytes, kind: str, number: int, most: int) -> int:
    """Return the number of fields in one encoded field of a message of `kind`, and in the messages in it.

    `number`: the field's own. Counting ends beyond `most`. What is not encoded as protobuf says is not looked into:
    protobuf refuses it. Raises UnicodeDecodeError for a name or another text that is read and is not UTF-8.
    """
    found = 1
    begin, end = _content(data)
    if number in _TEXTS.get(kind, _NO_TEXTS) and _varint(data, 0, len(data))[0] & 7 == _LENGTH:
        data[begin:end].decode()
    stack = [(_CHILDREN[kind].get(number), begin, end)]
    while stack and found <= most:
        inner, at, end = stack.pop()
        if inner is None:
            continue
        children, texts = _CHILDREN[inner], _TEXTS.get(inner, _NO_TEXTS)
        while at < end and found <= most:
            key, at = _varint(data, at, end)
            found += 1
            wire = key & 7
            length, after = _varint(data, at, end) if wire in (0, 2) else (_FIXED.get(wire, end), at)
            at = after + (0 if wire == 0 else length)
            if wire != _LENGTH:
                continue
            if key >> 3 in children:
                stack.append((children[key >> 3], after, min(at, end)))
            elif key >> 3 in texts:
                data[after : min(at, end)].decode()
    return found


def _content(data: bytes) -> tuple[int, int]:
    """Return where the value of a field with a length begins and ends."""
    _, at = _varint(data, 0, len(data))
    return _varint(data, at, len(data))[1], len(data)


def _varint(data: bytes, at: int, end: int) -> tuple[int, int]:
    """Return the number at an offset, and where it ends. One that does not end is 0, and its end the end of all."""
    number = shift = 0
    while at < end:
        byte = data[at]
        at += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number, at
        shift += 7
    return 0, end
