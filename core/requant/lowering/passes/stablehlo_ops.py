"""Making StableHLO's operations, and the two facts about them that several passes ask for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from xdsl.dialects.builtin import DenseArrayBase, IntegerAttr, IntegerType, f32, i32, i64
from xdsl.ir import Attribute, Operation, Region, SSAValue
from xdsl.traits import Pure

from requant import mlir
from requant.lowering.constants import Dense, dense
from requant.lowering.dialects.chlo import OPERATIONS as CHLO
from requant.lowering.dialects.stablehlo.operations import OPERATIONS
from requant.lowering.module import Module
from requant.lowering.quantized import element_attribute, quantized_part, with_element

# What is computed by dequantizing, in floats, and quantizing again, as StableHLO's pass does.
DEQUANTIZED = frozenset(
    f"stablehlo.{name}"
    for name in (
        "abs", "add", "atan2", "batch_norm_grad", "batch_norm_inference", "batch_norm_training", "cbrt", "ceil",
        "cholesky", "clamp", "compare", "convolution", "cosine", "divide", "dot_general", "dot",
        "exponential_minus_one", "exponential", "floor", "log_plus_one", "logistic", "log", "maximum", "minimum",
        "multiply", "negate", "power", "reduce_precision", "remainder", "round_nearest_afz", "round_nearest_even",
        "rsqrt", "select", "sign", "sine", "sqrt", "subtract", "tanh", "tan", "triangular_solve",
    )
)  # fmt: skip


def make(
    name: str,
    operands: Sequence[SSAValue],
    *results: Attribute,
    attributes: Mapping[str, Attribute] | None = None,
    regions: Sequence[Region] = (),
) -> Operation:
    """Return the StableHLO operation `name`."""
    return OPERATIONS[name].create(
        operands=operands, result_types=results, attributes=dict(attributes or {}), regions=regions
    )


def broadcast(name: str, left: SSAValue, right: SSAValue, result: Attribute, axis: int | None = None) -> Operation:
    """Return `chlo.broadcast_<name>`; a vector on the right goes along `axis`."""
    attributes: dict[str, Attribute] = {}
    if axis is not None:
        attributes["broadcast_dimensions"] = DenseArrayBase.from_list(i64, [axis])
    return CHLO[name].create(operands=[left, right], result_types=[result], attributes=attributes)


def constant(value: Dense) -> Operation:
    """Return `stablehlo.constant`."""
    return make("constant", (), value.type, attributes={"value": value})


def float_constant(values: float | Sequence[float]) -> Operation:
    """Return a constant of f32: a scalar, or a vector."""
    single = isinstance(values, float | int)
    return constant(dense(f32, [] if single else [len(values)], [values] if single else values))  # type: ignore[arg-type, list-item]


def integer_constant(values: int | Sequence[int]) -> Operation:
    """Return a constant of i32: a scalar, or a vector."""
    listed = [values] if isinstance(values, int) else list(values)
    wrapped = [(value + (1 << 31)) % (1 << 32) - (1 << 31) for value in listed]
    return constant(dense(i32, [] if isinstance(values, int) else [len(listed)], wrapped))


def dimension(index: int) -> IntegerAttr[IntegerType]:
    """Return a dimension as an attribute."""
    return IntegerAttr(index, i64)


def is_quantized(value_types: Sequence[Attribute]) -> bool:
    """Return whether one of the types is quantized."""
    return any(quantized_part(type_) is not None for type_ in value_types)


def dequantized_type(type_: Attribute) -> Attribute:
    """Return a type with its quantized element replaced by the expressed type; others stay."""
    found = quantized_part(type_)
    if not isinstance(found, mlir.UniformType | mlir.UniformPerAxisType):
        return type_
    return with_element(type_, element_attribute(found.expressed))


def erase_unused(module: Module) -> None:
    """Erase operations without effects whose results nobody uses, until there are none."""
    changed = True
    while changed:
        changed = False
        for op in reversed(list(module.operation.walk())):
            if op.results and op.has_trait(Pure) and not any(result.uses for result in op.results) and not op.regions:
                assert op.parent is not None
                op.parent.erase_op(op)
                changed = True
