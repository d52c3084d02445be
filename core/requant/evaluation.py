"""A function of an MLIR module, run on arrays."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from requant.arrays.elements import Array, as_array, flat_bits, shaped
from requant.description import NO_LIMITS
from requant.errors import ParameterError, TypeFitError
from requant.formats.elements import IntegerElement
from requant.mlir.types import ElementType, Type
from requant.operations.modules import FUNCTION, TypedElements, evaluate_module, exchanged_dtype
from requant.plan.operands import bind, static_shape


def evaluate(module: str, *inputs: ArrayLike, function: str = str(FUNCTION.default)) -> tuple[Array, ...]:
    """Return the results of a function of a module, in the dialects that `lower` takes.

    module: MLIR text.
    inputs: one array per argument; those of quantized types are stored numbers, scalars have rank 0.
    function: its name. Default: `main`, or the only function with a body.

    >>> type_ = "tensor<2xi8>"
    >>> text = f"func.func @main(%x: {type_}) -> {type_} {{ %r = stablehlo.add %x, %x : {type_} return %r : {type_} }}"
    >>> evaluate(text, np.array([1, 2], np.int8))
    (array([2, 4], dtype=int8),)

    Raise ModuleTextError for a text that is no module, TypeFitError for arrays that do not fit the arguments,
    TensorDataError for numbers that their type does not hold, UnsupportedError for what is not evaluated,
    UnavailableError without xDSL.
    """

    def read_inputs(arguments: Sequence[Type]) -> list[TypedElements]:
        if len(arguments) != len(inputs):
            raise TypeFitError(f"the function takes {len(arguments)} arrays; there are {len(inputs)}")
        return [_read(f"input {index}", *pair) for index, pair in enumerate(zip(inputs, arguments, strict=True))]

    for name, text in (("module", module), ("function", function)):
        if not isinstance(text, str):
            raise ParameterError(f"{name} is a {type(text).__name__}; expected a str")
    results = evaluate_module(module, function, read_inputs, NO_LIMITS.module)
    return tuple(_array(each) for each in results)


def _is_bit(element: ElementType) -> bool:
    return isinstance(element, IntegerElement) and element.width == 1


def _read(name: str, given: ArrayLike, argument: Type) -> TypedElements:
    array = as_array(given)
    type_ = bind(argument, array.shape)
    dtype = exchanged_dtype(type_.element)
    if _is_bit(type_.element) and array.dtype == np.bool_:
        array = array.view(np.int8)
    return TypedElements(type_, flat_bits(array, dtype, type_.element, name))


def _array(result: TypedElements) -> Array:
    array = shaped(result.elements, result.type, static_shape(result.type))
    return array.view(np.bool_) if _is_bit(result.type.element) else array
