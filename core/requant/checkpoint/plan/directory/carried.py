"""Selects the other files of the directory to copy: tokenizer, generation config, chat template, code, license.

Left out: what is hidden (`.git`, `.cache`), what an interrupted run left (`.part`), index and config.json, which are
written anew, the record of an earlier conversion, the settings of another quantizer, and the same weights in another
format. Weights in a folder are carried over, as a pooling or projection module of Sentence Transformers has them there,
except in folders that hold exports of the whole model.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from pathlib import PurePosixPath

from requant.checkpoint.plan.directory.source import CONFIG
from requant.checkpoint.safetensors.index_reader import INDEX
from requant.checkpoint.storage.local_writer import PART
from requant.checkpoint.storage.store import StoredFile

_WRITTEN = {CONFIG, INDEX}
_RECORDS = "requant-"
"""How the names of what a conversion records at its destination begin."""

_OTHER_QUANTIZERS = {"quantize_config.json", "quant_config.json", "quantization_config.json", "hf_quant_config.json"}
"""Of AutoGPTQ, AutoAWQ, auto-round and ModelOpt. vLLM reads some of them where config.json names no method."""

_WEIGHT_ENDINGS = {
    ".safetensors", ".bin", ".pt", ".pth", ".ckpt", ".h5", ".msgpack", ".ot", ".onnx", ".onnx_data", ".gguf", ".tflite",
    ".mlmodel",
}  # fmt: skip
_INDEX_ENDINGS = (".safetensors.index.json", ".bin.index.json", ".h5.index.json", ".msgpack.index.json")
_EXPORTS = {"original", "onnx", "openvino", "coreml", "metal"}


def split_carried(
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
