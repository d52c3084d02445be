"""Addition of two quantized tensors, elementwise, as each profile's system does it.

    y = clamp(round((s_a * (a - z_a) + s_b * (b - z_b)) / s_y) + z_y), in the arithmetic of the profile

Dimensions are broadcast as numpy does. Source: LiteRT's and XNNPACK's ADD, run; StableHLO's passes
stablehlo-legalize-quant-to-math and stablehlo-quant-legalize-to-tosa-rescale.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from requant.errors import TypeFitError, UnsupportedError, error_side
from requant.integer.accumulation import STORAGES
from requant.integer.add.arithmetic import Arithmetic
from requant.integer.add.common_scale import plan_common_scale
from requant.integer.add.fixed_point import plan_fixed_point
from requant.integer.add.plan import AddPlan
from requant.integer.add.through_real import plan_add_through_real
from requant.integer.add.to_output_scale import plan_to_output_scale
from requant.mlir.types import TensorType, Type
from requant.plan.operands import QuantizedOperand, bind, quantized_operand, static_shape
from requant.profiles import profile_named
from requant.profiles.integer_rule import Addition, AddRule
from requant.profiles.rule import DEQUANTIZE

__all__ = ["AddPlan", "plan_add"]

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
