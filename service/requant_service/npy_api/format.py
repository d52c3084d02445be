"""The `.npy` container: a header parser that believes nothing, and a writer that writes what `numpy.save` writes.

`numpy.load` is not used on requests: it allocates what a header promises before it looks at the data, evaluates header
text as Python, and takes far more than is served here.

    \\x93NUMPY  major minor  header length (2 bytes in version 1, 4 in 2 and 3)  header, padded, ends in a newline  data
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from requant.errors import NpyError, excerpt

MAGIC = b"\x93NUMPY"
_VERSION_1 = MAGIC + b"\x01\x00"
START_BYTES = 8
# With the length field of version 1.
SHORT_START_BYTES = START_BYTES + 2
MAX_HEADER_BYTES = 1024
MAX_DIMENSION = 1 << 40

# The element kinds that are served, with the bytes of each. The void kinds are how numpy saves bf16 and small floats.
NUMBERS = frozenset({"|i1", "|u1", "<i2", "<u2", "<i4", "<u4", "<i8", "<u8", "<f2", "<f4", "<f8"})
VOIDS = {"|V1": 1, "|V2": 2, "<V2": 2}

_CURL_FILE = "`--data-binary @x.npy`, and in a form as `-F x=@x.npy`"
# What curl does with a file that is given as -d.
_STRIPPED = "; `curl -d` drops bytes of a file, `--data-binary` sends all"

_KEY = re.compile(r" *(['\"])(descr|fortran_order|shape)\1 *: *")
_TEXT = re.compile(r"(['\"])([^'\"]*)\1")
_BOOLEAN = re.compile(r"True|False")
_SHAPE = re.compile(r"\(([0-9, ]*)\)")
_COMMA = re.compile(r" *(,?) *")
_END = re.compile(r"\}[ \n]*")
_DIMENSION = re.compile(r"0|[1-9][0-9]{0,12}")

# Room that numpy leaves in the header for a growing first dimension.
_GROWTH_DIGITS = 21
_ALIGNMENT = 64


@dataclass(frozen=True, slots=True)
class NpyHeader:
    """What a header says: the element kind as numpy's `descr`, and the shape. The order is always row-major."""

    descr: str
    shape: tuple[int, ...]

    @property
    def elements(self) -> int:
        """The number of elements."""
        return prod(self.shape)

    @property
    def item_bytes(self) -> int:
        """The bytes of one element."""
        return VOIDS.get(self.descr) or np.dtype(self.descr).itemsize

    @property
    def data_bytes(self) -> int:
        """The bytes that the data have to have."""
        return self.elements * self.item_bytes


def whole_header(start: bytes) -> bytes | None:
    """Return the header text of a file that begins like this, if it is of version 1, served, and all there."""
    if not start.startswith(_VERSION_1) or len(start) < SHORT_START_BYTES:
        return None
    length = start[8] | start[9] << 8
    text = start[SHORT_START_BYTES : SHORT_START_BYTES + length]
    return text if len(text) == length <= MAX_HEADER_BYTES else None


def length_field_bytes(start: bytes) -> int:
    """Return the size of the header-length field that follows the first `START_BYTES` bytes of a file."""
    if start[: len(MAGIC)] != MAGIC:
        raise NpyError(f"the body is not a .npy file: {_resemblance(start)}")
    if len(start) < START_BYTES:
        raise _short_header()
    major, minor = start[6], start[7]
    if major not in (1, 2, 3) or minor != 0:
        raise NpyError(f"the .npy format version is {major}.{minor}; versions 1.0, 2.0 and 3.0 are served{_STRIPPED}")
    return 2 if major == 1 else 4


def header_length(field: bytes, field_bytes: int) -> int:
    """Return the length of the header text."""
    if len(field) < field_bytes:
        raise _short_header()
    length = int.from_bytes(field, "little")
    if length > MAX_HEADER_BYTES:
        raise NpyError(f"the .npy header has {length} bytes; at most {MAX_HEADER_BYTES} are read{_STRIPPED}")
    return length


def parse_header(data: bytes, length: int, max_rank: int) -> NpyHeader:
    """Parse the header text of `length` bytes: the three keys, each once, in any order."""
    if len(data) < length:
        raise _short_header()
    if not data.isascii():
        raise NpyError("the .npy header has characters outside of ASCII")
    text = data.decode("ascii")
    descr: str | None = None
    shape: tuple[int, ...] | None = None
    seen: set[str] = set()
    at = len(text) - len(text.lstrip(" "))
    if not text.startswith("{", at):
        raise _unreadable(text, at)
    at += 1
    while key := _KEY.match(text, at):
        name, at = key[2], key.end()
        if name in seen:
            raise NpyError(f"the .npy header has the key {name!r} twice")
        seen.add(name)
        if name == "descr":
            descr, at = _read_descr(text, at)
        elif name == "shape":
            shape, at = _read_shape(text, at, max_rank)
        else:
            at = _read_order(text, at)
        comma = _COMMA.match(text, at)
        assert comma is not None
        at = comma.end()
        if not comma[1]:
            break
    if not _END.fullmatch(text, at):
        raise _unreadable(text, at)
    if descr is None or shape is None or len(seen) < 3:
        missing = sorted({"descr", "fortran_order", "shape"} - seen)
        raise NpyError(f"the .npy header has no {' and no '.join(missing)}")
    return NpyHeader(descr, shape)


def _read_descr(text: str, at: int) -> tuple[str, int]:
    if text.startswith(("[", "("), at):
        raise NpyError("the .npy holds structured elements; save one field, such as x['name']")
    match = _TEXT.match(text, at)
    if match is None:
        raise _unreadable(text, at)
    descr = match[2]
    if descr not in NUMBERS and descr not in VOIDS:
        raise NpyError(f"the .npy holds {_description(descr)}; save {_remedy(descr)}")
    return descr, match.end()


