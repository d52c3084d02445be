"""The files of a model's directory beside those with tensors: config.json, the index, and files that are copied."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping
from io import BytesIO
from pathlib import PurePosixPath
from typing import Any

from requant.checkpoint.ordering import sorted_in_pieces
from requant.checkpoint.plan.model import Plan, Task
from requant.checkpoint.plan.refusals import Refusals
from requant.checkpoint.plan.source import CONFIG, Source
from requant.checkpoint.quantization_config.methods import OF_OPENAI
from requant.checkpoint.safetensors.reader import INDEX
from requant.checkpoint.storage.local_writer import PART
from requant.checkpoint.storage.store import StoredFile
from requant.checkpoint.weights.floats import TORCH_NAMES
from requant.errors import CheckpointError, excerpt
from requant.errors.cancellation import checked

QUANTIZATION = "quantization_config"
_OLD_NAME = "compression_config"
_OF_EXPERTS = "expert_dtype"
"""DeepSeek-V4 says beside its quantization_config how the experts are stored; later models within."""
_LANGUAGE_MODEL = "text_config"
_DTYPE_MEMBERS = ("dtype", "torch_dtype")


_OF_OPENAI = ".mlp1_weight.blocks"


def quantization_of(source: Source) -> Mapping[str, Any] | None:
    """Return the quantization_config of config.json, None if there is none.

    Looks where vLLM and compressed-tensors look: `quantization_config`, that of `text_config`, `compression_config`.
    OpenAI's own files of gpt-oss are recognized by their names. Raises CheckpointError for one that is no object.
    """
    stated = _stated_quantization(source.config)
    if stated is None and any(
        entry.name.endswith(_OF_OPENAI) for shard in source.shards.values() for entry in checked(shard.header.tensors)
    ):
        return OF_OPENAI
    return stated


def _stated_quantization(config: Mapping[str, Any]) -> Mapping[str, Any] | None:
    nested = config.get(_LANGUAGE_MODEL)
    for members in (
        config.get(QUANTIZATION),
        nested.get(QUANTIZATION) if isinstance(nested, dict) else None,
        config.get(_OLD_NAME),
    ):
        if isinstance(members, dict):
            return members if _OF_EXPERTS not in config else {_OF_EXPERTS: config[_OF_EXPERTS], **members}
        if members is not None:
            detail = f"quantization_config is {excerpt(str(members))}; expected an object: download config.json again"
            raise CheckpointError(detail, file="config.json")
    return None


def with_quantization(config: Mapping[str, Any], members: Mapping[str, Any]) -> bytes:
    """Return the text of a config.json of plain weights with the quantization_config of what they become."""
    return config_text({**config, QUANTIZATION: members})


def without_quantization(config: Mapping[str, Any], dtype: str) -> dict[str, Any]:
    """Return the config.json of plain weights, with their dtype wherever it states one."""
    plain = _plain(config, dtype)
    nested = plain.get(_LANGUAGE_MODEL)
    if isinstance(nested, dict):
        plain[_LANGUAGE_MODEL] = _plain(nested, dtype)
    return plain


def _plain(part: Mapping[str, Any], dtype: str) -> dict[str, Any]:
    kept = {name: value for name, value in part.items() if name not in (QUANTIZATION, _OLD_NAME, _OF_EXPERTS)}
    return kept | {name: TORCH_NAMES[dtype] for name in _DTYPE_MEMBERS if name in kept}


def stated_dtype(config: Mapping[str, Any]) -> str | None:
    """Return the dtype of the model's weights by its name in safetensors, None where config.json does not say it."""
    for part in (config, config.get(_LANGUAGE_MODEL)):
        if isinstance(part, dict):
            for name in _DTYPE_MEMBERS:
                for dtype, stated in TORCH_NAMES.items():
                    if part.get(name) == stated:
                        return dtype
    return None


