"""Reads the header of an untrusted safetensors file.

What the library (0.8) refuses is refused, and also what it accepts although it can be understood in two ways or breaks
the format's description: a tensor's name twice, a key twice in `__metadata__`, white space before the `{`. Names are
not paths: any string is one, the empty string and `../x` too.
"""

from __future__ import annotations

from collections.abc import Callable

from requant.checkpoint.ordering import sorted_in_pieces
from requant.checkpoint.safetensors.header import DTYPES, Header, TensorEntry
from requant.checkpoint.safetensors.scanner import Scanner, Text
from requant.errors import SafetensorsError, excerpt

MAX_HEADER_BYTES = 100_000_000
"""The library's limit."""

MAX_DIMENSIONS = 64
"""Of one tensor, as in numpy. The library has no limit."""

MAX_NAME_CHARACTERS = 4096
"""Of one tensor. The library has no limit."""

MAX_METADATA_BYTES = 8 << 20
"""Of `__metadata__`. The library has no limit. Converted files repeat it, and encode it in one call."""

LENGTH_BYTES = 8
"""Of the header's length, before the header."""

METADATA = "__metadata__"


def read_header(read: Callable[[int, int], Text], size: int, *, most_header_bytes: int = MAX_HEADER_BYTES) -> Header:
    """Return the header of a file of `size` bytes. `read(offset, length)` returns bytes of it.

    Reads the first 8 bytes and the header. A header of many small tensors takes 5 bytes of memory for each of its own,
    and some 0.2 s for each MB: a service limits it with `most_header_bytes`. Raises SafetensorsError, which says at
    which byte of the header or in which tensor it is malformed.
    """
    if size < LENGTH_BYTES:
        raise SafetensorsError(f"the file has {size} bytes; expected at least {LENGTH_BYTES}: the header's length")
    length = int.from_bytes(_read(read, 0, LENGTH_BYTES), "little")
    if length > most_header_bytes:
        raise SafetensorsError(f"the header has {length} bytes; at most {most_header_bytes} are allowed")
    if length > size - LENGTH_BYTES:
        raise SafetensorsError(f"the header has {length} bytes and ends beyond the file, which has {size} bytes")
    header = parse_header(_read(read, LENGTH_BYTES, length))
    if header.size != size:
        raise SafetensorsError(f"the tensors end at byte {header.size}, the file has {size} bytes")
    return header


def parse_header(text: Text) -> Header:
    """Return what a file with this header, the bytes behind its length, has to hold. `size` is where its tensors end.

    Raises SafetensorsError as `read_header` does.
    """
    end = LENGTH_BYTES + len(text)
    entries, metadata = _entries(text, end)
    entries = sorted_in_pieces(entries, _offsets)
    for entry in entries:
        if entry.begin != end:
            raise SafetensorsError(
                f"tensor '{excerpt(entry.name)}' begins at byte {entry.begin}; expected {end}, where the one before it "
                "ends: the data must have neither gaps nor overlaps",
                tensor=entry.name,
            )
        end = entry.end
    return Header(tuple(entries), metadata, end)


def _read(read: Callable[[int, int], Text], offset: int, length: int) -> Text:
    text = read(offset, length)
    if len(text) != length:
        raise SafetensorsError(f"the file ends at byte {offset + len(text)}; expected at least {offset + length}")
    return text


def _offsets(entry: TensorEntry) -> tuple[int, int]:
    return entry.begin, entry.end


def _entries(text: Text, data: int) -> tuple[list[TensorEntry], dict[str, str] | None]:
    """Parse the header's JSON. `data`: where the tensors' bytes begin."""
    scanner = Scanner(text)
    if text[:1] != b"{":
        scanner.fail("'{'")
    scanner.at = 1
    scanner.skip_space()
    entries: list[TensorEntry] = []
    names: set[str] = set()
    shapes: dict[tuple[int, ...], tuple[int, ...]] = {}
    metadata: dict[str, str] | None = None
    noun = "the name of a tensor"
    for start, name in scanner.members(noun, f"after {noun}", "after a tensor", short=True):
        if len(name) > MAX_NAME_CHARACTERS:
            scanner.refuse(start, f"a name of {len(name)} characters; at most {MAX_NAME_CHARACTERS} are allowed")
        if name in names:
            raise SafetensorsError(f"byte {start} of the header: a second '{excerpt(name)}'", tensor=name)
        names.add(name)
        if name == METADATA:
            metadata = None if scanner.null() else scanner.strings(METADATA, MAX_METADATA_BYTES)
        else:
            entries.append(_entry(scanner, name, data, shapes))
    scanner.end()
    return entries, metadata


