"""Addition of two quantized tensors, elementwise, as each profile's system does it.

    y = clamp(round((s_a * (a - z_a) + s_b * (b - z_b)) / s_y) + z_y), in the arithmetic of the profile

Dimensions are broadcast as numpy does. Source: LiteRT's and XNNPACK's ADD, run; StableHLO's passes
stablehlo-legalize-quant-to-math and stablehlo-quant-legalize-to-tosa-rescale.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from requant.convert.dequantize import plan_dequantize
from requant.convert.quantize import plan_quantize
from requant.convert.scaling import common_granularity, plan_scaling
from requant.errors import ParameterError, PreconditionError, RequantError, TypeFitError, UnsupportedError, error_side
from requant.formats.elements import IntegerElement
from requant.formats.rounding import Rounding
from requant.integer.accumulation import STORAGES, Integers
from requant.mlir.types import TensorType, Type
from requant.plan.channels import whole_blocks
from requant.plan.operands import (
    QuantizedOperand,
    StoredOperand,
    bind,
    integer_operand,
    quantized_operand,
    static_shape,
)
from requant.plan.plan import Plan, Report, check_flat, pieces
from requant.profiles import profile_named
from requant.profiles.rule import DEQUANTIZE, Addition, AddRule
from requant.schemes import Multiplier, Scheme, scheme_named

Array = NDArray[Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Arithmetic(ABC):
    """An addition. `multipliers`: of lhs, rhs and the sum, where it has them. `rounding` names that of the output."""

    rounding: str
    scheme: str | None = None
    multipliers: Sequence[Multiplier] = ()

    @abstractmethod
    def step(self, lhs: Array, rhs: Array, target: Array, start: int, counts: Array) -> dict[str, Array]:
        """Add pieces that begin at flat index `start` to `target`; add to `counts` (`requant.plan.plan`).

        Return the stages between, by name.
        """

    def new_counts(self) -> Array:
        """Return the tally before the first piece."""
        return np.array([0, 0, 0, -1], np.int64)

    def explain_undefined(self, counts: Array) -> str:
        """Say what the arithmetic demands of an element."""
        return "the arithmetic is not defined for this element"


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedArithmetic(Arithmetic):
    """An addition by conversions: `plans` convert both sides, `last` their sum, and the tally is that of `last`."""

    plans: tuple[Plan, Plan]
    last: Plan

    def new_counts(self) -> Array:
        return self.last.new_counts()

    def explain_undefined(self, counts: Array) -> str:
        return self.last.explain_undefined(counts)


def clamp(sums: Array, output: QuantizedOperand, target: Array, counts: Array) -> None:
    """Write integers to `target` within the bounds of the output, and count those that were not."""
    counts[0] += np.count_nonzero(sums < output.minimum)
    counts[1] += np.count_nonzero(sums > output.maximum)
    target[:] = np.clip(sums, output.minimum, output.maximum)


_SMALLEST, _LARGEST = 2.0**-10, 2.0**8


@dataclass(frozen=True, slots=True, kw_only=True)
class CommonScaleAddition(Arithmetic):
    """`multipliers` has those of lhs and rhs, with the same shift."""

    zeros: tuple[int, int]
    output: QuantizedOperand

    def step(self, lhs: Array, rhs: Array, target: Array, start: int, counts: Array) -> dict[str, Array]:
        stages = {}
        for side, numbers, zero, used in zip(("lhs", "rhs"), (lhs, rhs), self.zeros, self.multipliers, strict=True):
            stages[f"{side}_scaled"] = (numbers.astype(np.int64) - zero) * used.multiplier
        stages["sum"] = stages["lhs_scaled"] + stages["rhs_scaled"]
        shift = self.multipliers[0].shift
        stages["scaled"] = (stages["sum"] + (1 << (shift - 1))) >> shift
        stages["after_zero_point"] = stages["scaled"] + self.output.zero_points[0]
        clamp(stages["after_zero_point"], self.output, target, counts)
        return stages


def plan_common_scale(
    rule: AddRule, lhs: QuantizedOperand, rhs: QuantizedOperand, output: QuantizedOperand, profile: str
) -> CommonScaleAddition:
    """Derive the two multipliers.

    Raise ParameterError for ratios of scales that XNNPACK does not take, UnsupportedError for more than 8 bits.
    """
    for name, side in (("lhs", lhs), ("rhs", rhs), ("output", output)):
        if side.width > 8:
            with error_side(name):
                raise UnsupportedError(f"profile {profile} adds numbers of at most 8 bits; {name} has {side.storage}")
    ratios = []
    for name, side in (("lhs", lhs), ("rhs", rhs)):
        with np.errstate(all="ignore"):
            ratio = float(np.float32(side.scales[0]) / np.float32(output.scales[0]))
        if not _SMALLEST <= ratio < _LARGEST:
            raise ParameterError(
                f"the scale of {name} is {ratio!r} times the output's; XNNPACK takes {_SMALLEST!r} up to {_LARGEST!r}"
            )
        ratios.append(ratio)
    shift = 20 - (math.frexp(max(ratios))[1] - 1)
    # Python rounds to the nearest, ties to even, and the product is exact.
    multipliers = tuple(Multiplier(round(math.ldexp(ratio, shift)), shift) for ratio in ratios)
    return CommonScaleAddition(
        rounding=Rounding.SINGLE,
        multipliers=multipliers,
        zeros=(lhs.zero_points[0], rhs.zero_points[0]),
        output=output,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class FixedPointAddition(PlannedArithmetic):
    """`left_shift` is LiteRT's, None in TOSA. `zeros` are those of both sides, where the shift comes first."""

    left_shift: int | None
    zeros: tuple[int, int]

    def step(self, lhs: Array, rhs: Array, target: Array, start: int, counts: Array) -> dict[str, Array]:
        stages: dict[str, Array] = {}
        scaled = []
        for side, numbers, zero, plan in zip(("lhs", "rhs"), (lhs, rhs), self.zeros, self.plans, strict=True):
            if self.left_shift is not None:
                numbers = (numbers.astype(np.int32) - np.int32(zero)) << np.int32(self.left_shift)
                stages[f"{side}_shifted"] = numbers
            at_common_scale = np.empty(numbers.size, np.int32)
            of_side = plan.new_counts()
            plan.step(numbers, at_common_scale, start, of_side)
            if of_side[3] >= 0 > counts[3]:
                counts[3:5] = of_side[3:5]
            stages[f"{side}_scaled"] = at_common_scale
            scaled.append(at_common_scale)
        # The sides are below 2^29 each: see `_check`.
        stages["sum"] = scaled[0] + scaled[1]
        self.last.step(stages["sum"], target, start, counts)
        return stages


