"""A RESCALE of `tests.oracles.tosa` as core plans it and as HTTP sends it: numbers to stored bit patterns and back."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from requant.mlir import parse_type
from requant.mlir.types import TensorType
from requant.operators.tosa.rescale_plan import RescalePlan, RescaleRounding, plan_rescale
from tests.oracles.tosa import WIDTHS, Rescale

Array = NDArray[Any]

DTYPES: dict[str, np.dtype[Any]] = {
    "i8": np.dtype("i1"),
    "i16": np.dtype("<i2"),
    "i32": np.dtype("<i4"),
    "i48": np.dtype("<i8"),
}


def stored(numbers: Sequence[int] | Array, element: str) -> Array:
    """Numbers, signed or not, as the signed bit patterns of an element type."""
    half = 1 << (WIDTHS[element] - 1)
    wide = np.asarray(numbers, np.int64)
    return ((wide + half) % (2 * half) - half).astype(DTYPES[element])


def numbers(patterns: Array, element: str, *, unsigned: bool) -> list[int]:
    """The numbers that signed bit patterns stand for."""
    wide = patterns.astype(np.int64)
    found: list[int] = (wide % (1 << WIDTHS[element]) if unsigned else wide).tolist()
    return found


def tensor_type(shape: Sequence[int], element: str) -> str:
    """The text of a tensor type."""
    return f"tensor<{''.join(f'{size}x' for size in shape)}{element}>"


def plan(case: Rescale) -> RescalePlan:
    """Plan a case in core."""
    input_type = parse_type(tensor_type(case.shape, case.in_t))
    assert isinstance(input_type, TensorType)
    return plan_rescale(
        input_type,
        parse_type(case.out_t),
        case.multiplier,
        case.shift,
        input_zp=case.input_zp,
        output_zp=case.output_zp,
        scale32=case.scale32,
        rounding_mode=RescaleRounding(case.rounding_mode),
        per_channel=case.per_channel,
        input_unsigned=case.input_unsigned,
        output_unsigned=case.output_unsigned,
    )


def run(case: Rescale, source: Array) -> Array:
    """Rescale stored elements in core."""
    planned = plan(case)
    target = np.empty(source.size, planned.output_dtype)
    planned.run(source.ravel(), target)
    return target


def body(case: Rescale, source: Array, form: str = "data") -> dict[str, Any]:
    """A case as a JSON request, its defaults left out."""
    tensor: dict[str, Any] = {"type": tensor_type(case.shape, case.in_t)}
    tensor |= {"data": base64.b64encode(source.tobytes()).decode()} if form == "data" else {"values": source.tolist()}
    request: dict[str, Any] = {"input": tensor, "output_type": case.out_t}
    request |= {"multiplier": list(case.multiplier), "shift": list(case.shift)}
    defaults: dict[str, Any] = {"input_zp": 0, "output_zp": 0, "scale32": True, "rounding_mode": "SINGLE_ROUND"}
    defaults |= dict.fromkeys(("per_channel", "input_unsigned", "output_unsigned"), False)
    return request | {name: getattr(case, name) for name, value in defaults.items() if getattr(case, name) != value}
