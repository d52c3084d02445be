"""Which rules computed outputs that were observed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from requant.arrays.calls import ArrayCall
from requant.description import (
    Array,
    OperationCall,
    PlannedWork,
    Result,
)
from requant.identification.identification import identify

_MAX_GROUPS = 64


def _plan(call: OperationCall) -> PlannedWork:
    calls: Sequence[ArrayCall] = call.calls
    size = sum(array.nbytes for each in calls for array in each.arrays.values())

    def run(_: Mapping[str, Array]) -> Result:
        return Result(report=_members(calls, identify(calls, call.options["suspects"])))

    return PlannedWork(operands={}, run=run, byte_count=2 * size, weight=size, searches=True)
