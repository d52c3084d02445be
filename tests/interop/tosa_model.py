"""One RESCALE as a TOSA graph, run by TOSA's reference model. PyPI's tosa-tools has the serializer and the model."""

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

_TYPES = {
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


def graph(case: Rescale, constant: Array | None) -> bytes:
    """The graph, serialized. `constant`: stored elements, if the input is a constant too."""
    serializer = tosa_serializer.TosaSerializer()
    shape, input_type = list(case.shape), _TYPES[case.in_t]
    if constant is None:
        source = serializer.addPlaceholder(shape, input_type)
    else:
        source = serializer.addConst(shape, input_type, constant.astype(np.int64).ravel())
    operands = (
        ((len(case.multiplier),), "i32" if case.scale32 else "i16", case.multiplier),
        ((len(case.shift),), "i8", case.shift),
        ((1,), case.in_t, stored([case.input_zp], case.in_t)),
        ((1,), case.out_t, stored([case.output_zp], case.out_t)),
    )
    names = [source.name] + [
        serializer.addConst(list(length), _TYPES[element], np.array(values, np.int64)).name
        for length, element, values in operands
    ]
    attributes = tosa_serializer.TosaSerializerAttribute()
    attributes.RescaleAttribute(
        case.scale32,
        getattr(tosa_serializer.RoundingMode, case.rounding_mode),
        case.per_channel,
        case.input_unsigned,
        case.output_unsigned,
    )
    output = serializer.addOutput(shape, _TYPES[case.out_t])
    serializer.addOperator(tosa_serializer.Op.RESCALE, names, [output.name], attributes)
    serialized: bytes = serializer.serialize()
    return serialized


def rescale(case: Rescale, source: Array) -> tuple[Verdict, Array | None]:
    """What the model makes of stored elements: its verdict, and the flat output if that is VALID."""
    # The model takes no i48 from Python.
    constant = source if case.in_t == "i48" else None
    inputs = [source.reshape(case.shape)] if constant is None else []
    try:
        (output,), status = tosa_reference_model.run(graph(case, constant), inputs)
    except ValueError as error:
        if str(error) != "Invalid TOSA graph":
            raise
        return Verdict.INVALID, None
    verdict = _VERDICTS[status]
    return verdict, output.ravel() if verdict is Verdict.VALID else None
