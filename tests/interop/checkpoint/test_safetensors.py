"""The safetensors library takes and refuses the headers that tests/support says it does, and writes what we write."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors import SafetensorError, TensorSpec, safe_open, serialize

from requant.checkpoint.safetensors.header import DTYPES
from requant.checkpoint.safetensors.writer import head_bytes, layout
from tests.support.safetensors_headers import ACCEPTED, REFUSED, HeaderCase

pytestmark = pytest.mark.interop

# The library's names of the dtypes that numpy or torch have.
_NAMES = {
    "BOOL": "bool",
    "U8": "uint8",
    "I8": "int8",
    "I16": "int16",
    "U16": "uint16",
    "F16": "float16",
    "BF16": "bfloat16",
    "I32": "int32",
    "U32": "uint32",
    "F32": "float32",
    "F64": "float64",
    "I64": "int64",
    "U64": "uint64",
    "F8_E4M3": "float8_e4m3fn",
    "F8_E5M2": "float8_e5m2",
    "C64": "complex64",
}


@pytest.mark.parametrize("case", [*REFUSED, *ACCEPTED], ids=lambda case: case.name)
def test_headers(case: HeaderCase, tmp_path: Path) -> None:
    file = tmp_path / "a.safetensors"
    file.write_bytes(case.file)
    if case.library:
        with safe_open(file, framework="np") as opened:
            opened.keys()
    else:
        with pytest.raises((SafetensorError, ValueError, OSError)), safe_open(file, framework="np"):
            pass


SHAPES = st.lists(st.integers(0, 5), max_size=3)
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=8).filter(lambda name: name != "__metadata__")


@given(
    st.dictionaries(TEXTS, st.tuples(st.sampled_from(sorted(_NAMES)), SHAPES), max_size=6),
    st.none() | st.dictionaries(TEXTS, TEXTS, min_size=1, max_size=1),
)
def test_files_are_the_library_s(tensors: dict[str, tuple[str, list[int]]], metadata: dict[str, str] | None) -> None:
    """With more than one entry, the library writes metadata in no fixed order."""
    header = layout([(name, dtype, tuple(shape)) for name, (dtype, shape) in tensors.items()], metadata)
    sizes = {entry.name: entry.end - entry.begin for entry in header.tensors}
    content = {name: bytes([number % 251]) * size for number, (name, size) in enumerate(sorted(sizes.items()))}
    arrays = {name: np.frombuffer(data or bytes(1), np.uint8) for name, data in content.items()}
    specs = {
        name: TensorSpec(dtype=_NAMES[dtype], shape=shape, data_ptr=arrays[name].ctypes.data, data_len=sizes[name])
        for name, (dtype, shape) in tensors.items()
    }
    expected = bytes(serialize(specs, metadata))
    assert head_bytes(header) + b"".join(content[entry.name] for entry in header.tensors) == expected
    assert set(_NAMES) <= set(DTYPES)
