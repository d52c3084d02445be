"""Reads an ONNX model without its large initializers, so that a model of any size is a small graph in memory.

The messages of a model are walked on the wire. Of an initializer that carries 1 KiB or more in the file itself, the
bytes stay where they are: the tensor gets external data whose location is the model file. What remains is parsed as
usual, once it is known how many fields it has, and that texts are texts: an empty message takes two bytes in a file and
some hundred in memory, so that a limit in bytes is none on memory; and onnx's messages are of proto2, of which protobuf
hands out texts that are not UTF-8 as bytes.

Field numbers: onnx.proto of onnx 1.23.
"""

from __future__ import annotations

from collections.abc import Mapping

from requant.checkpoint.onnx.graph import messages, point_to
from requant.checkpoint.storage.store import Store, StoredFile, read_range
from requant.errors import CheckpointError
from requant.errors.cancellation import check_cancelled

SMALL = 1024
"""Initializers of fewer bytes stay in the graph."""

_LARGEST_SKELETON = 64 << 20
_MAX_FIELDS = 1_000_000
_DEEPEST = 32
_WINDOW = 1 << 16
_VARINT, _FIXED64, _LENGTH, _FIXED32 = 0, 1, 2, 5
_FIXED = {_FIXED64: 8, _FIXED32: 4}
_LONGEST_VARINT = 10

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
# The messages that may hold much, and are walked on the wire.
_WALKED: Mapping[str, frozenset[int]] = {
    "model": frozenset({7}),
    "graph": frozenset({1, 5}),
    "node": frozenset({5}),
    "attribute": frozenset({6, 11}),
    "tensor": frozenset(),
}

# raw_data, and float_data and double_data, which are little-endian too where they are packed.
_DATA = (9, 4, 10)


def read_skeleton(store: Store, file: StoredFile) -> bytes:
    """Return the model as bytes of a ModelProto without large initializers.

    Raises CheckpointError for a file that is not a protobuf message, of which more than 64 MiB or 1,000,000 fields are
    not initializers, or with a name that is not UTF-8; and what `Store.read_into` raises.
    """
    return _Walk(store, file).message("model", 0, file.size, 0)


class _Walk:
    def __init__(self, store: Store, file: StoredFile) -> None:
        self.store, self.file = store, file
        self.window, self.window_begin = b"", 0
        self.copied, self.fields = 0, 0

    def error(self, detail: str) -> CheckpointError:
        name = self.file.name
        return CheckpointError(f"{name} cannot be read as an ONNX model: {detail}", file=name)

    def bytes_at(self, begin: int, end: int) -> bytes:
        """Return bytes of the file, from a window that moves along."""
        if not self.window_begin <= begin <= end <= self.window_begin + len(self.window):
            size = min(max(_WINDOW, end - begin), self.file.size - begin)
            self.window, self.window_begin = read_range(self.store, self.file, begin, size).tobytes(), begin
        at = begin - self.window_begin
        return self.window[at : at + end - begin]

    def varint(self, at: int, end: int) -> tuple[int, int]:
        """Return the number at an offset, and where it ends."""
        decoded = _varint(self.bytes_at(at, min(end, at + _LONGEST_VARINT)), 0, _LONGEST_VARINT)
        if decoded is None:
            raise self.error(f"the number at offset {at} does not end")
        return decoded[0], at + decoded[1]

    def message(self, kind: str, begin: int, end: int, depth: int) -> bytes:
        """Return the bytes of a message without the data of large initializers below it."""
        if depth > _DEEPEST:
            raise self.error(f"its graphs are nested more than {_DEEPEST} deep")
        walked, parts, at = _WALKED[kind], [], begin
        external: tuple[int, int] | None = None
        while at < end:
            check_cancelled()
            key, value = self.varint(at, end)
            number, wire = key >> 3, key & 7
            value_end = self.value_end(wire, value, end)
            if wire != _LENGTH:
                parts.append(self.copy(kind, number, at, value_end))
            elif number in walked and value_end - value >= SMALL:
                _, inner = self.varint(value, end)
                child = self.message(
                    _CHILDREN[kind][number], inner, value_end, depth + (kind == "graph" and number == 1)
                )
                parts.append(_tag(number, _LENGTH) + _varint_bytes(len(child)) + child)
            elif kind == "tensor" and number in _DATA and value_end - value >= SMALL:
                if external is not None:
                    raise self.error(f"the tensor that holds offset {at} has its data twice")
                external = self.varint(value, end)[1], value_end
            else:
                parts.append(self.copy(kind, number, at, value_end))
            at = value_end
        if external is not None:
            begin, end = external
            tensor = messages().TensorProto()
            point_to(tensor, self.file.name, begin, end - begin)
            parts.append(tensor.SerializeToString(deterministic=True))
        return b"".join(parts)

    def value_end(self, wire: int, at: int, end: int) -> int:
        """Return where the value of a field ends."""
        if wire == _VARINT:
            value_end = self.varint(at, end)[1]
        elif wire == _LENGTH:
            length, inner = self.varint(at, end)
            value_end = inner + length
        elif wire in _FIXED:
            value_end = at + _FIXED[wire]
        else:
            raise self.error(f"the field before offset {at} has wire type {wire}")
        if value_end > end:
            raise self.error(f"the field at offset {at} ends at {value_end}, beyond the {end} of its message")
        return value_end

    def copy(self, kind: str, number: int, begin: int, end: int) -> bytes:
        """Return a field as it is."""
        self.copied += end - begin
        if self.copied > _LARGEST_SKELETON:
            limit = f"more than {_LARGEST_SKELETON >> 20} MiB"
            raise self.error(f"{limit} of it are not initializers with raw_data, so the graph is too large")
        data = self.bytes_at(begin, end)
        try:
            self.fields += _count_fields(data, kind, number, _MAX_FIELDS)
        except UnicodeDecodeError:
            raise self.error(f"a name in the field at offset {begin} is not UTF-8") from None
        if self.fields > _MAX_FIELDS:
            raise self.error(f"its graph has more than {_MAX_FIELDS:,} fields")
        return data


