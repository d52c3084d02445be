"""The tasks that quantize a checkpoint.

Each output has the name of a file of the source, and the tensors of that file: as they are, or what a weight becomes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from requant.checkpoint.plan.directory.source import BYTES_PER_TENSOR, Reserve, Source, unlimited
from requant.checkpoint.plan.experts import MAX_EXPERTS, hidden_size, is_stacked, matrices
from requant.checkpoint.plan.fused_sets import FusedSet, fused_sets
from requant.checkpoint.plan.model import CopyStep, QuantizeStep, Request, SourceRange, Task
from requant.checkpoint.plan.names import ignoring
from requant.checkpoint.plan.refusals import Refusals
from requant.checkpoint.plan.selection import Selection
from requant.checkpoint.safetensors.header import TensorEntry
from requant.checkpoint.safetensors.writer import layout
from requant.checkpoint.weights.weight_format import StoredTensor, WeightFormat
from requant.errors import CheckpointError, excerpt
from requant.errors.cancellation import checked

_FLOATS = ("BF16", "F16", "F32")
# Matching a name may take a millisecond.
_TENSORS_BETWEEN_CHECKS = 16


@dataclass(frozen=True, slots=True)
class _Placed:
    """A tensor of the source, or a matrix of one, and the file in which it ends up."""

    name: str
    source: SourceRange
    output: str


def quantization_tasks(
    source: Source,
    request: Request,
    weight_format: WeightFormat,
    *,
    fused: bool,
    metadata: dict[str, str] | None,
    reserve: Reserve = unlimited,
) -> tuple[tuple[Task, ...], Selection]:
    """Return a task for each file that has a tensor left, and the selection that was made.

    `fused`: whether fused sets are brought together and share a scale. `reserve`: as in `read_source`. Raises
    CheckpointError with all refusals.
    """
    refusals = Refusals()
    selection = Selection(request.targets, request.ignore)
    placed = _placed(source, fused, refusals, reserve)
    chosen = _chosen(placed, selection, weight_format, refusals)
    refusals.raise_any()
    if chosen and not any(chosen.values()):
        name = next(iter(chosen))
        raise CheckpointError(
            f"nothing to quantize: the scheme leaves weights of such shapes as they are, all {len(chosen)} that were "
            f"chosen; for example '{excerpt(name)}' {list(placed[name].source.shape)}. Choose another scheme",
            tensor=name,
        )
    if not chosen:
        raise CheckpointError(
            f"nothing to quantize: no .weight tensor remains after applying targets {list(request.targets)} and "
            f"ignore {list(request.ignore)}; with an empty ignore (--ignore none) all are quantized that targets choose"
        )
    partners = _partners(placed, chosen) if fused else {}
    by_output: dict[str, list[_Placed]] = {}
    for each in checked(placed.values()):
        by_output.setdefault(each.output, []).append(each)
    tasks = []
    for output in sorted(by_output):
        steps: list[CopyStep | QuantizeStep] = []
        tensors: list[tuple[str, str, tuple[int, ...]]] = []
        for each in checked(by_output[output]):
            stored = chosen.get(each.name)
            if not stored:
                steps.append(CopyStep(each.source, each.name))
                tensors.append((each.name, each.source.dtype, each.source.shape))
                continue
            module = each.name.removesuffix(".weight")
            steps.append(QuantizeStep(module, each.source, weight_format, partners.get(each.name, ())))
            tensors += [(f"{module}.{tensor.suffix}", tensor.dtype, tensor.shape) for tensor in stored]
        try:
            header = layout(tensors, metadata)
        except CheckpointError as error:
            refusals.take(error, file=output, tensor=error.tensor)
            continue
        tasks.append(Task(output, header, tuple(steps)))
    _check_names(tasks, refusals)
    refusals.raise_any()
    return tuple(tasks), selection


def _placed(source: Source, fused: bool, refusals: Refusals, reserve: Reserve) -> dict[str, _Placed]:
    """Return all tensors, experts taken apart, by their names."""
    hidden = hidden_size(source.config)
    homes: dict[str, str] = {}
    if fused:
        owners = {entry.name: name for name, shard in source.shards.items() for entry in shard.header.tensors}
        for each in fused_sets(owners):
            if each.moved:
                homes |= dict.fromkeys(each.weights, owners[each.weights[0]])
    placed: dict[str, _Placed] = {}
    for file, shard in source.shards.items():
        for entry in checked(shard.header.tensors):
            try:
                for name, part in checked(_parts(file, entry, hidden, reserve)):
                    if name in placed:
                        refusals.add(f"two tensors would be named '{name}'", file=file, tensor=entry.name)
                    placed[name] = _Placed(name, part, homes.get(entry.name, file))
            except CheckpointError as error:
                refusals.take(error, file=file, tensor=entry.name)
    return placed


def _parts(file: str, entry: TensorEntry, hidden: int | None, reserve: Reserve) -> Iterator[tuple[str, SourceRange]]:
    if is_stacked(entry):
        # Up to four names for each of two matrices.
        reserve(min(entry.shape[0], MAX_EXPERTS) * 2 * (BYTES_PER_TENSOR + 4 * len(entry.name)))
        yield from matrices(file, entry, hidden)
    else:
        yield entry.name, SourceRange(file, entry.name, entry.dtype, entry.shape, entry.begin, entry.end)


def _chosen(
    placed: dict[str, _Placed], selection: Selection, weight_format: WeightFormat, refusals: Refusals
) -> dict[str, tuple[StoredTensor, ...]]:
    """Return the step for each quantized weight."""
    chosen: dict[str, tuple[StoredTensor, ...]] = {}
    known: dict[tuple[str, tuple[int, ...]], tuple[StoredTensor, ...] | CheckpointError] = {}
    modules: list[str] = []
    for name, each in checked(placed.items(), _TENSORS_BETWEEN_CHECKS):
        if selection.kept(name) is not None:
            continue
        dtype, shape = each.source.dtype, each.source.shape
        if (dtype, shape) not in known:
            known[dtype, shape] = _stored(weight_format, dtype, shape)
        stored = known[dtype, shape]
        if isinstance(stored, CheckpointError):
            refusals.take(stored, file=each.source.file, tensor=name)
            modules.append(name.removesuffix(".weight"))
        else:
            chosen[name] = stored
    if modules:
        refusals.advice.append(f"To leave them unquantized, add to ignore: {ignoring(modules)}")
    return chosen


def _stored(
    weight_format: WeightFormat, dtype: str, shape: tuple[int, ...]
) -> tuple[StoredTensor, ...] | CheckpointError:
    if len(shape) != 2:
        return CheckpointError(f"has shape {list(shape)}; only matrices [out, in] can be quantized")
    if dtype not in _FLOATS:
        return CheckpointError(f"is {dtype}; only {', '.join(_FLOATS)} can be quantized")
    try:
        return weight_format.stored(dtype, (shape[0], shape[1]))
    except CheckpointError as error:
        return error


def _partners(
    placed: dict[str, _Placed], chosen: dict[str, tuple[StoredTensor, ...]]
) -> dict[str, tuple[SourceRange, ...]]:
    """Return the other weights whose extremes count for the scale of each: the quantized ones of its set."""
    partners: dict[str, tuple[SourceRange, ...]] = {}
    for each in fused_sets(placed):
        if not shares_scale(each, {name: placed[name].output for name in each.weights}):
            continue
        quantized = [name for name in each.weights if chosen.get(name)]
        for name in quantized:
            partners[name] = tuple(placed[other].source for other in quantized if other != name)
    return partners


def shares_scale(each: FusedSet, outputs: dict[str, str]) -> bool:
    """Return whether the members of a set get one global scale. `outputs`: the file of each."""
    return each.sharing and each.complete and len({outputs[name] for name in each.weights}) == 1


def _check_names(tasks: list[Task], refusals: Refusals) -> None:
    places: dict[str, str] = {}
    for task in tasks:
        for entry in checked(task.header.tensors):
            other = places.setdefault(entry.name, task.output)
            if other != task.output:
                refusals.add(f"{other} would have a tensor of the same name", file=task.output, tensor=entry.name)
