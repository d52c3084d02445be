"""A function of an MLIR module as a rule of single numbers, which is compared with others by computing every input.

That it is one is shown by what it is made of: operations on each element alone, and constants that are the same for all
of them. Then it is run on more elements at a time than its types say.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from requant.description import Array, ModuleLimits
from requant.equality.rules import Rule
from requant.errors import LoweringError, PreconditionError, TypeFitError, UnsupportedError, default_pointer
from requant.formats.elements import FloatElement, IntegerElement
from requant.mlir import print_type
from requant.mlir.types import (
    ElementType,
    TensorType,
    Type,
    UniformPerAxisType,
    UniformSubChannelType,
    UniformType,
)
from requant.operations.modules import exchanged, exchanged_dtype, read_text, xdsl_needed
from requant.plan.plan import Plan
from requant.profiles import Rounding

if TYPE_CHECKING:
    from xdsl.dialects.func import FuncOp
    from xdsl.ir import Operation

    from requant.lowering.module import Module

_AT_ONCE = 1 << 14
"""Elements of a run: so few that the values of a function stay in the cache."""
_FEW = 64
"""Those of a run that looks for undefined ones: what is undefined is found in blocks of so many."""
_MAX_UNDEFINED = 1 << 18
_BYTES_OF_VALUE = 16
"""What the evaluator counts for an element of a value, and as much again."""

_DIALECTS = ("arith", "quant")
"""All operations of these are on single elements, but for constants."""
_ELEMENTWISE = {
    "builtin": ("module",),
    "func": ("func", "return", "call"),
    "linalg": ("generic", "yield"),
    "tensor": ("empty", "splat", "dim"),
    "tosa": ("const", "rescale"),
    "stablehlo": (
        "constant", "convert", "bitcast_convert", "compare", "select", "clamp", "is_finite", "uniform_quantize",
        "uniform_dequantize", "optimization_barrier", "abs", "negate", "sign", "not", "ceil", "floor", "sqrt",
        "round_nearest_even", "round_nearest_afz", "popcnt", "count_leading_zeros", "cbrt", "cosine", "exponential",
        "exponential_minus_one", "log", "log_plus_one", "logistic", "rsqrt", "sine", "tan", "tanh", "add", "subtract",
        "multiply", "divide", "remainder", "maximum", "minimum", "and", "or", "xor", "power", "atan2", "shift_left",
        "shift_right_arithmetic", "shift_right_logical",
    ),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Run:
    """A function that takes and gives tensors of `shape`."""

    module: Module
    function: FuncOp
    shape: tuple[int, ...]

    def outcomes(self, elements: Array, argument: ElementType) -> Array:
        """Return what it gives for flat elements, which are no more than it takes: the last one fills the rest.

        Raise PreconditionError where it is undefined, with the index of an element.
        """
        from requant.lowering.evaluate import Tensor, evaluate

        whole = np.empty(prod(self.shape), elements.dtype)
        whole[: elements.size], whole[elements.size :] = elements, elements[-1]
        held = whole != 0 if argument == _BIT else whole.view(_held(argument))
        (result,) = evaluate(
            self.module, self.function, [Tensor(TensorType(self.shape, argument), held.reshape(self.shape))]
        )
        return exchanged(np.ascontiguousarray(result.elements).reshape(-1))[: elements.size]


_BIT = IntegerElement(1)


def _held(element: ElementType) -> np.dtype[Any]:
    from requant.lowering.evaluate.arrays import dtype_of

    return dtype_of(element)


@dataclass(slots=True)
class _Undefined:
    """How many inputs a function was found to be undefined for: each is found by a run of its own."""

    count: int = 0

    def add(self) -> None:
        """Count one more. Raise UnsupportedError if there are too many to find."""
        self.count += 1
        if self.count > _MAX_UNDEFINED:
            raise UnsupportedError(
                f"the function is undefined for more than {_MAX_UNDEFINED} inputs, more than are looked for",
                pointer="/module",
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionPlan(Plan):
    """The conversion that a function is. It is run on many elements at once, or on few.

    `argument` are the elements that it takes, and `given` how these are kept where the other rule keeps the same bits
    with another sign.
    """

    many: _Run
    few: _Run
    argument: ElementType
    given: np.dtype[Any]
    undefined: _Undefined

    def step(self, source: Array, target: Array, start: int, counts: Array) -> None:
        count = self.many.shape[0]
        for begin in range(0, source.size, count):
            piece = source[begin : begin + count].view(self.given)
            if (first := self._convert(piece, target[begin : begin + count])) is not None:
                self.undefined.add()
                if counts[3] < 0:
                    counts[3] = start + begin + first
                return

    def _convert(self, piece: Array, target: Array) -> int | None:
        """Convert elements up to the first that is undefined. Return its index, if there is one."""
        run = self.few if piece.size <= _FEW else self.many
        count = piece.size
        while count:
            try:
                outcomes = run.outcomes(piece[:count], self.argument)
            except PreconditionError as error:
                # One that stands before it may be undefined by a later operation.
                count = min(error.index or 0, count - 1)
                continue
            target[:count] = outcomes.view(target.dtype)
            break
        return count if count < piece.size else None


def function_rule(text: str, name: str, beside: Rule, limits: ModuleLimits) -> Rule:
    """Return a function of a module as a rule of the inputs of another, `beside` which it is compared.

    Raise what is wrong with the module, or TypeFitError or UnsupportedError, at `/module`: for a function that is not
    of one tensor to another of single numbers as wide as those of the other rule, or that is not made of operations on
    single elements.
    """
    with xdsl_needed():
        from requant.lowering.evaluate import function_named

    module = read_text(text, limits)
    with default_pointer("/function"):
        function = function_named(module, name or None)
    with default_pointer("/module"):
        source, target = _signature(function)
        _check_elementwise(module, source)
        plan = beside.plan
        argument, result = (_of_width(each, like.element) for each, like in (
            (source, plan.input_type), (target, plan.output_type)))  # fmt: skip
        called = function.sym_name.data
        made = FunctionPlan(
            profile=f"function {called}",
            rounding=Rounding.NEAREST_EVEN,
            input_type=plan.input_type,
            output_type=plan.output_type,
            input_dtype=plan.input_dtype,
            output_dtype=_like(exchanged_dtype(result), plan.output_dtype),
            elements=plan.elements,
            input_bounds=plan.input_bounds,
            many=_widened(module, called, source, limits, _at_once(module, limits)),
            few=_widened(module, called, source, limits, _FEW),
            argument=argument,
            given=exchanged_dtype(argument),
            undefined=_Undefined(),
        )
        said = f"function {called} of {print_type(source)} to {print_type(target)}"
        parts = tuple(replace(each, steps=None) for each in beside.parts)
        return Rule(text=said, plan=made, input_name=beside.input_name, parts=parts, source=beside.source)


def _like(stored: np.dtype[Any], other: np.dtype[Any]) -> np.dtype[Any]:
    """Return how outcomes are compared: with the sign of the other rule's, where the function's have none."""
    same = stored.itemsize == other.itemsize and stored.kind in "iu" and other.kind in "iu"
    return other if same else stored


def _signature(function: FuncOp) -> tuple[TensorType, TensorType]:
    """Return the types of the argument and the result of a function."""
    from requant.lowering.quantized import type_of

    types: list[Type] = [type_of(each) for each in function.function_type.inputs]
    types += [type_of(each) for each in function.function_type.outputs]
    if len(function.function_type.inputs) != 1 or len(types) != 2:
        raise UnsupportedError("the function has to have one argument and one result: rules are of single numbers")
    source, target = types
    if not isinstance(source, TensorType) or not isinstance(target, TensorType) or source.shape is None:
        raise TypeFitError("the argument and the result of the function have to be tensors of a rank")
    if source.shape != target.shape:
        raise UnsupportedError("the argument and the result of the function have to be of one shape")
    if None in source.shape and any(source.shape):
        raise UnsupportedError("the dimensions of the function's argument have to be all static, or all dynamic")
    return source, target


def _of_width(tensor: TensorType, other: ElementType) -> ElementType:
    """Return the elements of a tensor, which are numbers of the format of the other rule's. Raise TypeFitError."""
    mine = tensor.element
    one, two = (each.storage.element if isinstance(each, UniformType) else each for each in (mine, other))
    floats = isinstance(one, FloatElement) or isinstance(two, FloatElement)
    same = one == two if floats else getattr(one, "width", None) == getattr(two, "width", None)
    if not same:
        raise TypeFitError(f"the function has {print_type(mine)} where the rule has {print_type(other)}")
    return mine


