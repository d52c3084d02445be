"""Experts that a checkpoint stores as one tensor, taken apart into linear modules.

    X.gate_up_proj [experts, 2 * intermediate, hidden] -> X.<e>.gate_proj.weight, X.<e>.up_proj.weight
    X.down_proj    [experts, hidden, intermediate]     -> X.<e>.down_proj.weight

Source: llm-compressor 0.14, `split_fused_moe_experts` (`entrypoints/model_free/converter.py`), which also takes
`X.gate_up_proj.weight`, and splits whether or not the experts are ignored.

Those of gpt-oss are stored otherwise, and have biases:

    X.gate_up_proj      [experts, hidden, 2 * intermediate]     gate and up alternate
    X.gate_up_proj_bias [experts, 2 * intermediate]             likewise
    X.down_proj         [experts, intermediate, hidden]
    X.down_proj_bias    [experts, hidden]

or as MXFP4 (`requant.checkpoint.weights.mxfp4`). They become the modules that llm-compressor makes of a model in memory
(`modeling/moe/gpt_oss.py`), where one of an X is quantized; else they stay together, as transformers loads them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from requant.checkpoint.plan.dequantization import SourceTensor
from requant.checkpoint.plan.model import QuantizedSource, SourceRange, WeightSource
from requant.checkpoint.plan.source import Reserve
from requant.checkpoint.selection import Selection
from requant.checkpoint.weights.mxfp4 import Mxfp4Experts
from requant.checkpoint.weights.transposed import FLOATS, TransposedFloats
from requant.errors import CheckpointError
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


_GPT_OSS = "gpt_oss"
_FLOATS = ("BF16", "F16", "F32")
_BYTES_PER_NAME = 300
_BIAS = "_bias"


@dataclass(frozen=True, slots=True)
class Experts:
    """How the experts of a model lie in its tensors, and which are taken apart.

    `hidden`: the model's hidden size, if config.json has it. `of_gpt_oss`: whether they are stored as those of gpt-oss.
    `together`: what stands before the parameters of experts of gpt-oss of which nothing is quantized.
    """

    hidden: int | None
    of_gpt_oss: bool
    together: frozenset[str] = frozenset()

    @classmethod
    def of(
        cls,
        config: Mapping[str, object],
        tensors: Iterable[SourceTensor],
        selection: Selection,
        reserve: Reserve,
        *,
        only_quantized: bool = False,
    ) -> Experts:
        """Return those of a checkpoint. `reserve`: as in `read_source`, for the names that `selection` keeps.

        `only_quantized`: of those that are so in the source some are quantized, of others none.
        """
        all_apart = cls(hidden_size(config), _model_type(config) == _GPT_OSS)
        if not all_apart.of_gpt_oss:
            return all_apart
        found, quantized = set(), set()
        for tensor in checked(tensors):
            prefix, _, parameter = tensor.name.rpartition(".")
            if parameter.removesuffix(_BIAS) not in _PARTS:
                continue
            found.add(prefix)
            reserve(min(all_apart.count(tensor), MAX_EXPERTS) * len(_PARTS) * (_BYTES_PER_NAME + 4 * len(tensor.name)))
            try:
                parts = checked(all_apart.parts(tensor))
                names = (name for name, part in parts if not (only_quantized and part.is_plain))
                if prefix not in quantized and any(selection.skip_reason(name) is None for name in names):
                    quantized.add(prefix)
            except CheckpointError:
                # It is found again where parts are taken.
                quantized.add(prefix)
        return cls(all_apart.hidden, True, frozenset(found - quantized))

    def count(self, tensor: SourceTensor) -> int:
        """Return how many experts a tensor is taken apart into at most, 0 for one that is not."""
        prefix, _, parameter = tensor.name.rpartition(".")
        source = tensor.source
        if self.of_gpt_oss:
            apart = parameter.removesuffix(_BIAS) in _PARTS and prefix not in self.together
            return source.tensor_shape[0] if apart and source.tensor_shape else 0
        return source.shape[0] if isinstance(source, SourceRange) and is_stacked(source) else 0

    def parts(self, tensor: SourceTensor) -> Iterator[tuple[str, WeightSource]]:
        """Yield the names and sources of what a tensor is taken apart into; itself if it is not.

        Raises CheckpointError where it cannot be.
        """
        source = tensor.source
        if not self.count(tensor):
            yield tensor.name, source
        elif self.of_gpt_oss:
            yield from self._parts_of_gpt_oss(tensor)
        else:
            assert isinstance(source, SourceRange)
            yield from matrices(source, self.hidden)

    def _parts_of_gpt_oss(self, tensor: SourceTensor) -> Iterator[tuple[str, WeightSource]]:
        parameter = tensor.name.rpartition(".")[2]
        prefix = tensor.name.removesuffix(parameter)
        key, shape = parameter.removesuffix(_BIAS), tensor.source.tensor_shape
        parts, is_bias = _PARTS[key], parameter.endswith(_BIAS)
        both = len(parts) > 1
        fits = len(shape) == (2 if is_bias else 3) and shape[-1] % len(parts) == 0
        if fits and self.hidden is not None and (not both or not is_bias):
            fits = shape[1 if both else -1] == self.hidden
        if not fits:
            hidden = "hidden_size" if self.hidden is None else str(self.hidden)
            expected = "experts, 2 * intermediate" if both else f"experts, {hidden}"
            if not is_bias:
                expected = f"experts, {hidden}, 2 * intermediate" if both else f"experts, intermediate, {hidden}"
            raise CheckpointError(f"shape {list(shape)}; expected [{expected}] of a model of type {_GPT_OSS}")
        if shape[0] > MAX_EXPERTS:
            raise CheckpointError(f"shape {list(shape)}: {shape[0]} experts; at most {MAX_EXPERTS} are split")
        if tensor.source.dtype not in _FLOATS:
            raise CheckpointError(f"is {tensor.source.dtype}; only {', '.join(_FLOATS)} is taken apart into experts")
        for expert in range(shape[0]):
            for first, part in enumerate(parts):
                module = f"{prefix}{expert}.{part}"
                found = _of_expert(tensor.source, module, expert, first, len(parts), is_bias=is_bias)
                yield f"{module}.{'bias' if is_bias else 'weight'}", found


def _of_expert(source: WeightSource, module: str, expert: int, first: int, step: int, *, is_bias: bool) -> WeightSource:
    """Return every `step`th row from `first` on of one expert's matrix, or elements of its bias."""
    if isinstance(source, QuantizedSource):
        if not isinstance(source.format, Mxfp4Experts):
            raise CheckpointError("is quantized in a format that is not taken apart into experts")
        weight_format, shape = source.format.of_expert(first, step)
        stored = {suffix: _slice(each, expert, source.format.experts) for suffix, each in source.stored.items()}
        return QuantizedSource(module, stored, weight_format, source.dtype, shape)
    count = source.shape[0]
    columns, rows = (1, source.shape[1]) if is_bias else source.shape[1:]
    matrix = SourceRange(source.file, source.tensor, source.dtype, (count * columns, rows), source.begin, source.end)
    part = _slice(matrix, expert, count)
    if is_bias and step == 1:
        return SourceRange(part.file, part.tensor, part.dtype, (rows,), part.begin, part.end)
    transposed = TransposedFloats(source.dtype, first, step, vector=is_bias)
    return QuantizedSource(module, {FLOATS: part}, transposed, source.dtype, (rows // step, columns))


def _slice(source: SourceRange, number: int, count: int) -> SourceRange:
    """Return one of `count` parts with as many rows of a matrix."""
    rows, columns = source.shape
    size = source.byte_count // count
    begin = source.begin + number * size
    return SourceRange(source.file, source.tensor, source.dtype, (rows // count, columns), begin, begin + size)


def _model_type(config: Mapping[str, object]) -> object:
    """Return the type of the language model."""
    nested = config.get("text_config")
    stated = nested.get("model_type") if isinstance(nested, dict) else None
    return stated or config.get("model_type")
