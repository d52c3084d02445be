"""Arrays of numpy and ml_dtypes as tensors of this project, and back; as operands in the process and as JSON."""

from __future__ import annotations

import base64
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from requant.description import TensorValue
from requant.mlir import parse_type
from requant.mlir.types import TensorType
from requant.operators.element_names import container, type_key

Array = NDArray[Any]

DTYPES: dict[str, np.dtype[Any]] = {
    name: np.dtype(dtype)
    for name, dtype in {
        "f64": np.float64, "f32": np.float32, "f16": np.float16, "bf16": ml_dtypes.bfloat16,
        "i8": np.int8, "ui8": np.uint8, "i16": np.int16, "ui16": np.uint16, "i32": np.int32, "ui32": np.uint32,
        "i4": ml_dtypes.int4, "ui4": ml_dtypes.uint4, "i2": ml_dtypes.int2, "ui2": ml_dtypes.uint2,
        "f8E4M3FN": ml_dtypes.float8_e4m3fn, "f8E4M3FNUZ": ml_dtypes.float8_e4m3fnuz, "f8E5M2": ml_dtypes.float8_e5m2,
        "f8E5M2FNUZ": ml_dtypes.float8_e5m2fnuz, "f4E2M1FN": ml_dtypes.float4_e2m1fn,
        "ui1": np.bool_,
        "f6E2M3FN": ml_dtypes.float6_e2m3fn, "f6E3M2FN": ml_dtypes.float6_e3m2fn, "f8E8M0FNU": ml_dtypes.float8_e8m0fnu,
    }.items()
}  # fmt: skip
NAMES = {dtype: name for name, dtype in DTYPES.items()}


def kept(array: Array) -> Array:
    """The elements flat, as this project keeps them."""
    name = NAMES[array.dtype]
    flat = np.ascontiguousarray(array).reshape(-1)
    if name in ("i4", "i2"):
        return flat.astype(np.int8)
    if name in ("ui4", "ui2", "ui1"):
        return flat.astype(np.uint8)
    return flat.view(f"u{flat.itemsize}") if name == "bf16" or name[:2] in ("f4", "f6", "f8") else flat


def type_text(array: Array) -> str:
    return f"tensor<{''.join(f'{size}x' for size in array.shape)}{NAMES[array.dtype]}>"


def operand(array: Array) -> TensorValue:
    type_ = parse_type(type_text(array))
    assert isinstance(type_, TensorType)
    return TensorValue(type_, kept(array))


def as_json(array: Array) -> dict[str, str]:
    """A JSON tensor."""
    return {"type": type_text(array), "data": base64.b64encode(kept(array).tobytes()).decode()}


def from_kept(flat: Array, name: str, shape: tuple[int, ...]) -> Array:
    """The array of numpy or ml_dtypes that kept elements stand for."""
    dtype = DTYPES[name]
    integer_below_a_byte = name.lstrip("ui") in ("4", "2", "1")
    return (flat.astype(dtype) if integer_below_a_byte else flat.view(dtype)).reshape(shape)


def array_of(tensor: TensorValue) -> Array:
    name = type_key(tensor.type.element)
    return from_kept(tensor.data, name, tensor.shape)


def from_json(tensor: dict[str, str]) -> Array:
    type_ = parse_type(tensor["type"])
    assert isinstance(type_, TensorType)
    dtype = container(type_.element)
    flat = np.frombuffer(base64.b64decode(tensor["data"]), dtype)
    shape = tuple(size for size in type_.shape or () if size is not None)
    return from_kept(flat, type_key(type_.element), shape)


def same(ours: Array, theirs: Array) -> bool:
    """Whether two arrays are equal bit by bit, but for the sign and payload of NaNs, which are the processor's."""
    if ours.dtype != theirs.dtype or ours.shape != theirs.shape:
        return False
    a, b = kept(ours), kept(theirs)
    if ours.dtype in (np.dtype(np.float32), np.dtype(np.float16), np.dtype(ml_dtypes.bfloat16)):
        both = np.isnan(ours.astype(np.float64)).ravel() & np.isnan(theirs.astype(np.float64)).ravel()
        a, b = np.where(both, 0, a.view(f"u{a.itemsize}")), np.where(both, 0, b.view(f"u{b.itemsize}"))
    return bool((a == b).all())
