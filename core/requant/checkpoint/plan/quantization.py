"""The tasks that quantize a checkpoint.

Each output has the name of a file of the source, and the tensors of that file: as they are, or what a weight becomes.

Experts that a checkpoint stores as one tensor of rank 3 are split into the matrices of linear modules:

    X.gate_up_proj [experts, 2 * intermediate, hidden] -> X.<e>.gate_proj.weight, X.<e>.up_proj.weight
    X.down_proj    [experts, hidden, intermediate]     -> X.<e>.down_proj.weight

Source: llm-compressor 0.14, `split_fused_moe_experts` (`entrypoints/model_free/converter.py`), which also takes
`X.gate_up_proj.weight`, and splits whether or not the experts are ignored.

Weights that loaders fuse into one matrix need one scheme, and with NVFP4 one global scale. With NVFP4 llm-compressor
brings such a set together in one shard, that of its first member, and gives it one global scale. The names for which it
does the one and the other are not the same: it brings `feed_forward.gate_proj` and `up_proj` together and lets each
keep its own scale, and it gives `cross_attn.q_proj`, `k_proj` and `v_proj` one scale only where they are in one shard
already.

Source: llm-compressor 0.14, `entrypoints/model_free/microscale.py` and `helpers.py`. There, members of one shard are
paired in the order of their names; here, by their parent. These differ where a shard holds parts of sets that are not
brought together, for which llm-compressor fails or takes members of two parents for a set.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from requant.checkpoint.plan.dequantization import SourceTensor, plain_step
from requant.checkpoint.plan.model import (
    QuantizeStep,
    Repack,
    Request,
    SourceRange,
    Step,
    Task,
    WeightSource,
    is_plain,
    shape_of,
)
from requant.checkpoint.plan.refusals import BELOW, OF_OUTPUT, Refusals, ignore_patterns_for
from requant.checkpoint.plan.source import BYTES_PER_TENSOR, Reserve, unlimited
from requant.checkpoint.safetensors.writer import layout
from requant.checkpoint.selection import Selection
from requant.checkpoint.weights.weight_format import StoredTensor, WeightFormat
from requant.errors import CheckpointError, excerpt
from requant.errors.cancellation import checked

MAX_EXPERTS = 8192
"""Of one tensor. Models have hundreds."""

_PARTS = {"gate_up_proj": ("gate_proj", "up_proj"), "down_proj": ("down_proj",)}


def is_stacked(stored: SourceRange) -> bool:
    """Return whether a tensor holds the matrices of several experts."""
    return len(stored.shape) == 3 and any(key in stored.tensor for key in _PARTS)


def matrices(stored: SourceRange, hidden: int | None) -> Iterator[tuple[str, SourceRange]]:
    """Yield the name and the place of each matrix. `hidden`: the model's hidden size, if config.json has it.

    Raises CheckpointError where the tensor cannot be split so, or the hidden size shows that its matrices are stored
    [in, out], as those of gpt-oss and Llama 4 are.
    """
    keys = [key for key in _PARTS if key in stored.tensor]
    if len(keys) > 1:
        raise CheckpointError(
            f"the name contains {' and '.join(keys)}; expected exactly one of them, which determines how to split it"
        )
    key, (experts, rows, columns) = keys[0], stored.shape
    parts = _PARTS[key]
    if experts > MAX_EXPERTS:
        raise CheckpointError(f"shape {list(stored.shape)}: {experts} experts; at most {MAX_EXPERTS} are split")
    if rows % len(parts):
        raise CheckpointError(f"shape {list(stored.shape)} cannot be split into {' and '.join(parts)}: {rows} is odd")
    both = key == "gate_up_proj"
    if hidden is not None and hidden != (columns if both else rows):
        expected = f"[experts, 2 * intermediate, {hidden}]" if both else f"[experts, {hidden}, intermediate]"
        raise CheckpointError(
            f"shape {list(stored.shape)}; expected {expected} by hidden_size of config.json. This model stores the "
            "experts' matrices differently, and they cannot be split into linear modules"
        )
    size = stored.byte_count // (experts * len(parts)) if experts else 0
    begin = stored.begin
    for expert in range(experts):
        for part in parts:
            name = stored.tensor.replace(key, f"{expert}.{part}")
            name = name if name.endswith(".weight") else f"{name}.weight"
            shape = (rows // len(parts), columns)
            yield name, SourceRange(stored.file, stored.tensor, stored.dtype, shape, begin, begin + size)
            begin += size


def hidden_size(config: Mapping[str, object]) -> int | None:
    """Return the hidden size of the language model, None if config.json does not have it."""
    for part in (config.get("text_config"), config):
        if isinstance(part, dict) and isinstance(part.get("hidden_size"), int):
            return int(part["hidden_size"])
    return None


_WEIGHT = ".weight"


@dataclass(frozen=True, slots=True)
class _Kind:
    """`members`: the last parts of the modules' names, the first first. `moved`, `sharing`: for what stands before.

    `moved` matches `<parent>.`, `sharing` the parent with whatever stands before the member's name.
    """

    members: tuple[str, ...]
    moved: re.Pattern[str]
    sharing: re.Pattern[str]


_KINDS = (
    _Kind(
        ("q_proj", "k_proj", "v_proj"),
        re.compile(r".+\.(?:attn|attention|self_attn|self_attention)\."),
        re.compile(r".*(?:attn|attention)\."),
    ),
    _Kind(
        ("wq_a", "wkv_a_with_mqa"),
        re.compile(r".+\.(?:attn|attention|self_attn)\."),
        re.compile(r".*(?:attn|attention)\."),
    ),
    _Kind(("gate_proj", "up_proj"), re.compile(r".+\.(?:mlp|feed_forward)\."), re.compile(r".*mlp\.")),
    _Kind(("w1", "w3"), re.compile(r".+\."), re.compile(r".*")),
)


@dataclass(frozen=True, slots=True)
class FusedSet:
    """The weights of one parent that are fused, by the names of their tensors, the first first.

    `moved`: whether llm-compressor brings them into the shard of the first. `sharing`: whether it gives those in one
    shard one global scale, if all are there. `complete`: whether all members are in the checkpoint.
    """

    weights: tuple[str, ...]
    moved: bool
    sharing: bool
    complete: bool

    @property
    def name(self) -> str:
        """The modules, written once: `model.layers.0.mlp.gate_proj/up_proj`."""
        first, *others = (weight.removesuffix(_WEIGHT) for weight in self.weights)
        return "/".join([first, *(other.rpartition(".")[2] for other in others)])


def fused_sets(tensors: Iterable[str]) -> list[FusedSet]:
    """Return the sets among tensors, in the order of their first members."""
    members_by_parent: dict[tuple[int, str], dict[str, str]] = {}
    for name in tensors:
        if not name.endswith(_WEIGHT):
            continue
        module = name.removesuffix(_WEIGHT)
        for number, kind in enumerate(_KINDS):
            for member in kind.members:
                if module.endswith(member):
                    members_by_parent.setdefault((number, module.removesuffix(member)), {})[member] = name
    sets = []
    for (number, before), weights in members_by_parent.items():
        kind = _KINDS[number]
        moved, sharing = kind.moved.fullmatch(before), kind.sharing.fullmatch(before)
        a_parent = not before or before.endswith(".")
        if (a_parent or sharing) and len(weights) > 1:
            ordered = tuple(weights[member] for member in kind.members if member in weights)
            whole = len(weights) == len(kind.members)
            sets.append(FusedSet(ordered, moved is not None and kind.members[0] in weights, sharing is not None, whole))
    return sets


_FLOATS = ("BF16", "F16", "F32")
# Matching a name may take a millisecond.
_TENSORS_BETWEEN_CHECKS = 16


@dataclass(frozen=True, slots=True)
class _Placed:
    """A tensor of the source, or a matrix of one, and the file in which it ends up."""

    name: str
    source: WeightSource
    output: str


def quantization_tasks(
    tensors: Iterable[SourceTensor],
    config: Mapping[str, object],
    request: Request,
    weight_format: WeightFormat,
    *,
    fused: bool,
    metadata: dict[str, str] | None,
    reserve: Reserve = unlimited,
) -> tuple[tuple[Task, ...], Selection]:
    """Return a task for each file that has a tensor left, and the selection that was made.

    `tensors`, `config`: of the checkpoint, as they are without quantization. `fused`: whether fused sets are brought
    together and share a scale. `reserve`: as in `read_source`. Raises CheckpointError with all refusals.
    """
    refusals = Refusals()
    selection = Selection(request.targets, request.ignore)
    placed = _placed(tuple(tensors), config, fused, refusals, reserve)
    only_quantized = request.repack is not Repack.NO
    chosen = _chosen(placed, selection, weight_format, refusals, only_quantized=only_quantized)
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
            f"ignore {list(request.ignore)}: choose others. With an empty ignore (--ignore none) all are quantized "
            "that targets choose"
        )
    partners = _partners(placed, chosen) if fused else {}
    by_output: dict[str, list[_Placed]] = {}
    for each in checked(placed.values()):
        by_output.setdefault(each.output, []).append(each)
    tasks = []
    for output in sorted(by_output):
        steps: list[Step] = []
        outputs: list[tuple[str, str, tuple[int, ...]]] = []
        for each in checked(by_output[output]):
            stored = chosen.get(each.name)
            if not stored:
                steps.append(plain_step(SourceTensor(each.name, each.source)))
                outputs.append((each.name, each.source.dtype, shape_of(each.source)))
                continue
            module = each.name.removesuffix(".weight")
            steps.append(QuantizeStep(module, each.source, weight_format, partners.get(each.name, ())))
            outputs += [(f"{module}.{tensor.suffix}", tensor.dtype, tensor.shape) for tensor in stored]
        try:
            header = layout(outputs, metadata)
        except CheckpointError as error:
            refusals.add_error(error, OF_OUTPUT, file=output, tensor=error.tensor)
            continue
        tasks.append(Task(output, header, tuple(steps)))
    _check_names(tasks, refusals)
    refusals.raise_any()
    return tuple(tasks), selection


def _placed(
    tensors: Sequence[SourceTensor], config: Mapping[str, object], fused: bool, refusals: Refusals, reserve: Reserve
) -> dict[str, _Placed]:
    """Return all tensors, experts taken apart, by their names."""
    hidden = hidden_size(config)
    homes: dict[str, str] = {}
    if fused:
        owners = {each.name: each.file for each in tensors}
        for each in fused_sets(owners):
            if each.moved:
                homes |= dict.fromkeys(each.weights, owners[each.weights[0]])
    placed: dict[str, _Placed] = {}
    for tensor in checked(tensors):
        file = tensor.source.file
        output = homes.get(tensor.name, tensor.file)
        try:
            for name, part in checked(_parts(tensor, hidden, reserve)):
                if name in placed:
                    refusals.add(
                        f"two tensors would be named '{name}'",
                        "rename or remove one of them",
                        file=file,
                        tensor=tensor.name,
                    )
                placed[name] = _Placed(name, part, output)
        except CheckpointError as error:
            instead = "store each expert as a linear module of its own, as the model's conversion script does"
            refusals.add_error(error, instead, file=file, tensor=tensor.name)
    return placed


def _parts(tensor: SourceTensor, hidden: int | None, reserve: Reserve) -> Iterator[tuple[str, WeightSource]]:
    if isinstance(tensor.source, SourceRange) and is_stacked(tensor.source):
        # Up to four names for each of two matrices.
        reserve(min(tensor.source.shape[0], MAX_EXPERTS) * 2 * (BYTES_PER_TENSOR + 4 * len(tensor.name)))
        yield from matrices(tensor.source, hidden)
    else:
        yield tensor.name, tensor.source


def _chosen(
    placed: dict[str, _Placed],
    selection: Selection,
    weight_format: WeightFormat,
    refusals: Refusals,
    *,
    only_quantized: bool,
) -> dict[str, tuple[StoredTensor, ...]]:
    """Return the stored tensors of each weight to be quantized. `only_quantized`: those that are so in the source."""
    chosen: dict[str, tuple[StoredTensor, ...]] = {}
    known: dict[tuple[str, tuple[int, ...]], tuple[StoredTensor, ...] | CheckpointError] = {}
    modules: list[str] = []
    for name, each in checked(placed.items(), _TENSORS_BETWEEN_CHECKS):
        if selection.skip_reason(name) is not None or (only_quantized and is_plain(each.source)):
            continue
        dtype, shape = each.source.dtype, each.source.shape
        if (dtype, shape) not in known:
            known[dtype, shape] = _stored(weight_format, dtype, shape)
        stored = known[dtype, shape]
        if isinstance(stored, CheckpointError):
            refusals.add_error(stored, BELOW, file=each.source.file, tensor=name)
            modules.append(name.removesuffix(".weight"))
        else:
            chosen[name] = stored
    if modules:
        refusals.advice.append(f"To leave them unquantized, add to ignore: {ignore_patterns_for(modules)}")
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
) -> dict[str, tuple[WeightSource, ...]]:
    """Return the other weights whose extremes count for the scale of each: the quantized ones of its set."""
    partners: dict[str, tuple[WeightSource, ...]] = {}
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
                refusals.add(
                    f"{other} would have a tensor of the same name",
                    "rename or remove one of them",
                    file=task.output,
                    tensor=entry.name,
                )
