"""The parts of a checkpoint: its safetensors files with their headers, its index, its config.json.

Where config.json says nothing of quantization, `hf_quant_config.json` of ModelOpt does.

A checkpoint is one `model.safetensors`, or the files that `model.safetensors.index.json` names, or, without both, all
safetensors files of the directory. Index and headers have to agree: each tensor is in the one file that the index
names for it, and each tensor of such a file is in the index.

Some shapes of weights are not in a header: how many columns a packed weight has stands in a tensor. compressed-tensors
writes `weight_shape`, I64 [2]; bitsandbytes a `quant_state`, JSON as U8.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from requant.checkpoint.gguf.model_store import GgufModel
from requant.checkpoint.plan.refusals import Refusals, parameter_of
from requant.checkpoint.quantization_config import model_optimizer
from requant.checkpoint.quantization_config.members import member
from requant.checkpoint.safetensors.header import Header, TensorEntry
from requant.checkpoint.safetensors.reader import INDEX, MAX_INDEX_BYTES, parse_index, read_header
from requant.checkpoint.safetensors.scanner import Text
from requant.checkpoint.small_json import parse_small_json
from requant.checkpoint.storage.store import Store, StoredFile
from requant.checkpoint.weights.nf4 import STATE, read_state
from requant.errors import CheckpointError, SafetensorsError, excerpt
from requant.errors.cancellation import check_cancelled, checked

if TYPE_CHECKING:
    from requant.checkpoint.gguf.header import GgufHeader

_SHAPE = "weight_shape"
_MAX_STATE_BYTES = 4096
_MAX_TOGETHER = 1 << 20


def stated_shapes(store: Store, shards: Iterable[tuple[StoredFile, Header]]) -> dict[str, tuple[int, int]]:
    """Return the shapes by module. Neighbours are read at once; the libraries put all of a file side by side.

    Raises CheckpointError for a state that cannot be read or is of another kind; StorageError, SourceChangedError.
    """
    shapes: dict[str, tuple[int, int]] = {}
    for file, header in shards:
        for run in checked(_runs(entry for entry in checked(header.tensors) if _reader(entry) is not None), 1):
            first = run[0].begin
            data = bytearray(run[-1].end - first)
            store.read_into(file, first, memoryview(data))
            for entry in run:
                read = _reader(entry)
                assert read is not None
                try:
                    shape = read(bytes(data[entry.begin - first : entry.end - first]))
                except CheckpointError as error:
                    raise CheckpointError(
                        f"{entry.name}: {error}: download the file again", file=file.name, tensor=entry.name
                    ) from None
                shapes[parameter_of(entry.name)[0]] = shape
    return shapes


def _runs(entries: Iterable[TensorEntry]) -> Iterator[list[TensorEntry]]:
    """Yield tensors that lie side by side together, at most `_MAX_TOGETHER` bytes."""
    run: list[TensorEntry] = []
    for entry in entries:
        if run and (entry.begin != run[-1].end or entry.end - run[0].begin > _MAX_TOGETHER):
            yield run
            run = []
        run.append(entry)
    if run:
        yield run


def _reader(entry: TensorEntry) -> Callable[[bytes], tuple[int, int]] | None:
    """Return what reads the shape from the bytes of a tensor, None for a tensor that holds none."""
    _, parameter = parameter_of(entry.name)
    if parameter == _SHAPE and entry.dtype == "I64" and entry.shape == (2,):
        return _two_integers
    if parameter == STATE and entry.dtype == "U8" and entry.end - entry.begin <= _MAX_STATE_BYTES:
        return lambda data: read_state(data).shape
    return None


def _two_integers(data: bytes) -> tuple[int, int]:
    return int.from_bytes(data[:8], "little", signed=True), int.from_bytes(data[8:], "little", signed=True)


WEIGHTS = "model.safetensors"
MANIFEST = "requant-manifest.json"
CONFIG = "config.json"
SAFETENSORS = ".safetensors"

_QUANTIZATION = ("quantization_config", "compression_config")
MAX_CONFIG_BYTES = 4 << 20
MAX_SHARDS = 10_000

Reserve = Callable[[int], None]
"""Called with the bytes of memory that a plan is about to take. Raises where they are not to be had."""

BYTES_PER_TENSOR = 2800
"""What a plan keeps of one tensor at most: its entry, its step and up to four entries of what it becomes."""
_BYTES_PER_MEMBER = 300
_BYTES_PER_FILE = 600
# The text, and a value of its metadata: in pieces, and whole.
_COPIES_OF_HEADER = 3
_COPIES_OF_INDEX = 2
_BYTES_PER_BYTE_OF_CONFIG = 24
_COUNTED_AT_ONCE = 1 << 20


def unlimited(byte_count: int) -> None:
    """Take memory without asking: that of a process of one's own."""


