"""NF4 as bitsandbytes stores it: the 16 quantiles of a normal distribution, and an f32 for each block of 64 elements.

Blocks run through the weight row after row. All in f32:

    x     = clamp(f32(w * f32(1 / max(absmax, 1e-38))), -1, 1)
    code  = how many of the 15 midpoints are below x; a midpoint takes the lower code
    value = f32(quantile * absmax), then rounded (RNE) to the dtype

Scales may be quantized themselves, which is read only: absmax = f32(f32(nested_quant_map[byte] * nested_absmax) +
offset), with a nested_absmax for 256 of them.

A last block of fewer elements divides, x = f32(w / absmax), and stores 1e-38 for an absmax below that. A byte has two
codes, the first in its upper half; the last one of an odd number is followed by the code of 0, 7.

The shape and the dtype are in a `quant_state`, JSON as bytes.

Source: bitsandbytes 0.50.2, `quantize_4bit` and `_dequantize_4bit_compute` (`backends/default/ops.py`), `QuantState`
and its `as_dict` (`functional.py`), `pack_dict_to_tensor` (`utils.py`).
"""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from requant.checkpoint.small_json import parse_small_json
from requant.checkpoint.weights.blocks import Block, Extremes, ScaledCodes
from requant.checkpoint.weights.floats import TORCH_NAMES, Array, check_weight, float_kernels, values
from requant.checkpoint.weights.weight_format import (
    Codes,
    PlainRows,
    Region,
    StoredRows,
    StoredTensor,
    WeightFormat,
    matrix_shape,
)
from requant.errors import CheckpointError, excerpt
from requant.kernels.checkpoint import quantiles as kernels
from requant.kernels.checkpoint.values import scaled_values
from requant.kernels.jit.jit import Kernel
from requant.kernels.simd.widen import FloatKind

WEIGHT, ABSMAX, QUANTILES = "weight", "weight.absmax", "weight.quant_map"
STATE = "weight.quant_state.bitsandbytes__nf4"
NESTED_ABSMAX, NESTED_VALUES = "weight.nested_absmax", "weight.nested_quant_map"
NF4 = np.array(
    [
        -1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453, -0.28444138169288635,
        -0.18477343022823334, -0.09105003625154495, 0.0, 0.07958029955625534, 0.16093020141124725, 0.24611230194568634,
        0.33791524171829224, 0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1.0,
    ],
    np.float32,
)  # fmt: skip
"""The values of the codes, as QLoRA (arXiv 2305.14314, appendix E) lists them."""
_MIDPOINTS = (NF4[:-1] + NF4[1:]) / np.float32(2)
_SMALLEST = np.float32(1e-38)
ZERO = 7
"""The code of 0."""
_BYTES = 256
BLOCK = 64
NESTED_BLOCK = 256
_MAX_STATE_BYTES = 4096


