"""Why a row has no live system: what running it would need, and what it is checked against instead."""

from __future__ import annotations

from collections.abc import Mapping

from tests.interop.conformance.subject import (
    Subject,
    calibration,
    checkpoint,
    operator,
    profile,
    ranges,
    scheme,
    translation,
)

_SINGLE_ROUNDING = (
    "No package has LiteRT compiled with TFLITE_SINGLE_ROUNDING; its multiplication, which is all that differs from "
    "`litert`, is compiled and compared live as requantize. The whole is checked against an independent oracle "
    "(tests/oracles)."
)
_CMSIS_NN = (
    "No package in PyPI, npm or Debian has CMSIS-NN; ExecuTorch's model, which `cmsis_nn` is compared with, has no "
    "{}. Checked instead against recorded outputs of its portable C (tests/vectors/requantize_variants.json) and exact "
    "integers (tests/oracles), written from arm_nnsupportfunctions.h."
)
_STABLEHLO = (
    "StableHLO's interpreter does not support quantized operands, and the pass that lowers them truncates where the "
    "specification rounds. Checked instead against an independent oracle of the specification (tests/oracles)."
)
_QUANTILE = (
    "MLIR defines the type but no system executes it: the arithmetic is Requant's own. Checked instead against an "
    "independent oracle (tests/oracles)."
)
_TYPE_TEXT = "The operand is the text of the type, which is compared live under Type language."
_DOCUMENT = "The rules come from its documentation; the package has no function that takes a type."

NOT_COMPARED: Mapping[Subject, str] = {
    profile("stablehlo", "matmul"): _STABLEHLO,
    profile("stablehlo", "conv2d"): _STABLEHLO,
    **{
        profile(
            "litert_single_rounding", operation
        ): "TFLITE_SINGLE_ROUNDING does not affect it: the rule is that of `litert`, which is compared live."
        for operation in ("quantize", "dequantize")
    },
    profile("quantile", "quantize"): _QUANTILE,
    profile("quantile", "dequantize"): _QUANTILE,
    profile(
        "ptx", "cast"
    ): "PTX runs on NVIDIA's GPUs only. Checked instead against an independent oracle of its manual (tests/oracles).",
    operator(
        "mlir.quant.scast"
    ): "It changes no bits: the stored integers are reinterpreted as another type. Its types are compared "
    "live as casts under Type language.",
    ranges(
        "onednn"
    ): "The rule is in oneDNN's developer guide; the library computes no scales. Checked instead against "
    "an independent oracle (tests/oracles).",
    calibration(
        "min_max"
    ): "It is numpy's minimum and maximum; the parameters derived from them are compared live under Scale and "
    "zero point from a range.",
    calibration(
        "mse"
    ): "Requant's own definition; no system has it. Checked instead against an independent oracle (tests/oracles).",
    **{
        checkpoint(f"GPTQ_W{bits}A16", "dequantize", "auto-round"): "AutoRound unpacks the codes inside its matrix "
        "product. Compared instead: the logits of both models in transformers, live, which are equal."
        for bits in (8, 4, 2)
    },
    translation("mlir"): _TYPE_TEXT,
    translation("stablehlo"): _TYPE_TEXT,
    translation("onednn"): _DOCUMENT,
    translation("tosa"): _DOCUMENT,
    **{profile("litert_single_rounding", operation): _SINGLE_ROUNDING for operation in ("matmul", "conv2d", "add")},
    scheme("cmsis_nn_single_rounding"): _CMSIS_NN.format("single rounding"),
    scheme("cmsis_nn_int64"): _CMSIS_NN.format("64-bit accumulators"),
}
