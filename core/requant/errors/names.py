"""Looks up profiles, schemes and operators by name, and suggests what was probably meant by an unknown name.

Other names for a thing appear only in messages: a request has to use the name itself.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from difflib import SequenceMatcher
from typing import TypeVar

from requant.errors import UnknownNameError, excerpt

Entry = TypeVar("Entry")

# Other names, without separators, and the names that systems and their arithmetic have here.
_OTHER_NAMES: Mapping[str, tuple[str, ...]] = {
    "tflite": ("litert",),
    "tensorflowlite": ("litert",),
    "tensorflow": ("tf_fake_quant", "litert"),
    "tf": ("tf_fake_quant", "litert"),
    "onnxruntime": ("onnx",),
    "onnxrt": ("onnxruntime", "onnx"),
    "ort": ("onnxruntime", "onnx"),
    "onnx": ("onnxruntime",),
    "pytorch": ("torch", "fbgemm"),
    "aten": ("torch",),
    "torch": ("fbgemm",),
    "torchao": ("torch_decomposed",),
    "executorch": ("torch_decomposed",),
    "pt2e": ("torch_decomposed",),
    "dnnl": ("onednn",),
    "mkldnn": ("onednn",),
    "xla": ("stablehlo",),
    "shlo": ("stablehlo",),
    "jax": ("ml_dtypes", "stablehlo"),
    "numpy": ("ml_dtypes",),
    "xnnpack": ("litert_xnnpack",),
    "qnnpack": ("xnnpack_gemmlowp", "xnnpack_fp32"),
    "cmsis": ("cmsis_nn",),
    "vela": ("ethos_u",),
    "rescale": ("tosa",),
    "roundtonearesteven": ("nearest_even",),
    "roundhalftoeven": ("nearest_even",),
    "rne": ("nearest_even",),
    "rint": ("nearest_even",),
    "bankers": ("nearest_even",),
    "halfeven": ("nearest_even",),
    "halftoeven": ("nearest_even",),
    "tiestoeven": ("nearest_even",),
    "nearest": ("nearest_even", "nearest_away"),
    "round": ("nearest_even", "nearest_away"),
    "halfaway": ("nearest_away",),
    "halfawayfromzero": ("nearest_away",),
    "rna": ("nearest_away",),
    "tiestoaway": ("nearest_away",),
    "halfup": ("nearest_up",),
    "halfdown": ("nearest_down",),
    "truncate": ("toward_zero",),
    "trunc": ("toward_zero",),
    "towardszero": ("toward_zero",),
    "rtz": ("toward_zero",),
    "ceiling": ("ceil",),
    "random": ("stochastic",),
    "absmax": ("min_max",),
    "kl": ("entropy",),
    "kldivergence": ("entropy",),
    "histogram": ("torch_histogram",),
    "ema": ("moving_average",),
    "i8": ("INT8",),
    "i16": ("INT16",),
    "i32": ("INT32",),
    "i64": ("INT64",),
    "u8": ("UINT8",),
    "ui8": ("UINT8",),
    "u16": ("UINT16",),
    "u32": ("UINT32",),
    "float": ("FP32",),
    "float32": ("FP32",),
    "f32": ("FP32",),
    "double": ("FP64",),
    "float64": ("FP64",),
    "f64": ("FP64",),
    "half": ("FP16",),
    "float16": ("FP16",),
    "f16": ("FP16",),
    "bfloat16": ("BF16",),
    "fp4": ("mxfp4", "nvfp4"),
    "fp8": ("mxfp8_e4m3",),
    "mxfp6": ("mxfp6_e2m3", "mxfp6_e3m2"),
    "mxfp8": ("mxfp8_e4m3", "mxfp8_e5m2"),
}

UNCOVERED: Mapping[str, str] = {
    "armnn": "Arm NN",
    "coreml": "Core ML",
    "cudnn": "cuDNN",
    "cutlass": "CUTLASS",
    "hexagon": "Hexagon NN",
    "mnn": "MNN",
    "ncnn": "ncnn",
    "openvino": "OpenVINO",
    "qnn": "Qualcomm AI Engine Direct",
    "rknn": "RKNN",
    "snpe": "SNPE",
    "tensorrt": "TensorRT",
    "trt": "TensorRT",
    "tvm": "TVM",
    "vitisai": "Vitis AI",
}
"""Systems that people ask for by these names, and that were never compared with anything here."""

_SEPARATORS = re.compile(r"[^0-9a-z]+")
# The likeness of two names, from 0 to 1, from which one is a misspelling of the other, or may be.
_MISSPELT, _ALIKE = 0.88, 0.75
# The fewest letters of a part that is looked for in names, and the most of a name that is compared.
_SHORTEST_PART, _LONGEST = 3, 64
_MOST = 3


def entry_named(entries: Mapping[str, Entry], name: str, kind: str) -> Entry:
    """Return the entry of that name. Raise UnknownNameError if there is none (`unknown_name`)."""
    if name not in entries:
        # str(): from Python a name may be anything, such as None.
        raise unknown_name(kind, str(name), entries)
    return entries[name]


def in_any_case(entries: Collection[str], name: str) -> str:
    """Return the entry that has the letters of a name in any case; the name itself where none has."""
    wanted = name.casefold()
    return next((each for each in entries if each.casefold() == wanted), name)


def unknown_name(kind: str, name: str, known: Collection[str], *, pointer: str | None = None) -> UnknownNameError:
    """Return the error about a name that is not among the known ones, which the message lists."""
    hint = did_you_mean(name, known)
    if hint is None and (system := _uncovered(name)) is not None:
        hint = f"{system} was not compared, so no {kind} stands for it; identify says which rules give its outputs"
    question = f" ({hint})" if hint else ""
    detail = f"no {kind} is named '{excerpt(name)}'{question}; available: {', '.join(known)}"
    return UnknownNameError(detail, hint=hint, pointer=pointer)


def _uncovered(name: str) -> str | None:
    """Return the system that the first word of a name, or the first two, stand for, if it was never compared."""
    words = _words(name[:_LONGEST])
    return UNCOVERED.get("".join(words[:1])) or UNCOVERED.get("".join(words[:2]))


def not_among(kind: str, name: str, known: Collection[str]) -> str:
    """Return the fault of a parameter or field whose name is not among the known ones."""
    hint = did_you_mean(name, known)
    question = f" ({hint})" if hint else ""
    return f"not a {kind}{question}; available: {', '.join(known) or 'none'}"


def did_you_mean(name: str, known: Collection[str]) -> str | None:
    """Return the question whether one of the known names was meant, None if none of them is similar."""
    suggestions = nearest_names(name, known)
    listed = ", ".join([*suggestions[:-2], " or ".join(suggestions[-2:])])
    return f"did you mean {listed}?" if suggestions else None


def nearest_names(name: str, known: Collection[str]) -> list[str]:
    """Return up to three of the known names that were probably meant.

    Letter case and separators do not count. In this order: names of the same letters, other names for the thing,
    misspellings, and names that begin or end alike.
    """
    words = _words(name) if len(name) <= _LONGEST else []
    if not words:
        return []
    parts = {each: _words(each) for each in known}
    joined = {each: "".join(parts[each]) for each in known}
    own, others = "".join(words), _other_names(words)
    targets = [own, *others]
    for exact in ([own], others):
        if same := [each for target in exact for each in joined if joined[each] == target]:
            return list(dict.fromkeys(same))[:_MOST]
    likeness = {each: max(_likeness(target, text) for target in targets) for each, text in joined.items()}
    nearest = max(likeness, key=lambda each: likeness[each], default="")
    if likeness.get(nearest, 0) >= _MISSPELT:
        return [nearest]
    for target in targets if len(own) >= _SHORTEST_PART else []:
        if begun := [each for each, text in joined.items() if text and target.startswith(text)]:
            return [max(begun, key=len)]
        if longer := [each for each, text in joined.items() if text.startswith(target) or target in _ends(parts[each])]:
            return longer[:_MOST]
    return [nearest] if likeness.get(nearest, 0) >= _ALIKE else []


def _ends(words: list[str]) -> set[str]:
    return {"".join(words[at:]) for at in range(1, len(words))}


def _likeness(first: str, second: str) -> float:
    matcher = SequenceMatcher(None, first, second)
    # An upper bound, and much quicker.
    return matcher.ratio() if matcher.quick_ratio() >= _ALIKE else 0.0


def _other_names(words: list[str]) -> list[str]:
    """Return the names by which the thing, or the system that its first word names, is known here."""
    names = list(_OTHER_NAMES.get("".join(words), ()))
    if len(words) > 1:
        names += [other + "".join(words[1:]) for other in _OTHER_NAMES.get(words[0], ())]
    return ["".join(_words(each)) for each in names]


def _words(name: str) -> list[str]:
    return [word for word in _SEPARATORS.split(name.lower()) if word]
