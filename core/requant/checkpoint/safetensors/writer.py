"""The header of a file that is to be written, with the bytes that the library would write."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from math import prod

from requant.checkpoint.ordering import sorted_in_pieces
from requant.checkpoint.safetensors.header import DTYPES, Header, TensorEntry
from requant.checkpoint.safetensors.reader import LENGTH_BYTES, MAX_HEADER_BYTES, METADATA
from requant.errors import SafetensorsError, excerpt
from requant.errors.cancellation import checked

ALIGNMENT = 8
"""The tensors' bytes begin at a multiple of it."""

_compact = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


def layout(tensors: Iterable[tuple[str, str, tuple[int, ...]]], metadata: Mapping[str, str] | None = None) -> Header:
    """Return the header of a file with these tensors (name, dtype, shape), placed as the library (0.8) places them.

    Order: by dtype, the last of `DTYPES` first, then by name, in the order of Unicode's code points; no gaps.
    Raises SafetensorsError for a name that occurs twice or is `__metadata__`, for a shape that does not fill whole
    bytes, and for a header above 100 MB.
    """
    ordered = sorted_in_pieces(tensors, lambda tensor: (-DTYPES[tensor[1]].rank, tensor[0]))
    placed: list[TensorEntry] = []
    names: set[str] = {METADATA}
    end = 0
    for name, dtype, shape in checked(ordered):
        if name in names:
            raise SafetensorsError(f"two tensors would be named '{excerpt(name)}'", tensor=name)
        names.add(name)
        bits = prod(shape) * DTYPES[dtype].bits
        if bits % 8:
            raise SafetensorsError(f"shape {list(shape)} of {dtype} does not fill whole bytes", tensor=name)
        placed.append(TensorEntry(name, dtype, shape, end, end + bits // 8))
        end += bits // 8
    data = LENGTH_BYTES + len(_padded(_json(placed, metadata, 0)))
    if data - LENGTH_BYTES > MAX_HEADER_BYTES:
        raise SafetensorsError(
            f"the header would have {data - LENGTH_BYTES} bytes; at most {MAX_HEADER_BYTES} are read"
        )
    return Header(
        tuple(
            TensorEntry(entry.name, entry.dtype, entry.shape, data + entry.begin, data + entry.end) for entry in placed
        ),
        None if metadata is None else dict(metadata),
        data + end,
    )


def head_bytes(header: Header) -> bytes:
    """Return the file's bytes before the first tensor: the header's length, its JSON, spaces up to a multiple of 8.

    The JSON is compact, `__metadata__` first, tensors in the order of `header`, other than ASCII not escaped.
    """
    data = header.tensors[0].begin if header.tensors else header.size
    text = _padded(_json(header.tensors, header.metadata, data))
    return len(text).to_bytes(LENGTH_BYTES, "little") + text


def _padded(text: bytes) -> bytes:
    return text + b" " * (-len(text) % ALIGNMENT)


def _json(tensors: Iterable[TensorEntry], metadata: Mapping[str, str] | None, data: int) -> bytes:
    """The header's JSON. `data`: where the tensors' bytes begin, in the offsets of `tensors`."""
    members = [] if metadata is None else [f'"{METADATA}":{_compact(metadata)}']
    members += [
        f'{_compact(entry.name)}:{{"dtype":"{entry.dtype}","shape":{_compact(entry.shape)},'
        f'"data_offsets":[{entry.begin - data},{entry.end - data}]}}'
        for entry in checked(tensors)
    ]
    return f"{{{','.join(members)}}}".encode()
