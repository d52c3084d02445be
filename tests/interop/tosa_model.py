"""TOSA graphs run by TOSA's reference model. PyPI's tosa-tools has the serializer and the model."""

from __future__ import annotations

from enum import Enum
from typing import Any

import numpy as np
import tosa_reference_model
import tosa_serializer
from numpy.typing import NDArray

from tests.oracles.tosa import Rescale
from tests.support.rescale_case import stored

Array = NDArray[Any]

TYPES = {
    "i8": tosa_serializer.DType.INT8,
    "i16": tosa_serializer.DType.INT16,
    "i32": tosa_serializer.DType.INT32,
    "i48": tosa_serializer.DType.INT48,
}


class Verdict(Enum):
    """What the model says of a graph. INVALID: an ERROR_IF holds, found before it runs or while it does."""

    VALID = "valid"
    INVALID = "invalid"
    UNPREDICTABLE = "unpredictable"


_VERDICTS = {
    tosa_reference_model.GraphStatus.TOSA_VALID: Verdict.VALID,
    tosa_reference_model.GraphStatus.TOSA_ERROR: Verdict.INVALID,
    tosa_reference_model.GraphStatus.TOSA_UNPREDICTABLE: Verdict.UNPREDICTABLE,
}


def constant(serializer: Any, element: str, values: Any) -> str:
    """Add stored integers, of rank 1, to a graph. Return the tensor's name."""
    data = np.array(values, np.int64)
    name: str = serializer.addConst([data.size], TYPES[element], data).name
    return name


def add_rescale(serializer: Any, case: Rescale, source: str, target: str) -> None:
    """Add a RESCALE to a graph, between two of its tensors."""
    operands = (
        ("i32" if case.scale32 else "i16", case.multiplier),
        ("i8", case.shift),
        (case.in_t, stored([case.input_zp], case.in_t)),
        (case.out_t, stored([case.output_zp], case.out_t)),
    )
    names = [source, *(constant(serializer, element, values) for element, values in operands)]
    attributes = tosa_serializer.TosaSerializerAttribute()
    attributes.RescaleAttribute(
        case.scale32,
        getattr(tosa_serializer.RoundingMode, case.rounding_mode),
        case.per_channel,
        case.input_unsigned,
        case.output_unsigned,
    )
    serializer.addOperator(tosa_serializer.Op.RESCALE, names, [target], attributes)


def run(serializer: Any, inputs: list[Array]) -> tuple[Verdict, Array | None]:
    """What the model makes of a graph with one output: its verdict, and the output if that is VALID."""
    try:
        (output,), status = tosa_reference_model.run(serializer.serialize(), inputs)
    except ValueError as error:
        if str(error) != "Invalid TOSA graph":
            raise
        return Verdict.INVALID, None
    verdict = _VERDICTS[status]
    return verdict, output if verdict is Verdict.VALID else None


def rescale(case: Rescale, source: Array) -> tuple[Verdict, Array | None]:
    """What the model makes of stored elements: its verdict, and the flat output if that is VALID."""
    serializer, shape = tosa_serializer.TosaSerializer(), list(case.shape)
    # The model takes no i48 from Python.
    if case.in_t == "i48":
        given = serializer.addConst(shape, TYPES[case.in_t], source.astype(np.int64).ravel())
    else:
        given = serializer.addPlaceholder(shape, TYPES[case.in_t])
    target = serializer.addOutput(shape, TYPES[case.out_t])
    add_rescale(serializer, case, given.name, target.name)
    verdict, output = run(serializer, [] if case.in_t == "i48" else [source.reshape(case.shape)])
    return verdict, None if output is None else output.ravel()
