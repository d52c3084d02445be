"""StableHLO compiled and run by XLA for the CPU, with jaxlib alone.

jax puts arrays on a device and takes them back; what it needs of itself for that stands in `_OnDevice`.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from types import SimpleNamespace
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from numpy.typing import NDArray

xla: Any = pytest.importorskip("jaxlib.xla_client")

Array = NDArray[Any]


class _OnDevice(xla.SingleDeviceSharding):  # type: ignore[misc]
    """An array that is whole on the one device."""

    memory_kind = None

    def _to_xla_hlo_sharding(self, rank: int) -> Any:
        return xla.HloSharding.replicate()


@cache
def _client() -> Any:
    return xla.make_cpu_client()


def compiled_and_run(text: str, inputs: Sequence[tuple[str, Array]], dtype: np.dtype[Any]) -> Array:
    """Run the one function of a module of StableHLO on arrays of these element types."""
    client = _client()
    (device,) = client.local_devices()
    devices = xla.DeviceList((device,))
    program = client.compile_and_load(text, devices, xla.CompileOptions())
    # Not copied: they live until the result is there.
    given = [np.ascontiguousarray(each).view(ml_dtypes.bfloat16) if of == "bf16" else each for of, each in inputs]
    placed = [
        xla.batched_device_put(
            SimpleNamespace(shape=each.shape, dtype=each.dtype, weak_type=False),
            _OnDevice(device), [each], [device], enable_x64=True,
        )
        for each in given
    ]  # fmt: skip
    ((found,),) = program.execute_sharded(placed).disassemble_into_single_device_arrays()
    return np.array(found).view(dtype)
