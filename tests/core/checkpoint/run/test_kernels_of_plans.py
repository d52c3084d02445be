"""Before data is moved, the kernels are compiled that a plan needs: they are those that its formats call."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

from requant.checkpoint.quantization_config.compressed_tensors import PRESETS
from requant.checkpoint.schemes import SCHEMES, scheme_named
from requant.checkpoint.weights.blocks import extremes_kernel, whole_extremes
from requant.checkpoint.weights.floats import bits_of, float_kernels
from requant.checkpoint.weights.weight_format import StoredRows
from requant.kernels.jit.jit import Kernel

SHAPE = (128, 128)
OPTIONS = ("W4A16:channel", "W4A16:group=7", "W8A8:tensor", "W8A8:asymmetric", "W3A16:group=32,asymmetric")
SEARCHED = tuple(f"{name}{',' if ':' in name else ':'}mse" for name in (*PRESETS, "W4A16:group=7", "W8A8:asymmetric"))


@contextmanager
def called(monkeypatch: pytest.MonkeyPatch) -> Iterator[set[Kernel]]:
    """Give the kernels that are called until the context ends."""
    found: set[Kernel] = set()
    call = Kernel.__call__

    def noted(self: Kernel, *arguments: Any) -> Any:
        found.add(self)
        return call(self, *arguments)

    with monkeypatch.context() as patched:
        patched.setattr(Kernel, "__call__", noted)
        yield found


@pytest.mark.parametrize("dtype", ["BF16", "F16", "F32"])
@pytest.mark.parametrize("name", [*SCHEMES, *OPTIONS, *SEARCHED])
def test_formats_state_what_they_call(name: str, dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    scheme = scheme_named(name)
    form = scheme.format(scheme.profiles[0])
    shape = (SHAPE[0], 126) if "group=7" in name else SHAPE
    random = np.random.default_rng(5)
    rows = bits_of(random.standard_normal(shape, np.float32), dtype)
    with called(monkeypatch) as measuring:
        extremes = form.extremes(rows, dtype) if form.needs_extremes else None
    with called(monkeypatch) as quantizing:
        stored = {region.suffix: array for region, array in form.quantize(rows, dtype, shape, 0, extremes)}
    tensors = form.stored(dtype, shape)
    with called(monkeypatch) as dequantizing:
        form.dequantize(StoredRows.whole(stored, tensors, shape), dtype)
    dtypes = {tensor.dtype for tensor in tensors} | {dtype}
    assert measuring <= {*form.extremes_kernels(dtype), *float_kernels(["F16"])}
    # F16 go both ways, and rarely both ways in one direction.
    assert quantizing <= set(form.quantizing_kernels(dtype)) <= quantizing | set(float_kernels(["F16"]))
    assert dequantizing <= set(form.dequantizing_kernels(dtypes)) <= dequantizing | set(float_kernels(["F16"]))


def test_extremes_and_values_to_refuse(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = bits_of(np.ones((4, 8), np.float32), "BF16")
    with called(monkeypatch) as found:
        whole_extremes(rows, "BF16")
    assert found == {extremes_kernel("BF16")}
