"""The rows of the page: each catalog entry with each of its operations."""

from __future__ import annotations

from collections.abc import Iterator

from requant.calibration.bias import BIAS_RULES
from requant.calibration.fake_quantize import FAKE_QUANTIZE_SCHEMES
from requant.calibration.methods import CALIBRATION_METHODS
from requant.calibration.ranges import RANGE_RULES
from requant.checkpoint.gguf.tensor_types import READABLE, WRITABLE
from requant.checkpoint.onnx.block_quantization import FORM_NAMES
from requant.checkpoint.profiles import COMPRESSED_TENSORS_CPU
from requant.checkpoint.schemes import GIVEN_SCHEMES, scheme_named
from requant.checkpoint.schemes import SCHEMES as CHECKPOINT_SCHEMES
from requant.convert.blocks.block_tensor import BlockFormat
from requant.lowering.passes import PASSES
from requant.operators.registry import OPERATORS
from requant.profiles import PROFILES
from requant.schemes import SCHEMES
from requant.translation import TRANSLATIONS
from tests.interop.conformance import subject
from tests.interop.conformance.subject import Subject

FP4_OF_DEEPSEEK, MXFP4_OF_GPT_OSS = "FP4 of DeepSeek-V4", "MXFP4 of gpt-oss"
GPTQ_OF_3_BITS, QUARK = "GPTQ of 3 bits", "weights of AMD Quark"
ONLY_READ = {
    FP4_OF_DEEPSEEK: "transformers",
    MXFP4_OF_GPT_OSS: "transformers",
    GPTQ_OF_3_BITS: "auto-round",
    **{f"{name} of AutoRound": "auto-round" for name in ("MXFP4", "MXFP8", "NVFP4")},
    **{
        f"{name} of torchao": "torchao"
        for name in ("Float8Tensor", "Int8Tensor", "IntxUnpackedToInt8Tensor", "MXTensor", "NVFP4Tensor")
    },
    QUARK: "quark",
}
"""Formats of checkpoints that no scheme quantizes to, and whose values they have."""


def expected_rows() -> list[Subject]:
    """Return all rows, in the order of the catalogs."""
    return list(_rows())


def _rows() -> Iterator[Subject]:
    for name, profile in PROFILES.items():
        operations = [*map(str, profile.operations), *profile.products]
        operations += ["add"] * (profile.addition is not None) + ["cast"] * (profile.casts is not None)
        yield from (subject.profile(name, operation) for operation in operations)
    yield from map(subject.scheme, SCHEMES)
    yield from map(subject.operator, OPERATORS)
    yield from map(subject.ranges, RANGE_RULES)
    yield from map(subject.calibration, CALIBRATION_METHODS)
    yield from map(subject.fake_quantize, FAKE_QUANTIZE_SCHEMES)
    yield from map(subject.bias, BIAS_RULES)
    for format_ in BlockFormat:
        yield from (subject.blocks(format_, operation) for operation in ("quantize", "dequantize"))
    for scheme in CHECKPOINT_SCHEMES:
        for profile_name in scheme_named(scheme).profiles:
            for operation in ("quantize", "dequantize"):
                yield subject.checkpoint(scheme, operation, profile_name)
    # Their weights are those of FP8_DYNAMIC:tensor and NVFP4A16.
    yield from (subject.checkpoint(name, "quantize", COMPRESSED_TENSORS_CPU.name) for name in GIVEN_SCHEMES)
    for name, profile_name in ONLY_READ.items():
        yield subject.checkpoint(name, "dequantize", profile_name)
    for form in FORM_NAMES:
        yield subject.checkpoint(form, "quantize", "onnxruntime")
    for type_ in READABLE:
        if type_ in WRITABLE:
            yield subject.checkpoint(type_, "quantize", "GGUF")
        yield subject.checkpoint(type_, "dequantize", "GGUF")
    yield from map(subject.lowering, PASSES)
    yield from map(subject.translation, TRANSLATIONS)
    yield from map(subject.types, ("parse", "cast"))
