"""Warnings about a conversion that is possible."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from requant.checkpoint.given_scales import OF_INPUTS
from requant.checkpoint.plan.model import (
    CopyStep,
    DequantizeStep,
    GivenStep,
    Plan,
    QuantizedSource,
    QuantizeStep,
    Repack,
    Request,
    Task,
    WeightSource,
)
from requant.checkpoint.plan.quantization import fused_sets
from requant.checkpoint.plan.recipe import Recipe
from requant.checkpoint.plan.refusals import abbreviate, ignore_patterns_for
from requant.checkpoint.selection import Role, Selection, role_of
from requant.checkpoint.storage.store import StoredFile
from requant.checkpoint.weights.mxfp4 import GPT_OSS, Mxfp4
from requant.checkpoint.weights.transposed import TransposedFloats
from requant.checkpoint.weights.weight_format import WeightFormat
from requant.errors import excerpt

_ROW_PARALLEL = re.compile(r".*\.(?:o_proj|out_proj|wo|down_proj|w2|c_proj|fc2|dense_4h_to_h)$")
_RANKS = (2, 4, 8)
# The scales of groups, by the axis along which a row has them.
_GROUPS = {"weight_scale": 1, "weight_scale_inv": 1, "scales": 0}


def quantization_warnings(
    request: Request, recipe: Recipe, tasks: Iterable[Task], config: Mapping[str, Any]
) -> list[str]:
    """Return the warnings about a quantization plan but those of `tensor_parallel_warnings`."""
    steps = {step.module: step for task in tasks for step in task.steps if isinstance(step, QuantizeStep)}
    return [
        *(_rounded_twice(steps) if request.repack is Repack.NO else ()),
        *_entries_without_match(request, recipe.selection),
        *_unusual_modules(steps, config),
        *_experts_of_gpt_oss(steps),
        *(_unfit_shapes(recipe.selection, tasks) if request.repack is Repack.NO else ()),
        *_partly_quantized(steps, tasks),
        *_of_two_schemes(steps, recipe),
        *_own_global_scales(steps, recipe),
        *_own_input_scales(tasks),
    ]


def left_out_warnings(files: Collection[StoredFile]) -> list[str]:
    """Return which files of the directory are not carried over."""
    if not files:
        return []
    gigabytes = sum(file.size for file in files) / 1e9
    return [
        "not copied, because they hold weights in another format or settings of another quantizer: "
        f"{abbreviate([file.name for file in files])} ({gigabytes:.3f} GB)"
    ]


def _rounded_twice(steps: Mapping[str, QuantizeStep]) -> list[str]:
    modules = [
        module
        for module, step in steps.items()
        if isinstance(step.source, QuantizedSource) and not step.source.is_plain
    ]
    if not modules:
        return []
    return [
        f"{abbreviate(modules)}: quantized in the source already, and rounded a second time, which costs accuracy. "
        "Start from the original weights if you have them; `requant checkpoint repack` moves the numbers where the "
        "scheme holds them"
    ]


def _entries_without_match(request: Request, selection: Selection) -> list[str]:
    return [
        f"{where}: '{excerpt(entry)}' matches no module with a .weight"
        for where, entries in (("ignore", request.ignore), ("targets", request.targets))
        for entry in entries
        if entry in selection.without_match
    ]


def _unusual_modules(steps: Mapping[str, QuantizeStep], config: Mapping[str, Any]) -> list[str]:
    of_role: dict[Role, list[str]] = {}
    for module in steps:
        if (role := role_of(module)) is not None:
            of_role.setdefault(role, []).append(module)
    tied = config.get("tie_word_embeddings") is True
    reasons = {
        Role.EMBEDDING: "loaders expect quantized weights only in linear modules: they read an embedding's codes as "
        "its values, or fail to find it",
        Role.HEAD: "config.json ties it to the embeddings, so it is not loaded (tie_word_embeddings)"
        if tied
        else "this costs more accuracy than quantizing other layers, and not every loader supports a quantized output "
        "layer",
        Role.ROUTER: "expert routers are small, and vLLM loads them as plain weights",
        Role.TOWER: "it is not part of the language model; whether a loader takes it quantized depends on the model",
    }
    return [
        f"{abbreviate(modules)} will be quantized: {reason}. Usually ignored: {ignore_patterns_for(modules)}"
        for role, reason in reasons.items()
        if (modules := of_role.get(role))
    ]


def is_known_to_load(plan: Plan) -> bool:
    """Return whether only modules are quantized that loaders take so: linear ones, and those they fuse together, by one
    scheme."""
    steps = {step.module: step for step in plan.steps if isinstance(step, QuantizeStep)}
    if any(role_of(module) is not None for module in steps) or _experts_of_gpt_oss(steps):
        return False
    return not _partly_quantized(steps, plan.tasks) and not _of_two_schemes(steps, Recipe(plan.request))


def _experts_of_gpt_oss(steps: Mapping[str, QuantizeStep]) -> list[str]:
    experts = [
        module
        for module, step in steps.items()
        if isinstance(step.source, QuantizedSource) and _is_of_gpt_oss(step.source.format)
    ]
    if not experts:
        return []
    return [
        f"{abbreviate(experts)} become linear modules with the names that llm-compressor gives them. transformers 5.23 "
        'loads such experts of gpt-oss only with llm-compressor\'s patch_moe_mappings; with "re:.*experts.*" in ignore '
        "they stay as transformers loads them"
    ]


def _is_of_gpt_oss(weight_format: WeightFormat) -> bool:
    if isinstance(weight_format, Mxfp4):
        return weight_format.layout == GPT_OSS
    return isinstance(weight_format, TransposedFloats)


def _partly_quantized(steps: Mapping[str, QuantizeStep], tasks: Iterable[Task]) -> list[str]:
    weights = [f"{module}.weight" for module in steps]
    weights += [entry.name for task in tasks for entry in task.header.tensors if entry.name.endswith(".weight")]
    partly = []
    for each in fused_sets(dict.fromkeys(weights)):
        quantized = sum(name.removesuffix(".weight") in steps for name in each.weights)
        if 0 < quantized < len(each.weights):
            partly.append(each.name)
    if not partly:
        return []
    return [
        f"only part of {abbreviate(partly)} will be quantized. vLLM fuses these modules, and refuses a fused module "
        "with two schemes: quantize or ignore them together"
    ]


def _of_two_schemes(steps: Mapping[str, QuantizeStep], recipe: Recipe) -> list[str]:
    if len(recipe.schemes) == 1:
        return []
    schemes = {module: recipe.scheme_of(f"{module}.weight") for module in steps}
    split = []
    for each in fused_sets(f"{module}.weight" for module in steps):
        numbers = {schemes[name.removesuffix(".weight")] for name in each.weights}
        if len({recipe.schemes[number].name for number in numbers if number is not None}) > 1:
            split.append(each.name)
    if not split:
        return []
    return [
        f"the parts of {abbreviate(split)} get different schemes. vLLM fuses these modules, and refuses a fused module "
        "with two schemes: give them one"
    ]


def _own_global_scales(steps: Mapping[str, QuantizeStep], recipe: Recipe) -> list[str]:
    """Look at the fused sets of which several members have a global scale."""
    scaled = []
    for module in steps if recipe.fused else ():
        number = recipe.scheme_of(f"{module}.weight")
        if number is not None and recipe.schemes[number].fused:
            scaled.append(f"{module}.weight")
    alone = []
    for each in fused_sets(scaled):
        modules = [name.removesuffix(".weight") for name in each.weights]
        if not all(steps[module].shares_scale_with for module in modules):
            alone.append(each.name)
    if not alone:
        return []
    return [
        f"the parts of {abbreviate(alone)} get separate global scales, as in llm-compressor. vLLM uses the largest of "
        "them for the fused module, which costs accuracy"
    ]


def _own_input_scales(tasks: Iterable[Task]) -> list[str]:
    """Look at the fused sets whose members have given scales of inputs, which are the same inputs."""
    scales: dict[str, bytes] = {}
    for task in tasks:
        for step in task.steps:
            if isinstance(step, GivenStep):
                module, _, parameter = step.output.rpartition(".")
                if parameter in OF_INPUTS:
                    scales[f"{module}.weight"] = step.data
    differing = [each.name for each in fused_sets(scales) if len({scales[weight] for weight in each.weights}) > 1]
    if not differing:
        return []
    return [
        f"the parts of {abbreviate(differing)} get different scales for the same inputs. vLLM uses the largest of them "
        "for the fused module: give them one, of the largest magnitude"
    ]


def _unfit_shapes(selection: Selection, tasks: Iterable[Task]) -> list[str]:
    """Look at the weights that were chosen, and that the format leaves as they are."""
    left = [
        step.output.removesuffix(".weight")
        for task in tasks
        for step in task.steps
        if isinstance(step, CopyStep | DequantizeStep)
        and len(step.source.tensor_shape) == 2
        and selection.skip_reason(step.output) is None
    ]
    if not left:
        return []
    return [f"{abbreviate(left)} will not be quantized: the shapes of their weights do not fit the scheme"]


_MAX_SHAPES = 3


def tensor_parallel_warnings(tasks: Iterable[Task]) -> list[str]:
    """Return what vLLM cannot divide among ranks, in one line. To be shown last: who serves on one GPU need not read
    it.
    """
    groups: dict[tuple[int, int], list[str]] = {}
    for task in tasks:
        for step in task.steps:
            if isinstance(step, QuantizeStep) and _ROW_PARALLEL.match(step.module):
                _add_groups(groups, step)
    found = []
    for (columns, count), modules in sorted(groups.items()):
        bad = [str(ranks) for ranks in _RANKS if count % ranks]
        if bad:
            found.append(
                f"the {count} groups of the {columns} columns of {abbreviate(modules)} among {' or '.join(bad)}"
            )
    if not found:
        return []
    more = f"; and {len(found) - _MAX_SHAPES} other shapes" if len(found) > _MAX_SHAPES else ""
    return [f"tensor-parallel ranks of vLLM cannot divide {'; '.join(found[:_MAX_SHAPES])}{more}"]


def _add_groups(groups: dict[tuple[int, int], list[str]], step: QuantizeStep) -> None:
    """Note the weights whose columns are split over tensor-parallel ranks."""
    for tensor in _stored(step):
        # ModelOpt writes the scales of blocks as [rows, 1, columns, 1].
        shape = tensor.shape[::2] if len(tensor.shape) == 4 else tensor.shape
        if len(shape) == 2 and tensor.suffix in _GROUPS:
            count = shape[_GROUPS[tensor.suffix]]
            if count > 1:
                groups.setdefault((step.source.shape[1], count), []).append(step.module)


def _stored(step: QuantizeStep) -> Iterable[Any]:
    return step.format.stored(step.source.dtype, _matrix(step.source))


def _matrix(source: WeightSource) -> tuple[int, int]:
    return source.shape[0], source.shape[1]