def _read_order(text: str, at: int) -> int:
    match = _BOOLEAN.match(text, at)
    if match is None:
        raise _unreadable(text, at)
    if match[0] == "True":
        raise NpyError("the .npy is in Fortran order; row-major is served: save numpy.ascontiguousarray(x)")
    return match.end()


def _read_shape(text: str, at: int, max_rank: int) -> tuple[tuple[int, ...], int]:
    match = _SHAPE.match(text, at)
    if match is None:
        raise _unreadable(text, at)
    parts = [part.strip(" ") for part in match[1].split(",")]
    if parts[-1] == "":
        parts.pop()
    elif len(parts) == 1:
        raise NpyError("the shape of the .npy is a number in parentheses, not a tuple; one dimension is written (3,)")
    if len(parts) > max_rank:
        raise NpyError(f"the shape of the .npy has rank {len(parts)}; at most {max_rank} is served")
    for part in parts:
        if not _DIMENSION.fullmatch(part) or int(part) > MAX_DIMENSION:
            raise NpyError(f"a dimension of the .npy is {excerpt(part)!r}; expected a number from 0 to 2^40")
    return tuple(int(part) for part in parts), match.end()


def _resemblance(start: bytes) -> str:
    """Say what the body looks like instead, from its first bytes."""
    if not start:
        return "it is empty"
    if start.startswith(b"PK"):
        return "it looks like a .npz or zip archive; send its arrays as fields of a form, under /v1/multipart"
    if start[4:] == b'\0\0\0\0{"':
        return "it looks like a safetensors file; send it to a route under /v1/npy"
    if start.startswith(b"\x80"):
        return "it looks like a pickle, and pickles are never read"
    if start.isascii() and start.decode("ascii").isprintable():
        return f"it begins with text; curl sends a file as {_CURL_FILE}"
    return "it does not begin with \\x93NUMPY"


def _short_header() -> NpyError:
    return NpyError(f"the body ends inside of the .npy header{_STRIPPED}")


_KINDS = {
    "O": "Python objects (pickles are never read)",
    "S": "byte strings",
    "a": "byte strings",
    "U": "text",
    "c": "complex numbers",
    "M": "dates",
    "m": "time spans",
    "V": "raw records",
    "f": "floats of a width that is not served",
    "i": "integers of a width that is not served",
    "u": "integers of a width that is not served",
    "b": "booleans",
}


def _remedy(descr: str) -> str:
    """Say what to save instead of elements of a kind that is not served."""
    swapped = "<" + descr[1:]
    if descr.startswith(">") and swapped in NUMBERS:
        return f"x.astype({swapped!r})"
    kind = descr.lstrip("<>|=")[:1]
    if kind == "b":
        return "x.astype(numpy.uint8), or x.astype(numpy.float32) where real numbers are wanted"
    if kind == "c":
        return "x.real or x.imag"
    return "x.astype(numpy.float32)"


def _description(descr: str) -> str:
    """Say what an element kind is that is not served."""
    if descr.startswith(">"):
        return f"big-endian elements ({excerpt(descr)!r})"
    kind = descr.lstrip("<|=")[:1]
    return f"{_KINDS.get(kind, 'elements of another kind')} ({excerpt(descr)!r})"


def _unreadable(text: str, at: int) -> NpyError:
    return NpyError(f"the .npy header cannot be read at character {at}: {excerpt(text[at : at + 16])!r}")


def write_header(dtype: np.dtype[Any], shape: tuple[int, ...]) -> bytes:
    """Return the header that `numpy.save` writes for a row-major array."""
    text = f"{{'descr': {dtype.str!r}, 'fortran_order': False, 'shape': {shape!r}, }}"
    if shape:
        text += " " * (_GROWTH_DIGITS - len(repr(shape[0])))
    unpadded = len(MAGIC) + 4 + len(text) + 1
    padding = _ALIGNMENT - unpadded % _ALIGNMENT
    body = f"{text}{' ' * padding}\n".encode("ascii")
    return MAGIC + b"\x01\x00" + len(body).to_bytes(2, "little") + body


def write_npy(array: NDArray[Any]) -> bytes:
    """Return a row-major array as a file."""
    return write_header(array.dtype, array.shape) + array.tobytes()


def as_dtype(header: NpyHeader, data: NDArray[np.uint8], dtype: np.dtype[Any], *, named: bool) -> NDArray[Any]:
    """Return the received bytes as an array of `dtype`, if the header's element kind means that (`check_dtype`)."""
    check_dtype(header, dtype, named=named)
    return data.view(dtype)


def check_dtype(header: NpyHeader, dtype: np.dtype[Any], *, named: bool) -> None:
    """Raise NpyError unless the header's element kind means `dtype`.

    `named` says that the request names the type: then void elements of the right size are taken for its bit patterns.
    """
    if header.descr in VOIDS:
        if not named:
            raise NpyError(f"the .npy holds anonymous elements ({header.descr!r}); name their type with input_type")
        fits = header.item_bytes == dtype.itemsize
    else:
        fits = np.dtype(header.descr) == dtype
    if not fits:
        actual = np.dtype(header.descr)
        advice = f": save x.astype(numpy.{dtype.name})" if (actual.kind == "f") == (dtype.kind == "f") else ""
        raise NpyError(
            f"the .npy holds {actual.name} ({header.descr!r}); the input type is kept as {dtype.name} "
            f"({dtype.str!r}){advice}"
        )
