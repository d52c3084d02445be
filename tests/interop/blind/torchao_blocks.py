"""Dumps of torchao: blocks of MX by the rule that it calls FLOOR, and of NVFP4 with scales of one level."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np
import torch

from requant.convert.blocks import mx, nvfp4
from tests.interop.blind import blocks, draws
from tests.interop.blind.dump import Array, Arrays, Dump, RefusedError
from tests.interop.blocks.block_cases import finite_blocks
from tests.interop.blocks.torchao_formats import MX_ELEMENTS, formats, in_bytes, unpacked
from tests.interop.casts.cast_data import DTYPES


def _typed(codes: Array, element: str | None, shape: tuple[int, ...]) -> Array:
    return codes.reshape(shape).view(DTYPES[element or "f8E8M0FNU"])


def quantize_mx(pool: Array, rng: np.random.Generator) -> Dump:
    name = str(rng.choice(list(MX_ELEMENTS)))
    values = blocks.drawn_rows(rng, pool)

    def run(reals: Array) -> dict[str, Array]:
        scales, elements = formats("mx_tensor").to_mx(torch.from_numpy(reals), MX_ELEMENTS[name], mx.BLOCK)
        codes = unpacked(elements) if name == "mxfp4_e2m1" else in_bytes(elements)
        return {
            "elements": _typed(codes, mx.mx_element(name), reals.shape),
            "scales": _typed(in_bytes(scales), None, (len(reals), -1)),
        }

    return blocks.quantize_dump(values, run, label={"format": name, "rule": "floor"})


def dequantize_mx(rng: np.random.Generator) -> Dump:
    name = str(rng.choice(list(MX_ELEMENTS)))
    width = 8 if name.startswith("mxfp8") else 6 if name.startswith("mxfp6") else 4
    rows, count = int(np.exp2(rng.uniform(0, 6))), int(rng.integers(1, 5))
    elements = rng.integers(0, 1 << width, (rows, count * mx.BLOCK)).astype(np.uint8)
    scales = rng.integers(0, 255, (rows, count)).astype(np.uint8)

    def run(parts: Arrays) -> Array:
        raw, of_blocks = (torch.from_numpy(parts[each]) for each in ("elements", "scales"))
        given = raw.view(MX_ELEMENTS[name]) if name.startswith("mxfp8") else raw
        if name == "mxfp4_e2m1":
            given = formats("kernels").pack_uint4(raw)
        found = formats("mx_tensor").to_dtype(given, of_blocks, MX_ELEMENTS[name], mx.BLOCK, torch.float32)
        return np.asarray(found.numpy())

    parts = {"elements": elements, "scales": scales}
    return blocks.dequantize_dump(parts, elements.shape, run, label={"format": name})


def quantize_nvfp4(pool: Array, rng: np.random.Generator) -> Dump:
    def run(reals: Array) -> dict[str, Array]:
        if not np.isfinite(reals).all():
            raise RefusedError
        scales, packed = formats("nvfp4_tensor").nvfp4_quantize(torch.from_numpy(reals), nvfp4.BLOCK, None)
        return {
            "elements": _typed(unpacked(packed), "f4E2M1FN", reals.shape),
            "scales": _typed(in_bytes(scales), "f8E4M3FN", (len(reals), -1)),
        }

    values = blocks.drawn_rows(rng, pool)
    return blocks.quantize_dump(values, run, label={"format": "nvfp4", "rule": "torchao"}, global_scale="absent")


def dumps(rng: np.random.Generator, count: int) -> Iterator[Dump]:
    """`count` dumps. Of magnitudes for which the smallest scale is none."""
    kinds = (
        partial(quantize_mx, finite_blocks(rng, mx.BLOCK, -100, 120)),
        dequantize_mx,
        partial(quantize_nvfp4, finite_blocks(rng, nvfp4.BLOCK, -4, 8)),
    )
    return draws.some(rng, count, kinds)
