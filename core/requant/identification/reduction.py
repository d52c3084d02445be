"""A call as single numbers: what is rounded, the parameters of both sides, and what was observed.

A conversion is that already. A product becomes the requantization of its sums, which are computed in full.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from requant.arrays.calls import ArrayCall
from requant.arrays.elements import flat_bits, numpy_dtype
from requant.description import Array, Result
from requant.errors import RequantError
from requant.formats.elements import FloatElement, IntegerElement
from requant.identification.outcomes import stored_float
from requant.identification.parts import Scaling, Stored, quotients, scalings
from requant.mlir.types import (
    ElementType,
    TensorType,
    UniformPerAxisType,
    UniformQuantizedType,
    UniformSubChannelType,
)
from requant.plan.operands import bind
from requant.schemes import Factor

_LARGEST_SUM = 1 << 31


@dataclass(frozen=True, slots=True)
class Reduced:
    """One number for each element of the output, in its order, with the bounds of its storage.

    `scalings`: the ways in which such numbers may have been scaled.
    """

    shape: tuple[int, ...]
    stored: Stored
    observed: Array
    bounds: tuple[int, int]
    scalings: Sequence[Scaling]

    @property
    def kind(self) -> Hashable:
        """What is equal for numbers that one rule may explain."""
        stored = self.stored
        return stored.inputs.dtype, self.bounds, stored.scales is None, stored.weights is None

    @property
    def exact(self) -> Array:
        """The results before rounding, about."""
        return self.stored.exact

    @property
    def least_normal(self) -> float:
        """The least float that is not subnormal, of inputs that are floats."""
        dtype = self.stored.inputs.dtype
        return float(np.finfo(dtype).tiny) if dtype.kind == "f" else 0.0

    @property
    def real(self) -> Array:
        """The inputs without their zero points."""
        zeros = self.stored.zero_points
        return self.stored.inputs if zeros is None else self.stored.inputs - zeros


def joined(numbers: Sequence[Reduced]) -> Reduced:
    """Return the numbers of several calls of one kind, one behind the other."""
    if len(numbers) == 1:
        return numbers[0]
    arrays = [each.stored.arrays() for each in numbers]
    together: dict[str, Any] = {
        name: None if first is None else np.concatenate([each[name] for each in arrays])
        for name, first in arrays[0].items()
    }
    stored = Stored(**together)
    observed = np.concatenate([each.observed for each in numbers])
    ways = max((each.scalings for each in numbers), key=len)
    return Reduced((observed.size,), stored, observed, numbers[0].bounds, ways)


def reduced(call: ArrayCall) -> Reduced | None:
    """Return a call as single numbers, or None where it is not one of integers that are made of single numbers."""
    output = call.options.get("output_type")
    element = output.element if isinstance(output, TensorType) else output
    if set(call.observed) != {"output"} or not isinstance(element, UniformQuantizedType):
        return None
    if stored_float(element) is not None or not isinstance(element.storage.element, IntegerElement):
        return None
    storage = element.storage
    observed = np.ascontiguousarray(call.observed["output"]).reshape(-1)
    if observed.dtype.kind not in "iu":
        return None
    inputs = _inputs(call)
    if inputs is None or inputs.inputs.size != observed.size:
        return None
    shape = inputs.shape
    scales, zeros = _parameters(element, shape)
    stored = Stored(inputs.inputs, scales, zeros, inputs.scales, inputs.weights, inputs.zero_points)
    ways = quotients() if inputs.scales is None else scalings(_factors(stored), weighted=inputs.weights is not None)
    return Reduced(shape, stored, observed.astype(np.int64), (int(storage.minimum), int(storage.maximum)), ways)


@dataclass(frozen=True, slots=True)
class _Inputs:
    """What the output is made of, one for each of its elements."""

    shape: tuple[int, ...]
    inputs: Array
    scales: Array | None = None
    weights: Array | None = None
    zero_points: Array | None = None


def _inputs(call: ArrayCall) -> _Inputs | None:
    """Return reals, stored integers, or sums; None for other operations."""
    if set(call.types) == {"input"}:
        return _of_tensor(call)
    sums = _sums(call)
    if sums is None:
        return None
    value = sums.outputs["output"]
    shape = value.shape
    operands = [each for name, each in call.types.items() if name != "bias"]
    if len(operands) != 2 or np.abs(value.data.astype(np.int64)).max(initial=0) >= _LARGEST_SUM:
        return None
    left, right = operands
    of_right = _along_channels(call, right, shape)
    of_left = _scales(left.element)
    if of_right is None or len(of_left) != 1:
        return None
    scales = np.broadcast_to(np.float64(of_left[0]), value.data.shape)
    return _Inputs(shape, value.data.astype(np.int64), scales, of_right, np.zeros(value.data.shape, np.int64))


def _of_tensor(call: ArrayCall) -> _Inputs | None:
    type_ = call.types["input"]
    shape = tuple(size or 0 for size in type_.shape or ())
    if isinstance(type_.element, FloatElement):
        dtype = type_.element.tensor_dtype
        flat = flat_bits(call.arrays["input"], dtype, type_.element, "input")
        real = flat.view(numpy_dtype(type_.element))
        return _Inputs(shape, real.astype(np.float64 if dtype.itemsize == 8 else np.float32))
    if not isinstance(type_.element, UniformQuantizedType) or stored_float(type_.element) is not None:
        return None
    scales, zeros = _parameters(type_.element, shape)
    inputs = np.ascontiguousarray(call.arrays["input"]).reshape(-1).astype(np.int64)
    return _Inputs(shape, inputs, scales, None, zeros)


def _sums(call: ArrayCall) -> Result | None:
    """Return the sums of a product, or None where the operation has none."""
    if not call.operation.has_option("accumulator"):
        return None
    plain = bind(IntegerElement(32), ()).element
    try:
        plain_call = replace(call, options={**call.options, "output_type": plain})
        return plain_call.result(plain_call.planned())
    except RequantError:
        return None


def _along_channels(call: ArrayCall, weights: TensorType, shape: tuple[int, ...]) -> Array | None:
    """Return the scale of the second operand for each element of the output: one, or those of its channels."""
    element = weights.element
    if isinstance(element, UniformPerAxisType):
        layout = call.options.get("layout")
        axis = 1 if layout is not None and str(layout) == "NCHW" else len(shape) - 1
        if len(element.scales) != shape[axis]:
            return None
        scales = np.array(element.scales).reshape([-1 if index == axis else 1 for index in range(len(shape))])
        return np.broadcast_to(scales, shape).reshape(-1)
    one = _scales(element)
    return np.full(int(np.prod(shape)), one[0]) if len(one) == 1 else None


def _scales(element: ElementType) -> tuple[float, ...]:
    return element.scales if isinstance(element, UniformQuantizedType) else ()


def _parameters(element: ElementType, shape: tuple[int, ...]) -> tuple[Array, Array]:
    """Return the scale and the zero point of each element of a tensor."""
    assert isinstance(element, UniformQuantizedType)
    scales: Array = np.array(element.scales, np.float64)
    zeros: Array = np.array(element.zero_points, np.int64)
    size = int(np.prod(shape))
    if isinstance(element, UniformPerAxisType):
        along = [-1 if index == element.axis else 1 for index in range(len(shape))]
        scales, zeros = (np.broadcast_to(each.reshape(along), shape).reshape(-1) for each in (scales, zeros))
    elif isinstance(element, UniformSubChannelType):
        places = _block_places(element, shape)
        scales, zeros = scales[places], zeros[places]
    else:
        scales, zeros = (np.broadcast_to(each, size) for each in (scales, zeros))
    return scales, zeros


def _block_places(element: UniformSubChannelType, shape: tuple[int, ...]) -> Array:
    """Return the index of the block that each element is in."""
    blocks = dict(element.blocks)
    counts = [-(-size // blocks.get(axis, size)) if size else 0 for axis, size in enumerate(shape)]
    indices = [np.arange(size) // blocks.get(axis, max(size, 1)) for axis, size in enumerate(shape)]
    grid = np.meshgrid(*indices, indexing="ij")
    return np.ravel_multi_index([each.reshape(-1) for each in grid], counts)


def _factors(stored: Stored) -> list[Factor]:
    """Return the ways to form a factor that differ for these scales."""
    ways: dict[bytes, Factor] = {}
    for factor in (Factor.F64_OF_F32, Factor.F32, Factor.F64, Factor.F64_OF_F32_PRODUCT):
        ways.setdefault(stored.factors(factor).tobytes(), factor)
    return list(ways.values())