def _stage(
    scheme: Scheme, source: StoredOperand, target: StoredOperand, factor: float, profile: str, what: str
) -> tuple[Plan, Multiplier]:
    shape = static_shape(source.tensor)
    whole = whole_blocks(shape)
    try:
        multiplier = scheme.derive_checked(factor)
    except ParameterError as error:
        raise ParameterError(f"the factor of {what}, {factor!r}: {error.detail}") from None
    granularity = common_granularity(shape, (whole, 1), (whole, 1))
    plan = plan_scaling(scheme, source, target, granularity, [multiplier], profile=profile, exact=[factor])
    return plan, multiplier


def plan_fixed_point(
    rule: AddRule, lhs: QuantizedOperand, rhs: QuantizedOperand, output: QuantizedOperand, profile: str
) -> FixedPointAddition:
    """Plan the three stages.

    Raise ParameterError for scales that have no multipliers, UnsupportedError for 16 bits with zero points, which
    neither system takes.
    """
    assert rule.scheme is not None
    scheme = scheme_named(rule.scheme)
    of_litert = rule.addition is Addition.FIXED_POINT
    wide = max(lhs.width, rhs.width, output.width) > 8
    if wide:
        for name, side in (("lhs", lhs), ("rhs", rhs), ("output", output)):
            side.check_symmetric(name, f"profile {profile} adds 16-bit numbers with zero points 0")
    left = 15 if wide else 20
    kind = np.float32 if of_litert else np.float64
    with np.errstate(over="ignore", under="ignore"):
        scales = [float(kind(side.scales[0])) for side in (lhs, rhs, output)]
    twice = 2 * max(scales[:2])
    if not all(0.0 < scale < float("inf") for scale in scales):
        raise ParameterError("a scale is 0 or infinite in f32")
    shape = output.tensor.shape
    wide_type = integer_operand(TensorType(shape, IntegerElement(32)), "sum")
    plans, multipliers = [], []
    for name, side, scale in (("lhs", lhs, scales[0]), ("rhs", rhs, scales[1])):
        factor = scale / twice if of_litert else scale / twice * 2.0**left
        source = wide_type if of_litert else replace(side, tensor=wide_type.tensor, blocks=wide_type.blocks)
        plan, multiplier = _stage(scheme, source, wide_type, factor, profile, name)
        plans.append(plan)
        multipliers.append(multiplier)
    factor = twice / (2.0**left * scales[2])
    if of_litert and not factor < 1.0:
        raise ParameterError(f"the factor of the sum, {factor!r}, must be below 1 in LiteRT: the output scale is small")
    last, multiplier = _stage(scheme, wide_type, output, factor, profile, "the sum")
    if of_litert and scheme.represented(multiplier) >= 1:
        raise ParameterError(f"the factor of the sum, {factor!r}, is not below 1 in 31 bits, as LiteRT needs it")
    return FixedPointAddition(
        rounding=scheme.rounding,
        scheme=scheme.name,
        multipliers=(*multipliers, multiplier),
        left_shift=left if of_litert else None,
        zeros=(lhs.zero_points[0], rhs.zero_points[0]),
        plans=(plans[0], plans[1]),
        last=last,
    )


