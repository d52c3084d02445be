"""A call of a model, whatever it came in: planned, given its memory, run, and answered with tensors."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial
from typing import TypeVar

import numpy as np

from core.errors import FieldFault, InvalidRequestError, PreconditionError, TensorDataError
from service.oip import wire as oip
from service.oip.call import Call
from service.oip.inference_head import InferenceHead
from service.oip.models.conversions import check_input, named_in_model, outputs_of, report_of
from service.oip.models.model import Answer, Model
from service.oip.shared_memory.tensors import SharedTensors, is_aligned
from service.oip.tensors import InputTensor, OutputTensor
from service.operations.conversion_call import PlannedConversion, planned_conversion
from service.operations.conversion_run import convert_in_memory
from service.runtime.runtime import Runtime

Reply = TypeVar("Reply")
Reserve = Callable[[int], Awaitable[None]]


async def run_in_memory(
    model: Model, head: InferenceHead, call: Call, running: Runtime, reserve: Reserve, reply: Callable[[Answer], Reply]
) -> Reply:
    """Run a call whose inputs are in memory, and return what `reply` makes of its answer.

    Inputs that are in shared memory need not be in `call` yet. `reserve` reserves so many bytes of memory. Raise what
    is wrong with the call, with the place in the request.
    """
    shared = SharedTensors(head.input_regions, head.output_regions, running)
    with shared.in_use():
        call = await _with_shared_inputs(call, model, head, shared, running, reserve)
        run = _run_job if model.conversion is None else _run_conversion
        return await run(model, head, call, shared, running, reserve, reply)


async def _run_conversion(
    model: Model,
    head: InferenceHead,
    call: Call,
    shared: SharedTensors,
    running: Runtime,
    reserve: Reserve,
    reply: Callable[[Answer], Reply],
) -> Reply:
    """Run a model that is a conversion of its first input."""
    x = call.inputs[model.inputs[0].name]
    planned = await plan_conversion(model, head, call, running)
    target = shared.target("y", planned.output_dtype, planned.output_bytes)
    if target is None:
        await reserve(planned.output_bytes)
    try:
        found = await convert_in_memory(x.data, planned, running, target, shared.check)
    except (TensorDataError, PreconditionError) as error:
        error.pointer = error.pointer or x.pointer
        raise

    def answer() -> Reply:
        assert isinstance(found.output, np.ndarray)
        outputs = outputs_of(planned, found.output, multipliers=True)
        return reply(Answer(shared.delivered(outputs), report_of(found.result)))

    # What is left to do costs little, unless y has to be copied.
    return await running.executor.run_array(planned.output_bytes * (target is None and "y" in shared.outputs), answer)


async def _run_job(
    model: Model,
    head: InferenceHead,
    call: Call,
    shared: SharedTensors,
    running: Runtime,
    reserve: Reserve,
    reply: Callable[[Answer], Reply],
) -> Reply:
    """Run a model that takes its inputs whole."""
    assert model.plan is not None
    job = await running.executor.run_text(call.characters, partial(model.plan, call))
    await reserve(job.byte_count)

    def run() -> Reply:
        for tensor in call.inputs.values():
            oip.check_booleans(tensor)
        answer = job.run()
        return reply(replace(answer, outputs=shared.delivered(answer.outputs)))

    weight = sum(tensor.data.nbytes for tensor in call.inputs.values())
    return await running.executor.run_array(max(weight, job.weight), run)


async def _with_shared_inputs(
    call: Call, model: Model, head: InferenceHead, shared: SharedTensors, running: Runtime, reserve: Reserve
) -> Call:
    """Return a call with the inputs that are in shared memory: the first in place, the others copied.

    A first one that is not aligned is copied too, but for that of a conversion, which is copied piece by piece.
    """
    if not shared.inputs:
        return call
    inputs = dict(call.inputs)
    for each in head.heads:
        if each.region is not None:
            data = shared.inputs[each.name].data
            in_place = model.conversion is not None or is_aligned(data, each.datatype.dtype)
            if each.name != model.inputs[0].name or not in_place:
                await reserve(len(data))
                data = await running.executor.run_array(len(data), data.copy)
            inputs[each.name] = oip.tensor_of_blob(each, data)
    return replace(call, inputs=inputs)


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
