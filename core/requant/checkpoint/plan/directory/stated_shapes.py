"""The shapes of weights that are not in a header: how many columns a packed weight has stands in a tensor.

compressed-tensors writes `weight_shape`, I64 [2]; bitsandbytes a `quant_state`, JSON as U8.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from requant.checkpoint.plan.names import parameter_of
from requant.checkpoint.safetensors.header import Header, TensorEntry
from requant.checkpoint.storage.store import Store, StoredFile
from requant.checkpoint.weights.nf4 import STATE, read_state
from requant.errors import CheckpointError
from requant.errors.cancellation import checked

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
                    raise CheckpointError(f"{entry.name}: {error}", file=file.name, tensor=entry.name) from None
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
