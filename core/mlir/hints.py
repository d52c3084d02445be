"""What the writer of a common mistake probably meant. Functions return a sentence, or None for no idea."""

from __future__ import annotations

import re

_FLOAT_NAMES = {
    "float": "f32", "double": "f64", "half": "f16", "float16": "f16", "float32": "f32", "float64": "f64",
    "fp16": "f16", "fp32": "f32", "fp64": "f64", "bfloat16": "bf16", "bfloat": "bf16", "bfp16": "bf16",
    "float8_e4m3fn": "f8E4M3FN", "float8_e5m2": "f8E5M2", "float8e4m3fn": "f8E4M3FN", "float8e5m2": "f8E5M2",
    "fp8e4m3": "f8E4M3FN", "fp8e5m2": "f8E5M2", "f8e4m3fn": "f8E4M3FN", "f8e5m2": "f8E5M2",
    "f16": "f16", "f32": "f32", "f64": "f64", "bf16": "bf16",
}  # fmt: skip
_SIGNED_NAME = re.compile(r"(?:int|s|I)([0-9]{1,2})(?:_t)?\Z", re.IGNORECASE)
_UNSIGNED_NAME = re.compile(r"(?:uint|u)([0-9]{1,2})(?:_t)?\Z", re.IGNORECASE)
_NEAR = 32


def storage_hint(text: str, start: int, word: str) -> str | None:
    """Hint for a word that is no storage type."""
    if word == "u" and (digits := re.match(r"[ \t]*-?([0-9]{1,2})", text[start + 1 : start + _NEAR])):
        return f"write `u{digits[1]}`, without a blank or sign"
    if match := _UNSIGNED_NAME.match(word):
        return f"write `u{match[1]}` (or `ui{match[1]}`, another type) for an unsigned storage of {match[1]} bits"
    if match := _SIGNED_NAME.match(word):
        return f"write `i{match[1]}` (or `si{match[1]}`, another type) for a signed storage of {match[1]} bits"
    if word == "quantile":
        return "a quantile storage is written in full: `!quant.quantile<...>`"
    if word.lower() in _FLOAT_NAMES:
        return "the storage comes first, then the expressed type: `i8:f32`"
    return None


def expressed_hint(word: str) -> str | None:
    """Hint for a word that is no float type."""
    if word.lower() in _FLOAT_NAMES:
        return f"write `{_FLOAT_NAMES[word.lower()]}`"
    if re.match(r"(?:[su]?i|u)[0-9]", word):
        return "the expressed type is the float that the numbers stand for, such as `f32`"
    return None


def type_hint(text: str, start: int, word: str) -> str | None:
    """Hint for a word that is no type."""
    if word.lower() in _FLOAT_NAMES:
        return f"write `{_FLOAT_NAMES[word.lower()]}`"
    if match := _UNSIGNED_NAME.match(word):
        return f"the builtin unsigned type is `ui{match[1]}`; `u{match[1]}` exists only as storage in a `!quant` type"
    if match := _SIGNED_NAME.match(word):
        return f"write `i{match[1]}`"
    if word in ("uniform", "any", "calibrated", "quantile", "quant.uniform", "quant.any", "quant.calibrated"):
        return f"types of the quant dialect start with `!`: `!quant.{word.removeprefix('quant.')}<...>`"
    if word.lower() in ("tensor", "tuple"):
        return f"write `{word.lower()}`"
    if text.startswith("[", start):
        return "a shape has no brackets: `tensor<2x3xf32>`"
    if text.startswith("!", start):
        return "write `!quant.uniform<`: no blanks from the `!` to the `<`"
    return None


def float_hint(text: str, start: int) -> str | None:
    """Hint for what stands where a float should."""
    near = text[start : start + _NEAR]
    if match := re.match(r"([0-9]+)([eE][-+]?[0-9]+)?", near):
        if near[1:2] == "X":
            return "the bits of a float are written with a small `x`: `0x`"
        return f"the decimal point is mandatory: write `{match[1]}.0{match[2] or ''}`"
    if match := re.match(r"\.[0-9]+", near):
        return f"a number does not start with a dot: write `0{match[0]}`"
    if near.startswith("+"):
        return "numbers take no `+`"
    if re.match(r"-?(?:nan|inf)", near, re.IGNORECASE):
        return "there are no literals for NaN and infinity; the bits of an f64 can be written as `0x...`"
    if near.startswith("}"):
        return "a list is not empty and does not end with a comma"
    if near.startswith('"'):
        return "numbers are not quoted"
    return None


def integer_hint(text: str, start: int) -> str | None:
    """Hint for what stands where an integer should."""
    near = text[start : start + _NEAR]
    if near.startswith("+"):
        return "numbers take no `+`"
    if re.match(r"true|false", near):
        return "write 0 or -1; MLIR reads `true` as -1, which is refused here as a trap"
    if re.match(r"[0-9]+\.", near):
        return "no decimal point here"
    if near.startswith("-"):
        return "one sign only"
    return None


def parameters_hint(text: str, start: int) -> str | None:
    """Hint for a `{` where the one scale of a per-tensor type should be; `start` is the index of the `{`."""
    if not text.startswith("{", start):
        return float_hint(text, start)
    inside = text[start + 1 : start + 1 + 4 * _NEAR].partition("}")[0]
    if "," in inside or "{" in inside:
        return "a list of scales needs its axis after the expressed type: `f32:0, {...}`"
    return "write a single scale without braces, or name an axis: `f32:0, {...}`"


def dimension_hint(text: str, start: int) -> str | None:
    """Hint for what stands where an `x` of a shape should."""
    near = text[start : start + _NEAR]
    if near.startswith(","):
        return "dimensions are joined by `x`: `tensor<2x3xf32>`"
    if near.startswith("]"):
        return "a shape has no brackets: `tensor<2x3xf32>`"
    if near.startswith(">"):
        return "the element type is missing: `tensor<2x3xf32>`"
    if near.startswith("X"):
        return "write a small `x`"
    return None
