"""Reads an ONNX model without its large initializers, so that a model of any size is a small graph in memory.

The messages of a model are walked on the wire. Of an initializer that carries 1 KiB or more in the file itself, the
bytes stay where they are: the tensor gets external data whose location is the model file. What remains is parsed as
usual.

Field numbers: onnx.proto3 of onnx 1.23.
"""

from __future__ import annotations

from requant.checkpoint.onnx.field_count import count_fields
from requant.checkpoint.storage.store import Store, StoredFile, read_range
from requant.errors import CheckpointError
from requant.errors.cancellation import check_cancelled

SMALL = 1024
"""Initializers of fewer bytes stay in the graph."""

_LARGEST_SKELETON = 64 << 20
_MAX_FIELDS = 1_000_000
_DEEPEST = 32
_WINDOW = 1 << 16
_COUNTED = {"initializer": "tensor"}
_VARINT, _FIXED64, _LENGTH, _FIXED32 = 0, 1, 2, 5
_LONGEST_VARINT = 10

# The messages that are walked: field number to the kind of message that it holds.
_CHILDREN = {
    "model": {7: "graph"},
    "graph": {1: "node", 5: "initializer"},
    "node": {5: "attribute"},
    "attribute": {6: "graph", 11: "graph"},
    "initializer": {},
}

# raw_data, and float_data and double_data, which are little-endian too where they are packed.
_DATA = (9, 4, 10)
_EXTERNAL_DATA, _DATA_LOCATION = 13, 14


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
        data = self.bytes_at(at, min(end, at + _LONGEST_VARINT))
        number = 0
        for length, byte in enumerate(data):
            number |= (byte & 0x7F) << (7 * length)
            if byte < 0x80:
                return number & ((1 << 64) - 1), at + length + 1
        raise self.error(f"the number at offset {at} does not end")

    def message(self, kind: str, begin: int, end: int, depth: int) -> bytes:
        """Return the bytes of a message without the data of large initializers below it."""
        if depth > _DEEPEST:
            raise self.error(f"its graphs are nested more than {_DEEPEST} deep")
        children, parts, at = _CHILDREN[kind], [], begin
        external: tuple[int, int] | None = None
        while at < end:
            check_cancelled()
            key, value = self.varint(at, end)
            number, wire = key >> 3, key & 7
            value_end = self.value_end(wire, value, end)
            if wire != _LENGTH:
                parts.append(self.copy(kind, number, at, value_end))
            elif number in children and value_end - value >= SMALL:
                _, inner = self.varint(value, end)
                child = self.message(children[number], inner, value_end, depth + (kind == "graph" and number == 1))
                parts.append(_tag(number, _LENGTH) + _varint_bytes(len(child)) + child)
            elif kind == "initializer" and number in _DATA and value_end - value >= SMALL:
                if external is not None:
                    raise self.error(f"the tensor that holds offset {at} has its data twice")
                external = self.varint(value, end)[1], value_end
            else:
                parts.append(self.copy(kind, number, at, value_end))
            at = value_end
        if external is not None:
            parts.append(_external_data(self.file.name, *external))
        return b"".join(parts)

    def value_end(self, wire: int, at: int, end: int) -> int:
        """Return where the value of a field ends."""
        if wire == _VARINT:
            value_end = self.varint(at, end)[1]
        elif wire == _LENGTH:
            length, inner = self.varint(at, end)
            value_end = inner + length
        elif wire in (_FIXED64, _FIXED32):
            value_end = at + (8 if wire == _FIXED64 else 4)
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
            self.fields += count_fields(data, _COUNTED.get(kind, kind), number, _MAX_FIELDS)
        except UnicodeDecodeError:
            raise self.error(f"a name in the field at offset {begin} is not UTF-8") from None
        if self.fields > _MAX_FIELDS:
            raise self.error(f"its graph has more than {_MAX_FIELDS:,} fields")
        return data


def _external_data(location: str, begin: int, end: int) -> bytes:
    entries = {"location": location, "offset": str(begin), "length": str(end - begin)}
    fields = b""
    for key, value in entries.items():
        entry = _text_field(1, key) + _text_field(2, value)
        fields += _tag(_EXTERNAL_DATA, _LENGTH) + _varint_bytes(len(entry)) + entry
    return fields + _tag(_DATA_LOCATION, _VARINT) + _varint_bytes(1)


def _text_field(number: int, text: str) -> bytes:
    encoded = text.encode()
    return _tag(number, _LENGTH) + _varint_bytes(len(encoded)) + encoded


def _tag(number: int, wire: int) -> bytes:
    return _varint_bytes(number << 3 | wire)


def _varint_bytes(number: int) -> bytes:
    encoded = bytearray()
    while number >= 0x80:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)