def _check_elementwise(module: Module, source: TensorType) -> None:
    """Raise LoweringError for an operation that is not on single elements, or a constant of several numbers."""
    from requant.lowering.quantized import quantized_part

    for op in module.operation.walk():
        dialect, _, name = op.name.partition(".")
        if dialect not in _DIALECTS and name not in _ELEMENTWISE.get(dialect, ()):
            raise module.failure(op, "this operation is not on single elements, so that the function is no rule")
        if any(len(numbers) > 1 for numbers in _constants(op)):
            raise module.failure(op, "a constant of several numbers is not the same for every element")
        if op.name == "linalg.generic" and not _is_pointwise(op):
            raise module.failure(op, "this operation is not on single elements, so that the function is no rule")
        if op.name == "tensor.dim" and not _is_of_shapes(op):
            raise module.failure(op, "the number of elements goes into their values: the function is no rule")
        if any(
            isinstance(quantized_part(each.type), UniformPerAxisType | UniformSubChannelType) for each in op.results
        ):
            raise module.failure(op, "there are several scales, and a rule has one")
        if op.name == "tosa.rescale" and source.shape == (1,):
            raise module.failure(op, "the function is of one element, and so are the operands of this operation; "
                                     "give it a tensor of more, or of dynamic, elements")  # fmt: skip


