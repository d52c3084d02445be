"""The plan for the tensors of a GGUF file, from its header alone.

Source of the tensors that are never quantized: llama.cpp's llama-quant.cpp, version 0.5.0.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from requant.checkpoint.gguf.header import Key, TensorInfo, aligned, header_bytes, read_header, u32_value
from requant.checkpoint.gguf.importance import ImportanceMatrix
from requant.checkpoint.gguf.mixtures import MixedTypes, Target, model_shape, needs_importance, target_named
from requant.checkpoint.gguf.tensor_types import FLOATS, READABLE, TENSOR_TYPES, TensorType
from requant.checkpoint.name_patterns import NamePatterns
from requant.checkpoint.profiles import LLAMA_QUANTIZE, CheckpointProfile
from requant.checkpoint.run.file_plan import CertifiedPlan
from requant.checkpoint.safetensors.header import Header, TensorEntry
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

    `skip_reason`: why its bytes stay as they are. `important`: whether its columns have an importance.
    """

    source: TensorInfo
    output: TensorInfo
    begin: int
    output_begin: int
    skip_reason: str | None
    important: bool = False


@dataclass(frozen=True, slots=True)
class GgufPlan(CertifiedPlan):
    """The plan for a file. `type`: the name of what it becomes; `head`: the output's bytes up to its data; `size`: of
    the output in bytes. `ignore`, `pure`: as they were given."""

    source: StoredFile
    output: str
    type: str
    head: bytes
    size: int
    steps: tuple[GgufStep, ...]
    importance: ImportanceMatrix | None = None
    ignore: tuple[str, ...] = ()
    pure: bool = False

    @property
    def profile(self) -> CheckpointProfile | None:
        return None if self.type in FLOATS else LLAMA_QUANTIZE

    @property
    def members(self) -> dict[str, Any]:
        return {
            "type": self.type,
            "ignore": list(self.ignore),
            "pure": self.pure,
            "imatrix": None if self.importance is None else self.importance.path,
        }

    @property
    def header(self) -> Header:
        return output_header([(step.output, step.output_begin) for step in self.steps], self.size)

    def read_files(self, source: Store) -> dict[str, tuple[Store, StoredFile]]:
        read = {self.source.name: (source, self.source)}
        if self.importance is not None:
            read[f"imatrix/{self.importance.file.name}"] = (self.importance.store, self.importance.file)
        return read

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
            **({"imatrix": self.importance.path} if self.importance else {}),
            "tensors": [
                {
                    "name": step.source.name,
                    "shape": list(reversed(step.source.dimensions)),
                    "from": step.source.type.name,
                    "to": step.output.type.name,
                    **({"kept": step.skip_reason} if step.skip_reason else {}),
                    **({"imatrix": step.important} if self.importance and not step.skip_reason else {}),
                }
                for step in self.steps
            ],
        }

    def lines(self) -> Iterable[str]:
        converted = sum(step.skip_reason is None for step in self.steps)
        yield f"{self.source.name}: {self.source.size:,} bytes, {len(self.steps)} tensors"
        yield f"{self.output}: {self.size:,} bytes, {converted} tensors converted to {self.type}"
        if self.importance:
            known = sum(step.important for step in self.steps)
            yield f"{self.importance.path}: the importance of the columns of {known} of them"
        for step in self.steps:
            shape = "x".join(map(str, reversed(step.source.dimensions)))
            change = f"({step.skip_reason})" if step.skip_reason else f"-> {step.output.type.name}"
            yield f"  {step.source.name} [{shape}] {step.source.type.name} {change}"


def output_header(placed: Iterable[tuple[TensorInfo, int]], size: int) -> Header:
    """Return where tensors lie in a file of so many bytes. `placed`: each with its begin in the file."""
    entries = (
        TensorEntry(info.name, info.type.name, tuple(reversed(info.dimensions)), begin, begin + info.size)
        for info, begin in placed
    )
    return Header(tuple(entries), None, size)


