"""Fake quantize: f32 to f32, each element moved to the nearest step of a range that is nudged to have zero as a step.

The formulas are those of `requant.kernels.convert.fake_quantize`, the ranges those of
`requant.calibration.ranges.tensorflow`. Source: TensorFlow fake_quant_ops_functor.h; LiteRT FakeQuantizeArray.
TensorFlow's operators with tensors as ends, per tensor, divide where the others multiply.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from requant.calibration.ranges import RangeOptions, RangeParameters, range_rule_named
from requant.calibration.ranges.tensorflow import flushed
from requant.errors import (
    ParameterError,
    PreconditionError,
    TypeFitError,
    UnsupportedError,
)
from requant.errors.names import entry_named
from requant.formats.elements import FLOATS, IntegerElement
from requant.kernels.convert.fake_quantize import FAKE_QUANTIZE, Step
from requant.kernels.jit.jit import Kernel
from requant.mlir.types import StorageType, TensorType
from requant.plan.channels import channels_of, whole_blocks
from requant.plan.operands import static_shape
from requant.plan.plan import check_flat

Array = NDArray[Any]


@dataclass(frozen=True, slots=True)
class FakeQuantizeScheme:
    """One system's fake quantization. `range_rule` names how the range is nudged."""

    name: str
    summary: str
    range_rule: str
    step: Step
    per_axis: bool


FAKE_QUANTIZE_SCHEMES: Mapping[str, FakeQuantizeScheme] = {
    scheme.name: scheme
    for scheme in (
        FakeQuantizeScheme(
            "tf_fake_quant",
            "TensorFlow's fake_quant_with_min_max_args, and _vars_per_channel along the last axis",
            "tf_fake_quant",
            Step.RECIPROCAL,
            per_axis=True,
        ),
        FakeQuantizeScheme(
            "tf_fake_quant_vars",
            "TensorFlow's fake_quant_with_min_max_vars: divides by the scale",
            "tf_fake_quant",
            Step.DIVISION,
            per_axis=False,
        ),
        FakeQuantizeScheme(
            "litert",
            "LiteRT's FAKE_QUANT, whose operator itself refuses narrow_range",
            "litert_fake_quant",
            Step.AWAY,
            per_axis=False,
        ),
    )
}


@dataclass(frozen=True, slots=True)
class FakeQuantizePlan:
    """What is decided before the first element. `ranges` are the nudged ones, one for each channel."""

    type: TensorType
    elements: int
    ranges: RangeParameters
    kernel: Kernel
    layout: tuple[int, int, int, int]
    parameters: tuple[Array, ...]

    def step(self, source: Array, target: Array, start: int) -> None:
        """Convert `source`, which begins at flat index `start` of the tensor, into `target`."""
        self.kernel(source, target, start, *self.layout, *self.parameters)

    def run(self, source: Array, target: Array) -> None:
        """Convert a whole flat tensor of f32. Raise TensorDataError if an array is not that."""
        check_flat(source, np.dtype(np.float32), self.elements, "the input")
        check_flat(target, np.dtype(np.float32), self.elements, "the output")
        self.step(source, target, 0)


def fake_quantize_scheme_named(name: str) -> FakeQuantizeScheme:
    """Return the scheme of that name, or raise UnknownNameError listing those that exist."""
    return entry_named(FAKE_QUANTIZE_SCHEMES, name, "fake quantization")


def plan_fake_quantize(
    tensor: TensorType,
    minimums: Array,
    maximums: Array,
    *,
    num_bits: int = 8,
    narrow_range: bool = False,
    scheme: str = "tf_fake_quant",
    axis: int | None = None,
) -> FakeQuantizePlan:
    """Plan x -> y for a static tensor of f32.

    `minimums`, `maximums`: 1-D f64, one range, or one for each index of `axis`. Raise UnknownNameError,
    UnsupportedError (not f32, an axis that the system has not), TypeFitError (number of ranges against the shape), and
    what `RangeRule.derive_all` raises for a range.
    """
    rule = fake_quantize_scheme_named(scheme)
    if tensor.element != FLOATS["f32"]:
        raise UnsupportedError("fake quantization takes tensors of f32")
    shape = static_shape(tensor)
    blocks = _blocks(shape, minimums.size, axis, rule)
    if not 2 <= num_bits <= 16:
        raise ParameterError(f"num_bits is {num_bits}; it must be 2 to 16", pointer="/num_bits")
    storage = StorageType.unbounded(IntegerElement(num_bits), signed=False)
    ranges = range_rule_named(rule.range_rule).derive_all(
        minimums, maximums, storage, RangeOptions(narrow=narrow_range)
    )
    channels = channels_of(shape, blocks)
    if rule.step is not Step.RECIPROCAL:
        channels = channels.as_runs()
    return FakeQuantizePlan(
        tensor,
        prod(shape),
        ranges,
        FAKE_QUANTIZE[rule.step, channels.cycle],
        channels.scalars,
        tuple(channels.lay_out(values, "<f4") for values in _step_parameters(rule, ranges, minimums, maximums)),
    )


def _blocks(shape: tuple[int, ...], count: int, axis: int | None, rule: FakeQuantizeScheme) -> tuple[int, ...]:
    """Return the block of one range along each dimension."""
    if axis is None:
        if count != 1:
            raise TypeFitError(f"there are {count} ranges and no axis; one range is for the whole tensor")
        return whole_blocks(shape)
    if not rule.per_axis:
        raise UnsupportedError(f"{rule.name} has one range for the whole tensor; tf_fake_quant has an axis")
    if not shape or axis != len(shape) - 1:
        raise UnsupportedError(
            f"axis {axis} of a tensor of rank {len(shape)}: {rule.name} has ranges along the last axis"
        )
    if shape[axis] != count:
        raise TypeFitError(f"{count} ranges for dimension {axis}, which has {shape[axis]} elements")
    return (*whole_blocks(shape[:axis]), 1)


def _step_parameters(
    rule: FakeQuantizeScheme, ranges: RangeParameters, minimums: Array, maximums: Array
) -> tuple[Array, Array, Array, Array, Array]:
    """Return low ends, high ends, scales, inverses and the steps of zero, as f32."""
    assert ranges.nudged_minimums is not None
    assert ranges.nudged_maximums is not None
    lows, highs = ranges.nudged_minimums, ranges.nudged_maximums
    scales = ranges.scales.astype(np.float32)
    with np.errstate(all="ignore"):
        if rule.step is Step.AWAY:
            inverses = np.float32(1) / scales
            if np.isinf(inverses).any():
                raise PreconditionError("the reciprocal of the step is not finite in f32", index=0)
            return lows, highs, scales, inverses, np.zeros_like(scales)
        span = np.float32(ranges.storage.maximum - ranges.storage.minimum)
        # Not 1 / s: TensorFlow divides the other way round, to lose less.
        width = flushed(maximums.astype(np.float32)) - flushed(minimums.astype(np.float32))
        inverses = np.where(scales == 0, np.float32(0), span / width)
        return lows, highs, scales, inverses, np.floor(-lows * inverses + np.float32(0.5))
