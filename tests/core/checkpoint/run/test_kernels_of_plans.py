"""Before data is moved, the kernels are compiled that a plan needs: they are those that its formats call."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

from requant.checkpoint.safetensors.header import DTYPES
from requant.checkpoint.schemes import SCHEMES, scheme_named
from requant.checkpoint.weights import quark, torchao
from requant.checkpoint.weights.auto_round import AutoRoundMx, AutoRoundNvfp4
from requant.checkpoint.weights.awq import Awq
from requant.checkpoint.weights.blocks import extremes_kernel, whole_extremes
from requant.checkpoint.weights.compressed_tensors import CHANNEL, TENSOR, IntQuantized, PackQuantized, groups_of
from requant.checkpoint.weights.floats import bits_of, float_kernels
from requant.checkpoint.weights.gptq import Gptq
from requant.checkpoint.weights.llm_int8 import LlmInt8
from requant.checkpoint.weights.model_optimizer import FloatGroups, Fp8, Int4RowPairs, Int8, ModelOptimizerWeight
from requant.checkpoint.weights.mxfp4 import DEEPSEEK, GPT_OSS, Mxfp4, Mxfp4Experts
from requant.checkpoint.weights.transposed import TransposedFloats
from requant.checkpoint.weights.weight_format import StoredRows, WeightFormat
from requant.kernels.jit.jit import Kernel
from tests.support.stored_weights import matrix

SHAPE = (128, 128)
OPTIONS = ("W4A16:channel", "W4A16:group=7", "W8A8:tensor", "W8A8:asymmetric", "W3A16:group=32,asymmetric")


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
@pytest.mark.parametrize("name", [*SCHEMES, *OPTIONS])
def test_formats_state_what_they_call(name: str, dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    scheme = scheme_named(name)
    form = scheme.format(scheme.profiles[0])
    shape = (SHAPE[0], 126) if "group=7" in name else SHAPE
    random = np.random.default_rng(5)
    rows = bits_of(random.standard_normal(shape, np.float32), dtype)
    extremes = whole_extremes(rows, dtype) if form.needs_extremes else None
    with called(monkeypatch) as quantizing:
        stored = {region.suffix: array for region, array in form.quantize(rows, dtype, shape, 0, extremes)}
    tensors = form.stored(dtype, shape)
    with called(monkeypatch) as dequantizing:
        form.dequantize(StoredRows.whole(stored, tensors, shape), dtype)
    dtypes = {tensor.dtype for tensor in tensors} | {dtype}
    # F16 go both ways, and rarely both ways in one direction.
    assert quantizing <= set(form.quantizing_kernels(dtype)) <= quantizing | set(float_kernels(["F16"]))
    assert dequantizing <= set(form.dequantizing_kernels(dtypes)) <= dequantizing | set(float_kernels(["F16"]))


READ = [
    AutoRoundMx(4),
    AutoRoundMx(8),
    AutoRoundNvfp4(),
    IntQuantized(groups_of(32), True, False, 4, ordered=True),
    PackQuantized(groups_of(32), True, False, 4, ordered=True),
    PackQuantized(groups_of(32), True, False, 3, loose=True),
    Gptq(3, symmetric=False),
    Gptq(4, symmetric=True, scale_dtype="BF16", has_g_idx=True),
    Awq(scale_dtype="BF16"),
    Mxfp4(DEEPSEEK, "F8_E8M0"),
    Mxfp4(GPT_OSS, "U8", 1, 2),
    Mxfp4Experts(True, 1, *SHAPE),
    Mxfp4Experts(False, 2, 64, 128),
    *(TransposedFloats(dtype) for dtype in ("BF16", "F16", "F32")),
    quark.QuarkWeight("fp8_e5m2", quark.PER_CHANNEL, scale_dtype="F16"),
    quark.QuarkWeight("fp4", quark.PER_GROUP, (1, 16), quark.TWO_LEVELS, scale_dtype="F8_E4M3"),
    quark.QuarkWeight("fp6_e3m2", quark.PER_GROUP, (1, 32), quark.POWERS_OF_TWO, scale_dtype="U8"),
    quark.QuarkWeight("uint8", quark.PER_GROUP, (1, 32), has_zero_points=True),
    quark.QuarkWeight("int4", quark.PER_GROUP, (1, 32), has_zero_points=True),
    torchao.Float8TensorWeight((128, 1)),
    torchao.Int8TensorWeight((128, 4), dtype_of_scales="F16", has_zero_points=True),
    torchao.MxTensorWeight((128, 4), element="fp6_e2m3"),
    torchao.MxTensorWeight((128, 4), element="float4_e2m1fn_x2", in_tiles=True),
    torchao.Nvfp4TensorWeight((128, 8), has_tensor_scale=True),
    LlmInt8(states_order=True),
    ModelOptimizerWeight(FloatGroups(4, 16, "F8_E4M3"), "F16"),
    ModelOptimizerWeight(FloatGroups(8, 32, "U8")),
    ModelOptimizerWeight(Int8(CHANNEL, rounds=True)),
    ModelOptimizerWeight(Fp8(TENSOR, rounds=False), "BF16"),
    ModelOptimizerWeight(Int4RowPairs(32), "F32"),
]


@pytest.mark.parametrize("dtype", ["BF16", "F16", "F32"])
@pytest.mark.parametrize("form", READ, ids=lambda each: str(each)[:60])
def test_formats_that_are_read_state_what_they_call(
    form: WeightFormat, dtype: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    tensors = form.stored(dtype, SHAPE)
    stored = {each.suffix: np.zeros(each.matrix or matrix(each.shape), DTYPES[each.dtype].array) for each in tensors}
    if "weight_g_idx" in stored:
        stored["weight_g_idx"][:] = np.arange(SHAPE[1]) % 4
    with called(monkeypatch) as dequantizing:
        form.dequantize(StoredRows.whole(stored, tensors, SHAPE), dtype)
    stated = set(form.dequantizing_kernels({tensor.dtype for tensor in tensors} | {dtype}))
    assert dequantizing <= stated <= dequantizing | set(float_kernels(["F16"]))


def test_extremes_and_values_to_refuse(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = bits_of(np.ones((4, 8), np.float32), "BF16")
    with called(monkeypatch) as found:
        whole_extremes(rows, "BF16")
    assert found == {extremes_kernel("BF16")}
