"""Names that do not exist: what was probably meant."""

from __future__ import annotations

from collections.abc import Collection

import pytest

from requant.calibration.ranges import RANGE_RULES
from requant.convert.quantize_plans import ROUNDINGS
from requant.errors.names import UNCOVERED, did_you_mean, nearest_names, unknown_name
from requant.operators.registry import OPERATORS
from requant.profiles import PROFILES
from requant.schemes import SCHEMES

MEANT: list[tuple[Collection[str], dict[str, str]]] = [
    (
        PROFILES,
        {
            "tflite": "litert",
            "ONNX": "onnx",
            "onnxruntime": "onnx",
            "ort": "onnx",
            "pytorch": "torch",
            "dnnl": "onednn",
            "mkldnn": "onednn",
            "xnnpack": "litert_xnnpack",
            "tflite_xnnpack": "litert_xnnpack",
            "stable_hlo": "stablehlo",
            "stablhelo": "stablehlo",
            "tosa-rescale": "tosa",
            "torch 2.14": "torch_2_14",
            "litert_xnpack": "litert_xnnpack",
            "foo": "",
            "": "",
            "t": "",
            "!<>": "",
            "x" * 5000: "",
        },
    ),
    (
        SCHEMES,
        {
            "tflite": "litert",
            "cmsis": "cmsis_nn",
            "qnnpack": "xnnpack_gemmlowp xnnpack_fp32",
            "ort": "onnxruntime",
            "pytorch": "fbgemm",
            "xnnpack": "xnnpack_fp32 xnnpack_rndnu xnnpack_rndna",
        },
    ),
    (RANGE_RULES, {"tflite": "litert", "tensorflow": "tf_fake_quant litert", "pytorch": "torch"}),
    (
        [str(each) for each in ROUNDINGS],
        {"rne": "nearest_even", "half-to-even": "nearest_even", "trunc": "toward_zero"},
    ),
    (OPERATORS, {"quantize_linear": "onnx.QuantizeLinear", "tflite.QUANTIZE": "litert.QUANTIZE"}),
    (["profile", "scheme", "data"], {"file": "", "Profil": "profile", "date": "data"}),
]


@pytest.mark.parametrize(("known", "meant"), MEANT, ids=range(len(MEANT)))
def test_what_was_probably_meant(known: Collection[str], meant: dict[str, str]) -> None:
    assert {name: " ".join(nearest_names(name, known)) for name in meant} == meant


def test_every_name_in_other_letters_is_found() -> None:
    for names in (PROFILES, SCHEMES, RANGE_RULES, OPERATORS):
        for name in names:
            assert nearest_names(name.upper().replace("_", "-"), names) == [name]


def test_the_question_lists_all() -> None:
    assert did_you_mean("xnnpack", SCHEMES) == "did you mean xnnpack_fp32, xnnpack_rndnu or xnnpack_rndna?"
    assert did_you_mean("foo", SCHEMES) is None


def test_systems_that_were_not_compared_are_named() -> None:
    """The names that people come with, and none of our own is among them."""
    for name in ("tensorrt", "Tensor-RT", "tensorrt_10", "trt"):
        error = unknown_name("profile", name, ["onnx", "litert"])
        assert "TensorRT was not compared, so no profile stands for it" in str(error)
    assert "not compared" not in str(unknown_name("profile", "zzz", ["onnx", "litert"]))
    for name in UNCOVERED:
        assert nearest_names(name, [*PROFILES, *SCHEMES]) == []
