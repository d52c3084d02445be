"""torch's tensors for calls of its operators, special values among them, and their bits."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from requant.description import TensorValue
from tests.support.operator_calls import tensor

torch: Any = pytest.importorskip("torch")
pytest.importorskip("torch.ao.quantization.fx._decomposed")

Array = Any
DECOMPOSED = "quantized_decomposed."
BOUNDS = {"uint8": (0, 255), "int8": (-128, 127), "int16": (-(2**15), 2**15 - 1), "int32": (-(2**31), 2**31 - 1)}
STORED = {"uint8": "ui8", "int8": "i8", "int16": "i16", "int32": "i32", "quint8": "ui8", "qint8": "i8", "qint32": "i32"}
REALS = {"float32": "f32", "float16": "f16", "bfloat16": "bf16"}
SPECIAL = [0.0, -0.0, 0.5, 1.5, -2.5, np.nan, np.inf, -np.inf, 3e9, -3e9, 1e-40, 300.25, -300.25, 2**31, 1e30, -1e30]
SCALES = (1.0, 0.5, 0.1, 0.0237, 3.0, 7e-5, 1e-3, 3e38, 2.0**-149)
SHAPES = ((), (7,), (3, 5), (2, 3, 4), (0,), (2, 0, 3))


def ours_of(value: Any) -> TensorValue:
    """A tensor of torch as an operand. bf16 is kept as its bits."""
    name = str(value.dtype).removeprefix("torch.")
    element = REALS.get(name) or {"float64": "f64", "int64": "i64"}.get(name) or STORED[name]
    if name == "bfloat16":
        return tensor(element, value.view(torch.int16).numpy().view(np.uint16))
    return tensor(element, value.numpy())


def reals(shape: tuple[int, ...], dtype: str, rng: np.random.Generator) -> Any:
    size = int(np.prod(shape))
    found = np.concatenate([rng.permutation(SPECIAL), rng.normal(0, 40, 64)])[:size].astype(np.float32)
    if size < 16:  # special values are in the larger ones
        found = rng.choice([0.5, 1.5, 2.5, -0.5, -7.25, 12.0, 33.3, np.inf, -np.inf], size).astype(np.float32)
    return torch.from_numpy(found.reshape(shape).copy()).to(getattr(torch, dtype))


def stored(shape: tuple[int, ...], dtype: str, rng: np.random.Generator) -> Any:
    lowest, highest = BOUNDS[dtype]
    found = rng.integers(lowest, highest + 1, int(np.prod(shape)), np.int64)
    found[:2], found[2:4] = lowest, highest
    return torch.from_numpy(found.reshape(shape).astype(dtype))


def point(dtype: str, rng: np.random.Generator) -> int:
    lowest, highest = BOUNDS[dtype]
    return int(rng.integers(max(lowest, -100), min(highest, 100) + 1))


def limits(dtype: str, narrow: bool, rng: np.random.Generator) -> dict[str, int]:
    lowest, highest = BOUNDS[dtype]
    if narrow:
        # Within them is 0, to which NaN is cast, or not.
        lowest, highest = int(rng.choice([max(lowest, -100), 5])), min(highest, 100)
    return {"quant_min": lowest, "quant_max": highest}


def bits(found: Any) -> Array:
    """The elements of a tensor as they are kept."""
    return ours_of(found.contiguous()).data.reshape(tuple(found.shape))


def same(ours: Array, theirs: Array) -> bool:
    """Whether all bits are equal, but those of NaNs. uint16 is bf16's bits."""
    if (ours.shape, ours.dtype) != (theirs.shape, theirs.dtype):
        return False
    if ours.dtype.kind == "f":
        nans = np.isnan(ours), np.isnan(theirs)
    elif ours.dtype == np.uint16:
        nans = (ours & 0x7FFF) > 0x7F80, (theirs & 0x7FFF) > 0x7F80
    else:
        return bool(np.array_equal(ours, theirs))
    kept = f"u{ours.dtype.itemsize}"
    return bool(np.array_equal(*nans) and np.all(nans[0] | (ours.view(kept) == theirs.view(kept))))