def _constants(op: Operation) -> Iterator[set[Any]]:
    """Yield the numbers of the constants that an operation has as attributes."""
    from xdsl.dialects.builtin import DenseIntOrFPElementsAttr

    for attribute in (*op.attributes.values(), *op.properties.values()):
        if isinstance(attribute, DenseIntOrFPElementsAttr):
            yield {repr(each) for each in attribute.get_values()}


def _is_of_shapes(op: Operation) -> bool:
    """Whether a size only goes where the shapes of tensors are given."""
    return all(
        use.operation.name == "tensor.empty" or (use.operation.name == "tensor.splat" and use.index > 0)
        for result in op.results
        for use in result.uses
    )


def _is_pointwise(op: Operation) -> bool:
    """Whether a loop is parallel in all dimensions, and each operand is read at its place or has but one element."""
    from xdsl.ir.affine import AffineDimExpr

    maps, kinds = (op.properties.get(name) or op.attributes[name] for name in ("indexing_maps", "iterator_types"))
    if any("parallel" not in str(each) for each in kinds):  # type: ignore[attr-defined]
        return False
    for each in maps:  # type: ignore[attr-defined]
        places = each.data.results
        if places and places != tuple(AffineDimExpr(index) for index in range(each.data.num_dims)):
            return False
    return True


def _at_once(module: Module, limits: ModuleLimits) -> int:
    """Return how many elements are run at once: as many as the values of all operations have memory for."""
    operations = sum(1 for _ in module.operation.walk())
    fitting = limits.evaluation_bytes // (_BYTES_OF_VALUE * operations)
    return min(_AT_ONCE, max(_FEW, 1 << max(fitting, 1).bit_length() - 1))


def _widened(module: Module, called: str, source: TensorType, limits: ModuleLimits, count: int) -> _Run:
    """Return a function for tensors of so many elements in the place of its argument's shape."""
    from requant.lowering.evaluate import function_named

    assert source.shape is not None
    if None in source.shape:
        return _Run(module, function_named(module, called), (count, *[1] * (len(source.shape) - 1)))
    sizes = [size for size in source.shape if size is not None]
    if not sizes:
        raise UnsupportedError("the argument of the function is a tensor without dimensions; give it one, such as <4x")
    shape = (count, *[1] * (len(sizes) - 1))
    before, after = (f"tensor<{'x'.join(map(str, each))}x" for each in (sizes, shape))
    wide = replace(limits, characters=max(limits.characters, 1 << 30), constant_elements=1 << 40)
    try:
        widened = read_text(module.write().replace(before, after), wide)
    except LoweringError as error:
        raise UnsupportedError(f"the function is made for {prod(sizes)} elements: {error.detail}") from None
    return _Run(widened, function_named(widened, called), shape)
