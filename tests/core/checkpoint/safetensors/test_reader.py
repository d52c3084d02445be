"""Reading headers: each hostile one is refused with its place, whatever the library takes is read alike."""

from __future__ import annotations

import json
import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from requant.checkpoint.safetensors.header import DTYPES, Header, TensorEntry
from requant.checkpoint.safetensors.reader import MAX_METADATA_BYTES, read_header
from requant.checkpoint.safetensors.writer import head_bytes, layout
from requant.errors import SafetensorsError
from tests.support.cpu_time import within_cpu_seconds
from tests.support.safetensors_headers import ACCEPTED, REFUSED, HeaderCase, file_of, tensor


def header_of(file: bytes) -> Header:
    return read_header(lambda offset, length: file[offset : offset + length], len(file))


@pytest.mark.parametrize("case", REFUSED, ids=lambda case: case.name)
def test_is_refused_with_its_place(case: HeaderCase) -> None:
    with pytest.raises(SafetensorsError) as raised:
        header_of(case.file)
    assert case.ours is not None
    assert case.ours in raised.value.detail


@pytest.mark.parametrize("case", ACCEPTED, ids=lambda case: case.name)
def test_is_read_as_json_reads_it(case: HeaderCase) -> None:
    length = int.from_bytes(case.file[:8], "little")
    expected = json.loads(case.file[8 : 8 + length])
    metadata = expected.pop("__metadata__", None)
    header = header_of(case.file)
    assert header.metadata == metadata
    assert header.size == len(case.file)
    assert {
        entry.name: (entry.dtype, list(entry.shape), [entry.begin - 8 - length, entry.end - 8 - length])
        for entry in header.tensors
    } == {name: (entry["dtype"], entry["shape"], entry["data_offsets"]) for name, entry in expected.items()}
    places = [(entry.begin, entry.end) for entry in header.tensors]
    assert places == sorted(places)


@pytest.mark.parametrize("members", [1, 1000])
def test_metadata_are_limited(members: int) -> None:
    """They are written again in one call, which other threads wait for."""
    for size, refused in ((MAX_METADATA_BYTES // 2, False), (MAX_METADATA_BYTES + 1, True)):
        text = json.dumps({"__metadata__": {str(index): "x" * (size // members + 1) for index in range(members)}})
        if refused:
            with pytest.raises(SafetensorsError, match="__metadata__ has more than 8388608 bytes"):
                header_of(file_of(text))
        else:
            assert header_of(file_of(text)).metadata is not None


def test_reads_the_header_alone() -> None:
    file = file_of(f'{{"a":{tensor(shape="[1000]", offsets="[0,1000]")}}}', 1000)
    reads: list[tuple[int, int]] = []

    def read(offset: int, length: int) -> bytes:
        reads.append((offset, length))
        return file[offset : offset + length]

    header = read_header(read, len(file))
    assert reads == [(0, 8), (8, header.tensors[0].begin - 8)]


def test_a_length_that_cannot_be_is_not_read() -> None:
    for length in (100_000_001, 2**63, 2**64 - 1):
        reads: list[int] = []

        def read(offset: int, count: int, length: int = length, reads: list[int] = reads) -> bytes:
            reads.append(count)
            return struct.pack("<Q", length)

        with pytest.raises(SafetensorsError, match="at most 100000000"):
            read_header(read, 2**64)
        assert reads == [8]


def test_a_lower_limit() -> None:
    file = file_of("{}  ")
    assert (
        read_header(lambda offset, length: file[offset : offset + length], len(file), most_header_bytes=4).tensors == ()
    )
    with pytest.raises(SafetensorsError, match="the header has 4 bytes; at most 3 are allowed"):
        read_header(lambda offset, length: file[offset : offset + length], len(file), most_header_bytes=3)


def test_a_file_that_shrinks_is_refused() -> None:
    file = file_of("{}" + " " * 40)[:10]
    with pytest.raises(SafetensorsError, match="the file ends at byte 10; expected at least 50"):
        read_header(lambda offset, length: file[offset : offset + length], 50)


HOSTILE = {
    "depth": b"[" * 20_000_000,
    "lists": b'{"x":' + b"[[]," * 5_000_000,
    "dimensions": b'{"shape":[' + b"1," * 10_000_000,
    "no end of a name": b'"' + b"\\u0000" * 3_000_000,
}


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_hostile_megabytes_take_little_time(text: bytes) -> None:
    file = file_of(b'{"a":' + text)

    def refused() -> None:
        with pytest.raises(SafetensorsError):
            header_of(file)

    assert within_cpu_seconds(refused, 1)


def test_names_the_tensor() -> None:
    with pytest.raises(SafetensorsError) as raised:
        header_of(file_of(f'{{"model.bias":{tensor("F9")}}}', 4))
    assert raised.value.tensor == "model.bias"
    assert raised.value.detail.startswith("tensor 'model.bias': dtype 'F9' is unknown")


NAMES = st.text(st.characters(exclude_categories=["Cs"]), max_size=12).filter(lambda name: name != "__metadata__")
SHAPES = st.lists(st.integers(0, 5), max_size=4).map(tuple)


@st.composite
def tensors(draw: st.DrawFn) -> list[tuple[str, str, tuple[int, ...]]]:
    found = []
    for name in draw(st.lists(NAMES, unique=True, max_size=8)):
        dtype = draw(st.sampled_from(list(DTYPES)))
        shape = draw(SHAPES)
        found.append((name, dtype, shape if DTYPES[dtype].bits >= 8 else (*shape, 8)))
    return found


@given(tensors(), st.none() | st.dictionaries(NAMES, NAMES, max_size=3))
def test_what_is_written_is_read(
    written: list[tuple[str, str, tuple[int, ...]]], metadata: dict[str, str] | None
) -> None:
    header = layout(written, metadata)
    head = head_bytes(header)
    assert len(head) % 8 == 0
    assert header_of(head + bytes(header.size - len(head))) == header
    assert sorted((entry.name, entry.dtype, entry.shape) for entry in header.tensors) == sorted(written)


FIELDS = st.sampled_from(["dtype", "shape", "data_offsets", "x", ""]) | st.text(max_size=2)
SCALARS = st.none() | st.booleans() | st.integers(-5, 2**70) | st.floats() | st.text(max_size=3)
VALUES = st.recursive(
    SCALARS | st.sampled_from(list(DTYPES)),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(FIELDS, inner, max_size=4),
    max_leaves=8,
)


@given(st.dictionaries(NAMES | st.just("__metadata__"), VALUES, max_size=3), st.integers(0, 9))
def test_any_json_is_read_or_refused(value: dict[str, Any], data: int) -> None:
    try:
        header = header_of(file_of(json.dumps(value), data))
    except SafetensorsError:
        return
    assert all(isinstance(entry, TensorEntry) for entry in header.tensors)


@given(st.sampled_from(ACCEPTED), st.lists(st.tuples(st.integers(0, 300), st.integers(0, 255)), min_size=1, max_size=4))
def test_any_bytes_are_read_or_refused(case: HeaderCase, changes: list[tuple[int, int]]) -> None:
    file = bytearray(case.file)
    for place, value in changes:
        file[place % len(file)] = value
    try:
        header = header_of(bytes(file))
    except SafetensorsError:
        return
    assert header.size == len(file)
    assert sum(entry.end - entry.begin for entry in header.tensors) <= len(file)
