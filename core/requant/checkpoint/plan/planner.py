"""The plan of a conversion, from the headers, the index and config.json of a checkpoint."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from requant.checkpoint.plan.dequantization import (
    SourceTensor,
    dequantization_tasks,
    dequantized_tensors,
    stored_tensors,
)
from requant.checkpoint.plan.model import CopyStep, DequantizeStep, Direction, Plan, QuantizeStep, Repack, Request, Task
from requant.checkpoint.plan.model_files import (
    check_file_names,
    config_text,
    index_of,
    quantization_of,
    split_copied_files,
    stated_dtype,
    with_quantization,
    without_quantization,
)
from requant.checkpoint.plan.quantization import quantization_tasks
from requant.checkpoint.plan.recipe import Recipe
from requant.checkpoint.plan.refusals import Refusals, parameter_of
from requant.checkpoint.plan.source import Reserve, Source, read_source, unlimited
from requant.checkpoint.plan.stored_formats import stored_formats
from requant.checkpoint.plan.warnings import left_out_warnings, quantization_warnings, tensor_parallel_warnings
from requant.checkpoint.profiles import CHECKPOINT_PROFILES
from requant.checkpoint.quantization_config import torchao
from requant.checkpoint.quantization_config.methods import OF_OPENAI
from requant.checkpoint.safetensors.header import Header
from requant.checkpoint.selection import DEFAULT_IGNORE, with_default_entries
from requant.checkpoint.storage.store import Store, StoredFile
from requant.errors import CheckpointError, ParameterError, excerpt
from requant.errors.cancellation import checked
from requant.errors.names import entry_named, unknown_name

NO_SETTINGS: Mapping[str, bytes] = {}
PLAN_VERSION = 1
"""Raised whenever the same headers are filled with other bytes."""


def digest_of(
    source: Source,
    request: Request,
    arithmetic: Mapping[str, str],
    tasks: Iterable[Task],
    carried: Iterable[StoredFile],
    config: bytes,
    settings: Mapping[str, bytes] = NO_SETTINGS,
) -> str:
    """Return the SHA-256, in hex, of all that the outputs depend on. `arithmetic`: the profile with its version.

    Of each file of the source: name, size and version; of those with tensors the header. Of the outputs: the headers,
    and config.json as it will be, so that a version of Requant that plans other outputs has another digest.
    """
    return _hash(
        {
            "plan": PLAN_VERSION,
            "request": request.members,
            "arithmetic": dict(arithmetic),
            "shards": [
                [shard.file.name, shard.file.size, shard.file.version, _hash_of_entries(shard.header)]
                for _, shard in sorted(source.shards.items())
            ],
            "carried": [[file.name, file.size, file.version] for file in carried],
            "outputs": [[task.output, hashlib.sha256(task.head).hexdigest()] for task in tasks],
            "config": config.decode(),
            **({"settings": {name: text.decode() for name, text in settings.items()}} if settings else {}),
        }
    )


def _hash_of_entries(header: Header) -> str:
    """Return the hash of the list of all tensors, of which the text is never there at once."""
    digest = hashlib.sha256(b"[")
    for number, entry in enumerate(checked(header.tensors)):
        text = _json([entry.name, entry.dtype, entry.shape, entry.begin, entry.end])
        digest.update(b"," + text if number else text)
    digest.update(b"]")
    return digest.hexdigest()


def _hash(value: Any) -> str:
    return hashlib.sha256(_json(value)).hexdigest()


def _json(value: Any) -> bytes:
    return _encode(value).encode()


_encode = json.JSONEncoder(sort_keys=True, separators=(",", ":")).encode


_HEAD = "lm_head"
_MATRIX = 2
_WITH_HEAD = ("ForCausalLM", "ForConditionalGeneration", "LMHeadModel")
_TRANSPOSED = ("gpt2", "openai-gpt", "imagegpt", "decision_transformer", "clvp")
"""Models with Conv1D, whose plain weights are [in, out]. Source: transformers 5.23.0, `Bnb8bitQuantize` and
`Bnb4bitQuantize` (`integrations/bitsandbytes.py`)."""
DTYPES_OF_WEIGHTS = ("BF16", "F16", "F32")


def plan_conversion(store: Store, request: Request, reserve: Reserve = unlimited) -> Plan:
    """Return the plan for the checkpoint at `store`. Reads only its headers, index and config.json.

    The work can be cancelled (`requant.errors.cancellation`), and `reserve` is asked for memory before it is taken.

    Raises CheckpointError for what cannot be converted, with all reasons; UnknownNameError for a scheme, an option of
    it, a profile or a dtype that does not exist; ParameterError for another wrong option or pattern; SafetensorsError,
    StorageError, SourceChangedError.
    """
    plan = plan_of(read_source(store, reserve), request, reserve)
    check_file_names(plan)
    return plan


def plan_of(source: Source, request: Request, reserve: Reserve = unlimited) -> Plan:
    """Return the plan for a source that was read before."""
    if source.gguf is None and quantization_of(source) is None and torchao.is_quantized(_metadata(source)):
        raise CheckpointError(
            "the metadata of the files say that torchao quantized the weights, and config.json does not: "
            'correct it with {"quantization_config": {"quant_method": "torchao"}}',
            file="config.json",
        )
    if request.direction is Direction.QUANTIZE:
        return _quantization(source, request, reserve)
    return _dequantization(source, request)


def _quantization(source: Source, request: Request, reserve: Reserve) -> Plan:
    recipe = Recipe(request)
    if quantization_of(source) is OF_OPENAI:
        raise CheckpointError(
            "these are OpenAI's own files of gpt-oss, and no loader of quantized models knows their names: use "
            "those that transformers loads, with model.layers.0.mlp.experts.gate_up_proj_blocks, in the directory that "
            "original/ is in"
        )
    profile = entry_named(CHECKPOINT_PROFILES, request.profile, "checkpoint profile")
    content = content_of(source, request)
    names = [each.name for each in content.tensors]
    ignored: tuple[str, ...] = ()
    if request.repack is Repack.NO or source.gguf is not None:
        # A GGUF file has embeddings and output layers in blocks too.
        entries = request.ignore if request.repack is Repack.NO else request.ignore or DEFAULT_IGNORE
        ignored = with_default_entries(entries, request.targets, recipe.always_ignored, names)
    request = replace(request, schemes=recipe.stated, ignore=ignored)
    recipe = Recipe(request)
    only_quantized = request.repack is not Repack.NO
    tasks = quantization_tasks(content.tensors, content.config, recipe, only_quantized=only_quantized, reserve=reserve)
    request = replace(request, input_scales=recipe.named_by_tensor(request.input_scales))
    head = _tied_head(content.config, names)
    ignore = request.ignore if recipe.selection.skip_reason(f"{_HEAD}.weight") else (*request.ignore, *head)
    members = recipe.quantization_config(_quantized(tasks), ignore, (*_left(tasks), *head))
    carried, left_out = split_copied_files(source.files, source.shards)
    warnings = quantization_warnings(request, recipe, tasks, content.config)
    arithmetic = {"profile": profile.name, "system": profile.system, "version": profile.version, **content.arithmetic}
    config = with_quantization(content.config, members)
    settings = recipe.schemes[0].settings((*_left(tasks), *head))
    return Plan(
        request,
        digest_of(source, request, arithmetic, tasks, carried, config, settings),
        tuple(shard.file for shard in source.shards.values()),
        tasks,
        carried,
        index_of(tasks),
        config,
        (*warnings, *content.warnings, *left_out_warnings(left_out), *tensor_parallel_warnings(tasks)),
        settings,
    )


@dataclass(frozen=True, slots=True)
class Content:
    """The tensors and config.json of a checkpoint without quantization. `arithmetic`: what the tensors depend on beside
    the headers.
    """

    tensors: tuple[SourceTensor, ...]
    config: Mapping[str, Any]
    arithmetic: Mapping[str, str]
    warnings: tuple[str, ...]


def content_of(source: Source, request: Request) -> Content:
    """Return what a checkpoint holds; what is quantized, as it is dequantized. Raises CheckpointError."""
    if source.gguf is not None:
        return _gguf_content(source, request)
    quantization = quantization_of(source)
    if quantization is None:
        if request.repack is not Repack.NO:
            raise CheckpointError(
                "config.json has no quantization_config, so there are no codes and scales to move: use "
                "`requant checkpoint quantize` instead"
            )
        if request.dtype is not None:
            raise ParameterError(
                "dtype is that of dequantized weights; the weights of this checkpoint are not quantized"
            )
        return Content(tuple(stored_tensors(source)), source.config, {}, ())
    _check_dtype(request)
    dtype = request.dtype or stated_dtype(source.config) or "BF16"
    if dtype not in DTYPES_OF_WEIGHTS:
        raise CheckpointError(f"dtype is '{excerpt(dtype)}': choose one of {', '.join(DTYPES_OF_WEIGHTS)}")
    modules = {parameter_of(entry.name)[0] for shard in source.shards.values() for entry in shard.header.tensors}
    metadata = _metadata(source)
    try:
        formats = stored_formats(quantization, modules, metadata)
    except CheckpointError as error:
        raise CheckpointError(f"{error.detail}: {_OTHERWISE}", file=error.file, tensor=error.tensor) from None
    if formats.name == "bitsandbytes" and (kind := source.config.get("model_type")) in _TRANSPOSED:
        raise CheckpointError(
            f"bitsandbytes stores the weights of a model of type '{kind}' transposed, which is not undone: {_OTHERWISE}"
        )
    refusals = Refusals()
    of_scales = request.repack is not Repack.NO and bool(request.schemes) and request.dtype is None
    tensors, dropped = dequantized_tensors(source, formats, dtype, refusals, of_scales=of_scales)
    refusals.raise_any()
    warnings = _dropped(dropped)
    arithmetic = {"method": formats.name, "dtype": dtype, "quantization": _json(quantization).decode()}
    if formats.name == torchao.METHOD:
        arithmetic["metadata"] = _hash(metadata)
    return Content(tuple(tensors), without_quantization(source.config, dtype), arithmetic, warnings)


def _gguf_content(source: Source, request: Request) -> Content:
    # As in `requant.checkpoint.plan.source`.
    from requant.checkpoint.gguf.tensor_types import FLOATS, GGML_VERSION
    from requant.checkpoint.plan.gguf_source import dtype_of_gguf, gguf_tensors

    assert source.gguf is not None
    _check_dtype(request)
    types = sorted({info.type.name for info in source.gguf.header.tensors})
    if request.repack is not Repack.NO and not any(name not in FLOATS for name in types):
        (file,) = source.shards
        raise CheckpointError(
            f"{file} has only floats, so there are no codes and scales to move: choose a quantized file, or quantize "
            "this one",
            file=file,
        )
    dtype, refusals = dtype_of_gguf(source, request), Refusals()
    tensors, dropped = gguf_tensors(source, dtype, refusals)
    refusals.raise_any()
    arithmetic = {"method": "gguf", "dtype": dtype, "ggml": GGML_VERSION}
    return Content(tuple(tensors), without_quantization(source.config, dtype), arithmetic, _dropped(dropped))


def _check_dtype(request: Request) -> None:
    if request.dtype is not None and request.dtype not in DTYPES_OF_WEIGHTS:
        raise unknown_name("dtype of weights", request.dtype, DTYPES_OF_WEIGHTS)


def _dropped(count: int) -> tuple[str, ...]:
    return (f"{count} scales of quantized activations are dropped",) if count else ()


def _metadata(source: Source) -> list[dict[str, str] | None]:
    """Return the metadata of each file."""
    return [shard.header.metadata for shard in source.shards.values()]


def _tied_head(config: Mapping[str, Any], names: Iterable[str]) -> tuple[str, ...]:
    """Return `lm_head` where loaders would look for its quantized weight, and the checkpoint has none.

    An output layer that is tied to the embeddings is a linear module without tensors of its own.
    """
    architectures = config.get("architectures")
    has_head = isinstance(architectures, list) and any(str(name).endswith(_WITH_HEAD) for name in architectures)
    return (_HEAD,) if has_head and not any(f"{_HEAD}." in name for name in names) else ()


def _quantized(tasks: Iterable[Task]) -> Iterator[str]:
    """Yield the modules that are quantized."""
    return (step.module for task in tasks for step in task.steps if isinstance(step, QuantizeStep))


def _left(tasks: Iterable[Task]) -> list[str]:
    """Return the modules with a weight of two dimensions that is not quantized."""
    return [
        step.output.removesuffix(".weight")
        for task in tasks
        for step in task.steps
        if isinstance(step, CopyStep | DequantizeStep)
        and step.output.endswith(".weight")
        and len(step.source.tensor_shape) == _MATRIX
    ]


_OTHERWISE = "restore the weights with the program that wrote them, or start from the checkpoint in BF16, F16 or F32"


def _dequantization(source: Source, request: Request) -> Plan:
    if source.gguf is None and quantization_of(source) is None:
        raise CheckpointError(
            "config.json has no quantization_config, so the weights are not quantized: use them as they are"
        )
    content = content_of(source, request)
    tasks = dequantization_tasks(content.tensors)
    carried, left_out = split_copied_files(source.files, source.shards)
    config = config_text(content.config)
    return Plan(
        request,
        digest_of(source, request, content.arithmetic, tasks, carried, config),
        tuple(shard.file for shard in source.shards.values()),
        tasks,
        carried,
        index_of(tasks),
        config,
        (*content.warnings, *left_out_warnings(left_out)),
    )
