"""Errors that teach: where a text stops being a type, what was expected there, and a caret under the place."""

from __future__ import annotations

import re

from requant.errors import TypeTextError, excerpt
from requant.formats.elements import FLOATS

WINDOW = 80
SHOWN_TOKEN = 24


def caret(text: str, offset: int) -> str:
    """Return two lines: at most `WINDOW` characters of `text` around `offset`, and `^` under the one at `offset`.

    Everything that is not printable ASCII is shown as an escape, so that the caret stands where it should.
    """
    start = max(0, min(offset - WINDOW // 2, len(text) - WINDOW))
    before, after = _escaped(text[start:offset]), _escaped(text[offset : start + WINDOW])
    return f"{before}{after}\n{' ' * len(before)}^"


def text_error(text: str, offset: int, detail: str, hint: str | None = None) -> TypeTextError:
    """Return the error for the character at `offset` of `text`; `detail` says what is wrong, without the place."""
    return TypeTextError(f"{detail}, at offset {offset}", offset=offset, caret=caret(text, offset), hint=hint)


def shown(token: str) -> str:
    """Return `token` as messages show it: quoted, shortened, or named when there is nothing to quote."""
    if not token:
        return "the end of the text"
    return f"`{excerpt(token if len(token) <= SHOWN_TOKEN else token[:SHOWN_TOKEN] + '...')}`"


def _escaped(part: str) -> str:
    return "".join(c if " " <= c <= "~" else c.encode("unicode_escape").decode("ascii") for c in part)


_FLOAT_NAMES = {
    "float": "f32", "double": "f64", "half": "f16", "float16": "f16", "float32": "f32", "float64": "f64",
    "fp16": "f16", "fp32": "f32", "fp64": "f64", "bfloat16": "bf16", "bfloat": "bf16", "bfp16": "bf16",
    "tfloat32": "tf32", "tensorfloat32": "tf32", "fp4": "f4E2M1FN",
}  # fmt: skip
_INTEGER_NAMES = {
    "bool": "i1", "boolean": "i1", "byte": "ui8", "char": "i8", "short": "i16", "int": "i32", "long": "i64",
}  # fmt: skip
# float8_e4m3fn, fp8_e4m3, e4m3, f8e4m3fn: exponent and mantissa name the format.
_SMALL_FLOAT = re.compile(r"(?:(?:float|fp|f)[468]?)?(e[0-9]m[0-9].*)")
_WIDTH_ALONE = re.compile(r"(?:float|fp|f)([468])")
_SMALL_FLOATS = {each.name.lower().partition("e")[2]: each.name for each in FLOATS.values() if each.width <= 8}
_SIGNED_NAME = re.compile(r"(?:int|s|I)([0-9]{1,2})(?:_t)?\Z", re.IGNORECASE)
_UNSIGNED_NAME = re.compile(r"(?:uint|u)([0-9]{1,2})(?:_t)?\Z", re.IGNORECASE)
_QUANTIZED_NAME = re.compile(r"q(u?)int([0-9]{1,2})\Z", re.IGNORECASE)
_BRACKETS = re.compile(r"[ \t]*[\[(]([0-9, ]{0,64})[\])]")
EXAMPLE_TYPE = "!quant.uniform<i8:f32, 0.5:3>"
_NEAR = 32


def _float_name(word: str) -> str | None:
    """Return the float that another spelling of it means: float32, torch.float32, F32, fp8_e4m3."""
    if len(word) > _NEAR:
        return None
    joined = _last_part(word).lower().replace("_", "").replace("-", "")
    if joined in _FLOAT_NAMES:
        return _FLOAT_NAMES[joined]
    for name in FLOATS:
        if name.lower() == joined and name.lower() != "f8e4m3":
            return name
    if match := _SMALL_FLOAT.fullmatch(joined):
        digits = match[1].removeprefix("e")
        # What other systems call e4m3 is without infinities: FN.
        for suffix in ("fn", "fnu", ""):
            if digits + suffix in _SMALL_FLOATS:
                return _SMALL_FLOATS[digits + suffix]
    return None


def _last_part(word: str) -> str:
    """Return the name in a module of Python: float32 of torch.float32."""
    return word.rpartition(".")[2]


def storage_hint(text: str, start: int, word: str) -> str | None:
    """Hint for a word that is no storage type."""
    if word == "u" and (digits := re.match(r"[ \t]*-?([0-9]{1,2})", text[start + 1 : start + _NEAR])):
        return f"write `u{digits[1]}`, without a blank or sign"
    name = _last_part(word)
    if match := _UNSIGNED_NAME.match(name):
        return f"write `u{match[1]}` (or `ui{match[1]}`, another type) for an unsigned storage of {match[1]} bits"
    if match := _QUANTIZED_NAME.match(name):
        return f"write `{match[1]}i{match[2]}`".replace("ui", "u")
    if match := _SIGNED_NAME.match(name):
        return f"write `i{match[1]}` (or `si{match[1]}`, another type) for a signed storage of {match[1]} bits"
    if word == "quantile":
        return "a quantile storage is written in full: `!quant.quantile<...>`"
    meant = _float_name(word)
    if meant is not None and word not in FLOATS and FLOATS[meant].width <= 8:
        return f"write `{meant}`"
    if meant is not None:
        return "the storage comes first, then the expressed type: `i8:f32`"
    return None


def expressed_hint(word: str) -> str | None:
    """Hint for a word that is no float type."""
    if meant := _float_name(word):
        return f"write `{meant}`"
    if re.match(r"(?:[su]?i|u)[0-9]|u?int[0-9]", word):
        return "the expressed type is the float that the numbers stand for, such as `f32`"
    if word == "-" or word.isdigit():
        return "bounds of the storage stand in angle brackets: `i8<-127:127>:f32`"
    return None


def type_hint(text: str, start: int, word: str) -> str | None:
    """Hint for a word that is no type."""
    after = text[start + len(word) : start + len(word) + 2 * _NEAR]
    if format_ := re.match(r"[ \t:_-]+(e[0-9]m[0-9]\w*)", after, re.IGNORECASE):
        word += format_[1]
    meant = _float_name(word) or _integer_name(word)
    if meant and (shape := _BRACKETS.match(after)):
        return f"write `{_tensor_text(shape[1], meant)}`"
    if meant:
        quantized = EXAMPLE_TYPE.replace("i8", meant)
        if not _integer_name(word):
            return f"write `{meant}`"
        return f"for quantized numbers write `{quantized}`; integers that stand for themselves are `{meant}`"
    if match := _WIDTH_ALONE.fullmatch(_last_part(word).lower()):
        listed = " or ".join(f"`{name}`" for name in FLOATS if name.startswith(f"f{match[1]}"))
        return f"say which float of {match[1]} bits: {listed}"
    if match := _QUANTIZED_NAME.match(_last_part(word)):
        storage = f"{match[1] or 'i'}{match[2]}"
        return f"a quantized type has a scale and perhaps a zero point: `!quant.uniform<{storage}:f32, 0.5:3>`"
    if match := _UNSIGNED_NAME.match(_last_part(word)):
        return f"the builtin unsigned type is `ui{match[1]}`; `u{match[1]}` exists only as storage in a `!quant` type"
    if word in ("uniform", "any", "calibrated", "quantile", "quant.uniform", "quant.any", "quant.calibrated"):
        return f"types of the quant dialect start with `!`: `!quant.{word.removeprefix('quant.')}<...>`"
    if word.lower() in ("tensor", "tuple"):
        return f"write `{word.lower()}`"
    if text.startswith(("[", "("), start):
        return "a shape has no brackets: `tensor<2x3xf32>`"
    if text.startswith("!", start):
        return "write `!quant.uniform<`: no blanks from the `!` to the `<`"
    if text.startswith("\\!", start):
        return "write `!` without the backslash; in a shell put single quotes around it"
    if re.match(r"%(?:25|21)", text[start : start + 3]):
        return "this is percent-encoded once too often: a query holds `%21quant.uniform%3Ci8...`, or the text as it is"
    if text[start : start + 1] in ("'", '"'):
        return "types are not quoted inside of the text"
    return None


def _integer_name(word: str) -> str | None:
    name = _last_part(word)
    if name.lower() in _INTEGER_NAMES:
        return _INTEGER_NAMES[name.lower()]
    match = _SIGNED_NAME.match(name)
    return f"i{match[1]}" if match else None


def _tensor_text(shape: str, element: str) -> str:
    sizes = [size for size in shape.replace(" ", "").split(",") if size]
    return f"tensor<{''.join(f'{size}x' for size in sizes)}{element}>"


def after_parameters_hint(text: str, start: int) -> str | None:
    """Hint for what stands after scale and zero point, where the type should end."""
    near = text[start : start + _NEAR]
    if match := re.match(r",[ \t]*(-?[0-9]+)[ \t]*>", near):
        return f"the zero point follows its scale after a colon: `0.5:{match[1]}`"
    if near.startswith(","):
        return "several scales stand in braces after an axis: `f32:0, {0.5, 0.25}`"
    if re.match(r"[0-9]", near):
        return "in a URL `+` is a blank; the zero point follows its scale after a colon: `0.5:3`"
    return None


def float_hint(text: str, start: int) -> str | None:
    """Hint for what stands where a float should."""
    near = text[start : start + _NEAR]
    if match := re.match(r"(-?[0-9]+):([0-9]*\.[0-9]+)", near):
        return f"the scale comes first, then the zero point: `{match[2]}:{match[1]}`"
    if match := re.match(r"([0-9]+)([eE][-+]?[0-9]+)?", near):
        if near[1:2] == "X":
            return "the bits of a float are written with a small `x`: `0x`"
        return f"the decimal point is mandatory: write `{match[1]}.0{match[2] or ''}`"
    if match := re.match(r"\.[0-9]+", near):
        return f"a number does not start with a dot: write `0{match[0]}`"
    if near.startswith("+"):
        return "numbers take no `+`"
    if re.match(r"-?(?:nan|inf)", near, re.IGNORECASE):
        return "MLIR has no literals for NaN and infinity; the bits of an f64 can be written as `0x...`"
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
