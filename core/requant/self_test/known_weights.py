"""Known answers of the weights of checkpoints, in the schemes and in fp8, GPTQ, AWQ and NF4: what is stored, and its
values.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from requant.checkpoint.profiles import COMPRESSED_TENSORS_CPU
from requant.checkpoint.schemes import scheme_named
from requant.checkpoint.weights.awq import Awq
from requant.checkpoint.weights.blocks import Block
from requant.checkpoint.weights.fine_grained_fp8 import FineGrainedFp8
from requant.checkpoint.weights.floats import bits_of
from requant.checkpoint.weights.gptq import Gptq
from requant.checkpoint.weights.nf4 import Nf4
from requant.checkpoint.weights.repack import SourceNumbers
from requant.checkpoint.weights.search import ELEMENT_E2M1, ELEMENT_E2M3, ELEMENT_E4M3, Element, squared_errors
from requant.checkpoint.weights.weight_format import StoredRows, WeightFormat
from requant.self_test.known_calls import SHAPE, KnownCall, reals

Array = NDArray[Any]


def weights(dtype: str) -> Array:
    """Return the bits of a weight of `SHAPE`."""
    return bits_of(reals().reshape(SHAPE), dtype)


def _converted(scheme: str, dtype: str) -> Iterable[Array]:
    """Yield the stored tensors in the order of the format, and then the values that they give, in `dtype`."""
    form, rows = scheme_named(scheme).format(COMPRESSED_TENSORS_CPU.name), weights(dtype)
    extremes = form.extremes(rows, dtype) if form.needs_extremes else None
    stored = {region.suffix: array for region, array in form.quantize(rows, dtype, SHAPE, 0, extremes)}
    yield from stored.values()
    yield form.dequantize(StoredRows.whole(stored, form.stored(dtype, SHAPE), SHAPE), dtype)


def _known(scheme: str, dtype: str, digest: str) -> KnownCall:
    return KnownCall(f"{scheme} {dtype}", lambda: _converted(scheme, dtype), digest)


KNOWN_WEIGHTS = (
    _known("W8A8", "BF16", "e9ae477a34c501ee"),
    _known("W8A8", "F16", "832a7679a36b23d7"),
    _known("W8A8", "F32", "464abf31ae54a4fa"),
    _known("W8A8:asymmetric", "BF16", "bf8715a3c57f8b4b"),
    _known("W8A8:asymmetric", "F16", "d1d83e33b09c2d9f"),
    _known("W8A8:asymmetric", "F32", "16156e2c7b66fb9e"),
    _known("W4A16:group=32", "BF16", "bf6c406888fba4a5"),
    _known("W4A16:group=32", "F16", "3ace7c5046713ac4"),
    _known("W4A16:group=32", "F32", "a2552771a20c5138"),
    _known("W4A16_ASYM:group=32", "BF16", "78e0876936859336"),
    _known("W4A16_ASYM:group=32", "F16", "91d45b43a82c0e08"),
    _known("W4A16_ASYM:group=32", "F32", "f994f0efe9433e5e"),
    _known("FP8_DYNAMIC", "BF16", "b4a777b8754bf141"),
    _known("FP8_DYNAMIC", "F16", "6b015a5cfb7b81eb"),
    _known("FP8_DYNAMIC", "F32", "4075fe8475c47922"),
    _known("NVFP4A16", "BF16", "c5692f85520a4bac"),
    _known("NVFP4A16", "F16", "f335b19aa26b20f5"),
    _known("NVFP4A16", "F32", "519e779eb3d45437"),
    _known("MXFP4A16", "BF16", "f3302546a01a1e0c"),
    _known("MXFP4A16", "F16", "b6e260827961aa7c"),
    _known("MXFP4A16", "F32", "6364c052b1cb146c"),
    _known("MXFP6A16", "BF16", "80fe281d5ba4c624"),
    _known("MXFP6A16", "F16", "3ca2a1e8637f28e3"),
    _known("MXFP6A16", "F32", "c55a0b20d43a3449"),
)

_BLOCK = Block(5, 20)
"""Cut off at both edges."""


def _errors() -> Iterable[Array]:
    """Yield the squared errors of each kind of element, with and without zero points."""
    rows = weights("F32")
    scales = np.geomspace(0.25, 64, 28, dtype=np.float32).reshape(7, 4)
    for element in (ELEMENT_E2M1, ELEMENT_E2M3, ELEMENT_E4M3, Element.integer(4)):
        yield squared_errors(rows, "F32", _BLOCK, element, scales, None)
    yield squared_errors(rows, "F32", _BLOCK, Element.integer(4), scales, np.rint(scales) % 7)


def _scales_that_hold() -> Iterable[Array]:
    """Yield all that a repack of codes with zero points asks of kernels."""
    form = scheme_named("W4A16_ASYM:group=16").format(COMPRESSED_TENSORS_CPU.name)
    stored = {region.suffix: array for region, array in form.quantize(weights("F32"), "F32", SHAPE, 0)}
    rows = StoredRows.whole(stored, form.stored("F32", SHAPE), SHAPE)
    source = SourceNumbers(form.scaled_codes(rows), form.numbers(rows))
    yield source.numbers
    yield from source.peaks(_BLOCK)
    scales, _ = source.scales_of_integers(_BLOCK, 0.0, 15.0, zero_points=False)
    yield from source.steps(_BLOCK, scales)
    yield source.in_units(scales, _BLOCK)


KNOWN_SCALES = (
    KnownCall("errors of searched scales", _errors, "a87c56f885d03763"),
    KnownCall("scales that hold other codes", _scales_that_hold, "0d0bae2790042ad3"),
)


DTYPES = ("BF16", "F16", "F32")
_UE8M0 = "fine-grained fp8 with E8M0 scales"
FORMATS: dict[str, tuple[WeightFormat, tuple[int, int]]] = {
    # Blocks that are cut off at both edges, groups that end within a vector.
    "fine-grained fp8": (FineGrainedFp8("F32", 5, 20, ragged=True), SHAPE),
    _UE8M0: (FineGrainedFp8("F8_E8M0", 5, 20, ragged=True), SHAPE),
    "GPTQ": (Gptq(4, False, 8, version=2), (32, 64)),
    "AWQ": (Awq(8), (32, 64)),
    "NF4": (Nf4(), (32, 64)),
}
"""With the shape of the weight."""


def weight(dtype: str, shape: tuple[int, int]) -> Array:
    """Return the bits of a weight."""
    return bits_of(reals()[: shape[0] * shape[1]].reshape(shape), dtype)


def _stored(name: str) -> Iterable[Array]:
    """Yield, of each dtype, the stored tensors in the order of the format, and the values in f32."""
    weight_format, shape = FORMATS[name]
    for dtype in DTYPES:
        parts = weight_format.quantize(weight(dtype, shape), dtype, shape, 0)
        stored = {region.suffix: array for region, array in parts}
        yield from stored.values()
        yield weight_format.dequantize(StoredRows.whole(stored, weight_format.stored(dtype, shape), shape), "F32")


KNOWN_WEIGHT_LAYOUTS = (
    KnownCall("fine-grained fp8", lambda: _stored("fine-grained fp8"), "f1d7076effab641c"),
    KnownCall(
        "fine-grained fp8 with E8M0 scales", lambda: _stored("fine-grained fp8 with E8M0 scales"), "2a61f1f35fa98add"
    ),
    KnownCall("GPTQ", lambda: _stored("GPTQ"), "49800648bc769395"),
    KnownCall("AWQ", lambda: _stored("AWQ"), "06bc0b5733b266ba"),
    KnownCall("NF4", lambda: _stored("NF4"), "23a565ff9710b4c7"),
)
