"""The subject of a comparison: an operation of a profile, a scheme, an operator and so on, by Requant's names."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Kind(StrEnum):
    """The lists of names, in the order of the page."""

    PROFILE = "profile"
    SCHEME = "scheme"
    OPERATOR = "operator"
    RANGES = "ranges"
    CALIBRATION = "calibration"
    FAKE_QUANTIZE = "fake_quantize"
    BLOCKS = "blocks"
    CHECKPOINT = "checkpoint"
    BIAS = "bias"
    LOWERING = "lowering"
    TRANSLATION = "translation"
    TYPES = "types"


@dataclass(frozen=True, order=True)
class Subject:
    """One row of the page: a catalog entry and one of its operations."""

    kind: Kind
    name: str
    operation: str


def profile(name: str, operation: str) -> Subject:
    """quantize, dequantize, requantize, matmul, conv2d, add or cast of a profile."""
    return Subject(Kind.PROFILE, name, operation)


def scheme(name: str) -> Subject:
    """A scheme of multiplier and shift."""
    return Subject(Kind.SCHEME, name, "requantize")


def operator(name: str) -> Subject:
    """An operator by its full name, such as onnx.QuantizeLinear."""
    return Subject(Kind.OPERATOR, name, "run")


def ranges(name: str) -> Subject:
    """A rule that derives scales and zero points from ranges."""
    return Subject(Kind.RANGES, name, "parameters")


def calibration(name: str) -> Subject:
    """A method that finds ranges in observed tensors."""
    return Subject(Kind.CALIBRATION, name, "calibrate")


def fake_quantize(name: str) -> Subject:
    """Fake quantization by a rule of ranges."""
    return Subject(Kind.FAKE_QUANTIZE, name, "fake_quantize")


def blocks(name: str, operation: str) -> Subject:
    """quantize or dequantize of a block format."""
    return Subject(Kind.BLOCKS, name, operation)


def checkpoint(name: str, operation: str, profile: str) -> Subject:
    """quantize or dequantize of a scheme of checkpoints, by one of its profiles, or of a type of ONNX or GGUF files."""
    return Subject(Kind.CHECKPOINT, f"{name}, {profile}", operation)


def lowering(name: str) -> Subject:
    """A pass of the lowering."""
    return Subject(Kind.LOWERING, name, "lower")


def translation(name: str) -> Subject:
    """A system that types are translated to and from."""
    return Subject(Kind.TRANSLATION, name, "translate")


def bias(name: str) -> Subject:
    """A rule that quantizes a bias."""
    return Subject(Kind.BIAS, name, "quantize")


def types(operation: str) -> Subject:
    """parse or cast of type texts."""
    return Subject(Kind.TYPES, "mlir", operation)
