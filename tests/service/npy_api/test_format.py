"""The `.npy` container: what numpy writes is read, what is written is what numpy writes, all else is refused."""

from __future__ import annotations

import io
import struct
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from requant.errors import NpyError
from requant_service.npy_api import format as npy

MAX_RANK = 32


def parse(file: bytes) -> tuple[npy.NpyHeader, bytes]:
    """Read a whole file the way the route does it from a stream."""
    field_bytes = npy.length_field_bytes(file[: npy.START_BYTES])
    at = npy.START_BYTES + field_bytes
    length = npy.header_length(file[npy.START_BYTES : at], field_bytes)
    return npy.parse_header(file[at : at + length], length, MAX_RANK), file[at + length :]


def file_of(text: str, version: int = 1) -> bytes:
    header = text.encode("utf-8")
    return npy.MAGIC + bytes([version, 0]) + len(header).to_bytes(2 if version == 1 else 4, "little") + header


def saved(array: np.ndarray[Any, Any]) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, array)
    return buffer.getvalue()


ARRAYS = npst.arrays(
    st.sampled_from(sorted(npy.NUMBERS)).map(np.dtype),
    npst.array_shapes(min_dims=0, max_dims=6, min_side=0, max_side=5),
)


@given(ARRAYS)
def test_what_numpy_saves_is_read(array: np.ndarray[Any, Any]) -> None:
    header, data = parse(saved(array))
    assert header == npy.NpyHeader(array.dtype.str, array.shape)
    assert header.data_bytes == len(data)
    read = npy.as_dtype(header, np.frombuffer(data, np.uint8), array.dtype, named=False)
    assert read.tobytes() == array.tobytes()


@given(ARRAYS)
def test_what_is_written_is_what_numpy_saves(array: np.ndarray[Any, Any]) -> None:
    written = npy.write_header(array.dtype, array.shape) + array.tobytes()
    assert written == saved(array)
    loaded = np.load(io.BytesIO(written), allow_pickle=False)
    assert loaded.dtype == array.dtype
    assert loaded.shape == array.shape


@pytest.mark.parametrize("length", [1, 9, 10**6, 10**12])
def test_the_header_of_a_long_dimension_is_numpys(length: int) -> None:
    shape = (length, *[10**12] * 6)
    buffer = io.BytesIO()
    np.lib.format.write_array_header_1_0(buffer, {"descr": "|i1", "fortran_order": False, "shape": shape})
    assert npy.write_header(np.dtype("i1"), shape) == buffer.getvalue()


@pytest.mark.parametrize("version", [1, 2, 3])
@pytest.mark.parametrize(
    "text",
    [
        "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }\n",
        '{"shape": (2, 3,), "fortran_order": False, "descr": "<f4"}',
        "{'fortran_order':False,'shape':(2,3),'descr':'<f4'}   \n",
        "  { 'descr' : '<f4' , 'fortran_order' : False , 'shape' : ( 2 , 3 ) } ",
    ],
)
def test_keys_in_any_order_and_spacing(version: int, text: str) -> None:
    assert parse(file_of(text, version))[0] == npy.NpyHeader("<f4", (2, 3))


def test_a_header_of_the_highest_rank_fits() -> None:
    shape = (1,) * MAX_RANK
    assert parse(saved(np.zeros(shape, "f4")))[0].shape == shape


def header(descr: str = "'<f4'", order: str = "False", shape: str = "(3,)") -> bytes:
    return file_of(f"{{'descr': {descr}, 'fortran_order': {order}, 'shape': {shape}, }}\n")


