"""Vectors of other systems' operators, by way of the equivalent conversions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import cycle

from requant.convert.explain.explanation import Explainer
from requant.convert.explain.requantize import scaling_explainer
from requant.convert.vectors.conversions import (
    ZeroPoints,
    accepted_subjects,
    designed_multipliers,
    storage_of,
    zero_points_of,
)
from requant.convert.vectors.subject import Draws, ParameterReason, Subject
from requant.errors import RequantError, TypeFitError, UnsupportedError, error_side, excerpt
from requant.errors.names import entry_named
from requant.formats.elements import IntegerElement, Signedness
from requant.mlir.printer import print_type
from requant.mlir.types import TensorType, Type
from requant.operators.tosa.rescale_plan import RescaleRounding, plan_rescale, rescale_scheme
from requant.profiles import DEFAULT_PROFILES, PROFILES, Operation
from requant.schemes import Multiplier, scheme_named


@dataclass(frozen=True, slots=True)
class ConversionOperator:
    """An operation that is a conversion. `profiles`: those available, the default first; `names`: its operands."""

    operation: Operation
    profiles: tuple[str, ...]
    names: Mapping[str, str]


def _pair(
    quantize: str, dequantize: str, profiles: tuple[str, ...], quantized: Mapping[str, str], real: Mapping[str, str]
) -> dict[str, ConversionOperator]:
    return {
        quantize: ConversionOperator(Operation.QUANTIZE, profiles, quantized),
        dequantize: ConversionOperator(Operation.DEQUANTIZE, profiles, real),
    }


RESCALE = "tosa.RESCALE"
OPERATIONS: Mapping[str, ConversionOperator] = {
    **{
        operation: ConversionOperator(operation, tuple(dict.fromkeys((default, *PROFILES))), {})
        for operation, default in DEFAULT_PROFILES.items()
    },
    **_pair(
        "onnx.QuantizeLinear",
        "onnx.DequantizeLinear",
        ("onnx", "onnx_1_32", "onnx_reference"),
        {"scale": "y_scale", "zero_point": "y_zero_point"},
        {"scale": "x_scale", "zero_point": "x_zero_point"},
    ),
    **_pair(
        "onednn.Quantize",
        "onednn.Dequantize",
        ("onednn",),
        {"scale": "scales", "zero_point": "zps"},
        {"scale": "scales", "zero_point": "zps"},
    ),
    **_pair("stablehlo.uniform_quantize", "stablehlo.uniform_dequantize", ("stablehlo",), {}, {}),
    **_pair("mlir.quant.qcast", "mlir.quant.dcast", ("mlir",), {}, {}),
    **_pair("litert.QUANTIZE", "litert.DEQUANTIZE", ("litert", "litert_xnnpack"), {}, {}),
    **_pair("torch.quantize_per_tensor", "torch.dequantize", ("torch", "torch_2_14"), {}, {}),
    **_pair(
        "torch.quantized_decomposed.quantize_per_tensor",
        "torch.quantized_decomposed.dequantize_per_tensor",
        ("torch_decomposed",),
        {},
        {},
    ),
    RESCALE: ConversionOperator(
        Operation.REQUANTIZE, ("tosa",), {"input_zero_point": "input_zp", "output_zero_point": "output_zp"}
    ),
}
"""The operations with vectors: the conversions, and the operators of other systems that are conversions."""


def operation_named(name: str) -> ConversionOperator:
    """Return the operation of that name, or raise UnknownNameError, which lists all."""
    return entry_named(OPERATIONS, name, "operation")


def _side(type_: Type, side: str) -> IntegerElement:
    with error_side(side):
        if isinstance(type_, TensorType):
            raise TypeFitError("expected an element type, not a tensor type; set the number of vectors with count")
        if not isinstance(type_, IntegerElement):
            raise UnsupportedError(f"RESCALE takes integers; the {side} is of {excerpt(print_type(type_))}")
    return type_


def _rescale_zero_points(element: IntegerElement, zero_point: int | None, draws: Draws) -> ZeroPoints:
    """Yield zero points that TOSA allows: any for 8 bits, 0 and 32768 for unsigned 16 bits, else 0."""
    if zero_point is not None:
        return cycle([(zero_point, ())])
    if element.width == 8:
        return zero_points_of(storage_of(element), draws)
    if element.width == 16 and not element.signed:
        return cycle([(0, ()), (1 << 15, ())])
    return cycle([(0, ())])


@contextmanager
def _of_pair(index: int) -> Iterator[None]:
    """Translate the error pointers of a plan to those of a call whose multipliers are pairs."""
    try:
        yield
    except RequantError as error:
        name = (error.pointer or "/").split("/")[1]
        if name in ("multiplier", "shift"):
            error.pointer = f"/multipliers/{index}/{name}"
        elif name in ("input_unsigned", "output_unsigned"):
            error.pointer = f"/{name.removesuffix('_unsigned')}_type"
        raise


def rescale_subjects(
    input_type: Type,
    output_type: Type,
    *,
    multipliers: Sequence[Multiplier] | None = None,
    input_zp: int | None = None,
    output_zp: int | None = None,
    scale32: bool = True,
    rounding_mode: RescaleRounding = RescaleRounding.SINGLE_ROUND,
    seed: int = 0,
    max_sets: int,
) -> list[Subject]:
    """Return a subject for each multiplier and shift of the caller, or for designed ones.

    An unsigned side has an unsigned type, such as ui8; its zero point is a number. Zero points that are not given are 0
    with given multipliers. Raise what `plan_rescale` raises.
    """
    source, target = _side(input_type, "input"), _side(output_type, "output")

    def subject(
        stated: Multiplier, zero_points: tuple[int, int], why: tuple[ParameterReason, ...], index: int = 0
    ) -> Subject:
        @lru_cache(maxsize=4)
        def explainer(shape: tuple[int, ...]) -> Explainer:
            plan = plan_rescale(
                TensorType(shape, replace(source, signedness=Signedness.SIGNLESS)),
                replace(target, signedness=Signedness.SIGNLESS),
                [stated.multiplier],
                [stated.shift],
                input_zp=zero_points[0],
                output_zp=zero_points[1],
                scale32=scale32,
                rounding_mode=rounding_mode,
                input_unsigned=not source.signed,
                output_unsigned=not target.signed,
            )
            return scaling_explainer(plan.scaling)

        # Raises what is wrong with the parameters.
        with _of_pair(index):
            explainer((1,))
        numbers = {
            "input_zero_point": zero_points[0],
            "output_zero_point": zero_points[1],
            "multiplier": stated.multiplier,
            "shift": stated.shift,
        }
        return Subject(explainer=explainer, input=source, output=target, parameters=numbers, why=why)

    if multipliers is not None:
        zero_points = (input_zp or 0, output_zp or 0)
        return [subject(each, zero_points, (ParameterReason.GIVEN,), index) for index, each in enumerate(multipliers)]
    draws = Draws(seed)
    inputs, outputs = (
        _rescale_zero_points(element, stated, draws) for element, stated in ((source, input_zp), (target, output_zp))
    )
    scheme = scheme_named(rescale_scheme(scale32, rounding_mode))
    return accepted_subjects(subject, designed_multipliers(scheme, source.width, inputs, outputs, draws, max_sets))