_FLOATS = ("f16", "f32", "f64")


@dataclass(frozen=True, slots=True, kw_only=True)
class RealAddition(PlannedArithmetic):
    """`plans` dequantize both sides, `last` quantizes their sum."""

    def step(self, lhs: Array, rhs: Array, target: Array, start: int, counts: Array) -> dict[str, Array]:
        stages = {}
        for side, numbers, plan in zip(("lhs", "rhs"), (lhs, rhs), self.plans, strict=True):
            real = np.empty(numbers.size, plan.output_dtype)
            plan.step(numbers, real, start, plan.new_counts())
            stages[f"{side}_real"] = real
        with np.errstate(over="ignore", invalid="ignore"):
            stages["real_sum"] = stages["lhs_real"] + stages["rhs_real"]
        self.last.step(stages["real_sum"], target, start, counts)
        return stages


def plan_add_through_real(
    lhs: QuantizedOperand, rhs: QuantizedOperand, output: QuantizedOperand, profile: str
) -> RealAddition:
    """Plan three conversions of the output's shape. Raise UnsupportedError for types that the rules refuse."""
    if output.expressed.name not in _FLOATS:
        raise UnsupportedError(f"sums are formed in {', '.join(_FLOATS)}; these types express {output.expressed.name}")
    plans = []
    for name, side in (("lhs", lhs), ("rhs", rhs)):
        with _about_operand(name):
            plans.append(plan_dequantize(TensorType(output.tensor.shape, side.tensor.element), None, profile))
    with _about_operand("output"):
        last = plan_quantize(plans[0].output_type, output.tensor, profile)
    return RealAddition(rounding=last.rounding, plans=(plans[0], plans[1]), last=last)


@contextmanager
def _about_operand(name: str) -> Iterator[None]:
    """Say of an error about the input or the output of a conversion which operand's type it is about."""
    try:
        yield
    except RequantError as error:
        error.side = name
        raise


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputScaleAddition(Arithmetic):
    """`plans` bring both sides to the scale and zero point of the output."""

    plans: tuple[Plan, Plan]
    output: QuantizedOperand

    def step(self, lhs: Array, rhs: Array, target: Array, start: int, counts: Array) -> dict[str, Array]:
        stages = {}
        for side, numbers, plan in zip(("lhs", "rhs"), (lhs, rhs), self.plans, strict=True):
            scaled = np.empty(numbers.size, np.int32)
            plan.step(numbers, scaled, start, plan.new_counts())
            stages[f"{side}_scaled"] = scaled
        # i32, modulo 2^32, as the module's.
        stages["sum"] = stages["lhs_scaled"] + stages["rhs_scaled"]
        stages["after_zero_point"] = stages["sum"] - np.int32(self.output.zero_points[0])
        clamp(stages["after_zero_point"], self.output, target, counts)
        return stages