def _entry(scanner: Scanner, name: str, data: int, shapes: dict[tuple[int, ...], tuple[int, ...]]) -> TensorEntry:
    """Parse a tensor. `shapes`: those of the file so far, of which each is kept once."""
    try:
        dtype, shape, offsets = _fields(scanner)
        return _checked(name, dtype, shapes.setdefault(shape, shape), offsets, data)
    except SafetensorsError as error:
        raise SafetensorsError(f"tensor '{excerpt(name)}': {error.detail}", tensor=name) from None


def _fields(scanner: Scanner) -> tuple[str, tuple[int, ...], tuple[int, ...]]:
    scanner.expect(b"{", "and the fields of a tensor")
    dtype: str | None = None
    shape: tuple[int, ...] | None = None
    offsets: tuple[int, ...] | None = None
    for start, field in scanner.members(
        "a field of a tensor", "after the name of a field", "after a field", short=True
    ):
        if {"dtype": dtype, "shape": shape, "data_offsets": offsets}.get(field) is not None:
            raise SafetensorsError(f"byte {start} of the header: a second '{field}'")
        if field == "dtype":
            dtype = scanner.string("dtype", short=True)
        elif field == "shape":
            shape = scanner.integers("shape", MAX_DIMENSIONS)
        elif field == "data_offsets":
            offsets = scanner.integers("data_offsets", 2)
        else:
            scanner.skip_value()
    if dtype is None or shape is None or offsets is None:
        fields = {"dtype": dtype, "shape": shape, "data_offsets": offsets}
        missing = [name for name, value in fields.items() if value is None]
        raise SafetensorsError(f"byte {scanner.at} of the header: {' and '.join(missing)} missing")
    return dtype, shape, offsets


def _checked(name: str, dtype: str, shape: tuple[int, ...], offsets: tuple[int, ...], data: int) -> TensorEntry:
    known = DTYPES.get(dtype)
    if known is None:
        raise SafetensorsError(f"dtype '{excerpt(dtype)}' is unknown; expected one of {', '.join(DTYPES)}")
    if len(offsets) != 2 or offsets[1] < offsets[0]:
        raise SafetensorsError(f"data_offsets {list(offsets)}: expected a pair [begin, end] with begin <= end")
    begin, end = offsets
    elements = 1
    for extent in (*shape, known.bits):
        elements *= extent
        if elements >= 2**64:
            raise SafetensorsError(f"shape {_shown(shape)} has more elements or bits than 2^64 - 1")
    if elements % 8:
        raise SafetensorsError(f"shape {_shown(shape)} of {dtype} has {elements} bits, not a whole number of bytes")
    if end - begin != elements // 8:
        raise SafetensorsError(
            f"data_offsets [{begin}, {end}] hold {end - begin} bytes; "
            f"shape {_shown(shape)} of {dtype} takes {elements // 8}"
        )
    return TensorEntry(name, known.name, shape, data + begin, data + end)


def _shown(shape: tuple[int, ...]) -> str:
    return excerpt(str(list(shape)))


INDEX = "model.safetensors.index.json"
MAX_INDEX_BYTES = 64 << 20
"""That of a checkpoint with 90,000 tensors (DeepSeek-V3) has 9 MB."""

_WEIGHT_MAP = "weight_map"


def parse_index(text: bytes) -> dict[str, str]:
    """Return the file of each tensor from the member `weight_map`; other members are ignored.

    Raises SafetensorsError, which says where, for what is not JSON, a member or a tensor that occurs twice, and a value
    that is not a string.
    """
    scanner = Scanner(text, INDEX)
    scanner.expect(b"{", "at the start")
    weight_map: dict[str, str] | None = None
    noun = "the name of a member"
    for start, member in scanner.members(noun, f"after {noun}", "after a member"):
        if member != _WEIGHT_MAP:
            scanner.skip_value()
        elif weight_map is not None:
            scanner.refuse(start, f"a second '{_WEIGHT_MAP}'")
        else:
            weight_map = scanner.strings(_WEIGHT_MAP)
    scanner.end()
    if weight_map is None:
        scanner.refuse(scanner.at, f"expected a member '{_WEIGHT_MAP}', the files of the tensors")
    return weight_map
