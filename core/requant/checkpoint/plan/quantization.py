"""The tasks that quantize a checkpoint.

Each output has the name of a file of the source, and the tensors of that file: as they are, or what a weight becomes.

Weights that loaders fuse into one matrix need one scheme, and with NVFP4 one global scale. With NVFP4 llm-compressor
brings such a set together in one shard, that of its first member, and gives it one global scale. Where one of several
schemes is NVFP4 it brings all sets together, and those members of a set that become NVFP4 share a scale. The names for
which it does the one and the other are not the same: it brings `feed_forward.gate_proj` and `up_proj` together and lets
each keep its own scale, and it gives `cross_attn.q_proj`, `k_proj` and `v_proj` one scale only where they are in one
shard already. Experts' gate and up keep their own ones, but for those of gpt-oss, which it takes apart in memory.

Source: llm-compressor 0.14, `entrypoints/model_free/microscale.py` and `helpers.py`. There, members of one shard are
paired in the order of their names; here, by their parent. These differ where a shard holds parts of sets that are not
brought together, for which llm-compressor fails or takes members of two parents for a set.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from requant.checkpoint.plan.dequantization import SourceTensor, plain_step
from requant.checkpoint.plan.experts import MAX_EXPERTS, Experts
from requant.checkpoint.plan.given_scales import GivenScales
from requant.checkpoint.plan.model import QuantizeStep, Step, Task, WeightSource
from requant.checkpoint.plan.recipe import Recipe
from requant.checkpoint.plan.refusals import BELOW, OF_OUTPUT, Refusals, ignore_patterns_for
from requant.checkpoint.plan.source import BYTES_PER_TENSOR, Reserve, unlimited
from requant.checkpoint.safetensors.writer import layout
from requant.checkpoint.weights.weight_format import StoredTensor, WeightFormat
from requant.errors import CheckpointError, excerpt
from requant.errors.cancellation import checked

_WEIGHT = ".weight"
_OF_EXPERT = re.compile(r".*\.experts\.[0-9]+\.gate_proj\.weight")


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


@dataclass(frozen=True, slots=True)
class _Chosen:
    """A weight for a scheme. `stored`: what it becomes; empty where the scheme leaves such a shape as it is."""

    scheme: int
    stored: tuple[StoredTensor, ...]


def quantization_tasks(
    tensors: Iterable[SourceTensor],
    config: Mapping[str, object],
    recipe: Recipe,
    *,
    only_quantized: bool = False,
    reserve: Reserve = unlimited,
) -> tuple[Task, ...]:
    """Return a task for each file that has a tensor left.

    `tensors`, `config`: of the checkpoint, as they are without quantization. `only_quantized`: leave weights that the
    source has plain. `reserve`: as in `read_source`. Raises CheckpointError with all refusals.
    """
    refusals = Refusals()
    tensors = tuple(tensors)
    experts = Experts.of(config, tensors, recipe.selection, reserve, only_quantized=only_quantized)
    placed = _placed(tensors, experts, recipe.fused, refusals, reserve)
    chosen = _chosen(placed, recipe, refusals, only_quantized=only_quantized)
    refusals.raise_any()
    if chosen and not any(each.stored for each in chosen.values()):
        name = next(iter(chosen))
        raise CheckpointError(
            f"nothing to quantize: the scheme leaves weights of such shapes as they are, all {len(chosen)} that were "
            f"chosen; for example '{excerpt(name)}' {list(placed[name].source.shape)}. Choose another scheme",
            tensor=name,
        )
    if not chosen:
        raise CheckpointError(
            f"nothing to quantize: no .weight tensor remains after applying targets "
            f"{[entry for of_one in recipe.targets for entry in of_one]} and ignore {list(recipe.ignore)}: choose "
            "others. With an empty ignore (--ignore none) all are quantized that targets choose"
        )
    recipe.check_used(placed.keys(), {each.scheme for each in chosen.values()}, refusals)
    given = _given_scales(placed, chosen, recipe, refusals)
    refusals.raise_any()
    partners = _partners(placed, chosen, recipe, experts) if recipe.fused else {}
    by_output: dict[str, list[_Placed]] = {}
    for each in checked(placed.values()):
        by_output.setdefault(each.output, []).append(each)
    tasks = []
    for output in sorted(by_output):
        steps: list[Step] = []
        outputs: list[tuple[str, str, tuple[int, ...]]] = []
        for each in checked(by_output[output]):
            of_scheme = chosen.get(each.name)
            if of_scheme is None or not of_scheme.stored:
                steps.append(plain_step(SourceTensor(each.name, each.source)))
                outputs.append((each.name, each.source.dtype, each.source.tensor_shape))
            else:
                module = each.name.removesuffix(".weight")
                weight_format = recipe.formats[of_scheme.scheme]
                steps.append(QuantizeStep(module, each.source, weight_format, partners.get(each.name, ())))
                outputs += [(f"{module}.{tensor.suffix}", tensor.dtype, tensor.shape) for tensor in of_scheme.stored]
            for scale in given.beside(each.name):
                steps.append(scale)
                outputs.append((scale.output, scale.dtype, scale.shape))
        try:
            header = layout(outputs, recipe.metadata)
        except CheckpointError as error:
            refusals.add_error(error, OF_OUTPUT, file=output, tensor=error.tensor)
            continue
        tasks.append(Task(output, header, tuple(steps)))
    _check_names(tasks, refusals)
    refusals.raise_any()
    return tuple(tasks)


def _placed(
    tensors: Sequence[SourceTensor], experts: Experts, fused: bool, refusals: Refusals, reserve: Reserve
) -> dict[str, _Placed]:
    """Return all tensors, experts taken apart, by their names."""
    homes: dict[str, str] = {}
    if fused:
        owners = {each.name: each.file for each in tensors}
        for each in fused_sets(owners):
            if each.moved:
                homes |= dict.fromkeys(each.weights, owners[each.weights[0]])
    placed: dict[str, _Placed] = {}
    for tensor in checked(tensors):
        file = tensor.source.file
        # Up to four names for each of two matrices.
        reserve(min(experts.count(tensor), MAX_EXPERTS) * 2 * (BYTES_PER_TENSOR + 4 * len(tensor.name)))
        output = homes.get(tensor.name, tensor.file)
        try:
            for name, part in checked(experts.parts(tensor)):
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


def _chosen(
    placed: dict[str, _Placed], recipe: Recipe, refusals: Refusals, *, only_quantized: bool
) -> dict[str, _Chosen]:
    """Return each weight that is for a scheme. `only_quantized`: of those that are quantized in the source."""
    chosen: dict[str, _Chosen] = {}
    known: dict[tuple[int, str, tuple[int, ...]], tuple[StoredTensor, ...] | CheckpointError] = {}
    modules: list[str] = []
    for name, each in checked(placed.items(), _TENSORS_BETWEEN_CHECKS):
        scheme = recipe.scheme_of(name)
        if scheme is None or (only_quantized and each.source.is_plain):
            continue
        dtype, shape = each.source.dtype, each.source.shape
        if (scheme, dtype, shape) not in known:
            known[scheme, dtype, shape] = _stored(recipe.formats[scheme], dtype, shape)
        stored = known[scheme, dtype, shape]
        if isinstance(stored, CheckpointError):
            refusals.add_error(stored, BELOW, file=each.source.file, tensor=name)
            modules.append(name.removesuffix(".weight"))
        else:
            chosen[name] = _Chosen(scheme, stored)
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


def _given_scales(
    placed: Mapping[str, _Placed], chosen: Mapping[str, _Chosen], recipe: Recipe, refusals: Refusals
) -> GivenScales:
    weights = {name: each.source.dtype for name, each in checked(placed.items()) if name.endswith(_WEIGHT)}
    quantized = {name.removesuffix(_WEIGHT): each.scheme for name, each in chosen.items() if each.stored}
    inputs = {
        module: parameter
        for module, scheme in quantized.items()
        if (parameter := recipe.schemes[scheme].input_scale) is not None
    }
    return GivenScales(recipe.input_scales, recipe.kv_scales, weights, inputs, quantized, refusals)


def _partners(
    placed: dict[str, _Placed], chosen: dict[str, _Chosen], recipe: Recipe, experts: Experts
) -> dict[str, tuple[WeightSource, ...]]:
    """Return the other weights whose extremes count for the scale of each: those of its set whose schemes share one."""
    partners: dict[str, tuple[WeightSource, ...]] = {}
    for each in fused_sets(placed):
        of_expert = experts.of_gpt_oss and _OF_EXPERT.fullmatch(each.weights[0]) is not None
        if not _shares_scale(replace(each, sharing=each.sharing or of_expert), placed):
            continue
        quantized = [name for name in each.weights if name in chosen and recipe.schemes[chosen[name].scheme].fused]
        for name in quantized:
            partners[name] = tuple(placed[other].source for other in quantized if other != name)
    return partners


def _shares_scale(each: FusedSet, placed: Mapping[str, _Placed]) -> bool:
    """Return whether the members of a set get one global scale: all are there, in one file."""
    return each.sharing and each.complete and len({placed[name].output for name in each.weights}) == 1


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