@dataclass(frozen=True, slots=True)
class Shard:
    """A safetensors file of the checkpoint."""

    file: StoredFile
    header: Header


@dataclass(frozen=True, slots=True)
class Source:
    """A checkpoint as a plan sees it. `files`: all of the directory. `shards`: by file name, in its order.

    `config`: what config.json holds, with the quantization_config of another file. `weight_shapes`: by module, where a
    tensor holds the shape of its weight.
    `gguf`: where the weights are those of a GGUF file, which is the only shard.
    """

    files: tuple[StoredFile, ...]
    shards: dict[str, Shard]
    config: dict[str, Any]
    weight_shapes: dict[str, tuple[int, int]]
    gguf: GgufPart | None = None


@dataclass(frozen=True, slots=True)
class GgufPart:
    """A GGUF file as the weights of a checkpoint. `header`: what it holds. `places`: the file of each tensor in the
    directory of the same model, and its shape if the file is there; nothing if that is quantized, or has no index.
    """

    header: GgufHeader
    places: Mapping[str, tuple[str, tuple[int, ...] | None]]


def read_source(store: Store, reserve: Reserve = unlimited) -> Source:
    """Read the headers, the index and config.json of a checkpoint. `reserve` is asked for the memory of each first.

    Raises CheckpointError, with all that was found: no checkpoint, a file that the index names and that is not there,
    index and headers that do not agree; SafetensorsError, StorageError, SourceChangedError.
    """
    if isinstance(store, GgufModel):
        return _read_gguf(store, reserve)
    files = files_of(store)
    reserve(_BYTES_PER_FILE * len(files))
    config = _with_other_quantization(store, files, read_config(store, files, reserve), reserve)
    index = _read_index(store, files, reserve)
    refusals = Refusals()
    shards: dict[str, Shard] = {}
    for name in _shard_names(files, index, refusals):
        check_cancelled()
        try:
            shards[name] = Shard(files[name], header_of(store, files[name], reserve))
        except SafetensorsError as error:
            refusals.add_error(error, "download the file again", file=name, tensor=error.tensor)
    refusals.raise_any()
    _check_agreement(shards, index, refusals)
    refusals.raise_any()
    shapes = stated_shapes(store, ((shard.file, shard.header) for shard in shards.values()))
    return Source(tuple(files.values()), shards, config, shapes)