def config_text(config: Mapping[str, Any]) -> bytes:
    """Return JSON as transformers writes it: indented by 2, keys sorted."""
    return (json.dumps(config, indent=2, sort_keys=True) + "\n").encode()


def index_of(tasks: Iterable[Task]) -> bytes:
    """Return the index of the outputs. `total_size` is the sum of the tensors' bytes, without headers.

    The text is that of `json.dumps` with an indent of 2 and sorted keys, of one tensor at a time.
    """
    places: list[tuple[str, str]] = []
    total = 0
    for task in tasks:
        output = json.dumps(task.output)
        for entry in task.header.tensors:
            places.append((entry.name, output))
            total += entry.end - entry.begin
    places = sorted_in_pieces(places, lambda place: place)
    text = BytesIO()
    text.write(f'{{\n  "metadata": {{\n    "total_size": {total}\n  }},\n  "weight_map": {{'.encode())
    for number, (name, output) in enumerate(checked(places)):
        text.write(f"{',' if number else ''}\n    {json.dumps(name)}: {output}".encode())
    text.write(b"\n  }\n}")
    return text.getvalue()


_WRITTEN = {CONFIG, INDEX}
_RECORDS = "requant-"
"""How the names of what a conversion records at its destination begin."""

_OTHER_QUANTIZERS = {
    "quantize_config.json", "quant_config.json", "quantization_config.json", "hf_quant_config.json", "dtypes.json",
}  # fmt: skip
"""Of AutoGPTQ, AutoAWQ, auto-round, ModelOpt and OpenAI. vLLM reads some of them where config.json names no method."""

_WEIGHT_ENDINGS = {
    ".safetensors", ".bin", ".pt", ".pth", ".ckpt", ".h5", ".msgpack", ".ot", ".onnx", ".onnx_data", ".gguf", ".tflite",
    ".mlmodel",
}  # fmt: skip
_INDEX_ENDINGS = (".safetensors.index.json", ".bin.index.json", ".h5.index.json", ".msgpack.index.json")
_EXPORTS = {"original", "onnx", "openvino", "coreml", "metal"}


def split_copied_files(
    files: Iterable[StoredFile], shards: Collection[str]
) -> tuple[tuple[StoredFile, ...], tuple[StoredFile, ...]]:
    """Return the files to copy, and the weights and indexes in other formats that are left out.

    Hidden files, and those that are written anew, are in neither.
    """
    carried: list[StoredFile] = []
    left_out: list[StoredFile] = []
    for file in files:
        path = PurePosixPath(file.name)
        hidden = any(part.startswith(".") for part in path.parts)
        if file.name in shards or file.name in _WRITTEN or file.name.startswith(_RECORDS) or hidden:
            continue
        (left_out if _is_other_form(path) else carried).append(file)
    return tuple(carried), tuple(left_out)


def _is_other_form(path: PurePosixPath) -> bool:
    if path.suffix == PART:
        # What a killed process left, and the name under which the file without it is written.
        return True
    if len(path.parts) > 1:
        return path.parts[0] in _EXPORTS
    return path.suffix in _WEIGHT_ENDINGS or path.name.endswith(_INDEX_ENDINGS) or path.name in _OTHER_QUANTIZERS


MAX_BYTES = 250
"""File systems take 255; a file that is being written is `<name>.part`."""


def check_file_names(plan: Plan) -> None:
    """Raise CheckpointError for names that are not UTF-8, which manifests and object stores need, or are too long."""
    refusals = Refusals()
    for name in (*(task.output for task in plan.tasks), *(file.name for file in plan.carried)):
        try:
            longest = max(len(part.encode()) for part in name.split("/"))
        except UnicodeEncodeError:
            refusals.add(f"the file name '{excerpt(name)}' is not UTF-8", "rename or remove the file")
            continue
        if longest > MAX_BYTES:
            refusals.add(
                f"the file name '{excerpt(name)}' has {longest} bytes, but at most {MAX_BYTES} can be written",
                "rename or remove the file",
            )
    refusals.raise_any()