@dataclass(frozen=True)
class Nf4(WeightFormat):
    """`weight` U8 [ceil(out * in / 2), 1], `weight.absmax` F32, `weight.quant_map` F32 [16], and the state as JSON.

    `state_bytes`: how long the JSON of a checkpoint is that was made elsewhere. `nested`: whether the scales are
    quantized themselves, U8, with `weight.nested_absmax` F32 and `weight.nested_quant_map` F32 [256].
    """

    state_bytes: int | None = None
    nested: bool = False
    rows_together = BLOCK

    def stored(self, dtype: str, shape: tuple[int, int]) -> tuple[StoredTensor, ...]:
        """Return the stored tensors."""
        check_weight(dtype, shape)
        count = shape[0] * shape[1]
        blocks = -(-count // BLOCK)
        of_scales = (
            StoredTensor(NESTED_ABSMAX, "F32", (-(-blocks // NESTED_BLOCK),)),
            StoredTensor(NESTED_VALUES, "F32", (_BYTES,)),
        )
        return (
            StoredTensor(WEIGHT, "U8", (-(-count // 2), 1)),
            StoredTensor(ABSMAX, "U8" if self.nested else "F32", (blocks,)),
            StoredTensor(QUANTILES, "F32", NF4.shape),
            StoredTensor(STATE, "U8", (self.state_bytes or len(state_of(dtype, shape)),)),
            *(of_scales if self.nested else ()),
        )

    def resolve_from_stored(
        self, tensors: Mapping[str, StoredTensor], stated: tuple[int, int] | None
    ) -> tuple[WeightFormat, tuple[int, int]]:
        """`stated`: the shape in the state."""
        state, shape = tensors.get(STATE), matrix_shape(stated or ())
        length = None if state is None or len(state.shape) != 1 else state.shape[0]
        return replace(self, state_bytes=length, nested=NESTED_ABSMAX in tensors), shape

    def regions(self, dtype: str, shape: tuple[int, int], row_begin: int, row_end: int) -> tuple[Region, ...]:
        """Return bytes and blocks; 64 rows together are whole ones of both."""
        begin, end = row_begin * shape[1], row_end * shape[1]
        regions = (
            Region(WEIGHT, begin // 2, -(-end // 2), 0, 1),
            Region(ABSMAX, 0, 1, begin // BLOCK, -(-end // BLOCK)),
        )
        if row_begin > 0:
            return regions
        whole = (each for each in self.stored(dtype, shape) if each.suffix not in (WEIGHT, ABSMAX))
        return regions + tuple(Region(each.suffix, 0, 1, 0, each.shape[0]) for each in whole)

    def quantized(self, rows: PlainRows, extremes: Extremes | None) -> Mapping[str, Array]:
        """A NaN has the code 15, as in torch's `bucketize`."""
        if self.nested:
            raise ValueError("the scales are not quantized")
        bits, dtype = rows.bits.reshape(-1), rows.dtype
        whole = bits.size - bits.size % BLOCK
        absmax = np.empty(-(-bits.size // BLOCK), np.float32)
        packed = np.empty(-(-bits.size // 2), np.uint8)
        kernels.quantize(
            bits[:whole].view(np.uint8), FloatKind[dtype], BLOCK, _MIDPOINTS, _SMALLEST, absmax[: whole // BLOCK],
            packed[: whole // 2],
        )  # fmt: skip
        if whole < bits.size:
            absmax[-1], packed[whole // 2 :] = _last_block(values(bits[whole:], dtype))
        return {
            WEIGHT: packed[:, None],
            ABSMAX: absmax[None],
            QUANTILES: NF4[None],
            STATE: np.frombuffer(state_of(dtype, rows.shape), np.uint8)[None],
        }

    def scaled_codes(self, stored: StoredRows) -> ScaledCodes:
        """The values are those of `quant_map`. Raises CheckpointError where that has not 16 values."""
        quantiles = stored.parts[QUANTILES].reshape(-1)
        if quantiles.shape != NF4.shape:
            raise CheckpointError(f"quant_map has {quantiles.size} values; expected {NF4.size}")
        codes, scales = _unpacked(stored.parts[WEIGHT]), self._scales(stored)
        table = np.tile(quantiles, 256 // NF4.size)
        # Blocks run from one row into the next: all rows are one.
        return ScaledCodes(codes, table, stored.count * stored.shape[1], Block(1, BLOCK), scales, None, "F32")

    def quantizing_kernels(self, dtype: str) -> tuple[Kernel, ...]:
        return (kernels.quantize, *float_kernels((dtype,)))

    def dequantizing_kernels(self, dtypes: Collection[str]) -> tuple[Kernel, ...]:
        return (kernels.unpack, scaled_values, *float_kernels(dtypes))

    def codes(self, stored: StoredRows) -> Codes:
        columns = stored.shape[1]
        count, width = stored.count * columns, math.gcd(BLOCK, columns)
        codes = _unpacked(stored.parts[WEIGHT])[0, :count].astype(np.int16) - ZERO
        # Pieces begin with a block, and blocks run from one row into the next.
        scales = self._scales(stored)[np.arange(0, count, width) // BLOCK].reshape(stored.count, -1)
        return Codes(codes.reshape(-1, columns), -ZERO, NF4.size - 1 - ZERO, scales, uniform=False)

    def _scales(self, stored: StoredRows) -> Array:
        """Return absmax of the blocks, f32."""
        absmax = stored.parts[ABSMAX].reshape(-1)
        if not self.nested:
            return absmax
        offset = read_state(stored.parts[STATE].tobytes()).offset
        if offset is None:
            raise CheckpointError("there is a nested_absmax that the quant_state does not describe")
        first = stored.begin * stored.shape[1] // BLOCK
        shared = stored.parts[NESTED_ABSMAX].reshape(-1)[(first + np.arange(absmax.size)) // NESTED_BLOCK]
        with np.errstate(all="ignore"):
            scales: Array = stored.parts[NESTED_VALUES].reshape(-1)[absmax] * shared + np.float32(offset)
        return scales


def _last_block(numbers: Array) -> tuple[np.float32, Array]:
    """Return absmax and the packed codes of a block that is not whole."""
    absmax = np.maximum(np.abs(numbers).max(), _SMALLEST)
    with np.errstate(all="ignore"):
        codes = np.searchsorted(_MIDPOINTS, numbers / absmax).astype(np.uint8)
    pairs = np.append(codes, np.uint8(ZERO)) if codes.size % 2 else codes
    return absmax, pairs[::2] << 4 | pairs[1::2]


def _unpacked(stored: Array) -> Array:
    """Return the codes, bytes, of all elements in one row."""
    packed = np.ascontiguousarray(stored).reshape(-1)
    codes = np.empty((1, 2 * packed.size), np.uint8)
    kernels.unpack(packed, codes.reshape(-1).view(np.uint16))
    return codes


@dataclass(frozen=True, slots=True)
class Nf4State:
    """`shape`: of the weight. `offset`: what is added to scales that are quantized themselves, None for plain ones."""

    shape: tuple[int, int]
    offset: float | None


def state_of(dtype: str, shape: tuple[int, int]) -> bytes:
    """Return the state of a weight with plain scales, in the bytes of Python's `json.dumps`."""
    state = {"quant_type": "nf4", "blocksize": BLOCK, "dtype": TORCH_NAMES[dtype], "shape": list(shape)}
    return json.dumps(state).encode()


def is_written_state(text: bytes) -> bool:
    """Return whether a state that can be read has the members that bitsandbytes writes, and only those."""
    state: Any = json.loads(text)
    nested = {f"nested_{each}" for each in ("blocksize", "dtype", "offset")} if "nested_blocksize" in state else set()
    members = {"quant_type", "blocksize", "dtype", "shape"} | nested
    return state.keys() == members and all(state[each] in TORCH_NAMES.values() for each in members if "dtype" in each)


def read_state(text: bytes) -> Nf4State:
    """Return what a state says.

    Raises CheckpointError for a state that cannot be read, and for weights in other blocks or of another type.
    """
    try:
        state: Any = parse_small_json(text, _MAX_STATE_BYTES)
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
