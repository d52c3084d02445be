"""The plan for the tensors of a GGUF file, from its header alone.

Source of the tensors that are never quantized: llama.cpp's llama-quant.cpp, version 0.5.0.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from requant.checkpoint.gguf.header import Key, TensorInfo, aligned, header_bytes, read_header, u32_value
from requant.checkpoint.gguf.tensor_types import FILE_TYPES, FLOATS, READABLE, TENSOR_TYPES, TensorType, target_type
from requant.checkpoint.name_patterns import NamePatterns
from requant.checkpoint.run.file_plan import FilePlan
from requant.checkpoint.storage.store import Store, StoredFile, file_named
from requant.errors import CheckpointError, excerpt

_SKIPPED_NAMES = frozenset({"position_embd.weight", "token_types.weight"})
_SKIPPED_PARTS = (
    "_norm.weight",
    "ffn_gate_inp.weight",
    "ffn_gate_tid2eid.weight",
    "altup",
    "laurel",
    "per_layer_model_proj",
    "ssm_conv1d",
    "shortconv.conv.weight",
    "indexer.k_proj.weight",
    "indexer.q_proj.weight",
    "time_mix_first.weight",
    "time_mix_w0.weight",
    "time_mix_w1.weight",
    "time_mix_w2.weight",
    "time_mix_v0.weight",
    "time_mix_v1.weight",
    "time_mix_v2.weight",
    "time_mix_a0.weight",
    "time_mix_a1.weight",
    "time_mix_a2.weight",
    "time_mix_g1.weight",
    "time_mix_g2.weight",
    "time_mix_decay_w1.weight",
    "time_mix_decay_w2.weight",
    "time_mix_lerp_fused.weight",
    "attn_rel_b.weight",
    ".position_embd",
    "sam.pos_embd",
    "sam.neck.",
    "sam.net_",
    ".rel_pos",
    ".patch_embd",
    ".patch_merger",
    "a.rvq.codebook",
    "mm.a.code_embd",
)


def rank_without_ones(dimensions: tuple[int, ...]) -> int:
    """Return the rank as ggml counts it: without outer dimensions of 1, but at least 1."""
    return next((rank for rank in range(len(dimensions), 1, -1) if dimensions[rank - 1] != 1), 1)


def skip_reason(name: str, dimensions: tuple[int, ...]) -> str | None:
    """Return why llama.cpp does not quantize a tensor, None if it does. `dimensions`: innermost first."""
    if rank_without_ones(dimensions) < 2:
        return "one dimension"
    if not name.endswith("weight"):
        return "its name does not end in weight"
    if name in _SKIPPED_NAMES:
        return "llama.cpp keeps it"
    part = next((part for part in _SKIPPED_PARTS if part in name), None)
    return f"llama.cpp keeps {part}" if part else None


# GGML_QNT_VERSION, of ggml 0.25.
_QUANTIZATION_VERSION = 2
_NO_WEIGHTS = ("I8", "I16", "I32", "I64", "F64")
_LAYER = re.compile(r"blk\.\s*([+-]?\d+)", re.ASCII)


@dataclass(frozen=True, slots=True)
class GgufStep:
    """One tensor: where it lies in both files, in bytes from their start.

    `skip_reason`: why its bytes stay as they are.
    """

    source: TensorInfo
    output: TensorInfo
    begin: int
    output_begin: int
    skip_reason: str | None


@dataclass(frozen=True, slots=True)
class GgufPlan(FilePlan):
    """The plan for a file. `head`: the output's bytes up to its data; `size`: of the output in bytes."""

    source: StoredFile
    output: str
    type: str
    head: bytes
    size: int
    steps: tuple[GgufStep, ...]

    @property
    def sizes(self) -> dict[str, int]:
        return {self.output: self.size}

    @property
    def bytes_to_read(self) -> int:
        return sum(step.source.size for step in self.steps)

    def as_json(self) -> dict[str, Any]:
        return {
            "source": self.source.name,
            "source_bytes": self.source.size,
            "output": self.output,
            "output_bytes": self.size,
            "type": self.type,
            "tensors": [
                {
                    "name": step.source.name,
                    "shape": list(reversed(step.source.dimensions)),
                    "from": step.source.type.name,
                    "to": step.output.type.name,
                    **({"kept": step.skip_reason} if step.skip_reason else {}),
                }
                for step in self.steps
            ],
        }

    def lines(self) -> Iterable[str]:
        converted = sum(step.skip_reason is None for step in self.steps)
        yield f"{self.source.name}: {self.source.size:,} bytes, {len(self.steps)} tensors"
        yield f"{self.output}: {self.size:,} bytes, {converted} tensors converted to {self.type}"
        for step in self.steps:
            shape = "x".join(map(str, reversed(step.source.dimensions)))
            change = f"({step.skip_reason})" if step.skip_reason else f"-> {step.output.type.name}"
            yield f"  {step.source.name} [{shape}] {step.source.type.name} {change}"


