"""What is made from ranges: scales and zero points, the scale and integers of a bias, and fake quantization.

Errors point at the argument at fault by its name, at a range by its index in `/minimums`, and at the scale of a channel
by its index in `/weight_scales`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from requant.calibration.bias import (
    BIAS_STORAGE,
    BiasRule,
    QuantizedBias,
    bias_rule_named,
    bias_scales,
    quantize_bias,
)
from requant.calibration.fake_quantize import FakeQuantizePlan, plan_fake_quantize
from requant.calibration.finished_type import Granularity, PerAxis, PerBlock, PerTensor
from requant.calibration.methods import Target
from requant.calibration.ranges import RangeParameters, RangeRule
from requant.errors import (
    InvalidRequestError,
    LimitError,
    ParameterError,
    TypeFitError,
    UnknownNameError,
    UnsupportedError,
    default_pointer,
)
from requant.formats.elements import FLOATS, FloatElement, IntegerElement
from requant.mlir.printer import print_tensor, print_type
from requant.mlir.types import TensorType
from requant.plan.operands import static_shape
from requant_service.operations.parameters.rules import at_range, finished_type, read_rule
from requant_service.operations.types import check_rank
from requant_service.runtime.settings import MAX_ENTRIES, Settings

Array = NDArray[Any]

# What printing the range of a channel and its scale costs, in bytes of tensor.
BYTES_PER_RANGE = 256

_F32 = FLOATS["f32"]
_wrong = InvalidRequestError.of_field


def check_ranges(count: int, pointer: str) -> None:
    """Raise ParameterError for no range or scale at all, LimitError for more than are taken."""
    if count == 0:
        raise ParameterError("the list is empty; at least one is required", pointer=pointer)
    if count > MAX_ENTRIES:
        raise LimitError(f"there are {count}; the limit is {MAX_ENTRIES}", limit=MAX_ENTRIES, pointer=pointer)


@dataclass(frozen=True, slots=True, kw_only=True)
class RangeCall:
    """Ranges, flat f64, and what is asked of the rule that turns them into scales and zero points.

    With `axis` there is one range for each of its indices; with `shape` and `block_sizes`, one for each block.
    `options` are those of `RangeOptions` that replace the rule's defaults.
    """

    minimums: Array
    maximums: Array
    scheme: str
    storage: str
    expressed: str
    options: Mapping[str, Any]
    axis: int | None = None
    shape: tuple[int, ...] | None = None
    block_sizes: tuple[int, ...] | None = None


class DerivedParameters(NamedTuple):
    """Scales and zero points, and what they were derived by and for."""

    rule: RangeRule
    expressed: FloatElement
    found: RangeParameters
    granularity: Granularity


def derive_from_ranges(call: RangeCall, settings: Settings) -> DerivedParameters:
    """Return the scale and zero point of each range. Errors as of `RangeRule.derive_all` and `read_rule`."""
    rule, storage, expressed, options = read_rule(call.scheme, call.storage, call.expressed, call.options)
    if len(call.maximums) != len(call.minimums):
        detail = f"there are {len(call.minimums)} minimums and {len(call.maximums)} maximums; expected equal numbers"
        raise _wrong("/maximums", "wrong_length", detail)
    granularity = _granularity(call, settings)
    with default_pointer("/scheme"):
        rule.check_blocks(blocks=isinstance(granularity, PerBlock))
    with at_range("/minimums"), default_pointer("/storage", UnsupportedError):
        found = Target(rule, options, storage, expressed, granularity).parameters(call.minimums, call.maximums)
    return DerivedParameters(rule, expressed, found, granularity)


def _granularity(call: RangeCall, settings: Settings) -> Granularity:
    """Return what the ranges are of: the tensor, the indices of an axis, or blocks."""
    count = len(call.minimums)
    if call.shape is not None or call.block_sizes is not None:
        if call.axis is not None:
            raise _wrong("/axis", "extra_forbidden", "axis is for one range per index; blocks have block_sizes")
        if not call.shape:
            raise _wrong("/shape", "missing", "blocks need the shape of the tensor, of at least one dimension")
        block_sizes = call.block_sizes or ()
        if len(call.shape) != len(block_sizes):
            detail = f"there are {len(block_sizes)} block_sizes for {len(call.shape)} dimensions of shape"
            raise _wrong("/block_sizes", "missing" if call.block_sizes is None else "wrong_length", detail)
        check_rank("shape", len(call.shape), settings.max_rank, "/shape")
        blocks = PerBlock(call.shape, block_sizes)
        if blocks.count != count:
            detail = f"there are {count} minimums; the shape has {prod(blocks.scale_shape)} blocks"
            raise TypeFitError(detail, pointer="/minimums")
        return blocks
    if call.axis is not None:
        return PerAxis(call.axis, count)
    if count > 1:
        raise _wrong("/axis", "missing", f"there are {count} ranges; give axis, or block_sizes and shape")
    return PerTensor()


@dataclass(frozen=True, slots=True)
class DerivedBias:
    """The scales of a bias, f64, and the type that they make, before any element is read.

    `type`: that of the stored integers, None if there is no bias to quantize. `finished` has the finished type as text,
    or the reason why there is none (`finished_type`).
    """

    rule: BiasRule
    scales: Array
    finished: Mapping[str, str]
    type: TensorType | None

    @property
    def output_type(self) -> str:
        """The type of the quantized bias. Where no type has the scales, the integers have the type of integers."""
        assert self.type is not None
        finished = self.finished.get("type")
        return print_type(self.type) if finished is None else print_tensor(self.type, finished)

    def quantize(self, values: Array, pointer: str) -> QuantizedBias:
        """Quantize the flat f32 values of the bias at `pointer`. Errors as of `quantize_bias`."""
        with at_range("/weight_scales"), default_pointer(pointer):
            return quantize_bias(self.rule, values, self.scales)


def plan_bias(
    scheme: str, input_scale: float, weight_scales: Array, bias: TensorType | None, pointer: str
) -> DerivedBias:
    """Return the scales of a bias. `bias`: its type, which is at `pointer`, if there is one to quantize.

    Raise UnknownNameError for the scheme, UnsupportedError for a bias that is not f32, TypeFitError for one that has
    another shape than the weight scales, and what `bias_scales` raises.
    """
    with default_pointer("/scheme"):
        rule = bias_rule_named(scheme)
    with at_range("/weight_scales"):
        scales = bias_scales(rule, input_scale, weight_scales)
    granularity = PerTensor() if scales.size == 1 else PerAxis(0, scales.size)
    finished = finished_type(BIAS_STORAGE, _F32, scales, np.zeros(scales.size, np.int64), granularity)
    if bias is None:
        return DerivedBias(rule, scales, finished, None)
    with default_pointer(pointer):
        if bias.element != _F32:
            raise UnsupportedError("a bias is quantized from f32")
        shape = static_shape(bias)
        if scales.size > 1 and shape != (scales.size,):
            raise TypeFitError(
                f"{scales.size} weight scales need a bias of shape {scales.size}; "
                f"a tensor of rank {len(shape)} is given"
            )
    return DerivedBias(rule, scales, finished, TensorType(shape, IntegerElement(32)))


def plan_fake_quantization(
    tensor: TensorType,
    minimums: Array,
    maximums: Array,
    *,
    num_bits: int,
    narrow_range: bool,
    scheme: str,
    axis: int | None,
    pointer: str,
) -> FakeQuantizePlan:
    """Plan a `requant.calibration.fake_quantize`, which has the arguments and errors. `pointer`: of the type."""
    with (
        default_pointer("/minimums", ParameterError),
        default_pointer(pointer, UnsupportedError, TypeFitError),
        default_pointer("/scheme", UnknownNameError),
        at_range("/minimums"),
    ):
        return plan_fake_quantize(
            tensor, minimums, maximums, num_bits=num_bits, narrow_range=narrow_range, scheme=scheme, axis=axis
        )
