"""A call of a model, whatever it came in: planned, given its memory, run, and answered with tensors."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import TypeVar

import numpy as np

from core.errors import FieldFault, InvalidRequestError, PreconditionError, TensorDataError
from service.oip import wire as oip
from service.oip.call import Call
from service.oip.inference_head import InferenceHead
from service.oip.models.conversions import check_input, named_in_model, outputs_of, report_of
from service.oip.models.model import Answer, Model
from service.oip.tensors import InputTensor, OutputTensor
from service.operations.conversion_call import PlannedConversion, planned_conversion
from service.operations.conversion_run import convert_array
from service.runtime.runtime import Runtime

Reply = TypeVar("Reply")
Reserve = Callable[[int], Awaitable[None]]


async def run_in_memory(
    model: Model, head: InferenceHead, call: Call, running: Runtime, reserve: Reserve, reply: Callable[[Answer], Reply]
) -> Reply:
    """Run a call whose inputs are in memory, and return what `reply` makes of its answer, in the same thread.

    `reserve` reserves so many bytes of memory. Raise what is wrong with the call, with the place in the request.
    """
    weight = sum(tensor.data.nbytes for tensor in call.inputs.values())
    if model.conversion is not None:
        x = call.inputs[model.inputs[0].name]
        planned = await plan_conversion(model, head, call, running)
        await reserve(planned.output_bytes)

        def convert() -> Reply:
            with pointing_at(x.pointer):
                found = convert_array(x.data, planned, running.metrics)
            assert isinstance(found.output, np.ndarray)
            outputs = outputs_of(planned, found.output, multipliers=True)
            return reply(Answer(tuple(outputs), report_of(found.result)))

        return await running.executor.run_array(weight, convert)
    assert model.plan is not None
    job = await running.executor.run_text(call.characters, partial(model.plan, call))
    await reserve(job.byte_count)

    def run() -> Reply:
        for tensor in call.inputs.values():
            oip.check_booleans(tensor)
        return reply(job.run())

    return await running.executor.run_array(max(weight, job.weight), run)


async def plan_conversion(model: Model, head: InferenceHead, call: Call, running: Runtime) -> PlannedConversion:
    """Plan a call of a model that is a conversion of its first input, whose data it does not need.

    The plan is kept with the head if it depends on no other input.
    """
    if head.planned is not None:
        return head.planned
    assert model.conversion is not None
    conversion = await running.executor.run_text(call.characters, partial(model.conversion, call))
    with named_in_model(call.inputs):
        planned = await planned_conversion(conversion, call.characters, running)
    check_input(call.inputs[model.inputs[0].name], planned)
    if len(call.inputs) == 1:
        head.planned = planned
    return planned


def inputs_of(head: InferenceHead, blobs: oip.Blobs) -> Mapping[str, InputTensor]:
    """Return the inputs of a call by name: those of the head, and those that came in binary."""
    return head.inputs | {each.name: oip.tensor_of_blob(each, blob) for each, blob in blobs}


def chosen_outputs(outputs: Iterable[OutputTensor], head: InferenceHead) -> list[tuple[OutputTensor, bool]]:
    """Return the outputs that are wanted, each with whether it is sent in binary. A model may not give all it has."""
    given = {output.name: output for output in outputs}
    for name in head.wanted:
        if name not in given and not head.all_wanted:
            detail = f"this call has no output {name}; it has {', '.join(given)}"
            raise InvalidRequestError(detail, (FieldFault("/outputs", "missing", detail),))
    return [(given[name], binary) for name, binary in head.wanted.items() if name in given]


@contextmanager
def pointing_at(pointer: str) -> Iterator[None]:
    """Point at an input where the error of a conversion says no more than that its elements are wrong."""
    try:
        yield
    except (TensorDataError, PreconditionError) as error:
        error.pointer = error.pointer or pointer
        raise
