"""Safetensors files, read with nothing but `json` and numpy."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from requant.checkpoint.safetensors.header import DTYPES, TensorEntry
from tests.support.hand_made_plan import Tensors


def tensor_places(path: Path) -> list[TensorEntry]:
    """Return the tensors of a file, in the order of their offsets."""
    data = path.read_bytes()
    begin = 8 + int.from_bytes(data[:8], "little")
    entries = [
        TensorEntry(name, entry["dtype"], tuple(entry["shape"]), *(begin + offset for offset in entry["data_offsets"]))
        for name, entry in json.loads(data[8:begin]).items()
        if name != "__metadata__"
    ]
    return sorted(entries, key=lambda entry: (entry.begin, entry.end))


def read_safetensors(path: Path) -> Tensors:
    """Return the tensors of a file: dtype and array by name."""
    data = path.read_bytes()
    return {
        entry.name: (
            entry.dtype,
            np.frombuffer(data[entry.begin : entry.end], DTYPES[entry.dtype].array).reshape(entry.shape),
        )
        for entry in tensor_places(path)
    }


def tensors_in(folder: Path) -> dict[str, tuple[str, tuple[int, ...], bytes]]:
    """Return the tensors of all files of a directory: dtype, shape and bytes by name."""
    files = (read_safetensors(path) for path in folder.glob("*.safetensors"))
    return {
        name: (dtype, array.shape, array.tobytes()) for tensors in files for name, (dtype, array) in tensors.items()
    }
