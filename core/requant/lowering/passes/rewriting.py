"""What a pass is, and what passes share: operations made and put before another, values exchanged, facts looked up."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from xdsl.dialects.builtin import DenseArrayBase, IntegerAttr, IntegerType, f32, i32, i64
from xdsl.dialects.func import FuncOp
from xdsl.ir import Attribute, Block, Operation, Region, SSAValue
from xdsl.traits import Pure

from requant import mlir
from requant.lowering.dialects.stablehlo.operations import CHLO_OPERATIONS, OPERATIONS
from requant.lowering.module import Module
from requant.lowering.quantized import Dense, dense, element_attribute, quantized_part, with_element

Options = Mapping[str, str]


@dataclass(frozen=True)
class Pass:
    """A rewriting of modules by name. `options` are what it takes, each with its values: the first is the default."""

    name: str
    summary: str
    run: Callable[[Module, Options], None]
    options: Mapping[str, Sequence[str]] = field(default_factory=dict)


class Emitter:
    """Puts operations one after the other: before `anchor`, or at the end of a block that has no anchor."""

    def __init__(self, anchor: Operation) -> None:
        block = anchor.parent
        assert block is not None
        self._block: Block = block
        self._anchor: Operation | None = anchor

    @classmethod
    def at_end(cls, block: Block) -> Emitter:
        """Return the emitter that appends to `block`."""
        made = cls.__new__(cls)
        made._block, made._anchor = block, None
        return made

    def add(self, op: Operation) -> SSAValue:
        """Insert `op` and return its first result."""
        if self._anchor is None:
            self._block.add_op(op)
        else:
            self._block.insert_op_before(op, self._anchor)
        return op.results[0]

    def replace_anchor(self, *values: SSAValue) -> None:
        """Let `values` take the place of the anchor's results, and erase it."""
        assert self._anchor is not None
        for result, value in zip(self._anchor.results, values, strict=True):
            if value.name_hint is None:
                value.name_hint = result.name_hint
            result.replace_all_uses_with(value)
        self._block.erase_op(self._anchor)


def retype(value: SSAValue, type_: Attribute) -> None:
    """Give a value another type."""
    value._type = type_


def functions(module: Module) -> Iterable[FuncOp]:
    """Return the functions of a module."""
    return [op for op in module.operation.walk() if isinstance(op, FuncOp)]


def convert_signature(function: FuncOp, converted: Callable[[Attribute], Attribute]) -> None:
    """Convert the types of a function's arguments and results. Its body has to follow."""
    inputs = [converted(type_) for type_ in function.function_type.inputs.data]
    outputs = [converted(type_) for type_ in function.function_type.outputs.data]
    function.properties["function_type"] = type(function.function_type).from_lists(inputs, outputs)


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
    return CHLO_OPERATIONS[name].create(operands=[left, right], result_types=[result], attributes=attributes)


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
    quantized = quantized_part(type_)
    if not isinstance(quantized, mlir.UniformType | mlir.UniformPerAxisType):
        return type_
    return with_element(type_, element_attribute(quantized.expressed))


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
