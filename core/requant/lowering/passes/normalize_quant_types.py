"""`normalize-quant-types`: sub-channel types that say no more than per-tensor or per-axis ones.

MLIR's pass has two defects. Each is reproduced only when its option is `true`:
`sign-extend-zero-points`: an unsigned zero point is read as a signed one (`u8 {{2.0:200}}` becomes `2.0:-56`).
`ignore-block-size`: scales along one dimension become per-axis whatever their blocks hold, so that
`tensor<4x4>` with `{0:2}` and two scales gets two scales on an axis of four. Without it such a type stays.
"""

from __future__ import annotations

from math import prod

from xdsl.dialects.builtin import DYNAMIC_INDEX, TensorType
from xdsl.dialects.func import FuncOp
from xdsl.ir import Attribute

from requant import mlir
from requant.lowering.module import Module
from requant.lowering.passes.rewriting import Options, Pass, convert_signature, retype
from requant.lowering.quantized import element_attribute, quantized_part, with_element

_SIGN_EXTEND, _IGNORE_BLOCKS = "sign-extend-zero-points", "ignore-block-size"


def _normalize(module: Module, options: Options) -> None:
    sign_extend, ignore_blocks = options[_SIGN_EXTEND] == "true", options[_IGNORE_BLOCKS] == "true"

    def converted(type_: Attribute) -> Attribute:
        found = quantized_part(type_)
        if not isinstance(type_, TensorType) or not isinstance(found, mlir.UniformSubChannelType):
            return type_
        normal = _normal(found, type_.get_shape(), sign_extend, ignore_blocks)
        return type_ if normal is None else with_element(type_, element_attribute(normal))

    for op in module.operation.walk():
        if isinstance(op, FuncOp):
            convert_signature(op, converted)
        for value in (
            *op.results,
            *(argument for region in op.regions for block in region.blocks for argument in block.args),
        ):
            retype(value, converted(value.type))


def _normal(
    type_: mlir.UniformSubChannelType, shape: tuple[int, ...], sign_extend: bool, ignore_blocks: bool
) -> mlir.QuantizedType | None:
    zero_points = type_.zero_points
    half, period = 1 << (type_.storage.width - 1), 1 << type_.storage.width
    if sign_extend:
        zero_points = tuple((zero_point + half) % period - half for zero_point in zero_points)
    if prod(type_.scale_shape) == 1:
        return mlir.UniformType(type_.storage, type_.expressed, type_.scales[0], zero_points[0])
    spread = [axis for axis, count in enumerate(type_.scale_shape) if count != 1]
    if len(spread) != 1:
        return None
    axis = spread[0]
    if not ignore_blocks and shape[axis] not in (DYNAMIC_INDEX, len(type_.scales)):
        return None
    if not ignore_blocks and dict(type_.blocks)[axis] != 1:
        return None
    return mlir.UniformPerAxisType(type_.storage, type_.expressed, axis, type_.scales, zero_points)


NORMALIZE_QUANT_TYPES = Pass(
    "normalize-quant-types",
    "sub-channel types as per-tensor or per-axis types where they are equivalent",
    _normalize,
    {_SIGN_EXTEND: ("false", "true"), _IGNORE_BLOCKS: ("false", "true")},
)
