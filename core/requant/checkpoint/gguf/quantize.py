"""Converts a GGUF file in pieces of rows: memory does not depend on its size."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from requant.checkpoint.gguf.header import read_header
from requant.checkpoint.gguf.plan import GgufPlan, GgufStep, plan_gguf
from requant.checkpoint.gguf.tensor_types import read_elements, write_elements
from requant.checkpoint.run.destination import FinishedFile
from requant.checkpoint.run.work import (
    Piece,
    Progress,
    ProgressCallback,
    ProgressCounter,
    WorkItem,
    default_threads,
    run_items,
)
from requant.checkpoint.storage.store import FileWriter, Store, check_new, file_named, read_range
from requant.errors import CheckpointError, PreconditionError

# Elements of a piece, a multiple of all blocks, and the bytes of its buffers for each; bytes of a piece that is copied.
_ELEMENTS, _BUFFERS, _COPIED = 1 << 18, 24, 4 << 20


@dataclass(frozen=True, slots=True)
class GgufResult:
    """What was done, and the SHA-256 of the output in hex."""

    plan: GgufPlan
    sha256: str

    @property
    def files(self) -> tuple[FinishedFile, ...]:
        """What was written."""
        return (FinishedFile(self.plan.output, self.plan.size, self.sha256),)


def plan_gguf_file(source: Store, name: str, output: str, type_: str, *, ignore: Sequence[str] = ()) -> GgufPlan:
    """Return the plan for the file `name` of a store; nothing is written.

    Raises what `read_header` and `plan_gguf` raise, and StorageError where there is no such file.
    """
    file = file_named(source, name)
    return plan_gguf(read_header(source, file), file, output, type_, ignore)


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
) -> GgufResult:
    """Convert the GGUF file `name` to the file `output` with tensors of `type_`. Back to floats too: F32, F16, BF16.

    For `requant checkpoint quantize MODEL.gguf DESTINATION.gguf --type Q8_0`: `source` and `destination` are the stores
    of the two directories. The bytes equal those of `llama-quantize --pure` (llama.cpp 0.5.0), with
    `--allow-requantize` where the tensors are quantized. `ignore`: names of tensors, or `re:` and a regular expression,
    that stay as they are. The output has its name only when it is complete and durable.

    Raises before anything is written what `plan_gguf_file` raises, DestinationError where `output` is there already and
    StorageError where it does not fit; while it runs, CheckpointError with tensor and index for a value that is not
    finite or beyond the type, and what the stores raise.
    """
    plan = plan_gguf_file(source, name, output, type_, ignore=ignore)
    check_new(destination, {output: plan.size})
    counter = ProgressCounter(
        progress,
        Progress(bytes_to_read=sum(step.source.size for step in plan.steps), bytes_to_write=plan.size, outputs=1),
    )
    with destination.create(output, plan.size) as writer:
        writer.write(0, plan.head)
        counter.add(written=len(plan.head))
        pieces = _pieces(plan, source, writer, counter)
        run_items([WorkItem(iter([pieces]), lambda: None)], threads or default_threads())
        digest = writer.commit()
        counter.add(finished=1)
    return GgufResult(plan, digest)


def _pieces(plan: GgufPlan, source: Store, writer: FileWriter, counter: ProgressCounter) -> Iterator[Piece]:
    begins = [*(step.output_begin for step in plan.steps), plan.size]
    for step, end in zip(plan.steps, begins[1:], strict=True):
        if step.kept:
            for at in range(0, step.source.size, _COPIED):
                size = min(_COPIED, step.source.size - at)
                yield Piece(size, partial(_copy, plan, step, source, writer, counter, at, size))
        else:
            for first in range(0, step.source.elements, _ELEMENTS):
                count = min(_ELEMENTS, step.source.elements - first)
                yield Piece(count * _BUFFERS, partial(_convert, plan, step, source, writer, counter, first, count))
        written = step.output_begin + step.output.size
        if written < end:
            writer.write(written, bytes(end - written))
            counter.add(written=end - written)


def _copy(
    plan: GgufPlan, step: GgufStep, source: Store, writer: FileWriter, counter: ProgressCounter, at: int, size: int
) -> None:
    writer.write(step.output_begin + at, read_range(source, plan.source, step.begin + at, size).data)
    counter.add(read=size, written=size)


def _convert(
    plan: GgufPlan, step: GgufStep, source: Store, writer: FileWriter, counter: ProgressCounter, first: int, count: int
) -> None:
    from_, to = step.source.type, step.output.type
    stored = read_range(source, plan.source, step.begin + from_.size(first), from_.size(count))
    try:
        written = write_elements(read_elements(stored, from_), to, first=first)
    except PreconditionError as error:
        detail = f"'{step.source.name}' cannot be converted to {to.name}: {error}"
        raise CheckpointError(detail, file=plan.source.name, tensor=step.source.name) from error
    writer.write(step.output_begin + to.size(first), written.data)
    counter.add(read=stored.size, written=written.size)