def _count_fields(data: bytes, kind: str, number: int, maximum: int) -> int:
    """Return the number of fields in one encoded field of a message of `kind`, and in the messages in it.

    `number`: the field's own. Counting ends beyond `maximum`. What is not encoded as protobuf says is not looked into:
    protobuf refuses it. Raises UnicodeDecodeError for a name or another text that is read and is not UTF-8.
    """
    count = 1
    begin, end = _content(data)
    if number in _TEXTS.get(kind, ()) and _lenient_varint(data, 0, len(data))[0] & 7 == _LENGTH:
        data[begin:end].decode()
    stack = [(_CHILDREN[kind].get(number), begin, end)]
    while stack and count <= maximum:
        inner, at, end = stack.pop()
        if inner is None:
            continue
        children, texts = _CHILDREN[inner], _TEXTS.get(inner, ())
        while at < end and count <= maximum:
            key, at = _lenient_varint(data, at, end)
            count += 1
            wire = key & 7
            length, after = (
                _lenient_varint(data, at, end) if wire in (_VARINT, _LENGTH) else (_FIXED.get(wire, end), at)
            )
            at = after + (0 if wire == _VARINT else length)
            if wire != _LENGTH:
                continue
            if key >> 3 in children:
                stack.append((children[key >> 3], after, min(at, end)))
            elif key >> 3 in texts:
                data[after : min(at, end)].decode()
    return count


def _content(data: bytes) -> tuple[int, int]:
    """Return where the value of a field with a length begins and ends."""
    _, at = _lenient_varint(data, 0, len(data))
    return _lenient_varint(data, at, len(data))[1], len(data)


def _varint(data: bytes, at: int, end: int) -> tuple[int, int] | None:
    """Return the number at an offset, and where it ends; None for one that does not end."""
    number = 0
    for length, byte in enumerate(data[at : min(end, at + _LONGEST_VARINT)]):
        number |= (byte & 0x7F) << (7 * length)
        if byte < 0x80:
            return number & ((1 << 64) - 1), at + length + 1
    return None


def _lenient_varint(data: bytes, at: int, end: int) -> tuple[int, int]:
    """Return the number at an offset, and where it ends. One that does not end is 0, and its end the end of all."""
    return _varint(data, at, end) or (0, end)


def _tag(number: int, wire: int) -> bytes:
    return _varint_bytes(number << 3 | wire)


def _varint_bytes(number: int) -> bytes:
    encoded = bytearray()
    while number >= 0x80:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)
