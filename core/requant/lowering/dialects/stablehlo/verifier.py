"""What StableHLO's operations take: numbers of operands, attributes, element types and shapes.

Shapes of operations that move or multiply elements are checked by the evaluator, which knows what comes out; a result
type that disagrees is refused there.
"""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.dialects.builtin import (
    DYNAMIC_INDEX,
    ArrayAttr,
    DenseArrayBase,
    DenseIntOrFPElementsAttr,
    IntegerAttr,
    IntegerType,
    TensorType,
    UnrankedTensorType,
)
from xdsl.ir import Attribute, Operation
from xdsl.utils.exceptions import VerifyException

from requant import mlir
from requant.formats.elements import FloatElement
from requant.lowering.dialects.stablehlo.attributes import ComparisonDirection, ComparisonType, Convolution, Dot
from requant.lowering.quantized import element_part, quantized_part, storage_attribute, type_of
from requant.mlir.stablehlo import stablehlo_reason

UNARY = (
    "abs", "cbrt", "ceil", "cosine", "count_leading_zeros", "exponential", "exponential_minus_one", "floor", "log",
    "log_plus_one", "logistic", "negate", "not", "popcnt", "round_nearest_afz", "round_nearest_even", "rsqrt", "sign",
    "sine", "sqrt", "tan", "tanh",
)  # fmt: skip
BINARY = (
    "add", "and", "atan2", "divide", "maximum", "minimum", "multiply", "or", "power", "remainder", "shift_left",
    "shift_right_arithmetic", "shift_right_logical", "subtract", "xor",
)  # fmt: skip

_OPERANDS = {
    **dict.fromkeys(UNARY, 1),
    **dict.fromkeys(BINARY, 2),
    **dict.fromkeys(
        ("convert", "uniform_quantize", "uniform_dequantize", "bitcast_convert", "reshape", "is_finite", "slice",
         "broadcast_in_dim", "transpose", "reverse", "get_dimension_size", "reduce_precision"), 1
    ),
    **dict.fromkeys(
        ("compare", "dot", "dot_general", "convolution", "pad", "dynamic_reshape", "dynamic_broadcast_in_dim"), 2
    ),
    **dict.fromkeys(("clamp", "select"), 3),
    "constant": 0,
    "iota": 0,
}  # fmt: skip
_ARRAY: type[Attribute] = DenseArrayBase
_ATTRIBUTES: dict[str, dict[str, type[Attribute]]] = {
    "constant": {"value": DenseIntOrFPElementsAttr},
    "compare": {"comparison_direction": ComparisonDirection},
    "broadcast_in_dim": {"broadcast_dimensions": _ARRAY},
    "dynamic_broadcast_in_dim": {"broadcast_dimensions": _ARRAY},
    "transpose": {"permutation": _ARRAY},
    "reverse": {"dimensions": _ARRAY},
    "concatenate": {"dimension": IntegerAttr},
    "get_dimension_size": {"dimension": IntegerAttr},
    "iota": {"iota_dimension": IntegerAttr},
    "pad": dict.fromkeys(("edge_padding_low", "edge_padding_high", "interior_padding"), _ARRAY),
    "dynamic_slice": {"slice_sizes": _ARRAY},
    "slice": dict.fromkeys(("start_indices", "limit_indices", "strides"), _ARRAY),
    "dot_general": {"dot_dimension_numbers": Dot},
    "convolution": {"dimension_numbers": Convolution},
    "reduce": {"dimensions": _ARRAY},
    "reduce_precision": {"exponent_bits": IntegerAttr, "mantissa_bits": IntegerAttr},
}
_OPTIONAL: dict[str, type[Attribute]] = {
    "compare_type": ComparisonType, "precision_config": ArrayAttr, "window_strides": DenseArrayBase,
    "padding": DenseIntOrFPElementsAttr, "lhs_dilation": DenseArrayBase, "rhs_dilation": DenseArrayBase,
    "window_reversal": DenseArrayBase, "feature_group_count": IntegerAttr, "batch_group_count": IntegerAttr,
}  # fmt: skip
_PRODUCTS = ("dot", "dot_general", "convolution")
_SAME_SHAPE = {*UNARY, *BINARY, "convert", "uniform_quantize", "uniform_dequantize", "is_finite", "reduce_precision"}


