"""Converts a GGUF file in pieces of rows: memory does not depend on its size."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from requant.checkpoint.gguf.importance import ImportanceMatrix
from requant.checkpoint.gguf.plan import GgufPlan, GgufStep, plan_gguf
from requant.checkpoint.gguf.tensor_types import FLOATS, SEARCHED, read_elements, write_elements
from requant.checkpoint.gguf.weights import numbers_of
from requant.checkpoint.run.file_plan import run_certified_plan, run_file_plan, verdicts_of_file
from requant.checkpoint.run.outputs import SourceReader, Stages
from requant.checkpoint.run.run import RunReport
from requant.checkpoint.run.steps import NUMBER_BYTES
from requant.checkpoint.run.verdicts import Verdict, Verdicts
from requant.checkpoint.run.work import Piece, ProgressCallback
from requant.checkpoint.storage.store import FileWriter, Store, read_range
from requant.errors import CheckpointError, PreconditionError

# Elements of a piece, a multiple of all blocks, and the bytes of its buffers for each; of the types that search for
# their scales more.
_ELEMENTS, _BUFFERS, _BUFFERS_OF_SEARCH = 1 << 18, 24, 56


def quantize_gguf(
    source: Store,
    name: str,
    destination: Store,
    output: str,
    type_: str,
    *,
    ignore: Sequence[str] = (),
    pure: bool = False,
    importance: ImportanceMatrix | None = None,
    certify: bool = False,
    threads: int | None = None,
    progress: ProgressCallback | None = None,
) -> RunReport:
    """Convert the GGUF file `name` to the file `output`: to tensors of the type `type_`, or, if that is the name of a
    mixture, to those of its types. Back to floats too: F32, F16, BF16.

    For `requant checkpoint quantize MODEL.gguf DESTINATION.gguf --scheme Q8_0`: `source` and `destination` are the
    stores of the two directories. The bytes equal those of `llama-quantize` (llama.cpp 0.5.0 on x86-64), for one type
    and with `pure` of `--pure`, with `--allow-requantize` where the tensors are quantized, and with `importance` of
    `--imatrix`. `ignore`: names of tensors, or `re:` and a regular expression, that stay as they are. The output has
    its name only when it is complete and durable. `certify`: compare each number of the source with the one that is
    written, and write a manifest with the verdicts beside the file, the file's name and `.requant-manifest.json`.

    Raises before anything is written what `plan_gguf` and `run_file_plan` raise; while it runs, CheckpointError with
    tensor and index for a value that is not finite or beyond the type, and what the stores raise.
    """
    plan = plan_gguf(source, name, output, type_, ignore=ignore, pure=pure, importance=importance)
    if certify:
        return run_certified_plan(plan, source, destination, stages_of_gguf, threads=threads, progress=progress)
    return run_file_plan(plan, source, destination, partial(stages_of_gguf, None), threads=threads, progress=progress)


def verdicts_of_gguf(
    plan: GgufPlan, source: Store, *, threads: int | None = None, progress: ProgressCallback | None = None
) -> Mapping[str, Verdict]:
    """Return the verdicts of a plan, by running it without writing. Raises as `quantize_gguf`."""
    return verdicts_of_file(plan, source, stages_of_gguf, threads=threads, progress=progress)


def stages_of_gguf(
    verdicts: Verdicts | None, plan: GgufPlan, _: str, reader: SourceReader, writer: FileWriter
) -> list[Stages]:
    """Return the work on the file, as `requant.checkpoint.run.file_plan` runs it."""
    return [iter([_pieces(_Work(plan, reader, writer, verdicts))])]


@dataclass(frozen=True, slots=True)
class _Work:
    plan: GgufPlan
    reader: SourceReader
    writer: FileWriter
    verdicts: Verdicts | None


def _pieces(work: _Work) -> Iterator[Piece]:
    plan, reader, writer = work.plan, work.reader, work.writer
    writer.write(0, plan.head)
    reader.counter.add(written=len(plan.head))
    begins = [*(step.output_begin for step in plan.steps), plan.size]
    for step, end in zip(plan.steps, begins[1:], strict=True):
        tensor = step.source
        if step.skip_reason:
            if work.verdicts is not None:
                work.verdicts.copied(tensor.name)
            yield from reader.copy(plan.source, step.begin, step.begin + tensor.size, writer, step.output_begin)
        else:
            buffers = _BUFFERS_OF_SEARCH if step.output.type.name in SEARCHED else _BUFFERS
            buffers += 0 if work.verdicts is None else NUMBER_BYTES
            for first, count in _ranges(step):
                yield Piece(count * buffers, partial(_convert, work, step, first, count))
        written = step.output_begin + step.output.size
        if written < end:
            writer.write(written, bytes(end - written))
            reader.counter.add(written=end - written)


def _ranges(step: GgufStep) -> Iterator[tuple[int, int]]:
    """The first element of each piece, and their number: with an importance whole rows of one expert."""
    matrix, length = step.source.elements, _ELEMENTS
    if step.important:
        columns, rows = (*step.source.dimensions, 1)[:2]
        matrix, length = columns * rows, columns * max(1, _ELEMENTS // columns)
    for begin in range(0, step.source.elements, max(matrix, 1)):
        for first in range(begin, begin + matrix, length):
            yield first, min(length, begin + matrix - first)


def _convert(work: _Work, step: GgufStep, first: int, count: int) -> None:
    plan, reader = work.plan, work.reader
    from_, to = step.source.type, step.output.type
    stored = read_range(reader.store, plan.source, step.begin + from_.size(first), from_.size(count))
    importance = None
    if step.important and plan.importance is not None:
        columns, rows = (*step.source.dimensions, 1)[:2]
        importance = plan.importance.of_columns(step.source.name, columns, first // (columns * rows))
    try:
        written = write_elements(read_elements(stored, from_), to, first=first, importance=importance)
    except PreconditionError as error:
        detail = f"'{step.source.name}' cannot be converted to {to.name}: {error}"
        raise CheckpointError(detail, file=plan.source.name, tensor=step.source.name) from error
    if work.verdicts is not None:
        name, floats = step.source.name, to.name in FLOATS
        work.verdicts.compare(name, numbers_of(stored, from_), numbers_of(written, to), floats=floats)
    work.writer.write(step.output_begin + to.size(first), written.data)
    reader.counter.add(read=stored.size, written=written.size)