def _read_gguf(store: GgufModel, reserve: Reserve) -> Source:
    # The types of GGUF, with their tables and searches, take a twentieth of a start to import.
    from requant.checkpoint.gguf.header import read_header as read_gguf_header

    like = files_of(store.like)
    config = read_config(store.like, like, reserve)
    reserve(BYTES_PER_TENSOR * min(store.file.size, _LARGEST_GGUF_HEADER) // _BYTES_OF_GGUF_TENSOR)
    header = read_gguf_header(store, store.file)
    entries = tuple(
        TensorEntry(info.name, info.type.name, tuple(reversed(info.dimensions)), begin, begin + info.size)
        for info in header.tensors
        for begin in (header.data + info.offset,)
    )
    places: dict[str, tuple[str, tuple[int, ...] | None]] = {}
    if not any(config.get(name) for name in ("quantization_config", "compression_config")):
        if any(name.endswith(SAFETENSORS) for name in like):
            shards = read_source(store.like, reserve).shards
            places = {
                entry.name: (file, entry.shape) for file, shard in shards.items() for entry in shard.header.tensors
            }
        elif (index := _read_index(store.like, like, reserve)) is not None:
            places = {name: (file, None) for name, file in index.items() if is_plain_name(file)}
    shard = Shard(store.file, Header(entries, None, store.file.size))
    return Source(store.files(), {store.name: shard}, config, {}, GgufPart(header, places))


_LARGEST_GGUF_HEADER, _BYTES_OF_GGUF_TENSOR = 64 << 20, 256


def files_of(store: Store) -> dict[str, StoredFile]:
    """Return the files of a checkpoint by name. Raises CheckpointError if there are none, StorageError."""
    files = {file.name: file for file in store.files()}
    if not files:
        raise CheckpointError(
            f"{store.url} does not exist or has no files: name the directory that holds {CONFIG} and {WEIGHTS} or "
            f"{INDEX}"
        )
    return files


def read_config(store: Store, files: dict[str, StoredFile], reserve: Reserve = unlimited) -> dict[str, Any]:
    """Return what config.json holds."""
    if CONFIG not in files:
        if MANIFEST in files:
            raise CheckpointError(
                f"{store.url} is an unfinished conversion: {CONFIG} is written last. Give the same "
                "command again, which finishes it"
            )
        raise CheckpointError(
            f"{store.url} has no {CONFIG}: not a checkpoint that transformers or vLLM can load. Give the directory "
            f"that contains {CONFIG} and {WEIGHTS} or {INDEX}"
        )
    return _json_object(store, files[CONFIG], reserve)


def _with_other_quantization(
    store: Store, files: dict[str, StoredFile], config: dict[str, Any], reserve: Reserve
) -> dict[str, Any]:
    """Return `config` with what ModelOpt says in a file of its own, where it does not say how weights are quantized.

    A `quant_algo` of null is that of plain weights.
    """
    name = model_optimizer.FILE
    nested = config.get("text_config")
    parts = (config, nested) if isinstance(nested, dict) else (config,)
    if name not in files or any(part.get(each) is not None for part in parts for each in _QUANTIZATION):
        return config
    members = _json_object(store, files[name], reserve)
    stated = member(members, model_optimizer.NESTED, dict, name)
    if stated is None or stated.get("quant_algo") is None:
        return config
    return {**config, _QUANTIZATION[0]: {"quant_method": model_optimizer.METHOD, model_optimizer.NESTED: stated}}


def _json_object(store: Store, file: StoredFile, reserve: Reserve) -> dict[str, Any]:
    reserve(_BYTES_PER_BYTE_OF_CONFIG * min(file.size, MAX_CONFIG_BYTES))
    try:
        members = parse_small_json(_small_file(store, file, MAX_CONFIG_BYTES), MAX_CONFIG_BYTES)
    except ValueError as error:
        raise CheckpointError(
            f"{file.name} is not JSON that is read ({excerpt(str(error))}): download it again", file=file.name
        ) from None
    if not isinstance(members, dict):
        raise CheckpointError(f"{file.name} is not a JSON object: download it again", file=file.name)
    return members


def _read_index(store: Store, files: dict[str, StoredFile], reserve: Reserve) -> dict[str, str] | None:
    """Return the file of each tensor, None without an index."""
    if INDEX not in files:
        return None
    reserve(_COPIES_OF_INDEX * min(files[INDEX].size, MAX_INDEX_BYTES))
    data = _small_file(store, files[INDEX], MAX_INDEX_BYTES)
    reserve(_BYTES_PER_MEMBER * _count(data, b":"))
    try:
        weight_map = parse_index(data)
    except SafetensorsError as error:
        raise CheckpointError(f"{error.detail}: download the index again", file=INDEX) from None
    if not weight_map:
        raise CheckpointError(f"{INDEX} names no tensor: download it again", file=INDEX)
    return weight_map


def _small_file(store: Store, file: StoredFile, maximum: int) -> bytes:
    if file.size > maximum:
        detail = f"{file.name} has {file.size} bytes; at most {maximum} are read: choose another checkpoint"
        raise CheckpointError(detail, file=file.name)
    data = store.get(file.name, file.size)
    if data is None:
        raise CheckpointError(f"{file.name} no longer exists: download the checkpoint again", file=file.name)
    return data


def _count(text: Text, mark: bytes) -> int:
    """Return how often a character occurs."""
    return sum(text.count(mark, at, at + _COUNTED_AT_ONCE) for at in range(0, len(text), _COUNTED_AT_ONCE))


def _shard_names(files: dict[str, StoredFile], index: dict[str, str] | None, refusals: Refusals) -> list[str]:
    """Return the names of the files that hold the checkpoint's tensors."""
    here = [name for name in files if name.endswith(SAFETENSORS) and "/" not in name]
    if index is None:
        named = [WEIGHTS] if WEIGHTS in here else here
        if not named:
            refusals.add(
                f"no file name ends in {SAFETENSORS}",
                "convert the weights to safetensors first, with transformers' save_pretrained",
            )
        return sorted(named)
    distinct: set[str] = set()
    for name in checked(index.values()):
        distinct.add(name)
        if len(distinct) > MAX_SHARDS:
            detail = f"{INDEX} names more than {MAX_SHARDS} files: store the model in larger ones"
            raise CheckpointError(detail, file=INDEX)
    named = sorted(distinct)
    for name in named:
        if not is_plain_name(name):
            refusals.add(
                f"'{excerpt(name)}' is not the name of a file in the directory", "download the index again", file=INDEX
            )
        elif name not in files:
            refusals.add(f"'{excerpt(name)}' is missing", "download the checkpoint again", file=INDEX)
    if WEIGHTS in here and WEIGHTS not in named:
        refusals.add(
            f"there is a {WEIGHTS}, but {INDEX} names other files: transformers loads the former, vLLM the latter",
            "remove the files that do not belong to the model",
        )
    refusals.raise_any()
    return named


def is_plain_name(name: str) -> bool:
    """Return whether `name` is that of a safetensors file in the directory itself, on every system."""
    return (
        name.endswith(SAFETENSORS)
        and not name.startswith(".")
        and not any(character in '/\\:*?"<>|' or not character.isprintable() for character in name)
    )


def header_of(store: Store, file: StoredFile, reserve: Reserve) -> Header:
    """Return the header of a file. Raises SafetensorsError, StorageError, SourceChangedError."""

    def read(offset: int, length: int) -> bytearray:
        reserve(_COPIES_OF_HEADER * length)
        text = bytearray(length)
        store.read_into(file, offset, memoryview(text))
        # A tensor is an object with three members; metadata are members alone.
        reserve(BYTES_PER_TENSOR * _count(text, b"{") + _BYTES_PER_MEMBER * _count(text, b":"))
        return text

    return read_header(read, file.size)


_ONE_REVISION = "download the index and the files of one revision again"


def _check_agreement(shards: dict[str, Shard], index: dict[str, str] | None, refusals: Refusals) -> None:
    places: dict[str, str] = {}
    for name, shard in shards.items():
        for entry in checked(shard.header.tensors):
            other = places.setdefault(entry.name, name)
            if other != name:
                instead = "remove the file that does not belong to the model"
                refusals.add(f"the tensor is in {other} as well", instead, file=name, tensor=entry.name)
            elif index is not None and index.get(entry.name) != name:
                stated = f"names {index[entry.name]} for it" if entry.name in index else "does not name it"
                refusals.add(
                    f"the tensor is in the file, but {INDEX} {stated}", _ONE_REVISION, file=name, tensor=entry.name
                )
    for tensor, name in checked((index or {}).items()):
        if tensor not in places:
            refusals.add(
                f"{INDEX} maps a tensor to this file that is not in it", _ONE_REVISION, file=name, tensor=tensor
            )
    if not places:
        refusals.add("the checkpoint has no tensor", "download the checkpoint again")