def verify(op: Operation) -> None:
    """Raise VerifyException if `op`, of StableHLO or CHLO, breaks a rule."""
    name = op.name.partition(".")[2]
    expected = 2 if op.name.startswith("chlo.") else _OPERANDS.get(name)
    if expected is not None and (len(op.operands), len(op.results)) != (expected, 1):
        raise VerifyException(
            f"expected {expected} operands and 1 result, found {len(op.operands)} and {len(op.results)}"
        )
    for key, kind in _ATTRIBUTES.get(name, {}).items():
        if not isinstance(op.attributes.get(key), kind):
            raise VerifyException(f"expected the attribute {key}, a {kind.name}")
    for key, kind in _OPTIONAL.items():
        if key in op.attributes and not isinstance(op.attributes[key], kind):
            raise VerifyException(f"the attribute {key} must be a {kind.name}")
    types = (*op.operand_types, *op.result_types)
    for type_ in types:
        if quantized_part(type_) is not None and (reason := stablehlo_reason(type_of(type_))):
            raise VerifyException(reason)
        if not isinstance(type_, TensorType | UnrankedTensorType):
            raise VerifyException(f"expected tensors, found {type_.name}")
    if name in _SAME_SHAPE:
        _check_shapes(types)
    _check_elements(name, op)


def shapes_agree(left: Attribute, right: Attribute) -> bool:
    """Return whether two tensor types may have the same shape: a dynamic dimension equals any."""
    if not isinstance(left, TensorType) or not isinstance(right, TensorType):
        return True
    pair = (left.get_shape(), right.get_shape())
    return len(pair[0]) == len(pair[1]) and all(a == b or DYNAMIC_INDEX in (a, b) for a, b in zip(*pair, strict=True))


def _check_shapes(types: Sequence[Attribute]) -> None:
    for type_ in types[1:]:
        if not shapes_agree(types[0], type_):
            raise VerifyException("operands and results differ in shape")


def _check_elements(name: str, op: Operation) -> None:
    elements = [element_part(value.type) for value in (*op.operands, *op.results)]
    if name == "uniform_quantize":
        _check_quantize(op)
    elif name == "uniform_dequantize":
        source = quantized_part(op.operands[0].type)
        if not isinstance(source, mlir.UniformType | mlir.UniformPerAxisType):
            raise VerifyException("the operand is not quantized")
        if type_of(element_part(op.results[0].type)) != source.expressed:
            raise VerifyException(f"the result must be {source.expressed.name}, the expressed type")
    elif name in (*UNARY, *BINARY):
        _check_alike(name, elements)
    elif name == "compare":
        _check_shapes([*op.operand_types, *op.result_types])
        _check_alike(name, elements[:2])
        if elements[2] != IntegerType(1):
            raise VerifyException("the result of a comparison is i1")
    elif name in _PRODUCTS and isinstance(quantized_part(op.operands[0].type), mlir.UniformPerAxisType):
        raise VerifyException("lhs must be per-tensor where it is quantized")
    elif name in ("dot_general", "convolution") and any(quantized_part(each) is not None for each in elements):
        _check_weights(name, op)
        _check_quantized_product(*elements)


