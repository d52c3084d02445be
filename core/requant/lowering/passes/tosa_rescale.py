"""Quantized operations between TOSA's RESCALEs, and RESCALE in i64 arithmetic, as upstream's passes.

`stablehlo-quant-legalize-to-tosa-rescale`: quantized operations on i32. Per-tensor types only, scale32 and single
rounding, whatever RESCALE then requires of the values; divide has the scale of multiply. For subtract, maximum and the
others scales are in f64, multipliers as TOSA derives them.

`tosa-rescale-legalize-to-stablehlo`: scale32, single rounding and one multiplier only, others stay; storage bounds and
the unsigned flags are ignored, and what RESCALE requires of values is not checked.
"""

from __future__ import annotations

from math import frexp
from typing import Any, cast

from xdsl.dialects.builtin import BoolAttr, DenseIntOrFPElementsAttr, IntegerType, Signedness, TensorType, i8, i32, i64
from xdsl.ir import Attribute, Operation, SSAValue

from requant import mlir
from requant.lowering.dialects.tosa import Const, Rescale, RoundingMode
from requant.lowering.module import Module
from requant.lowering.passes.rewriting import Emitter, Options, Pass, constant, erase_unused, make
from requant.lowering.quantized import dense, element_part, quantized_part, storage_type, truncated, with_element

_SUMS, _PRODUCTS, _CHOICES = ("add", "subtract"), ("multiply", "divide"), ("maximum", "minimum", "compare")
_EXTRA_BITS, _EXTRA_BITS_16 = 20, 15
_MAX_SHIFT = 62


def multiplier_and_shift(scale: float) -> tuple[int, int]:
    """Return (M, shift) with scale near M * 2^-shift, 31 bits of M, ties away from zero.

    A shift below 2, which RESCALE does not take, is returned all the same, as upstream does.
    """
    fraction, exponent = frexp(scale)
    multiplier = int(fraction * (1 << 31) + 0.5)
    if multiplier == 1 << 31:
        multiplier, exponent = multiplier >> 1, exponent + 1
    shift = 31 - exponent
    if shift > _MAX_SHIFT:
        multiplier, shift = multiplier >> min(31, shift - _MAX_SHIFT), _MAX_SHIFT
    return multiplier, shift


def real_scales(name: str, operands: list[mlir.UniformType], result: mlir.UniformType | None) -> list[float]:
    """Return the real scales of the rescales of the operands and, where it is rescaled, of the result."""
    if name == "abs":
        assert result is not None
        return [1.0, operands[0].scale / result.scale]
    left, right = operands[0].scale, operands[1].scale
    if name in _PRODUCTS:
        assert result is not None
        return [1.0, 1.0, left * right / result.scale]
    largest = max(left, right) * (2.0 if name in _SUMS else 1.0)
    width = (operands[0] if result is None else result).storage.width
    unit = float(1 << (_EXTRA_BITS_16 if width == 16 else _EXTRA_BITS))
    scales = [left / largest * unit, right / largest * unit]
    return scales if result is None else [*scales, largest / (result.scale * unit)]


def _to_rescales(module: Module, options: Options) -> None:
    for op in list(module.operation.walk()):
        name = op.name.removeprefix("stablehlo.")
        if name not in ("abs", *_SUMS, *_PRODUCTS, *_CHOICES):
            continue
        types = [quantized_part(each) for each in (*op.operand_types, *op.result_types)]
        expected = types[:-1] if name == "compare" else types
        uniform = [each for each in expected if isinstance(each, mlir.UniformType)]
        # Operations of two operands take signed storage only; abs and compare do not ask.
        unsigned = len(op.operands) == 2 and name != "compare" and not all(each.storage.signed for each in uniform)
        if len(uniform) == len(expected) and not unsigned:
            _rescale(op, name, uniform)


def _rescale(op: Operation, name: str, types: list[mlir.UniformType]) -> None:
    emitter, count = Emitter(op), len(op.operands)
    result = types[count] if len(types) > count else None
    scales = real_scales(name, types[:count], result)
    operands = [
        _built(emitter, operand, scale, type_.zero_point, 0, with_element(operand.type, i32))
        for operand, scale, type_ in zip(op.operands, scales, types, strict=False)
    ]
    target = op.result_types[0] if result is None else with_element(op.result_types[0], i32)
    value = emitter.add(type(op).create(operands=operands, result_types=[target], attributes=op.attributes.copy()))
    if result is not None:
        value = _built(emitter, value, scales[count], 0, result.zero_point, op.result_types[0])
    emitter.replace_anchor(value)


def _built(
    emitter: Emitter, value: SSAValue, scale: float, input_zp: int, output_zp: int, result: Attribute
) -> SSAValue:
    multiplier, shift = multiplier_and_shift(scale)
    operands = [value]
    for number, element in (
        (multiplier, i32),
        (shift, i8),
        (input_zp, element_part(storage_type(value.type))),
        (output_zp, element_part(storage_type(result))),
    ):
        assert isinstance(element, IntegerType)
        held = number if element.signedness.data is Signedness.UNSIGNED else truncated(number, element.width.data)
        operands.append(emitter.add(Const(dense(element, [1], [held]))))
    return emitter.add(Rescale(tuple(operands), result))


QUANT_TO_TOSA_RESCALE = Pass(
    "stablehlo-quant-legalize-to-tosa-rescale",
    "quantized abs, arithmetic, maximum, minimum and compare on i32 between tosa.rescale",
    _to_rescales,
)


_TRUE = BoolAttr.from_bool(True)


def _expand_rescales(module: Module, options: Options) -> None:
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
    elements = [element_part(storage_type(each)) for each in (op.input.type, op.output.type)]
    parameters = (op.multiplier, op.shift, op.input_zp, op.output_zp)
    known = all(_constant(each) is not None for each in parameters)
    return known and all(isinstance(each, IntegerType) for each in elements)


def _constant(value: SSAValue) -> int | None:
    owner = value.owner
    values = owner.values if isinstance(owner, Const) else None
    if isinstance(owner, Operation) and owner.name == "stablehlo.constant":
        values = cast(Any, owner.attributes["value"])
    if not isinstance(values, DenseIntOrFPElementsAttr) or len(values) != 1:
        return None
    return int(cast(Any, values).get_values()[0])


def _expand(op: Rescale) -> None:
    emitter, value, result = Emitter(op), SSAValue.get(op.input), op.output.type
    if quantized_part(value.type) is not None:
        value = emitter.add(make("bitcast_convert", [value], storage_type(value.type)))
    shape = cast(TensorType[Any], value.type).get_shape()
    whole = with_element(value.type, i64)
    target = element_part(storage_type(result))
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
    number = emitter.add(make("convert", [number], storage_type(result)))
    if quantized_part(result) is not None:
        number = emitter.add(make("bitcast_convert", [number], result))
    emitter.replace_anchor(number)


TOSA_RESCALE_TO_STABLEHLO = Pass(
    "tosa-rescale-legalize-to-stablehlo", "tosa.rescale as 64-bit integer arithmetic of StableHLO", _expand_rescales
)
