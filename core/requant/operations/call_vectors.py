"""Vectors of calls: whole tensors worth testing an operator or a product with, each with what the call gives."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from requant.arrays.calls import ArrayCall
from requant.description import (
    Array,
    CallsInput,
    Choices,
    Kind,
    Member,
    Operation,
    OperationCall,
    Option,
    PlannedWork,
    Result,
    TensorValue,
)
from requant.errors import LimitError, RequantError, pointers_for_sides
from requant.identification.call_vectors import MAX_COUNT, CallVector, DataReason, runs_of, vectors_of_call
from requant.identification.candidates import options_for
from requant.identification.files import FileFormat
from requant.operations.identify import CALL, TENSOR, files_option, list_of, tensor_members, tensors_of

MAX_ELEMENTS = 1 << 20
"""The most elements that all vectors of a request have."""
MAX_RUNS = 5000
"""How often calls are computed at most."""
_DEFAULT_COUNT = 8
# About how much memory the text of an element takes.
_BYTES_OF_TEXT = 64


def _plan(call: OperationCall) -> PlannedWork:
    calls: Sequence[ArrayCall] = call.calls
    most, seed, files = (call.options[name] for name in ("count", "seed", "files"))
    works = [(each, _planned(each, place), runs_of(each, most)) for place, each in enumerate(calls)]
    elements = most * sum(2 * sum(array.size for array in each.arrays.values()) + work.sums for each, work, _ in works)
    _check("elements in vectors", elements, MAX_ELEMENTS)
    _check("calls to compute", sum(runs for _, _, runs in works), MAX_RUNS)

    def run(_: Mapping[str, Array]) -> Result:
        vectors = []
        for place, asked in enumerate(calls):
            with _of_call(asked, place):
                found = vectors_of_call(asked, most, seed)
            vectors += [_vector(place, each, files) for each in found]
        return Result(report={"vectors": vectors})

    return PlannedWork(
        operands={},
        run=run,
        byte_count=_BYTES_OF_TEXT * elements + sum(work.byte_count for _, work, _ in works),
        products=sum(work.products * runs for _, work, runs in works),
        searches=True,
    )


def _planned(call: ArrayCall, place: int) -> PlannedWork:
    with _of_call(call, place):
        return call.planned(options_for((), call))


@contextmanager
def _of_call(call: ArrayCall, place: int) -> Iterator[None]:
    """Have errors point into the arguments of a call, where operators have no attributes and inputs of their own."""
    sides = {each.side or each.name: f"/{each.name}/type" for each in call.operation.tensors}
    try:
        with pointers_for_sides(**sides):
            yield
    except RequantError as error:
        pointer = (error.pointer or "").removeprefix("/attributes").removeprefix("/inputs")
        error.pointer = f"/calls/{place}/arguments{pointer}"
        raise


def _check(what: str, count: int, limit: int) -> None:
    if count > limit:
        raise LimitError(
            f"there would be {count} {what}; at most {limit} are made. Ask for fewer vectors, or for smaller tensors",
            limit=limit,
            pointer="/count",
        )


def _vector(call: int, vector: CallVector, files: FileFormat | None) -> dict[str, Any]:
    def tensors(found: Mapping[str, TensorValue]) -> list[dict[str, Any]]:
        return [tensor_members(name, each.type, each.data, files) for name, each in found.items()]

    return {
        "call": call,
        "why": [str(each) for each in vector.why],
        "differing": list(vector.differing),
        "inputs": tensors_of(vector.asked, files),
        "expected": tensors(vector.outputs),
        "stages": tensors(vector.stages),
    }


def _tensors(name: str, description: str) -> Member:
    return list_of(
        name, "TensorOfVector", "A tensor, its elements as they are stored, in row-major order.", description, *TENSOR
    )


def call_vectors_operation(operations: Mapping[str, Operation]) -> Operation:
    """Return the operation, for calls of these."""
    return Operation(
        name="call_vectors",
        title="Vectors of calls",
        group="explain",
        summary="Whole tensors worth testing an operator or a product with, each call with the expected outputs, the "
        "stages of the arithmetic and the reasons for its selection.",
        request="Calls of operations, or of operators such as litert.MUL: types, parameters, shapes and attributes "
        "stay as they are, the other tensors get new data in each vector.",
        source="Requant (docs/vectors.md)",
        inputs=(
            CallsInput(name="calls", description="Calls, whose own data are the first vectors.", operations=operations),
        ),
        options=(
            Option(
                name="count",
                kind=Kind.INTEGER,
                description="Maximum number of vectors of each call.",
                default=_DEFAULT_COUNT,
                lowest=1,
                highest=MAX_COUNT,
            ),
            Option(name="seed", kind=Kind.INTEGER, description="Seed of the data that are drawn.", default=0, lowest=0),
            files_option("the vectors"),
        ),
        reply=(
            list_of(
                "vectors",
                "CallVector",
                "A call with data, and what it gives.",
                "By call: its own data first, then what other rules differ on, then what has outputs not seen yet.",
                CALL,
                Member(
                    name="why",
                    kind=Kind.TEXTS,
                    description="How the data were selected, and what they show.",
                    choices=Choices.of(DataReason),
                ),
                Member(
                    name="differing",
                    kind=Kind.TEXTS,
                    description="The kernels, implementations or profiles that give other bits for these data, or "
                    "refuse them.",
                ),
                _tensors("inputs", "All tensors of the call; the numbers of other arguments have no type."),
                _tensors("expected", "The outputs."),
                _tensors("stages", "The intermediate values, of operations that have them."),
            ),
        ),
        reply_title="CallVectorsReply",
        reply_description="The vectors.",
        plan=_plan,
        example={
            "calls": [
                {
                    "operation": "litert.MUL",
                    "arguments": {
                        "input1": {"type": "tensor<4x!quant.uniform<i8:f32, 0.5:3>>", "values": [-100, 3, 120, 7]},
                        "input2": {"type": "tensor<4x!quant.uniform<i8:f32, 0.25:-1>>", "values": [-100, 50, 77, -1]},
                        "output_type": "!quant.uniform<i8:f32, 16.0:5>",
                    },
                }
            ],
            "count": 2,
        },
    )
