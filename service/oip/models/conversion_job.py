"""What the models of the three conversions share: parameters, pointers, and a plan as the work of a call."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

import numpy as np

from core.cancellation import check_cancelled
from core.compare.error_report import conversion_error
from core.convert.requantize import ScalingPlan
from core.errors import RequantError, UnsupportedError
from core.mlir import print_type
from core.mlir.types import TensorType
from core.plan.conversion import Conversion, merged
from core.plan.operands import bind, static_shape
from core.plan.packing import Packing, check_dense_bytes, dense_width, unpack
from core.plan.plan import Array, Plan
from core.plan.report import Report
from core.profiles import PROFILES, Operation
from core.schemes import Multiplier
from service.http.problems import at, sides
from service.oip.call import Call
from service.oip.datatypes import DATATYPES
from service.oip.models.model import Answer, Job
from service.oip.parameters import Parameter, pointer_to
from service.oip.tensors import OutputTensor, output_tensor
from service.operations.error_measures import error_measures
from service.operations.plan_bytes import plan_bytes

BARE = "A bare element type takes its shape from the tensor."
INPUT_TYPE = Parameter(
    name="input_type",
    description=f"MLIR text: what x is. {BARE} Default: what its datatype says.",
    optional=True,
)
OUTPUT_TYPE = Parameter(name="output_type", description=f"MLIR text: what y is to be. {BARE}")
PACKING = Parameter(
    name="packing",
    description="How stored numbers of other widths than 8, 16 or 32 bits, such as i4 or i12, are kept. Dense ones are "
    "UINT8 of one dimension.",
    default=str(Packing.UNPACKED),
    choices=tuple(Packing),
)
# Elements that are converted before it is looked whether the client is still there.
_PIECE = 1 << 20
_BYTES = DATATYPES["UINT8"]
_INT32 = DATATYPES["INT32"]
_INT64 = DATATYPES["INT64"]


def profile_parameter(operation: Operation, default: str) -> Parameter:
    """Return the parameter that names a profile which defines an operation, or the casts that it is for floats."""
    casts = operation is not Operation.REQUANTIZE
    defining = tuple(
        name
        for name, profile in PROFILES.items()
        if operation in profile.operations or (casts and profile.casts is not None)
    )
    return Parameter(name="profile", description="The arithmetic contract.", default=default, choices=defining)


@contextmanager
def pointed(call: Call) -> Iterator[None]:
    """Put on an error of a plan the pointer of the parameter or the input that it is about."""
    types = sides(input=pointer_to("input_type"), output=pointer_to("output_type"))
    with at(pointer_to("profile"), UnsupportedError):
        try:
            with types:
                yield
        except RequantError as error:
            if error.pointer is not None:
                error.pointer = _place_of(error.pointer, call)
            raise


def _place_of(field: str, call: Call) -> str:
    """Return where this face has what core calls by a field such as `/rounding` or `/multipliers/3/shift`."""
    if field.startswith("/multipliers"):
        return call.inputs["shift" if field.endswith("/shift") else "multiplier"].pointer
    return field if field.startswith(("/parameters/", "/inputs")) else f"/parameters{field}"


def dense_bits(call: Call, tensor: TensorType) -> int | None:
    """Return the bits of one number of a tensor that is to be packed, None if it is not."""
    return dense_width(tensor) if call.choice("packing", Packing) is Packing.DENSE else None


def stored_type(call: Call) -> tuple[TensorType, int | None]:
    """Return what x is by the parameter `input_type`, which is there, and the bits of one number if it is packed."""
    x = call.inputs["x"]
    with at(pointer_to("input_type")):
        named = call.type("input_type")
        tensor = named if isinstance(named, TensorType) else bind(named, x.shape)
        width = dense_bits(call, tensor)
        # Packed, x holds bytes, and the shape of the tensor is the type's alone.
        return (bind(tensor, x.shape), None) if width is None else (replace(tensor, shape=static_shape(tensor)), width)


@dataclass(frozen=True, slots=True)
class Planned:
    """A plan, and the bits of one packed number where numbers are packed."""

    plan: Plan
    packed_in: int | None = None
    packed_out: int | None = None


def job_of(call: Call, plan_for: Callable[[Call], Planned], *, measured: bool = False) -> Job:
    """Return the work that a call's plan stands for. `measured`: whether the error is reported too.

    The plan is kept where it depends on nothing but x's shape and datatype and the parameters.
    """
    x = call.inputs["x"]
    alone = len(call.inputs) == 1
    key = (plan_for, x.datatype.name, x.shape, *call.parameters.values())
    kept = call.plans.get(key) if alone else None
    if kept is None:
        planned = plan_for(call)
        output_type = print_type(planned.plan.output_type)
        kept = planned, Conversion(planned.plan, planned.packed_in, planned.packed_out), output_type
        if alone:
            characters = sum(len(each) for each in call.parameters.values() if isinstance(each, str))
            call.plans.put(key, kept, plan_bytes(planned.plan, characters + len(output_type)))
    planned, conversion, output_type = kept
    plan, packed_in, packed_out = planned.plan, planned.packed_in, planned.packed_out
    if packed_in is None:
        stored = x.kept_as(plan.input_type.element, plan.input_dtype)
    else:
        stored = x.kept_as(_BYTES.element, _BYTES.dtype)

    def run() -> Answer:
        with at(x.pointer):
            if packed_in is not None:
                check_dense_bytes(stored.size, plan.elements, packed_in)
            target, report = _converted(conversion, stored)
        shape = target.shape if packed_out is not None else static_shape(plan.output_type)
        y = output_tensor("y", plan.output_type, target)
        if packed_out is not None:
            y = replace(y, datatype=_BYTES, shape=shape)
        reported = {"output_type": output_type, **report._asdict()}
        reported["saturated"] = report.saturated_low + report.saturated_high
        if isinstance(plan, ScalingPlan):
            reported["scheme"] = plan.scheme.name
        if measured:
            numbers = target if packed_out is None else unpack(target, packed_out, plan.elements, plan.output_dtype)
            reported |= error_measures(conversion_error(plan, stored, numbers))
        return Answer((y, *_used(plan.multipliers)), reported)

    return Job(run, plan.elements * (plan.input_dtype.itemsize + 2 * plan.output_dtype.itemsize))


def _converted(conversion: Conversion, stored: Array) -> tuple[Array, Report]:
    """Convert piece by piece, as long as the client waits for it."""
    plan = conversion.plan
    target = np.empty(conversion.output_entries, conversion.output_dtype)
    tally = plan.new_counts()
    for first, last in conversion.pieces(0, plan.elements, _PIECE):
        check_cancelled()
        source = stored[conversion.input_at(first) : conversion.input_at(last)]
        counts = plan.new_counts()
        conversion.step(source, target[conversion.output_at(first) : conversion.output_at(last)], first, counts)
        merged([counts], tally)
    return target, plan.report(tally)


def _used(multipliers: Sequence[Multiplier]) -> list[OutputTensor]:
    """Return the multipliers and shifts of a requantization as tensors. Other conversions have none."""
    if not multipliers:
        return []
    count = (len(multipliers),)
    values = np.array([each.multiplier for each in multipliers], _INT64.dtype)
    shifts = np.array([each.shift for each in multipliers], _INT32.dtype)
    return [
        OutputTensor("multiplier", _INT64, count, values, "i64"),
        OutputTensor("shift", _INT32, count, shifts, "i32"),
    ]
