"""The header of a GGUF file, version 3.

    "GGUF", u32 version, u64 tensors, u64 keys
    keys: name, u32 type of the value, value; an array is u32 type, u64 length, values; a string u64 length, bytes
    tensors: name, u32 rank, u64 dimensions (innermost first), u32 type, u64 offset from the start of the data
    data: at the next multiple of `general.alignment` (32), each tensor at a multiple of it

Numbers are little-endian. Source: ggml's docs/gguf.md and src/gguf.cpp. Lengths and counts of a file are
never trusted.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod

from requant.checkpoint.gguf.tensor_types import TYPE_OF_NUMBER, TensorType
from requant.checkpoint.storage.store import Store, StoredFile
from requant.errors import CheckpointError, excerpt

DEFAULT_ALIGNMENT = 32
STRING, ARRAY, UINT32 = 8, 9, 4


@dataclass(frozen=True, slots=True)
class Key:
    """A key, and its value as the file has it: the u32 type and what follows."""

    name: str
    value: bytes


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """A tensor. `dimensions`: innermost first. `offset`: in bytes from the start of the data."""

    name: str
    dimensions: tuple[int, ...]
    type: TensorType
    offset: int

    @property
    def elements(self) -> int:
        return prod(self.dimensions)

    @property
    def size(self) -> int:
        return self.type.size(self.elements)


@dataclass(frozen=True, slots=True)
class GgufHeader:
    """What a file holds. `data`: where its tensors begin, in bytes from the start of the file."""

    keys: tuple[Key, ...]
    tensors: tuple[TensorInfo, ...]
    alignment: int
    data: int


def aligned(offset: int, alignment: int) -> int:
    """Return the next multiple of the alignment."""
    return -(-offset // alignment) * alignment


_MAGIC, _VERSION = b"GGUF", 3
_LONGEST_HEADER = 64 << 20
_WINDOW = 1 << 20
# GGML_MAX_DIMS; GGML_MAX_NAME without its NUL; and a bound on keys, of which gguf.md allows 65,535 bytes.
_MAX_DIMENSIONS, _LONGEST_NAME, _LONGEST_KEY = 4, 63, 65_535
_LARGEST_ALIGNMENT = 1 << 20
_MAX_TENSORS, _MAX_KEYS, _MAX_STRINGS = 1 << 18, 1 << 16, 1 << 22
# The bytes of a value of each type: u8, i8, u16, i16, u32, i32, f32, bool, u64, i64, f64.
_WIDTHS = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
# The fewest bytes that a key and a tensor take.
_SHORTEST_KEY, _SHORTEST_TENSOR = 8 + 4 + 1, 8 + 4 + 4 + 8


class _HeaderBytes:
    """The start of a file, read as far as needed."""

    def __init__(self, store: Store, file: StoredFile) -> None:
        self.store, self.file = store, file
        self.position = 0
        self.buffer = bytearray()

    def error(self, detail: str, tensor: str | None = None) -> CheckpointError:
        return CheckpointError(
            f"{self.file.name} cannot be read as a GGUF file: {detail}", file=self.file.name, tensor=tensor
        )

    def require(self, size: int, what: str) -> int:
        """Ensure that the next `size` bytes are in the buffer, skip them and return where they begin."""
        begin, end = self.position, self.position + size
        if end > self.file.size:
            raise self.error(f"{what} at offset {begin} would end at {end}, beyond the file's {self.file.size} bytes")
        if end > _LONGEST_HEADER:
            raise self.error(f"its header exceeds the limit of {_LONGEST_HEADER} bytes that are read")
        while len(self.buffer) < end:
            at = len(self.buffer)
            window = bytearray(min(max(_WINDOW, end - at), self.file.size - at))
            self.store.read_into(self.file, at, memoryview(window))
            self.buffer += window
        self.position = end
        return begin

    def u32(self, what: str) -> int:
        return int(struct.unpack_from("<I", self.buffer, self.require(4, what))[0])

    def u64(self, what: str) -> int:
        return int(struct.unpack_from("<Q", self.buffer, self.require(8, what))[0])

    def count(self, what: str, least: int, maximum: int) -> int:
        """Read a count of items, each of which takes at least `least` bytes."""
        number = self.u64(f"the number of {what}")
        if number * least > self.file.size - self.position:
            raise self.error(f"it declares {number} {what}, more than its {self.file.size} bytes can hold")
        if number > maximum:
            raise self.error(f"it has {number} {what}; at most {maximum} are read")
        return number

    def text(self, what: str, longest: int) -> str:
        length = self.u64(f"the length of {what}")
        if length > longest:
            raise self.error(f"{what} at offset {self.position} has {length} bytes; at most {longest} are read")
        begin = self.require(length, what)
        try:
            return self.buffer[begin : self.position].decode()
        except UnicodeDecodeError:
            raise self.error(f"{what} at offset {begin} is not UTF-8") from None

    def skip_string(self, what: str) -> None:
        self.require(self.u64(f"the length of {what}"), what)

    def skip_value(self, type_: int, key: str) -> None:
        what = f"the value of '{excerpt(key)}'"
        if type_ in _WIDTHS:
            self.require(_WIDTHS[type_], what)
        elif type_ == STRING:
            self.skip_string(what)
        elif type_ == ARRAY:
            element = self.u32(what)
            if element in _WIDTHS:
                width = _WIDTHS[element]
                self.require(self.count("elements of an array", width, _LONGEST_HEADER) * width, what)
            elif element == STRING:
                for _ in range(self.count("elements of an array", 8, _MAX_STRINGS)):
                    self.skip_string(what)
            else:
                raise self.error(f"{what} is an array of elements of type {element}; 0 to 8 and 10 to 12 are known")
        else:
            raise self.error(f"{what} has type {type_}; 0 to 12 are known")


def read_header(store: Store, file: StoredFile) -> GgufHeader:
    """Return the header of a GGUF file.

    Raises CheckpointError for a file that is not GGUF version 3 or is malformed: counts and lengths beyond the file,
    names or keys twice, names that are not UTF-8 or too long, unknown types, dimensions that are not whole blocks,
    an alignment that is not a power of two, tensors that are not one after the other, data beyond the end of the file;
    and what `Store.read_into` raises.
    """
    source = _HeaderBytes(store, file)
    if file.size < len(_MAGIC) or source.buffer[source.require(4, "the magic") :][:4] != _MAGIC:
        raise source.error("it does not start with 'GGUF'")
    version = source.u32("the version")
    if version != _VERSION:
        swapped = int.from_bytes(version.to_bytes(4, "little"), "big") == _VERSION
        stated = "it is big-endian" if swapped else f"its version is {version}"
        raise source.error(f"{stated}; expected version 3, little-endian")
    tensor_count = source.count("tensors", _SHORTEST_TENSOR, _MAX_TENSORS)
    key_count = source.count("keys", _SHORTEST_KEY, _MAX_KEYS)
    keys = tuple(_keys(source, key_count))
    alignment = _alignment(source, keys)
    tensors = tuple(_tensors(source, tensor_count))
    data = aligned(source.position, alignment)
    _check_offsets(source, tensors, alignment, data)
    return GgufHeader(keys, tensors, alignment, data)


def _keys(source: _HeaderBytes, count: int) -> Iterator[Key]:
    names = set()
    for _ in range(count):
        name = source.text("the name of a key", _LONGEST_KEY)
        if name in names:
            raise source.error(f"the key '{excerpt(name)}' occurs twice")
        names.add(name)
        begin = source.position
        source.skip_value(source.u32(f"the type of '{excerpt(name)}'"), name)
        yield Key(name, bytes(source.buffer[begin : source.position]))


def _alignment(source: _HeaderBytes, keys: tuple[Key, ...]) -> int:
    for key in keys:
        if key.name == "general.alignment":
            if len(key.value) != 8 or int.from_bytes(key.value[:4], "little") != UINT32:
                raise source.error("general.alignment is not a u32")
            alignment = int.from_bytes(key.value[4:], "little")
            if not 1 <= alignment <= _LARGEST_ALIGNMENT or alignment & (alignment - 1):
                raise source.error(f"general.alignment is {alignment}; it must be a power of two of at most 2^20")
            return alignment
    return DEFAULT_ALIGNMENT


def _tensors(source: _HeaderBytes, count: int) -> Iterator[TensorInfo]:
    names = set()
    for _ in range(count):
        name = source.text("the name of a tensor", _LONGEST_NAME)
        if name in names:
            raise source.error(f"the tensor '{excerpt(name)}' occurs twice", name)
        names.add(name)
        rank = source.u32("the rank of a tensor")
        if rank > _MAX_DIMENSIONS:
            raise source.error(f"the tensor '{excerpt(name)}' has {rank} dimensions; at most 4 are supported", name)
        dimensions = tuple(source.u64("a dimension") for _ in range(rank))
        number = source.u32("the type of a tensor")
        offset = source.u64("the offset of a tensor")
        if number not in TYPE_OF_NUMBER:
            raise source.error(f"the tensor '{excerpt(name)}' has type {number}, which is unknown", name)
        info = TensorInfo(name, dimensions, TYPE_OF_NUMBER[number], offset)
        if info.elements >= 1 << 63 or any(each >= 1 << 63 for each in dimensions):
            raise source.error(f"the tensor '{excerpt(name)}' has 2^63 elements or more", name)
        if (dimensions[0] if rank else 1) % info.type.block:
            detail = f"the rows of '{excerpt(name)}' have {dimensions[0] if rank else 1} elements"
            raise source.error(f"{detail}, which is not a multiple of the {info.type.block} of {info.type.name}", name)
        yield info


def _check_offsets(source: _HeaderBytes, tensors: tuple[TensorInfo, ...], alignment: int, data: int) -> None:
    expected = 0
    for info in tensors:
        if info.offset != expected:
            detail = (
                f"the tensor '{excerpt(info.name)}' is at offset {info.offset} of the data; {expected} was expected"
            )
            raise source.error(detail, info.name)
        if data + info.offset + info.size > source.file.size:
            end = data + info.offset + info.size
            detail = f"the tensor '{excerpt(info.name)}' ends at {end}, beyond the file's {source.file.size} bytes"
            raise source.error(detail, info.name)
        expected = aligned(expected + info.size, alignment)


def u32_value(number: int) -> bytes:
    """Return the value of a key of type u32."""
    return struct.pack("<II", UINT32, number)


def string_value(text: bytes) -> bytes:
    """Return the value of a key of type string."""
    return struct.pack("<IQ", STRING, len(text)) + text


# The formats of the numbers that a value may be.
_FORMATS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_MAX_VALUES = 1 << 12


def value_of(key: Key) -> object:
    """Return the value of a key that `read_header` has read: a number, a str, or a list of them, of which only the
    first 4096 are taken. Bytes that are not UTF-8 are replaced."""
    (type_,) = struct.unpack_from("<I", key.value)
    if type_ in _FORMATS:
        return struct.unpack_from(f"<{_FORMATS[type_]}", key.value, 4)[0]
    if type_ == STRING:
        return key.value[12:].decode(errors="replace")
    element, count = struct.unpack_from("<IQ", key.value, 4)
    count = min(count, _MAX_VALUES)
    if element in _FORMATS:
        return list(struct.unpack_from(f"<{count}{_FORMATS[element]}", key.value, 16))
    found, at = [], 16
    for _ in range(count):
        (length,) = struct.unpack_from("<Q", key.value, at)
        found.append(key.value[at + 8 : at + 8 + length].decode(errors="replace"))
        at += 8 + length
    return found


def header_bytes(keys: Sequence[Key], tensors: Sequence[TensorInfo], alignment: int) -> bytes:
    """Return the header with its zero padding, up to the start of the data."""
    parts = [b"GGUF", struct.pack("<IQQ", 3, len(tensors), len(keys))]
    for key in keys:
        parts += [_string(key.name), key.value]
    for info in tensors:
        rank = len(info.dimensions)
        numbers = struct.pack(f"<I{rank}QIQ", rank, *info.dimensions, info.type.number, info.offset)
        parts += [_string(info.name), numbers]
    head = b"".join(parts)
    return head.ljust(aligned(len(head), alignment), b"\0")


def _string(text: str) -> bytes:
    encoded = text.encode()
    return struct.pack("<Q", len(encoded)) + encoded