def _check_weights(name: str, op: Operation) -> None:
    """Check zero points and axes of quantized weights: C15 and C16 of dot_general, C29 and C30 of convolution."""
    right, result = (quantized_part(each.type) for each in (op.operands[1], op.results[0]))
    if name == "dot_general":
        numbers = op.attributes["dot_dimension_numbers"]
        assert isinstance(numbers, Dot)
        if isinstance(right, mlir.UniformType | mlir.UniformPerAxisType) and any(_zero_points(right)):
            raise VerifyException("C15: the zero points of rhs must be 0")
        if isinstance(right, mlir.UniformPerAxisType) and right.axis in numbers.data.rhs_contracting_dimensions:
            raise VerifyException(f"C16: rhs is quantized along dimension {right.axis}, which is contracted")
        return
    dimensions = op.attributes["dimension_numbers"]
    assert isinstance(dimensions, Convolution)
    kernel, output = dimensions.data.kernel.second, dimensions.data.output.second
    if isinstance(right, mlir.UniformPerAxisType) and right.axis != kernel:
        raise VerifyException(f"C29: rhs is quantized along dimension {right.axis}, its output features are {kernel}")
    if isinstance(result, mlir.UniformPerAxisType) and result.axis != output:
        raise VerifyException(f"C30: the result is quantized along dimension {result.axis}, its features are {output}")


def _check_quantized_product(left: Attribute, right: Attribute, result: Attribute) -> None:
    """Check which element types go together: C14 and C17 to C20 of dot_general, C28 and C31 to C34 of convolution."""
    lhs, rhs, product = quantized_part(left), quantized_part(right), quantized_part(result)
    if rhs is None or (lhs is None) != (product is None):
        raise VerifyException("rhs must be quantized, and the result where lhs is")
    assert isinstance(rhs, mlir.UniformType | mlir.UniformPerAxisType)
    if lhs is None:
        if not type_of(left) == type_of(result) == rhs.expressed:
            raise VerifyException(f"lhs and the result must be {rhs.expressed.name}, the expressed type of rhs")
        return
    assert isinstance(lhs, mlir.UniformType | mlir.UniformPerAxisType)
    assert isinstance(product, mlir.UniformType | mlir.UniformPerAxisType)
    if storage_attribute(lhs) != storage_attribute(rhs):
        raise VerifyException("lhs and rhs must be of one storage type")
    if not lhs.expressed == rhs.expressed == product.expressed:
        raise VerifyException("lhs, rhs and the result must be of one expressed type")
    if isinstance(rhs, mlir.UniformType) and not isinstance(product, mlir.UniformType):
        raise VerifyException("the result of per-tensor operands must be per-tensor")


def _zero_points(type_: mlir.UniformType | mlir.UniformPerAxisType) -> tuple[int, ...]:
    return (type_.zero_point,) if isinstance(type_, mlir.UniformType) else type_.zero_points


def _check_quantize(op: Operation) -> None:
    source, target = op.operands[0].type, quantized_part(op.results[0].type)
    if not isinstance(target, mlir.UniformType | mlir.UniformPerAxisType):
        raise VerifyException("the result is not quantized")
    quantized = quantized_part(source)
    if quantized is None:
        element = type_of(element_part(source))
        if not isinstance(element, FloatElement):
            raise VerifyException("the operand is neither a float nor quantized")
        expressed = element
    else:
        assert isinstance(quantized, mlir.UniformType | mlir.UniformPerAxisType)
        expressed = quantized.expressed
    if expressed != target.expressed:
        raise VerifyException(f"the operand has or expresses {expressed.name}, the result {target.expressed.name}")


def _check_alike(name: str, elements: Sequence[Attribute]) -> None:
    """Check that elements are of one type; quantized ones of one storage, with its bounds, and one expressed type."""
    baselines = set()
    for element in elements:
        quantized = quantized_part(element)
        if isinstance(quantized, mlir.UniformType | mlir.UniformPerAxisType):
            baselines.add((quantized.storage, quantized.expressed))
        else:
            baselines.add((None, type_of(element)))  # type: ignore[arg-type]
    if len(baselines) != 1:
        raise VerifyException(f"{name} takes elements of one type, or quantized ones of one storage and expressed type")