def plan_gguf(
    source: Store,
    name: str,
    output: str,
    type_: str,
    *,
    ignore: Sequence[str] = (),
    pure: bool = False,
    importance: ImportanceMatrix | None = None,
) -> GgufPlan:
    """Return the plan for converting the file `name` of a store to `type_`, as `llama-quantize` does: by a mixture of
    types, or, if `type_` is none or with `pure`, as with `--pure`.

    Tensors of two dimensions and more are converted; what llama.cpp keeps, and what `ignore` names, stays as it is.
    The keys are copied, with `general.quantization_version`, `general.file_type` and those of an importance matrix set.
    Tensors are in the order of their layers, then of their names. Rows that are not whole blocks become another type
    that fits, or F16. Of a split model each file is converted on its own, and keeps its number; a mixture needs all.

    Raises UnknownNameError for the type; CheckpointError where a tensor to be converted is of a type that cannot be
    read, or is quantized already and would be quantized again, or where the importance matrix is that of another model
    or lacks what a type demands; what `model_shape` and `read_header` raise, and StorageError where there is no such
    file.
    """
    file = file_named(source, name)
    header = read_header(source, file)
    target = target_named(type_)
    ordered, ignored = sorted(header.tensors, key=_order), NamePatterns(ignore)
    types = _types(header.keys, ordered, target, pure, importance, name)
    decided = []
    for info in ordered:
        reason = "ignored" if ignored.match(info.name) else _reason(info)
        to = info.type if reason else _converted_type(info, types[info.name], name)
        reason = reason or ("it has that type" if to is info.type else None)
        important = reason is None and _is_important(info, to, target, importance, name)
        decided.append((info, replace(info, type=to), reason, important))
    outputs, end = [], 0
    for _, info, *_ in decided:
        # As ggml writes them.
        dimensions = (*info.dimensions, 1)[: rank_without_ones(info.dimensions)]
        outputs.append(replace(info, offset=end, dimensions=dimensions))
        end = aligned(end + info.size, header.alignment)
    head = header_bytes(
        output_keys(header.keys, target.file_type, importance.keys() if importance else ()), outputs, header.alignment
    )
    steps = tuple(
        GgufStep(info, placed, header.data + info.offset, len(head) + placed.offset, reason, important)
        for (info, _, reason, important), placed in zip(decided, outputs, strict=True)
    )
    return GgufPlan(file, output, target.name, head, len(head) + end, steps, importance, tuple(ignore), pure)


def _reason(info: TensorInfo) -> str | None:
    """Why a tensor stays, whatever its type was."""
    kept = skip_reason(info.name, info.dimensions)
    return kept or ("not a weight" if info.type.name in _NO_WEIGHTS else None)


def _types(
    keys: Sequence[Key],
    tensors: Sequence[TensorInfo],
    target: Target,
    pure: bool,
    importance: ImportanceMatrix | None,
    file: str,
) -> dict[str, TensorType]:
    """The types of the tensors that are converted, whether rows are whole blocks or not. Which are ignored does not
    change those of the others."""
    converted = [info for info in tensors if skip_reason(info.name, info.dimensions) is None]
    if pure or not target.mixed or not converted:
        return {info.name: target.type for info in converted}
    names = [info.name for info in tensors]
    mixed = MixedTypes(target, model_shape(keys, file), names, importance is not None, file)
    return {info.name: mixed.type_of(info.name, info.dimensions[0]) for info in converted}


def _is_important(
    info: TensorInfo, to: TensorType, target: Target, importance: ImportanceMatrix | None, file: str
) -> bool:
    experts = info.dimensions[2] if len(info.dimensions) > 2 else 1
    found = importance is not None and importance.find(info.name, info.dimensions[0], experts)
    if not found and needs_importance(info.name, to, target):
        detail = f"{target.name} makes '{excerpt(info.name)}' {to.name}, for which llama-quantize demands an importance"
        raise CheckpointError(f"{detail}: give --imatrix with one of it, or use Q2_K", file=file, tensor=info.name)
    return found


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
        target = TENSOR_TYPES[_INSTEAD.get(target.name, "F16")]
        target = TENSOR_TYPES["F16"] if row % target.block else target
    return info.type if info.type is target else target


# For rows that are not whole blocks of 256.
_INSTEAD = {
    "TQ1_0": "Q4_0",
    "TQ2_0": "Q4_0",
    "Q2_K": "Q4_0",
    "Q3_K": "Q4_0",
    "Q4_K": "Q5_0",
    "Q5_K": "Q5_1",
    "Q6_K": "Q8_0",
    "IQ4_XS": "IQ4_NL",
}


def output_keys(keys: Sequence[Key], file_type: int, more: Sequence[Key] = ()) -> list[Key]:
    """The keys of an output. Files of a split model but its first have no general keys, and get none."""
    if not any(key.name == "general.architecture" for key in keys):
        return list(keys)
    set_here = [
        Key("general.quantization_version", u32_value(_QUANTIZATION_VERSION)),
        Key("general.file_type", u32_value(file_type)),
        *more,
    ]
    names = {key.name for key in set_here}
    return [key for key in keys if key.name not in names] + set_here
