"""`tosa-rescale-legalize-to-stablehlo`: RESCALE in i64 arithmetic of StableHLO.

As upstream's: scale32, single rounding and one multiplier only, others stay; storage bounds and the unsigned flags are
ignored, and what RESCALE requires of values is not checked.
"""

from __future__ import annotations

from typing import Any, cast

from xdsl.dialects.builtin import (
    BoolAttr,
    DenseIntOrFPElementsAttr,
    IntegerType,
    Signedness,
    TensorType,
    i8,
    i32,
    i64,
)
from xdsl.ir import Operation, SSAValue

from requant import mlir
from requant.lowering.constants import dense
from requant.lowering.dialects.tosa import Const, Rescale, RoundingMode
from requant.lowering.module import Module
from requant.lowering.passes.rewriting import Emitter, Options, Pass
from requant.lowering.passes.stablehlo_ops import constant, erase_unused, make
from requant.lowering.quantized import element_part, quantized_part, stored, with_element

_TRUE = BoolAttr.from_bool(True)


def _legalize(module: Module, options: Options) -> None:
    for op in list(module.operation.walk()):
        if isinstance(op, Rescale) and _is_simple(op):
            _expand(op)
    erase_unused(module)


def _is_simple(op: Rescale) -> bool:
    quantized = [quantized_part(each) for each in (op.input.type, op.output.type)]
    per_tensor = all(each is None or isinstance(each, mlir.UniformType) for each in quantized)
    if not per_tensor or op.per_channel == _TRUE or op.scale32 != _TRUE:
        return False
    if op.rounding_mode.data is not RoundingMode.SINGLE_ROUND:
        return False
    elements = [element_part(stored(each)) for each in (op.input.type, op.output.type)]
    parameters = (op.multiplier, op.shift, op.input_zp, op.output_zp)
    known = all(_constant(each) is not None for each in parameters)
    return known and all(isinstance(each, IntegerType) for each in elements)


def _constant(value: SSAValue) -> int | None:
    owner = value.owner
    found = owner.values if isinstance(owner, Const) else None
    if isinstance(owner, Operation) and owner.name == "stablehlo.constant":
        found = cast(Any, owner.attributes["value"])
    if not isinstance(found, DenseIntOrFPElementsAttr) or len(found) != 1:
        return None
    return int(cast(Any, found).get_values()[0])


def _expand(op: Rescale) -> None:
    emitter, value, result = Emitter(op), SSAValue.get(op.input), op.output.type
    if quantized_part(value.type) is not None:
        value = emitter.add(make("bitcast_convert", [value], stored(value.type)))
    shape = cast(TensorType[Any], value.type).get_shape()
    whole = with_element(value.type, i64)
    target = element_part(stored(result))
    assert isinstance(target, IntegerType)
    zero_point_elements = [cast(IntegerType, element_part(each.type)) for each in (op.input_zp, op.output_zp)]

    def splat(number: int, element: IntegerType) -> SSAValue:
        return emitter.add(constant(dense(element, shape, [number])))

    numbers = [_constant(each) for each in (op.multiplier, op.shift, op.input_zp, op.output_zp)]
    multiplier, shift, input_zp, output_zp = (cast(int, number) for number in numbers)
    unsigned = target.signedness.data is Signedness.UNSIGNED
    width = target.width.data
    low, high = (0, (1 << width) - 1) if unsigned else (-(1 << (width - 1)), (1 << (width - 1)) - 1)
    factor, places = splat(multiplier, i32), splat(shift, i8)
    points = [
        splat(number, i32 if element.signedness.data is not Signedness.UNSIGNED else element)
        for number, element in zip((input_zp, output_zp), zero_point_elements, strict=True)
    ]
    one, lowest, highest = splat(1, i64), splat(low, i64), splat(high, i64)
    wide = [emitter.add(make("convert", [each], whole)) for each in (factor, places, *points, value)]
    number = emitter.add(make("subtract", [wide[4], wide[2]], whole))
    before = emitter.add(make("subtract", [wide[1], one], whole))
    half = emitter.add(make("shift_left", [one, before], whole))
    number = emitter.add(make("multiply", [number, wide[0]], whole))
    number = emitter.add(make("add", [number, half], whole))
    number = emitter.add(make("shift_right_arithmetic", [number, wide[1]], whole))
    number = emitter.add(make("add", [number, wide[3]], whole))
    number = emitter.add(make("clamp", [lowest, number, highest], whole))
    number = emitter.add(make("convert", [number], stored(result)))
    if quantized_part(result) is not None:
        number = emitter.add(make("bitcast_convert", [number], result))
    emitter.replace_anchor(number)


TOSA_RESCALE_TO_STABLEHLO = Pass(
    "tosa-rescale-legalize-to-stablehlo", "tosa.rescale as 64-bit integer arithmetic of StableHLO", _legalize
)
