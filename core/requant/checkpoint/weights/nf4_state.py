"""The quant_state that bitsandbytes stores with an NF4 weight: JSON, as bytes.

Source: bitsandbytes 0.50.2, `QuantState.as_dict` (`functional.py`) and `pack_dict_to_tensor` (`utils.py`).
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import Any

from requant.checkpoint.small_json import parse_small_json
from requant.checkpoint.weights.weight_format import matrix_shape
from requant.errors import CheckpointError, excerpt

BLOCK = 64
NESTED_BLOCK = 256
_MAX_BYTES = 4096
_TORCH_NAMES = {"BF16": "bfloat16", "F16": "float16", "F32": "float32"}


@dataclass(frozen=True, slots=True)
class Nf4State:
    """`shape`: of the weight. `offset`: what is added to scales that are quantized themselves, None for plain ones."""

    shape: tuple[int, int]
    offset: float | None


def state_of(dtype: str, shape: tuple[int, int]) -> bytes:
    """Return the state of a weight with plain scales, in the bytes of Python's `json.dumps`."""
    state = {"quant_type": "nf4", "blocksize": BLOCK, "dtype": _TORCH_NAMES[dtype], "shape": list(shape)}
    return json.dumps(state).encode()


def is_written_state(text: bytes) -> bool:
    """Return whether a state that can be read has the members that bitsandbytes writes, and only those."""
    state: Any = json.loads(text)
    nested = {f"nested_{each}" for each in ("blocksize", "dtype", "offset")} if "nested_blocksize" in state else set()
    members = {"quant_type", "blocksize", "dtype", "shape"} | nested
    return state.keys() == members and all(state[each] in _TORCH_NAMES.values() for each in members if "dtype" in each)


def read_state(text: bytes) -> Nf4State:
    """Return what a state says.

    Raises CheckpointError for a state that cannot be read, and for weights in other blocks or of another type.
    """
    try:
        state: Any = parse_small_json(text, _MAX_BYTES)
        kind, block, shape = state["quant_type"], state["blocksize"], state["shape"]
        nested, offset = state.get("nested_blocksize"), state.get("nested_offset")
    except (ValueError, KeyError, TypeError, AttributeError):
        raise CheckpointError("the quant_state is not in the form that bitsandbytes writes") from None
    if kind != "nf4" or block != BLOCK:
        raise CheckpointError(
            f"weights of type '{excerpt(str(kind))}' in blocks of {excerpt(str(block))} are not supported; expected "
            f"nf4 in blocks of {BLOCK}"
        )
    if not isinstance(shape, list) or not all(isinstance(each, int) and not isinstance(each, bool) for each in shape):
        raise CheckpointError("the shape of the quant_state is not a list of integers")
    if nested is None:
        return Nf4State(matrix_shape(tuple(shape)), None)
    if nested != NESTED_BLOCK or not isinstance(offset, float) or not math.isfinite(offset):
        raise CheckpointError(
            f"scales that are quantized in blocks of {excerpt(str(nested))} with the offset {excerpt(str(offset))} are "
            f"not supported; expected blocks of {NESTED_BLOCK} and a finite number"
        )
    return Nf4State(matrix_shape(tuple(shape)), offset)
