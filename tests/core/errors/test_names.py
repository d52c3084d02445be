"""Names that do not exist: what was probably meant."""

from __future__ import annotations

from collections.abc import Collection

import pytest

from requant.calibration.ranges import RANGE_RULES
from requant.convert.quantize_plans import ROUNDINGS
from requant.errors.names import did_you_mean, nearest_names
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
