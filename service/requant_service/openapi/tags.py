"""The groups of operations, in the order in which they are read. Generated clients name modules after the tags."""

from __future__ import annotations

from typing import Any, NamedTuple


class Tag(NamedTuple):
    """A group of operations. `title` is what people read, `name` what clients are made of."""

    name: str
    title: str
    description: str


GROUPS: dict[str, tuple[Tag, ...]] = {
    "Conversions": (
        Tag("ops", "JSON", "Quantize, dequantize, requantize and compare tensors in JSON."),
        Tag("explain", "Explanations", "Conversions with every arithmetic step of each element, in JSON."),
        Tag("npy", ".npy files", "Conversions of one `.npy` file, types in the query."),
        Tag("multipart", "Forms", "Conversions of `.npy` files in multipart forms, with the scales as separate files."),
    ),
    "Arithmetic": (
        Tag("integer", "Integer operations", "Matmul, conv2d and add with requantized outputs."),
        Tag("params", "Parameters", "Scales, zero points, multipliers and shifts: derived from factors, ranges, data."),
    ),
    "Whole models": (
        Tag(
            "checkpoints",
            "Checkpoint jobs",
            "Checkpoint conversions as background jobs. The setting `checkpoint_roots` must list the locations that "
            "jobs may use; the examples assume `/models`.",
        ),
    ),
    "Types and modules": (
        Tag("types", "Types", "MLIR's quantized types: parsed, described and translated."),
        Tag("modules", "MLIR modules", "Lowering passes and an evaluator."),
    ),
    "Operators of other systems": (
        Tag("onnx", "ONNX", "Operators of ONNX under their own names, operands and attributes."),
        Tag("com.microsoft", "onnxruntime", "onnxruntime's own operators, of the domain com.microsoft."),
        Tag("qonnx", "QONNX", "QONNX's quantizers, of the domain qonnx.custom_op.general."),
        Tag("litert", "LiteRT", "Operators of LiteRT under their own names."),
        Tag("torch", "PyTorch", "Operators of PyTorch, eager and quantized_decomposed, under their own names."),
        Tag("onednn", "oneDNN", "Operations of oneDNN Graph under their own names."),
        Tag("stablehlo", "StableHLO", "Operations of StableHLO under their own names."),
        Tag("mlir", "MLIR quant", "Operations of MLIR's quant dialect."),
        Tag("tosa", "TOSA", "Operators of TOSA under their own names."),
    ),
    "Open Inference Protocol": (
        Tag("oip", "Models", "Every operation of the service as a model, with JSON or binary tensors."),
        Tag(
            "shared_memory",
            "Shared memory",
            "Regions of system shared memory, as Triton's clients register them. The setting `shared_memory` must be "
            "on, and the example needs an object: `truncate -s 64 /dev/shm/requant_example`.",
        ),
    ),
    "Service": (
        Tag("catalogs", "Catalogs", "Profiles, schemes and operators, described."),
        Tag("meta", "Service", "Readiness, versions, limits and problems."),
    ),
}


def described_tags() -> list[dict[str, Any]]:
    """Return the tags as the document has them."""
    return [
        {"name": tag.name, "description": tag.description, "x-displayName": tag.title}
        for tags in GROUPS.values()
        for tag in tags
    ]


def tag_groups() -> list[dict[str, Any]]:
    """Return the groups of tags, as Redoc and its like read them."""
    return [{"name": group, "tags": [tag.name for tag in tags]} for group, tags in GROUPS.items()]