def plan_to_output_scale(
    rule: AddRule, lhs: QuantizedOperand, rhs: QuantizedOperand, output: QuantizedOperand, profile: str
) -> OutputScaleAddition:
    """Plan the two requantizations. Raise ParameterError where a ratio of scales is no f32."""
    assert rule.scheme is not None
    scheme = scheme_named(rule.scheme)
    tensor = TensorType(output.tensor.shape, IntegerElement(32))
    target = integer_operand(tensor, "sum", output.zero_points[0])
    granularity = common_granularity(static_shape(tensor), (target.blocks, 1), (target.blocks, 1))
    plans, multipliers = [], []
    for name, side in (("lhs", lhs), ("rhs", rhs)):
        ratio = scheme.factor.of(side.scales[0], None, output.scales[0])
        try:
            multiplier = scheme.derive_checked(ratio)
        except ParameterError as error:
            raise ParameterError(f"the scale of {name} to the output's: {error.detail}") from None
        source = replace(side, tensor=tensor, blocks=target.blocks)
        plans.append(plan_scaling(scheme, source, target, granularity, [multiplier], profile=profile, exact=[ratio]))
        multipliers.append(multiplier)
    return OutputScaleAddition(
        rounding=scheme.rounding,
        scheme=scheme.name,
        multipliers=tuple(multipliers),
        plans=(plans[0], plans[1]),
        output=output,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class AddPlan:
    """lhs + rhs, of `shape` when broadcast."""

    profile: str
    shape: tuple[int, ...]
    lhs: QuantizedOperand
    rhs: QuantizedOperand
    output: QuantizedOperand
    arithmetic: Arithmetic

    @property
    def elements(self) -> int:
        """How many elements the output has."""
        return prod(self.shape)

    @property
    def output_type(self) -> TensorType:
        """The type of the output, with its shape."""
        return self.output.tensor

    @property
    def output_dtype(self) -> np.dtype[Any]:
        """The dtype of the output's stored numbers."""
        return self.output.dtype

    def operand(self, side: str) -> tuple[TensorType, Integers]:
        """Return the type of "lhs" or "rhs", and its integers."""
        operand = self.lhs if side == "lhs" else self.rhs
        return operand.tensor, Integers.of_operand(operand)

    def _broadcast(self, lhs: Array, rhs: Array) -> Iterator[Array]:
        for side, array in (("lhs", lhs), ("rhs", rhs)):
            type_, integers = self.operand(side)
            with error_side(side):
                integers.check(array)
            shape = static_shape(type_)
            wide = array if shape == self.shape else np.broadcast_to(array.reshape(shape), self.shape)
            # One element is broadcast without a copy, as a view with strides of 0; kernels read what follows it.
            yield np.ascontiguousarray(wide).reshape(-1)

    def run(self, lhs: Array, rhs: Array, target: Array) -> Report:
        """Add flat stored integers to `target`, which is flat.

        Raise TensorDataError if the arrays are not those of the types, PreconditionError if the arithmetic is not
        defined for an element.
        """
        report, _ = self._run(lhs, rhs, target, None)
        return report

    def stages(self, lhs: Array, rhs: Array) -> dict[str, Array]:
        """Return what there is between the operands and the output, by name."""
        _, stages = self._run(lhs, rhs, np.empty(self.elements, self.output.dtype), max(self.elements, 1))
        return stages

    def _run(self, lhs: Array, rhs: Array, target: Array, piece: int | None) -> tuple[Report, dict[str, Array]]:
        """Work piece by piece, or in one of `piece` elements."""
        a, b = self._broadcast(lhs, rhs)
        check_flat(target, self.output.dtype, a.size, "the output")
        counts = self.arithmetic.new_counts()
        stages: dict[str, Array] = {}
        for part in pieces(a.size) if piece is None else (slice(0, piece),):
            stages = self.arithmetic.step(a[part], b[part], target[part], part.start, counts)
        low, high, missing, undefined = counts[:4].tolist()
        if undefined >= 0:
            raise PreconditionError(self.arithmetic.explain_undefined(counts), index=undefined)
        report = Report(self.profile, self.arithmetic.rounding, self.elements, low, high, missing)
        return report, stages


_SIDES = replace(DEQUANTIZE, storages=STORAGES, expressed=("f16", "bf16", "f32", "f64"))
_INTEGER_ARITHMETICS = {
    Addition.FIXED_POINT: plan_fixed_point,
    Addition.RESCALE: plan_fixed_point,
    Addition.COMMON_SCALE: plan_common_scale,
    Addition.TO_OUTPUT_SCALE: plan_to_output_scale,
}


def _is_per_tensor(operand: QuantizedOperand) -> bool:
    return operand.granularity == "per_tensor"


def _arithmetic(
    rule: AddRule, lhs: QuantizedOperand, rhs: QuantizedOperand, output: QuantizedOperand, profile: str
) -> Arithmetic:
    per_tensor = all(_is_per_tensor(each) for each in (lhs, rhs, output))
    if rule.addition is Addition.THROUGH_REAL or (rule.addition is Addition.TO_OUTPUT_SCALE and not per_tensor):
        return plan_add_through_real(lhs, rhs, output, profile)
    for name, each in (("lhs", lhs), ("rhs", rhs), ("output", output)):
        with error_side(name):
            if not _is_per_tensor(each):
                raise UnsupportedError(f"profile {profile} adds tensors with one scale each")
    return _INTEGER_ARITHMETICS[rule.addition](rule, lhs, rhs, output, profile)


def _with_scheme(rule: AddRule, profile: str, scheme: str) -> AddRule:
    if rule.scheme is None or rule.addition is Addition.TO_OUTPUT_SCALE:
        raise UnsupportedError(
            f"profile {profile} does not add by three multipliers, which a scheme could be named for"
        )
    return replace(rule, scheme=scheme)


def plan_add(
    lhs: TensorType, rhs: TensorType, output: Type, profile: str = "litert", *, scheme: str | None = None
) -> AddPlan:
    """Plan lhs + rhs. All three are quantized, with storage of 2 to 16 bits. `scheme` replaces the profile's.

    Raise TypeFitError, UnsupportedError, UnknownNameError, or ParameterError for scales that the profile's system has
    no multipliers for.
    """
    rule = profile_named(profile).add_rule()
    rule = rule if scheme is None else _with_scheme(rule, profile, scheme)
    shapes = []
    for name, tensor in (("lhs", lhs), ("rhs", rhs)):
        with error_side(name):
            shapes.append(static_shape(tensor))
    with error_side("rhs"):
        try:
            shape = np.broadcast_shapes(*shapes)
        except ValueError:
            raise TypeFitError(f"the shapes {shapes[0]} and {shapes[1]} cannot be broadcast") from None
    sides: dict[str, QuantizedOperand] = {}
    for name, type_ in (("lhs", lhs), ("rhs", rhs), ("output", output)):
        with error_side(name):
            tensor = bind(type_, shapes[len(sides)] if name != "output" else shape)
            sides[name] = quantized_operand(tensor, name, _SIDES, profile)
            if not _is_per_tensor(sides[name]) and static_shape(tensor) != shape:
                raise UnsupportedError("a tensor with several scales is not broadcast")
            if sides[name].expressed != sides["lhs"].expressed:
                raise UnsupportedError("all three types must have the same expressed type")
    operands = sides["lhs"], sides["rhs"], sides["output"]
    return AddPlan(
        profile=profile, shape=shape, lhs=operands[0], rhs=operands[1], output=operands[2],
        arithmetic=_arithmetic(rule, *operands, profile),
    )  # fmt: skip