ATTACKS = {
    "empty": b"",
    "no magic": b"hello, world",
    "pickle": b"\x80\x04\x95\x00\x00\x00\x00\x00",
    "zip": b"PK\x03\x04\x14\x00\x00\x00",
    "cut in the magic": b"\x93NUM",
    "cut in the version": npy.MAGIC + b"\x01",
    "version 0": file_of("{}", 1).replace(b"\x01\x00", b"\x00\x00", 1),
    "version 4": file_of("{}", 4),
    "version 1.1": npy.MAGIC + b"\x01\x01\x02\x00{}",
    "cut in the length": npy.MAGIC + b"\x01\x00\x10",
    "header of 4 GiB": npy.MAGIC + b"\x03\x00" + struct.pack("<I", 2**32 - 1),
    "header of 1025 bytes": file_of("{'descr': '<f4', 'fortran_order': False, 'shape': (3,)}".ljust(1025)),
    "cut in the header": header()[:-10],
    "empty header": file_of(""),
    "no dictionary": file_of("[1, 2]"),
    "objects": header("'|O'"),
    "byte strings": header("'|S0'"),
    "text": header("'<U4'"),
    "structured": header("[('a', '<f4')]"),
    "structured, nested": header("('<f4', (2,))"),
    "datetime": header("'<M8[s]'"),
    "timedelta": header("'<m8[s]'"),
    "complex": header("'<c8'"),
    "big-endian": header("'>f4'"),
    "native-endian": header("'=f4'"),
    "boolean": header("'|b1'"),
    "void of no size": header("'|V0'"),
    "void of 8 bytes": header("'|V8'"),
    "long double": header("'<f16'"),
    "number as element kind": header("4"),
    "bytes literal": header("b'<f4'"),
    "escape in the element kind": header("'\\x3cf4'"),
    "Fortran order": header(order="True"),
    "Fortran order as a number": header(order="0"),
    "negative dimension": header(shape="(-1,)"),
    "boolean dimension": header(shape="(True,)"),
    "Python 2 dimension": header(shape="(3L,)"),
    "float dimension": header(shape="(3.0,)"),
    "hexadecimal dimension": header(shape="(0x3,)"),
    "underscore dimension": header(shape="(1_0,)"),
    "leading zero": header(shape="(03,)"),
    "digits of another script": header(shape="(\u0663,)"),
    "plus sign": header(shape="(+3,)"),
    "4000 minuses": header(shape=f"({'-' * 900}3,)"),
    "nested tuple": header(shape="((3,),)"),
    "list": header(shape="[3]"),
    "number in parentheses": header(shape="(3)"),
    "two commas": header(shape="(3,,)"),
    "only a comma": header(shape="(,)"),
    "dimension over 2^40": header(shape=f"({2**40 + 1},)"),
    "dimension of 400 digits": header(shape=f"({'9' * 400},)"),
    "rank 33": header(shape=f"({'1, ' * 33})"),
    "key twice": file_of("{'descr': '<f4', 'descr': '<f4', 'fortran_order': False, 'shape': (3,)}"),
    "key missing": file_of("{'descr': '<f4', 'shape': (3,)}"),
    "unknown key": file_of("{'descr': '<f4', 'fortran_order': False, 'shape': (3,), 'x': 1}"),
    "no comma": file_of("{'descr': '<f4' 'fortran_order': False, 'shape': (3,)}"),
    "not closed": file_of("{'descr': '<f4', 'fortran_order': False, 'shape': (3,)"),
    "more after the end": file_of("{'descr': '<f4', 'fortran_order': False, 'shape': (3,)} + 1"),
    "call": file_of("{'descr': '<f4', 'fortran_order': False, 'shape': tuple([3])}"),
    "tab": file_of("{'descr':\t'<f4', 'fortran_order': False, 'shape': (3,)}"),
    "NUL": file_of("{'descr': '<f4', 'fortran_order': False, 'shape': (3,)}\0"),
    "mixed quotes": file_of("{'descr\": '<f4', 'fortran_order': False, 'shape': (3,)}"),
}


@pytest.mark.parametrize("file", ATTACKS.values(), ids=ATTACKS.keys())
def test_attacks_are_refused(file: bytes) -> None:
    with pytest.raises(NpyError) as caught:
        parse(file)
    assert len(caught.value.detail) < 300


def test_promises_are_counted_in_unbounded_integers() -> None:
    assert parse(header(shape=f"({2**40}, {2**40})"))[0].data_bytes == 2**82


@given(st.binary(max_size=200))
def test_noise_is_refused_or_read(noise: bytes) -> None:
    for file in (noise, npy.MAGIC + noise, npy.MAGIC + b"\x01\x00" + noise):
        with pytest.raises(NpyError):
            parse(file)


@given(st.text("{}()':,<f4 0123descrshapefortran_orderTrueFalse\n", max_size=200))
def test_noise_from_the_grammar_is_refused_or_read(text: str) -> None:
    with pytest.raises(NpyError):
        parse(file_of(text))


def test_anonymous_elements_need_a_named_type() -> None:
    data = np.arange(4, dtype=np.uint8)
    bits = npy.as_dtype(npy.NpyHeader("<V2", (2,)), data, np.dtype("<u2"), named=True)
    assert bits.tolist() == [0x0100, 0x0302]
    with pytest.raises(NpyError, match="input_type"):
        npy.as_dtype(npy.NpyHeader("<V2", (2,)), data, np.dtype("<u2"), named=False)
    with pytest.raises(NpyError, match="'<u4'"):
        npy.as_dtype(npy.NpyHeader("|V1", (4,)), data, np.dtype("<u4"), named=True)


def test_the_element_kind_has_to_be_that_of_the_type() -> None:
    with pytest.raises(NpyError, match=r"'\|u1'.*'\|i1'"):
        npy.as_dtype(npy.NpyHeader("|u1", (4,)), np.zeros(4, np.uint8), np.dtype("i1"), named=True)
