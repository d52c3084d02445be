"""The tasks that dequantize a checkpoint. Each output has the name of a file of the source."""

from __future__ import annotations

from collections.abc import Mapping

from requant.checkpoint.ordering import sorted_in_pieces
from requant.checkpoint.plan.model import CopyStep, DequantizeStep, SourceRange, Task
from requant.checkpoint.plan.refusals import Refusals, parameter_of
from requant.checkpoint.plan.source import Source
from requant.checkpoint.plan.stored_formats import StoredFormats
from requant.checkpoint.safetensors.header import DTYPES
from requant.checkpoint.safetensors.writer import layout
from requant.checkpoint.weights.weight_format import StoredTensor
from requant.errors import CheckpointError
from requant.errors.cancellation import checked

_MARKS = {
    "weight_scale",
    "weight_packed",
    "weight_global_scale",
    "weight_scale_inv",
    "qweight",
    "scales",
    "weight.absmax",
}
"""Parameters that a module has only if its weight is quantized."""

_OF_WEIGHTS = _MARKS | {"weight_zero_point", "weight_g_idx", "weight_shape", "weight_scale_2", "qzeros", "g_idx"}
"""Parameters of which a plain checkpoint has none."""

ACTIVATIONS = {
    "input_scale", "input_zero_point", "input_global_scale", "output_scale", "output_zero_point", "output_global_scale",
    "k_scale", "v_scale", "q_scale", "k_zero_point", "v_zero_point", "activation_scale",
}  # fmt: skip
"""Parameters for quantized activations, of which a plain checkpoint has none."""

_SMALL_FLOATS = {name for name, dtype in DTYPES.items() if name.startswith("F") and dtype.bits <= 8}
_FLOATS = ("BF16", "F16", "F32")
# Matching a name may take a millisecond.
_MODULES_BETWEEN_CHECKS = 16


def dequantization_tasks(source: Source, formats: StoredFormats, dtype: str) -> tuple[tuple[Task, ...], int]:
    """Return a task for each file that has a tensor left, and the number of dropped activation parameters.

    `dtype`: of the weights. Raises CheckpointError with all refusals: a module that lacks a tensor, or has one of
    another shape than config.json says; quantized tensors that nothing explains.
    """
    refusals = Refusals()
    modules: dict[str, dict[str, SourceRange]] = {}
    for file, shard in source.shards.items():
        for entry in checked(shard.header.tensors):
            module, parameter = parameter_of(entry.name)
            part = SourceRange(file, entry.name, entry.dtype, entry.shape, entry.begin, entry.end)
            if parameter in modules.setdefault(module, {}):
                refusals.add("two tensors belong to the same module and parameter", file=file, tensor=entry.name)
            modules[module][parameter] = part
    by_output: dict[str, list[CopyStep | DequantizeStep]] = {}
    left_out = quantized = 0
    for module, parameters in checked(modules.items(), _MODULES_BETWEEN_CHECKS):
        step = None
        if not _MARKS.isdisjoint(parameters):
            try:
                step = _step(module, parameters, formats, dtype, source.weight_shapes)
            except CheckpointError as error:
                refusals.add_error(error, file=error.file, tensor=module)
                continue
            quantized += 1
            first = step.stored[next(iter(step.stored))]
            by_output.setdefault(first.file, []).append(step)
        for parameter, part in parameters.items():
            if step is not None and parameter in step.stored:
                continue
            if parameter in ACTIVATIONS:
                left_out += 1
            elif parameter in _OF_WEIGHTS:
                refusals.add(
                    "is a parameter of a quantized weight, but not of the format that config.json states",
                    file=part.file,
                    tensor=part.tensor,
                )
            elif part.dtype in _SMALL_FLOATS:
                refusals.add(
                    f"is {part.dtype}, but its module has no known scale to dequantize it with",
                    file=part.file,
                    tensor=part.tensor,
                )
            else:
                by_output.setdefault(part.file, []).append(CopyStep(part, part.tensor))
    if not quantized and not refusals.count:
        refusals.add("config.json says that the weights are quantized, but no module has a scale")
    refusals.raise_any()
    return tuple(_tasks(by_output, refusals)), left_out


def _tasks(by_output: Mapping[str, list[CopyStep | DequantizeStep]], refusals: Refusals) -> list[Task]:
    tasks = []
    for output, steps in sorted(by_output.items()):
        steps = sorted_in_pieces(steps, _place)
        try:
            header = layout(
                (
                    (step.output, step.dtype, step.shape)
                    if isinstance(step, DequantizeStep)
                    else (step.output, step.source.dtype, step.source.shape)
                    for step in steps
                ),
                {"format": "pt"},
            )
        except CheckpointError as error:
            refusals.add_error(error, file=output, tensor=error.tensor)
            continue
        tasks.append(Task(output, header, tuple(steps)))
    refusals.raise_any()
    return tasks


def _place(step: CopyStep | DequantizeStep) -> tuple[str, int]:
    first = step.source if isinstance(step, CopyStep) else next(iter(step.stored.values()))
    return first.file, first.begin


def _step(
    module: str,
    parameters: Mapping[str, SourceRange],
    formats: StoredFormats,
    dtype: str,
    weight_shapes: Mapping[str, tuple[int, int]],
) -> DequantizeStep:
    weight_format = formats.of(module) if module else None
    if weight_format is None:
        raise CheckpointError("has quantized parameters, but nothing in quantization_config applies to it")
    tensors = {suffix: StoredTensor(suffix, part.dtype, part.shape) for suffix, part in parameters.items()}
    weight_format, shape = weight_format.resolve_from_stored(tensors, weight_shapes.get(module))
    scale = parameters.get("weight_scale")
    of_weight = scale.dtype if scale is not None and scale.dtype in _FLOATS else dtype
    expected = weight_format.stored(of_weight, shape)
    if not expected:
        raise CheckpointError(f"has quantized parameters, but this format cannot hold a weight of shape {list(shape)}")
    stored = {tensor.suffix: _matching(parameters.get(tensor.suffix), tensor) for tensor in expected}
    return DequantizeStep(module, stored, weight_format, f"{module}.weight", dtype, shape)


def _matching(part: SourceRange | None, expected: StoredTensor) -> SourceRange:
    """Return the place of a tensor, with the shape that it is expected to have; extents of 1 may be left out."""
    if part is None:
        raise CheckpointError(
            f"lacks {expected.suffix} ({expected.dtype} {list(expected.shape)}): the checkpoint is incomplete, or "
            "config.json does not describe it"
        )
    same = [extent for extent in part.shape if extent != 1] == [extent for extent in expected.shape if extent != 1]
    if part.dtype != expected.dtype or not same:
        raise CheckpointError(
            f"{expected.suffix} is {part.dtype} {list(part.shape)}; expected {expected.dtype} {list(expected.shape)} "
            "by config.json",
            file=part.file,
        )
    return SourceRange(part.file, part.tensor, part.dtype, expected.shape, part.begin, part.end)