def plan_gguf(source: Store, name: str, output: str, type_: str, *, ignore: Sequence[str] = ()) -> GgufPlan:
    """Return the plan for converting the file `name` of a store to `type_`, as `llama-quantize --pure` does.

    Tensors of two dimensions and more become `type_`; what llama.cpp keeps, and what `ignore` names, stays as it is.
    The keys are copied, with `general.quantization_version` and `general.file_type` set. Tensors are in the order of
    their layers, then of their names. Rows that are not whole blocks become F16, or Q4_0 where that was to be TQ1_0 or
    TQ2_0 and fits. Of a split model each file is converted on its own, and keeps its number.

    Raises UnknownNameError for the type; CheckpointError where a tensor to be converted is of a type that cannot be
    read, or is quantized already and would be quantized again; what `read_header` raises, and StorageError where there
    is no such file.
    """
    file = file_named(source, name)
    header = read_header(source, file)
    target = target_type(type_)
    type_ = target.name
    ignored = NamePatterns(ignore)
    decided = []
    for info in sorted(header.tensors, key=_order):
        reason = "ignored" if ignored.match(info.name) else skip_reason(info.name, info.dimensions)
        if reason is None and info.type.name in _NO_WEIGHTS:
            reason = "not a weight"
        to = info.type if reason else _converted_type(info, target, name)
        decided.append((info, replace(info, type=to), reason or ("it has that type" if to is info.type else None)))
    outputs, end = [], 0
    for _, info, _ in decided:
        # As ggml writes them.
        dimensions = (*info.dimensions, 1)[: rank_without_ones(info.dimensions)]
        outputs.append(replace(info, offset=end, dimensions=dimensions))
        end = aligned(end + info.size, header.alignment)
    head = header_bytes(_output_keys(header.keys, type_), outputs, header.alignment)
    steps = tuple(
        GgufStep(info, placed, header.data + info.offset, len(head) + placed.offset, reason)
        for (info, _, reason), placed in zip(decided, outputs, strict=True)
    )
    return GgufPlan(file, output, type_, head, len(head) + end, steps)


def _order(info: TensorInfo) -> tuple[int, bytes]:
    layer = _LAYER.match(info.name)
    return int(layer[1]) if layer else -1, info.name.encode()


def _converted_type(info: TensorInfo, target: TensorType, file: str) -> TensorType:
    if info.type is target:
        return target
    name = excerpt(info.name)
    if info.type.name not in READABLE:
        detail = f"'{name}' is {info.type.name}, which cannot be converted; {', '.join(READABLE)} can, or ignore it"
        raise CheckpointError(detail, file=file, tensor=info.name)
    if info.type.name not in FLOATS and target.name not in FLOATS:
        detail = f"'{name}' is {info.type.name} already; convert the original file, or ignore the tensor"
        raise CheckpointError(detail, file=file, tensor=info.name)
    row = info.dimensions[0]
    if row % target.block:
        halves = row % TENSOR_TYPES["Q4_0"].block or target.name not in ("TQ1_0", "TQ2_0")
        target = TENSOR_TYPES["F16" if halves else "Q4_0"]
    return info.type if info.type is target else target


def _output_keys(keys: Sequence[Key], type_: str) -> list[Key]:
    """The keys of the output. Files of a split model but its first have no general keys, and get none."""
    set_here = {"general.quantization_version": _QUANTIZATION_VERSION, "general.file_type": FILE_TYPES[type_]}
    if not any(key.name == "general.architecture" for key in keys):
        return list(keys)
    kept = [key for key in keys if key.name not in set_here]
    return kept + [Key(name, u32_value(number)) for name, number in set_here.items()]
