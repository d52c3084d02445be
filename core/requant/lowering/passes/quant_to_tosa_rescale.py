"""`stablehlo-quant-legalize-to-tosa-rescale`: quantized operations on i32 between TOSA's RESCALEs.

As upstream's: per-tensor types only, scale32 and single rounding, whatever RESCALE then requires of the values; divide
has the scale of multiply. For subtract, maximum and the others scales are in f64, multipliers as TOSA derives them.
"""

from __future__ import annotations

from math import frexp

from xdsl.dialects.builtin import IntegerType, Signedness, i8, i32
from xdsl.ir import Attribute, Operation, SSAValue

from requant import mlir
from requant.lowering.constants import dense, truncated
from requant.lowering.dialects.tosa import Const, Rescale
from requant.lowering.module import Module
from requant.lowering.passes.rewriting import Emitter, Options, Pass
from requant.lowering.quantized import element_part, quantized_part, stored, with_element

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
    found = [left / largest * unit, right / largest * unit]
    return found if result is None else [*found, largest / (result.scale * unit)]


def _legalize(module: Module, options: Options) -> None:
    for op in list(module.operation.walk()):
        name = op.name.removeprefix("stablehlo.")
        if name not in ("abs", *_SUMS, *_PRODUCTS, *_CHOICES):
            continue
        types = [quantized_part(each) for each in (*op.operand_types, *op.result_types)]
        expected = types[:-1] if name == "compare" else types
        found = [each for each in expected if isinstance(each, mlir.UniformType)]
        # Operations of two operands take signed storage only; abs and compare do not ask.
        unsigned = len(op.operands) == 2 and name != "compare" and not all(each.storage.signed for each in found)
        if len(found) == len(expected) and not unsigned:
            _rescale(op, name, found)


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
        (input_zp, element_part(stored(value.type))),
        (output_zp, element_part(stored(result))),
    ):
        assert isinstance(element, IntegerType)
        held = number if element.signedness.data is Signedness.UNSIGNED else truncated(number, element.width.data)
        operands.append(emitter.add(Const(dense(element, [1], [held]))))
    return emitter.add(Rescale(tuple(operands), result))


QUANT_TO_TOSA_RESCALE = Pass(
    "stablehlo-quant-legalize-to-tosa-rescale",
    "quantized abs, arithmetic, maximum, minimum and compare on i32 between tosa.rescale",
    _legalize,
)
