"""The three conversions: quantize, dequantize, requantize."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from operator import index
from typing import Any, Literal, overload

import numpy as np
from numpy.typing import ArrayLike

from requant.arrays.elements import Array, as_array, as_stored, element_of, flat_bits, shaped
from requant.arrays.types import read_type
from requant.convert.dequantize import plan_dequantize
from requant.convert.quantize import NanPolicy, plan_quantize, rounding_named
from requant.convert.requantize import plan_requantize
from requant.errors import ParameterError
from requant.errors.names import entry_named
from requant.mlir.types import ElementType, TensorType, Type
from requant.plan.operands import bind
from requant.plan.plan import Plan, Report
from requant.profiles import DEFAULT_PROFILES, Operation
from requant.schemes import Multiplier

_PLANNERS: Mapping[Operation, Callable[..., Plan]] = {
    Operation.QUANTIZE: plan_quantize,
    Operation.DEQUANTIZE: plan_dequantize,
    Operation.REQUANTIZE: plan_requantize,
}
_NAN_POLICIES = {str(policy): policy for policy in NanPolicy}


@overload
def quantize(
    x: ArrayLike,
    output_type: str | Type,
    *,
    profile: str = ...,
    rounding: str | None = ...,
    nan: str = ...,
    seed: int = ...,
    saturate: bool | None = ...,
    return_report: Literal[False] = ...,
) -> Array: ...


@overload
def quantize(
    x: ArrayLike,
    output_type: str | Type,
    *,
    profile: str = ...,
    rounding: str | None = ...,
    nan: str = ...,
    seed: int = ...,
    saturate: bool | None = ...,
    return_report: Literal[True],
) -> tuple[Array, Report]: ...


def quantize(
    x: ArrayLike,
    output_type: str | Type,
    *,
    profile: str = DEFAULT_PROFILES[Operation.QUANTIZE],
    rounding: str | None = None,
    nan: str = NanPolicy.PROFILE,
    seed: int = 0,
    random_bits: int | None = None,
    saturate: bool | None = None,
    return_report: bool = False,
) -> Array | tuple[Array, Report]:
    """Return the stored numbers of `x`, of the same shape: q = clamp(round(x / scale) + zero point), in the order and
    the precision of `profile`.

    x: floats of the type that `output_type` expresses; a list becomes f32.
    output_type: a quantized type in MLIR syntax, or a float of at most 16 bits, which is a cast.
    rounding: replaces the profile's, such as `nearest_even` or `stochastic`, of which `seed` is the seed.
    random_bits: how many random bits it takes in a cast, 1 to 32; by default all that are drawn, 32.
    nan: the result of NaN: `profile`, `error`, `lowest` or `zero_point`.
    saturate: whether casts to floats saturate, where the profile leaves the choice.
    return_report: also return the `Report` with the counts of saturated elements and NaN.

    Numbers of 8, 16 or 32 bits have their own dtype, others the next wider one (i4 is int8). Small floats and bf16 are
    arrays of ml_dtypes.

    >>> quantize([-0.25, 0.25, 0.75, 100.0], "!quant.uniform<i8:f32, 0.5:3>", profile="onnx")
    array([  3,   3,   5, 127], dtype=int8)
    >>> q, report = quantize([0.25, 100.0], "!quant.uniform<i8:f32, 0.5:3>", profile="litert", return_report=True)
    >>> q, report.saturated_high
    (array([  4, 127], dtype=int8), 1)
    >>> quantize([0.3, 500.0], "f8E4M3FN", profile="ml_dtypes")
    array([0.3125, nan], dtype='float8_e4m3fn')

    Raise TypeTextError for a text that is no type, TypeFitError for a type that does not fit the array,
    UnknownNameError for an unknown profile or rounding, UnsupportedError for what the profile does not define,
    PreconditionError for a NaN where that is an error.
    """
    array = as_array(x)
    options = {
        "rounding": None if rounding is None else rounding_named(rounding),
        "nan": entry_named(_NAN_POLICIES, nan, "NaN policy"),
        "seed": seed,
        "random_bits": random_bits,
        "saturate": saturate,
    }
    input_type = TensorType(array.shape, element_of(array.dtype))
    plan = _planned(Operation.QUANTIZE, input_type, read_type(output_type), profile, **options)
    return _run(plan, array, return_report=return_report)


@overload
def dequantize(
    q: ArrayLike,
    input_type: str | Type | None = ...,
    output_type: str | Type | None = ...,
    *,
    profile: str = ...,
    return_report: Literal[False] = ...,
) -> Array: ...


@overload
def dequantize(
    q: ArrayLike,
    input_type: str | Type | None = ...,
    output_type: str | Type | None = ...,
    *,
    profile: str = ...,
    return_report: Literal[True],
) -> tuple[Array, Report]: ...


def dequantize(
    q: ArrayLike,
    input_type: str | Type | None = None,
    output_type: str | Type | None = None,
    *,
    profile: str = DEFAULT_PROFILES[Operation.DEQUANTIZE],
    return_report: bool = False,
) -> Array | tuple[Array, Report]:
    """Return the real numbers that `q` stands for, of the same shape: (q - zero point) * scale.

    q: the stored numbers. Integers may be of any dtype; small floats may be unsigned integers, their bit patterns.
    input_type: the quantized type of `q`. Without one, `q` is an array of floats, which are widened.
    output_type: that of the result. Default: the expressed type, for floats f32.

    >>> dequantize([3, 5, 127], "!quant.uniform<i8:f32, 0.5:3>")
    array([ 0.,  1., 62.], dtype=float32)

    Errors as of `quantize`, and TensorDataError for a number that the type does not hold.
    """
    array = as_stored(q, typed=input_type is not None)
    plan = _planned(Operation.DEQUANTIZE, _input_type(array, input_type), _type(output_type), profile)
    return _run(plan, array, return_report=return_report)


@overload
def requantize(
    q: ArrayLike,
    input_type: str | Type | None,
    output_type: str | Type,
    *,
    profile: str = ...,
    scheme: str | None = ...,
    multipliers: Sequence[tuple[int, int]] | None = ...,
    axis: int | None = ...,
    return_report: Literal[False] = ...,
) -> Array: ...


@overload
def requantize(
    q: ArrayLike,
    input_type: str | Type | None,
    output_type: str | Type,
    *,
    profile: str = ...,
    scheme: str | None = ...,
    multipliers: Sequence[tuple[int, int]] | None = ...,
    axis: int | None = ...,
    return_report: Literal[True],
) -> tuple[Array, Report]: ...


def requantize(
    q: ArrayLike,
    input_type: str | Type | None,
    output_type: str | Type,
    *,
    profile: str = DEFAULT_PROFILES[Operation.REQUANTIZE],
    scheme: str | None = None,
    multipliers: Sequence[tuple[int, int]] | None = None,
    axis: int | None = None,
    return_report: bool = False,
) -> Array | tuple[Array, Report]:
    """Return stored numbers, or accumulators, at another scale, in the integer arithmetic of `profile`.

    input_type: the quantized type of `q`; None for plain integers, which need `multipliers`.
    scheme: how multipliers are derived and applied, in place of the profile's: `gemmlowp`, `cmsis_nn` and so on.
    multipliers: pairs (multiplier, shift) in the scheme's convention, one or one for each index of `axis`, in place of
    those that follow from the scales.

    >>> requantize([1000, 2000, 3000], "!quant.uniform<i32:f32, 0.001>", "!quant.uniform<i8:f32, 0.25:-1>")
    array([ 3,  7, 11], dtype=int8)

    Errors as of `quantize`, TensorDataError for a number that the type does not hold, and ParameterError for a
    multiplier or shift for which the scheme is not defined.
    """
    array = as_stored(q, typed=input_type is not None)
    options: dict[str, Any] = {"scheme": scheme, "axis": axis}
    if multipliers is not None:
        options["multipliers"] = _multipliers(multipliers)
    plan = _planned(Operation.REQUANTIZE, _input_type(array, input_type), read_type(output_type), profile, **options)
    return _run(plan, array, return_report=return_report)


def _multipliers(pairs: Sequence[tuple[int, int]]) -> tuple[Multiplier, ...]:
    try:
        return tuple(Multiplier(index(multiplier), index(shift)) for multiplier, shift in pairs)
    except (TypeError, ValueError):
        raise ParameterError("multipliers are pairs of whole numbers, (multiplier, shift)") from None


def _type(type_: str | Type | None) -> Type | None:
    return None if type_ is None else read_type(type_)


def _input_type(array: Array, stated: str | Type | None) -> TensorType:
    type_: Type | ElementType | None = _type(stated)
    return bind(element_of(array.dtype) if type_ is None else type_, array.shape)


# What is called again and again, as for the batches of a test, is planned once.
@lru_cache(maxsize=64)
def _planned(
    operation: Operation, input_type: TensorType, output_type: Type | None, profile: str, **options: Any
) -> Plan:
    return _PLANNERS[operation](input_type, output_type, profile, **options)


def _run(plan: Plan, array: Array, *, return_report: bool) -> Array | tuple[Array, Report]:
    target = np.empty(plan.elements, plan.output_dtype)
    report = plan.run(flat_bits(array, plan.input_dtype, plan.input_type.element, "the input"), target)
    result = shaped(target, plan.output_type, array.shape)
    return (result, report) if return_report else result
