"""What a quantized checkpoint holds, and the tasks that dequantize it.

A weight may be in another file than its scales; it goes to the output that has the name of its own file.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from requant.checkpoint.ordering import sorted_in_pieces
from requant.checkpoint.plan.model import (
    CopyStep,
    DequantizeStep,
    QuantizedSource,
    SourceRange,
    Task,
    WeightSource,
)
from requant.checkpoint.plan.refusals import OF_OUTPUT, Refusals, parameter_of
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
    "SCB",
    "_weight_qdata",
}
"""Parameters that a module has only if its weight is quantized."""

_OF_WEIGHTS = _MARKS | {
    "weight_zero_point", "weight_g_idx", "weight_shape", "weight_scale_2", "qzeros", "g_idx", "pre_quant_scale",
    "svdquant_lora_a", "svdquant_lora_b", "weight_format", "_weight_scale", "_weight_zero_point",
    "_weight_per_tensor_scale", "_weight_scale_and_zero", "_weight_act_pre_scale",
}  # fmt: skip
"""Parameters of which a plain checkpoint has none."""

ACTIVATIONS = {
    "input_scale", "input_zero_point", "input_global_scale", "output_scale", "output_zero_point", "output_global_scale",
    "k_scale", "v_scale", "q_scale", "k_zero_point", "v_zero_point", "q_zero_point", "k_global_scale", "v_global_scale",
    "q_global_scale", "activation_scale", "input_scale_ub", "_weight_act_quant_scale", "_weight_act_quant_zero_point",
    "_weight_act_per_tensor_scale",
}  # fmt: skip
"""Parameters for quantized activations, of which a plain checkpoint has none."""

_OF_EXPERTS = ("_weight_scale", "_weight_scale_2")
"""How names of parameters end that ModelOpt gives to experts of rank 3: `gate_up_proj_weight_scale`."""

_CODES = ("I8", "U8")
_SMALL_FLOATS = {name for name, dtype in DTYPES.items() if name.startswith("F") and dtype.bits <= 8}
_FLOATS = ("BF16", "F16", "F32")
# Matching a name may take a millisecond.
_MODULES_BETWEEN_CHECKS = 16


@dataclass(frozen=True, slots=True)
class SourceTensor:
    """A tensor of a checkpoint as it is without quantization, and what holds it in the source. `output`: the file that
    it goes to, where that does not have the name of its own."""

    name: str
    source: WeightSource
    output: str | None = None

    @property
    def file(self) -> str:
        """The name of the file that it goes to."""
        return self.output or self.source.file


def stored_tensors(source: Source) -> Iterator[SourceTensor]:
    """Yield the tensors of a checkpoint as they are stored."""
    for file, shard in source.shards.items():
        for entry in checked(shard.header.tensors):
            yield SourceTensor(entry.name, SourceRange.of(file, entry))


def dequantized_tensors(
    source: Source, formats: StoredFormats, dtype: str, refusals: Refusals, *, of_scales: bool = False
) -> tuple[list[SourceTensor], int]:
    """Return the tensors of a quantized checkpoint as they are without quantization, in the order in which they lie in
    the files, and the number of activation parameters, which are dropped.

    `dtype`: of the weights. With `of_scales`, a weight whose scales are BF16, F16 or F32 has their dtype instead.
    Refused are: a module that lacks a tensor, or has one of another shape than config.json says; quantized tensors that
    nothing explains.
    """
    modules: dict[str, dict[str, SourceRange]] = {}
    for each in stored_tensors(source):
        assert isinstance(each.source, SourceRange)
        module, parameter = parameter_of(each.name)
        if parameter in modules.setdefault(module, {}):
            refusals.add(
                "two tensors belong to the same module and parameter",
                "remove one of them, or download the checkpoint again",
                file=each.source.file,
                tensor=each.name,
            )
        modules[module][parameter] = each.source
    tensors: list[SourceTensor] = []
    left_out = quantized = 0
    for module, parameters in checked(modules.items(), _MODULES_BETWEEN_CHECKS):
        stored: Collection[str] = ()
        if _is_quantized(module, parameters, formats):
            try:
                weight = _quantized_source(module, parameters, formats, dtype, source.weight_shapes)
                if of_scales:
                    weight = replace(weight, dtype=_dtype_of_scales(weight) or dtype)
            except CheckpointError as error:
                instead = "download the checkpoint again, or correct what config.json says of this module"
                refusals.add_error(error, instead, file=error.file, tensor=module)
                continue
            quantized += 1
            tensors.append(SourceTensor(weight.tensor, weight))
            stored = weight.stored
        for parameter, part in parameters.items():
            if parameter in stored:
                continue
            if parameter in ACTIVATIONS:
                left_out += 1
            elif parameter in _OF_WEIGHTS:
                refusals.add(
                    "is a parameter of a quantized weight, but not of the format that config.json states",
                    "download config.json and the files of one revision again",
                    file=part.file,
                    tensor=part.tensor,
                )
            elif parameter.endswith(_OF_EXPERTS):
                refusals.add(
                    "is a scale of experts in one tensor of rank 3, which are not read in this format",
                    "store each expert in a tensor of its own, as ModelOpt's export does for most models",
                    file=part.file,
                    tensor=part.tensor,
                )
            elif part.dtype in _SMALL_FLOATS:
                refusals.add(
                    f"is {part.dtype}, but its module has no known scale to dequantize it with",
                    "convert it to BF16 with the program that wrote it, or state its format in config.json",
                    file=part.file,
                    tensor=part.tensor,
                )
            elif parameter == "weight" and part.dtype in _CODES:
                refusals.add(
                    f"is {part.dtype}, the codes of a quantized weight, but its module has no scale: the checkpoint is "
                    "incomplete",
                    "download it again",
                    file=part.file,
                    tensor=part.tensor,
                )
            else:
                tensors.append(SourceTensor(part.tensor, part))
    if not quantized and not refusals.count:
        refusals.add(
            "config.json, or hf_quant_config.json beside it, says that the weights are quantized, but no module has a "
            "scale",
            "remove quantization_config from config.json, or hf_quant_config.json, if they are plain, or download the "
            "checkpoint again",
        )
    return sorted_in_pieces(tensors, _place), left_out


def plain_step(tensor: SourceTensor) -> CopyStep | DequantizeStep:
    """Return the step that writes a tensor without quantization."""
    if isinstance(tensor.source, QuantizedSource):
        return DequantizeStep(tensor.source, tensor.name)
    return CopyStep(tensor.source, tensor.name)


def dequantization_tasks(tensors: Iterable[SourceTensor]) -> tuple[Task, ...]:
    """Return a task for each file that has a tensor left. Raises CheckpointError with all refusals."""
    refusals = Refusals()
    by_output: dict[str, list[CopyStep | DequantizeStep]] = {}
    for tensor in tensors:
        by_output.setdefault(tensor.file, []).append(plain_step(tensor))
    return tuple(_tasks(by_output, refusals))


def _tasks(by_output: Mapping[str, list[CopyStep | DequantizeStep]], refusals: Refusals) -> list[Task]:
    tasks = []
    for output, steps in sorted(by_output.items()):
        try:
            header = layout(
                ((step.output, step.source.dtype, step.source.tensor_shape) for step in steps),
                {"format": "pt"},
            )
        except CheckpointError as error:
            refusals.add_error(error, OF_OUTPUT, file=output, tensor=error.tensor)
            continue
        tasks.append(Task(output, header, tuple(steps)))
    refusals.raise_any()
    return tasks


def _place(tensor: SourceTensor) -> tuple[str, int]:
    source = tensor.source
    first = source if isinstance(source, SourceRange) else next(iter(source.stored.values()))
    return first.file, first.begin


def _quantized_source(
    module: str,
    parameters: Mapping[str, SourceRange],
    formats: StoredFormats,
    dtype: str,
    weight_shapes: Mapping[str, tuple[int, int]],
) -> QuantizedSource:
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
    return QuantizedSource(module, stored, weight_format, dtype, shape)


def _is_quantized(module: str, parameters: Mapping[str, SourceRange], formats: StoredFormats) -> bool:
    if not _MARKS.isdisjoint(parameters):
        return True
    weight_format = formats.of(module) if module else None
    return weight_format is not None and any(marks <= parameters.keys() for marks in weight_format.marks)


def _dtype_of_scales(weight: QuantizedSource) -> str | None:
    dtypes = (part.dtype for suffix, part in weight.stored.items() if "scale" in suffix)
    return next((dtype for dtype in dtypes if dtype in _FLOATS), None)


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
    return SourceRange(part.file, part.tensor, part.dtype, expected.matrix or expected.shape, part.begin, part.end)
