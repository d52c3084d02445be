"""A call of a model, over any transport: planned, given its memory, run, and answered with tensors."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial
from typing import TypeVar

import numpy as np

from requant.description import Work
from requant.errors import (
    FieldFault,
    InvalidRequestError,
    PreconditionError,
    RequantError,
    TensorDataError,
)
from requant_service.oip import wire as oip
from requant_service.oip.call import Call
from requant_service.oip.models.conversions import check_input, named_in_model, outputs_of, report_of
from requant_service.oip.models.model import Answer, Model, slot_named
from requant_service.oip.shared_memory import SharedTensors, is_aligned
from requant_service.oip.tensors import InputTensor, OutputTensor
from requant_service.oip.wire import InferenceHead
from requant_service.operations.conversion_call import (
    PlannedConversion,
    WholeConversion,
    WholeResult,
    planned_conversion,
)
from requant_service.operations.conversion_run import convert_in_memory
from requant_service.runtime.runtime import Runtime

Reply = TypeVar("Reply")
Reserve = Callable[[int], Awaitable[None]]

# A tensor of a model that is no conversion is copied out of shared memory if it has no more bytes.
_COPIED = 64 << 10


async def run_in_memory(
    model: Model, head: InferenceHead, call: Call, running: Runtime, reserve: Reserve, reply: Callable[[Answer], Reply]
) -> Reply:
    """Run a call whose inputs are in memory, and return what `reply` makes of its answer.

    Inputs that are in shared memory need not be in `call` yet. `reserve` reserves so many bytes of memory. Raise what
    is wrong with the call, with the place in the request.
    """
    run = _run_job if model.conversion is None else _run_conversion
    if not head.uses_shared_memory:
        return await run(model, head, call, None, running, reserve, reply)
    shared = SharedTensors(head.input_regions, head.output_regions, running)
    try:
        call = await _with_shared_inputs(call, model, head, shared, running, reserve)
        answer = await run(model, head, call, shared, running, reserve, reply)
    except RequantError:
        # It may be about the zeros that replaced missing pages.
        shared.check()
        raise
    shared.check()
    return answer


async def _run_conversion(
    model: Model,
    head: InferenceHead,
    call: Call,
    shared: SharedTensors | None,
    running: Runtime,
    reserve: Reserve,
    reply: Callable[[Answer], Reply],
) -> Reply:
    """Run a model that is a conversion of its first input."""
    x = call.inputs[model.inputs[0].name]
    planned = head.planned or head.whole or await _plan(model, head, call, running)
    if isinstance(planned, WholeConversion):
        return await _run_whole(planned, call, x, shared, running, reserve, reply)
    target = None if shared is None else shared.target("y", planned.output_dtype, planned.output_bytes)
    if target is None:
        await reserve(planned.output_bytes)
    try:
        check = None if shared is None else shared.check
        converted = await convert_in_memory(x.data, planned, running, target, check)
    except (TensorDataError, PreconditionError) as error:
        error.pointer = error.pointer or x.pointer
        raise
    assert isinstance(converted.output, np.ndarray)
    outputs, report = tuple(outputs_of(planned, converted.output, multipliers=True)), report_of(converted.result)
    if shared is None:
        return reply(Answer(outputs, report))
    copied = planned.output_bytes if target is None and "y" in shared.outputs else 0
    return await running.executor.run_array(copied, lambda: reply(Answer(shared.delivered(outputs), report)))


async def _run_whole(
    planned: WholeConversion,
    call: Call,
    x: InputTensor,
    shared: SharedTensors | None,
    running: Runtime,
    reserve: Reserve,
    reply: Callable[[Answer], Reply],
) -> Reply:
    """Run a conversion that takes its input whole."""
    await reserve(planned.work.byte_count)

    def finish(done: WholeResult) -> Reply:
        outputs = outputs_of(done.converted.planned, done.output, multipliers=True, numbers=done.result.numbers)
        report = report_of(done.converted, done.result.members)
        return reply(Answer(tuple(outputs) if shared is None else shared.delivered(tuple(outputs)), report))

    try:
        return await planned.run(x.data, running, finish)
    except RequantError as error:
        if isinstance(error, TensorDataError | PreconditionError):
            error.pointer = error.pointer or x.pointer
        with named_in_model(call):
            raise


async def _run_job(
    model: Model,
    head: InferenceHead,
    call: Call,
    shared: SharedTensors | None,
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
        return reply(answer if shared is None else replace(answer, outputs=shared.delivered(answer.outputs)))

    weight = sum(tensor.data.nbytes for tensor in call.inputs.values())
    match job.work:
        case Work.TEXTS:
            return await running.executor.run_text(job.weight, run)
        case Work.MODULES:
            return await running.executor.run_module(run)
        case Work.ARRAYS:
            return await running.executor.run_array(max(weight, job.weight), run)


async def _with_shared_inputs(
    call: Call, model: Model, head: InferenceHead, shared: SharedTensors, running: Runtime, reserve: Reserve
) -> Call:
    """Return a call with the inputs that are in shared memory, those in place that may be.

    These are the input of a conversion that takes it piece by piece, which only kernels read, and the tensors of
    another model's first input if they are aligned and large. The others are copied: Python reads them repeatedly.
    """
    if not shared.inputs:
        return call
    inputs = dict(call.inputs)
    conversion = model.conversion is not None and not model.needs_input(head.parameters)
    for each in head.heads:
        if each.region is not None:
            data = shared.inputs[each.name].data
            in_place = conversion or (len(data) > _COPIED and is_aligned(data, each.datatype.dtype))
            slot = slot_named(model.inputs[:1], each.name)
            if not in_place or slot is None or slot.copied:
                await reserve(len(data))
                data = await running.executor.run_array(len(data), data.copy)
            inputs[each.name] = oip.tensor_of_blob(each, data)
    return replace(call, inputs=inputs)


async def plan_conversion(model: Model, head: InferenceHead, call: Call, running: Runtime) -> PlannedConversion:
    """Plan a call of a model that is a conversion of its first input, whose data it does not need.

    The plan is kept with the head if it depends on no other input.
    """
    planned = head.planned or await _plan(model, head, call, running)
    assert isinstance(planned, PlannedConversion)
    return planned


async def _plan(model: Model, head: InferenceHead, call: Call, running: Runtime) -> PlannedConversion | WholeConversion:
    assert model.conversion is not None
    conversion = await running.executor.run_text(call.characters, partial(model.conversion, call))
    with named_in_model(call):
        planned = await planned_conversion(conversion, call.characters, running, explained=model.explained)
    check_input(call.inputs[model.inputs[0].name], planned)
    if len(call.inputs) == 1:
        if isinstance(planned, PlannedConversion):
            head.planned = planned
        else:
            head.whole = planned
    return planned


def inputs_of(head: InferenceHead, blobs: oip.Blobs) -> Mapping[str, InputTensor]:
    """Return the inputs of a call by name: those of the head, and those that came in binary."""
    return head.inputs | {each.name: oip.tensor_of_blob(each, blob) for each, blob in blobs}


def chosen_outputs(outputs: Iterable[OutputTensor], head: InferenceHead) -> list[tuple[OutputTensor, bool]]:
    """Return the outputs that are wanted, each with whether it is sent in binary. A model may not give all it has."""
    named = {output.name: output for output in outputs}
    if head.all_wanted:
        # An output of a variadic slot is wanted by the name of that.
        slots = (name if name in head.wanted else name.rpartition("_")[0] for name in named)
        return [(output, head.wanted[slot]) for output, slot in zip(named.values(), slots, strict=True)]
    for name in head.wanted:
        if name not in named:
            detail = f"this call has no output {name}; it has {', '.join(named)}"
            raise InvalidRequestError(detail, (FieldFault("/outputs", "missing", detail),))
    return [(named[name], binary) for name, binary in head.wanted.items() if name in named]
