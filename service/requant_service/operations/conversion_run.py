"""How a conversion is run, for every protocol: while its input arrives, or while its output leaves.

Where the output is no larger than the input, each piece of the body is converted when it is there, and only the output
is kept: after the last byte it is done. Where the output is larger, the input is kept, and converted piece by piece as
the client takes the reply; nothing of the tensor's size is held twice. In both cases the reply begins when the whole
body was received: its length and its report are known by then, and a client that sends everything before it reads would
wait for ever otherwise. Small pieces are converted on the event loop, others in threads, side by side. An input that
is in memory already is converted the same way, but one that was decoded from text, by the thread that has decoded it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from typing import NamedTuple

import numpy as np

from requant.plan.plan import COPIED, WHOLE, Array, Conversion, merged
from requant_service.http.request_body import BodyReader
from requant_service.operations.conversion_call import ConversionResult, PlannedConversion
from requant_service.runtime.executor import Executor
from requant_service.runtime.metrics import Metrics
from requant_service.runtime.runtime import Runtime

# Elements of a piece: input and output of it together stay in a CPU's own cache.
_PIECE = 64 << 10
# At most so many where there are threads to take turns: a change of thread costs as much as many elements. Each thread
# has so many pieces, if that makes shorter ones, so that they all end at about the same time.
_LONGEST = 4 << 20
_PIECES_FOR_THREAD = 2
# An input up to here is one piece, and an output up to here is kept, however small the input is.
_SMALL_INPUT = 16 << 10
_SMALL_OUTPUT = 1 << 20

Work = tuple[int, Callable[[], Array]]


class Converted(NamedTuple):
    """What a conversion gives. `output` is what travels: an array, or the pieces of one, made as they are taken."""

    result: ConversionResult
    output: Array | AsyncIterator[memoryview]


async def convert_body(
    reader: BodyReader,
    planned: PlannedConversion,
    running: Runtime,
    check: Callable[[int], None],
    *,
    whole: bool = False,
) -> Converted:
    """Convert the elements that come next in a body.

    `check` is called at the end of the body, and raises what is wrong with so many bytes of it. `whole` asks for the
    output as one array. Raise TensorDataError for a number that its type does not hold, PreconditionError for an
    element that the arithmetic is not defined for.
    """
    if whole or keeps_output(planned):
        await reader.reserve(planned.output_bytes)
        tally, output = await convert_arriving(reader, planned, running.executor)
        if not reader.at_end:
            await reader.skip_rest()
        check(reader.received)
        return Converted(planned.result(tally, running.metrics), output)
    data = await reader.take(planned.input_bytes)
    await reader.skip_rest()
    check(reader.received)
    return await _convert_leaving(data.view(planned.input_dtype), planned, running)


async def convert_received(
    source: Array, planned: PlannedConversion, running: Runtime, reserve: Callable[[int], Awaitable[None]]
) -> Converted:
    """Convert an input that was received whole, as `convert_body` does one that arrives."""
    if not keeps_output(planned):
        return await _convert_leaving(source, planned, running)
    await reserve(planned.output_bytes)
    work = partial(convert_array, source, planned, running.metrics)
    return await running.executor.run_array(source.nbytes, work, planned.kind)


async def _convert_leaving(source: Array, planned: PlannedConversion, running: Runtime) -> Converted:
    tally = await examine(source, planned, running.executor)
    pieces = convert_leaving(source, planned, running.executor)
    return Converted(planned.result(tally, running.metrics), pieces)


async def convert_in_memory(
    source: Array,
    planned: PlannedConversion,
    running: Runtime,
    target: Array | None = None,
    check: Callable[[], None] | None = None,
) -> Converted:
    """Convert an input that is in memory. Raise what `convert_body` does.

    The output is `target`, if that is given: a flat array of the dtype and the entries of the output. `check` is called
    after each piece, and may raise what ends the work. An input at odd addresses is copied, piece by piece.
    """
    executor = running.executor
    most = _largest_piece(source, planned.elements // (_PIECES_FOR_THREAD * running.settings.threads))
    if planned.elements <= most:
        work = partial(convert_array, source, planned, running.metrics, target, check)
        return await executor.run_array(source.nbytes, work, planned.kind)
    output = np.empty(planned.output_entries, planned.output_dtype) if target is None else target

    async def works() -> AsyncIterator[Work]:
        for first, last in planned.pieces(0, planned.elements, most):
            size = (planned.input_at(last) - planned.input_at(first)) * planned.input_dtype.itemsize
            yield size, partial(planned.run_piece, source, output, first, last, check)

    tallies = [counts async for counts in executor.run_pieces(planned.kind, works())]
    return Converted(planned.result(merged(tallies, planned.plan.new_counts()), running.metrics), output)


def convert_array(
    source: Array,
    planned: PlannedConversion,
    metrics: Metrics,
    target: Array | None = None,
    check: Callable[[], None] | None = None,
) -> Converted:
    """Convert an input that is in memory, as `convert_in_memory` does: work for a thread."""
    output = np.empty(planned.output_entries, planned.output_dtype) if target is None else target
    tally = planned.run(source, output, check)
    return Converted(planned.result(tally, metrics), output)


def _largest_piece(source: Array, share: int) -> int:
    """Return how many elements of an input in memory are converted at once: about `share`, between two bounds, or fewer
    if they have to be copied before.
    """
    return min(max(share, WHOLE), _LONGEST) if source.flags.aligned else COPIED


def keeps_output(conversion: Conversion) -> bool:
    """Return whether it is the output that is kept, and not the input."""
    return conversion.output_bytes <= max(conversion.input_bytes, _SMALL_OUTPUT)


async def convert_arriving(reader: BodyReader, conversion: Conversion, executor: Executor) -> tuple[Array, Array]:
    """Convert what `reader` has left as it arrives. Return the tally and the output as it travels.

    If the body ends early, the rest of the output is not written. Raise TensorDataError as Conversion.step does.
    """
    output = np.empty(conversion.output_entries, conversion.output_dtype)
    arrived = await reader.elements(conversion.input_dtype, conversion.input_group, conversion.input_entries)
    tally = conversion.plan.new_counts()
    if arrived.size == conversion.input_entries and arrived.nbytes <= _SMALL_INPUT:
        conversion.step(arrived, output, 0, tally)
        return tally, output

    def convert(source: Array, first: int, last: int) -> Array:
        counts = conversion.plan.new_counts()
        conversion.step(source, output[conversion.output_at(first) : conversion.output_at(last)], first, counts)
        return counts

    async def works() -> AsyncIterator[Work]:
        nonlocal arrived
        entry = 0
        while arrived.size:
            start, stop = conversion.element_at(entry), conversion.element_at(entry + arrived.size)
            for first, last in conversion.pieces(start, stop, _PIECE):
                source = arrived[conversion.input_at(first) - entry : conversion.input_at(last) - entry]
                yield source.nbytes, partial(convert, source, first, last)
            entry += arrived.size
            missing = conversion.input_entries - entry
            arrived = await reader.elements(conversion.input_dtype, conversion.input_group, missing)

    tallies = [counts async for counts in executor.run_pieces(conversion.kind, works())]
    return merged(tallies, tally), output


async def examine(source: Array, conversion: Conversion, executor: Executor) -> Array:
    """Look at all of a kept input before the reply begins. Return the tally.

    Raise TensorDataError as Conversion.step does.
    """

    counts = conversion.plan.tallies

    def look(piece: Array, first: int, last: int) -> Array:
        tally = conversion.plan.new_counts()
        if counts:
            conversion.step(piece, _room(conversion, first, last), first, tally)
        else:
            conversion.check(piece, first)
        return tally

    works = _kept(source, conversion, look)
    tallies = [tally async for tally in executor.run_pieces((*conversion.kind, counts), works)]
    return merged(tallies, conversion.plan.new_counts())


async def convert_leaving(source: Array, conversion: Conversion, executor: Executor) -> AsyncIterator[memoryview]:
    """Convert a kept input, and yield the output as it travels in pieces, as fast as they are taken."""

    def convert(piece: Array, first: int, last: int) -> Array:
        target = _room(conversion, first, last)
        conversion.step(piece, target, first, conversion.plan.new_counts())
        return target

    async for target in executor.run_pieces(conversion.kind, _kept(source, conversion, convert)):
        yield target.view(np.uint8).data
        # A client that takes all at once does not make the others wait.
        await asyncio.sleep(0)


def _room(conversion: Conversion, first: int, last: int) -> Array:
    return np.empty(conversion.output_at(last) - conversion.output_at(first), conversion.output_dtype)


async def _kept(source: Array, conversion: Conversion, work: Callable[[Array, int, int], Array]) -> AsyncIterator[Work]:
    for first, last in conversion.pieces(0, conversion.elements, _PIECE):
        piece = source[conversion.input_at(first) : conversion.input_at(last)]
        yield piece.nbytes, partial(work, piece, first, last)
