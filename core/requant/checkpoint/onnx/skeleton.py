"""Reads an ONNX model without its large initializers, so that a model of any size is a small graph in memory.

The messages of a model are walked on the wire. Of an initializer that carries 1 KiB or more in the file itself, the
bytes stay where they are: the tensor gets external data whose location is the model file. What remains is parsed as
usual, once it is known how many fields it has, and that texts are texts: an empty message takes two bytes in a file and
some hundred in memory, so that a limit in bytes is none on memory; and onnx's messages are of proto2, of which protobuf
hands out texts that are not UTF-8 as bytes.

Messages in messages are those of the onnx that is installed; other field numbers: onnx.proto of onnx 1.23.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

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

_ENTRY_OF_EXTERNAL_DATA = "external data"
# The texts that are read: names, operators and domains, and where external data are.
_TEXTS: Mapping[str, frozenset[int]] = {
    "NodeProto": frozenset({1, 2, 3, 4, 7}),
    "AttributeProto": frozenset({1}),
    "TensorProto": frozenset({8}),
    "ValueInfoProto": frozenset({1}),
    "OperatorSetIdProto": frozenset({1}),
    _ENTRY_OF_EXTERNAL_DATA: frozenset({1, 2}),
}
# The fields that may hold much, and are walked on the wire.
_WALKED: Mapping[str, frozenset[int]] = {
    "ModelProto": frozenset({7}),
    "GraphProto": frozenset({1, 5}),
    "NodeProto": frozenset({5}),
    "AttributeProto": frozenset({6, 11}),
    "TensorProto": frozenset(),
}

# raw_data, and float_data and double_data, which are little-endian too where they are packed.
_DATA = (9, 4, 10)
_EXTERNAL_DATA = 13


@cache
def _children() -> Mapping[str, Mapping[int, str]]:
    """Return the kinds of the messages in a message of each kind, by field. Other fields are texts and numbers."""
    children: dict[str, dict[int, str]] = {_ENTRY_OF_EXTERNAL_DATA: {}}
    waiting = [messages().ModelProto.DESCRIPTOR]
    while waiting:
        kind = waiting.pop()
        if kind.name not in children:
            inner = {field.number: field.message_type for field in kind.fields if field.message_type is not None}
            children[kind.name] = {number: each.name for number, each in inner.items()}
            waiting += inner.values()
    children["TensorProto"][_EXTERNAL_DATA] = _ENTRY_OF_EXTERNAL_DATA
    return children


def read_skeleton(store: Store, file: StoredFile) -> bytes:
    """Return the model as bytes of a ModelProto without large initializers.

    Raises CheckpointError for a file that is not a protobuf message, of which more than 64 MiB or 1,000,000 fields are
    not initializers, or with a name that is not UTF-8; and what `Store.read_into` raises.
    """
    return _Walk(store, file).message("ModelProto", 0, file.size, 0)


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
                nested = depth + (kind == "GraphProto" and number == 1)
                child = self.message(_children()[kind][number], inner, value_end, nested)
                parts.append(_tag(number, _LENGTH) + _varint_bytes(len(child)) + child)
            elif kind == "TensorProto" and number in _DATA and value_end - value >= SMALL:
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
    children_of = _children()
    stack = [(children_of[kind].get(number), begin, end)]
    while stack and count <= maximum:
        inner, at, end = stack.pop()
        if inner is None:
            continue
        children, texts = children_of[inner], _TEXTS.get(inner, ())
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
