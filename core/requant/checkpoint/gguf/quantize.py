"""Converts a GGUF file in pieces of rows: memory does not depend on its size."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

from requant.checkpoint.gguf.plan import GgufPlan, GgufStep, plan_gguf
from requant.checkpoint.gguf.tensor_types import read_elements, write_elements
from requant.checkpoint.run.file_plan import run_file_plan
from requant.checkpoint.run.outputs import SourceReader
from requant.checkpoint.run.run import RunReport
from requant.checkpoint.run.work import Piece, ProgressCallback
from requant.checkpoint.storage.store import FileWriter, Store, read_range
from requant.errors import CheckpointError, PreconditionError

# Elements of a piece, a multiple of all blocks, and the bytes of its buffers for each.
_ELEMENTS, _BUFFERS = 1 << 18, 24


def quantize_gguf(
    source: Store,
    name: str,
    destination: Store,
    output: str,
    type_: str,
    *,
    ignore: Sequence[str] = (),
    threads: int | None = None,
    progress: ProgressCallback | None = None,
) -> RunReport:
    """Convert the GGUF file `name` to the file `output` with tensors of `type_`. Back to floats too: F32, F16, BF16.

    For `requant checkpoint quantize MODEL.gguf DESTINATION.gguf --scheme Q8_0`: `source` and `destination` are the
    stores of the two directories. The bytes equal those of `llama-quantize --pure` (llama.cpp 0.5.0), with
    `--allow-requantize` where the tensors are quantized. `ignore`: names of tensors, or `re:` and a regular expression,
    that stay as they are. The output has its name only when it is complete and durable.

    Raises before anything is written what `plan_gguf` and `run_file_plan` raise; while it runs, CheckpointError with
    tensor and index for a value that is not finite or beyond the type, and what the stores raise.
    """
    plan = plan_gguf(source, name, output, type_, ignore=ignore)
    return run_file_plan(plan, source, destination, _pieces, threads=threads, progress=progress)


def _pieces(plan: GgufPlan, _: str, reader: SourceReader, writer: FileWriter) -> Iterator[Piece]:
    writer.write(0, plan.head)
    reader.counter.add(written=len(plan.head))
    begins = [*(step.output_begin for step in plan.steps), plan.size]
    for step, end in zip(plan.steps, begins[1:], strict=True):
        tensor = step.source
        if step.skip_reason:
            yield from reader.copy(plan.source, step.begin, step.begin + tensor.size, writer, step.output_begin)
        else:
            for first in range(0, tensor.elements, _ELEMENTS):
                count = min(_ELEMENTS, tensor.elements - first)
                yield Piece(count * _BUFFERS, partial(_convert, plan, step, reader, writer, first, count))
        written = step.output_begin + step.output.size
        if written < end:
            writer.write(written, bytes(end - written))
            reader.counter.add(written=end - written)


def _convert(plan: GgufPlan, step: GgufStep, reader: SourceReader, writer: FileWriter, first: int, count: int) -> None:
    from_, to = step.source.type, step.output.type
    stored = read_range(reader.store, plan.source, step.begin + from_.size(first), from_.size(count))
    try:
        written = write_elements(read_elements(stored, from_), to, first=first)
    except PreconditionError as error:
        detail = f"'{step.source.name}' cannot be converted to {to.name}: {error}"
        raise CheckpointError(detail, file=plan.source.name, tensor=step.source.name) from error
    writer.write(step.output_begin + to.size(first), written.data)
    reader.counter.add(read=stored.size, written=written.size)
