"""Tensors of a request that are in registered shared memory.

Large tensors are read where they are (`requant_service.oip.execution` says which), and the output of a conversion is
written where the client wants it, if that is aligned. Everything else is copied: small tensors are read more than once,
and a change by the client in between must make no difference.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from requant.errors import InvalidRequestError, SharedMemoryError, TensorDataError, default_pointer
from requant_service.oip.tensors import BYTE_SIZE, REGION, OutputTensor, RegionPart
from requant_service.runtime.runtime import Runtime
from requant_service.runtime.shared_memory.regions import SharedMemory, Span

# A copy to memory that the client truncates fills no more than this with zeros before it is noticed.
_COPIED = 1 << 20

Array = NDArray[Any]
Bytes = NDArray[np.uint8]


def registered_regions(running: Runtime) -> SharedMemory:
    """Return the regions that clients have registered. Raise SharedMemoryError if they may not register any."""
    if running.shared_memory is None:
        raise SharedMemoryError(
            "system shared memory is disabled; enable it with the setting shared_memory (REQUANT_SHARED_MEMORY=true)"
        )
    return running.shared_memory


def without_cuda() -> SharedMemoryError:
    """Return the error of a request that names a region of CUDA shared memory."""
    return SharedMemoryError("CUDA shared memory is not supported; use system shared memory")


class SharedTensors:
    """The tensors of one request that are in shared memory, by name. The regions stay mapped as long as it is there.

    Raise SharedMemoryError, UnknownNameError or InvalidRequestError for a part that cannot be used, or if an output
    would overwrite an input or another output.
    """

    def __init__(self, inputs: Mapping[str, RegionPart], outputs: Mapping[str, RegionPart], running: Runtime) -> None:
        self._parts = outputs
        self.inputs = {name: _span(part, running) for name, part in inputs.items()}
        self.outputs = {name: _span(part, running) for name, part in outputs.items()}
        self._check_overlaps()

    def _check_overlaps(self) -> None:
        seen = [(f"input {name}", span) for name, span in self.inputs.items()]
        for name, span in self.outputs.items():
            for described, other in seen:
                if span.overlaps(other):
                    raise InvalidRequestError.of_field(
                        self._parts[name].pointer_to(REGION), "overlap", f"output {name} overlaps {described} in memory"
                    )
            seen.append((f"output {name}", span))

    def target(self, name: str, dtype: np.dtype[Any], byte_count: int) -> Array | None:
        """Return the memory for an output of so many bytes as a flat array of `dtype`.

        Return None if it is wanted elsewhere, or not aligned. Raise TensorDataError if there is too little.
        """
        span = self.outputs.get(name)
        if span is None:
            return None
        memory = self._room(name, byte_count)
        return memory.view(dtype) if is_aligned(memory, dtype) else None

    def delivered(self, outputs: Sequence[OutputTensor]) -> tuple[OutputTensor, ...]:
        """Return the outputs with none of their data in memory that the client can change.

        Those that are wanted in shared memory are copied there, unless they were made there, and are without data.
        """
        return tuple(self._delivered(output) for output in outputs)

    def _delivered(self, output: OutputTensor) -> OutputTensor:
        part = self._parts.get(output.name)
        assert output.data is not None
        if part is None:
            shared = any(np.may_share_memory(output.data, span.data) for span in self.inputs.values())
            return replace(output, data=output.data.copy()) if shared else output
        memory = self._room(output.name, output.byte_count)
        data = output.data.view(np.uint8)
        if output.data.size and not np.may_share_memory(memory, data):
            for first in range(0, len(data), _COPIED):
                memory[first : first + _COPIED] = data[first : first + _COPIED]
                self.check()
        return replace(output, data=None, region=replace(part, byte_size=output.byte_count))

    def _room(self, name: str, byte_count: int) -> Bytes:
        """Return the memory for an output of so many bytes."""
        memory, part = self.outputs[name].data, self._parts[name]
        if byte_count > len(memory):
            raise TensorDataError(
                f"{BYTE_SIZE} is {len(memory)}; output {name} has {byte_count} bytes",
                pointer=part.pointer_to(BYTE_SIZE),
            )
        return memory[:byte_count]

    def check(self) -> None:
        """Raise SharedMemoryError if pages of a region were missing."""
        for span in (*self.inputs.values(), *self.outputs.values()):
            span.check()


def is_aligned(data: Bytes, dtype: np.dtype[Any]) -> bool:
    """Whether elements of `dtype` can be used where they are."""
    return data.ctypes.data % dtype.alignment == 0


def _span(part: RegionPart, running: Runtime) -> Span:
    with default_pointer(part.pointer_to(REGION)), default_pointer(part.pointer_to(BYTE_SIZE), InvalidRequestError):
        return registered_regions(running).span(part.region, part.offset, part.byte_size)
