"""The type language against MLIR itself: `iree-opt` of the PyPI package iree-base-compiler.

Every text becomes `!t = TEXT` and a function declaration that uses `!t`, so that nothing but one type can stand there.
Chunks are separated by `// -----` and run in one process. A chunk is accepted when its function is printed and no error
has a line of it; what is printed is the canonical text.

Both must agree on every text, but for the divergences of docs/types.md and those listed in `_refused_on_purpose`
and `_as_printed_by_iree`. These are recognised by what stands in the text, not by what our parser said about it.
"""

from __future__ import annotations

import re
import shutil
import struct
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from math import isnan
from pathlib import Path
from random import Random

import pytest

from requant.errors import TypeTextError
from requant.formats.elements import FLOATS
from requant.mlir import TensorType, TupleType, Type, UniformSubChannelType, parse_type, print_type
from requant.mlir.casts import Cast, cast_reason
from tests.interop.conformance import systems
from tests.interop.conformance.records import record
from tests.interop.conformance.subject import types
from tests.support.mlir_strategies import cast_operands, mutated, type_text

pytestmark = pytest.mark.interop

GENERATED, MUTATED, CASTS = 10_000, 10_000, 2_000
SEEDS = {"generated": 20261121, "mutated": 20261122}
_BATCH = 2_500
_SEPARATOR = "// -----"


def _iree_opt() -> str:
    beside_python = Path(sys.executable).with_name("iree-opt")
    found = str(beside_python) if beside_python.exists() else shutil.which("iree-opt")
    if found is None:
        pytest.skip("iree-opt is not installed (PyPI: iree-base-compiler)")
    return found


def run_iree(texts: list[str]) -> list[str | None]:
    """Return what iree-opt prints for each text, None where it refuses it. A batch that crashes it is halved."""
    chunks = [f"!t = {text}\nfunc.func private @f{index}(!t)\n" for index, text in enumerate(texts)]
    done = _run(chunks)
    if done.returncode not in (0, 1):
        if len(texts) == 1:
            return [None]
        middle = len(texts) // 2
        return run_iree(texts[:middle]) + run_iree(texts[middle:])
    printed = {int(m[1]): m[2] for m in re.finditer(rb"@f(\d+)\((.*)\)\s*$", done.stdout, re.MULTILINE)}
    first_lines, line = [], 1
    for chunk in chunks:
        first_lines.append(line)
        line += chunk.count("\n") + 1
    wrong_lines = sorted(int(m[1]) for m in re.finditer(rb"^<stdin>:(\d+):\d+: error:", done.stderr, re.MULTILINE))
    results: list[str | None] = [printed[i].decode() if i in printed else None for i in range(len(texts))]
    index = 0
    for wrong in wrong_lines:
        while index + 1 < len(texts) and first_lines[index + 1] <= wrong:
            index += 1
        results[index] = None
    return results


def _run(chunks: list[str]) -> subprocess.CompletedProcess[bytes]:
    command = [_iree_opt(), "--split-input-file", "--mlir-disable-threading", "-"]
    return subprocess.run(command, input=f"{_SEPARATOR}\n".join(chunks).encode(), capture_output=True, check=False)


def _refused_on_purpose(text: str, offset: int) -> str | None:
    """Return the name of the divergence when MLIR accepts `text` and we refuse what stands at `offset`."""
    before, rest = _uncommented(text[:offset]), _uncommented(text[offset:])
    if rest.startswith(("true", "false")):
        return "keyword as integer"
    if (bits := re.match(r"0x([0-9a-fA-F]{1,16})", rest)) and isnan(_from_bits(bits[1])):
        return "NaN scale"
    if re.search(r"block_scaled\s*<[^>]*\{[^{}]*\Z", before) and _beyond_block_scales(rest):
        return "scale of blocks that becomes NaN"
    number = re.match(r"(-?)\s*(0x[0-9a-fA-F]+|[0-9]+)", rest)
    blockwise = re.search(r".*<\s*(u|ui|i|si)0*(\d+)[^{]*\{[^{}]*\}\s*,\s*\{", before, re.DOTALL)
    if number and blockwise and not re.search(r"[,{]\s*\Z", before):
        value = int(number[1] + number[2], 16 if "x" in number[2] else 10)
        half = 1 << (int(blockwise[2]) - 1)
        high = 2 * half - 1 if blockwise[1].startswith("u") else half - 1
        return None if -half <= value <= high else "sub-channel zero point outside the storage"
    line = text[text.rfind("\n", 0, offset + 1) + 1 : offset + 1]
    if "//" in line and rest[0] in "<>{}[]()":
        return "bracket in a comment"
    if re.match(r"!quant\s*<", text[text.rfind("!", 0, offset) :]):
        return "text after the type in the long spelling"
    return None


def _beyond_block_scales(text: str) -> bool:
    """Whether a number that MLIR rounds to f8E8M0FNU becomes NaN."""
    number = re.match(r"0x([0-9a-fA-F]{1,16})|[0-9]+\.[0-9]*(?:[eE][-+]?[0-9]+)?", text)
    return number is not None and (_from_bits(number[1]) if number[1] else float(number[0])) >= 1.5 * 2.0**127


def _uncommented(text: str) -> str:
    return re.sub(r"//[^\r\n]*", " ", text)


def _from_bits(hexadecimal: str) -> float:
    return float(struct.unpack(">d", int(hexadecimal, 16).to_bytes(8))[0])


def _as_printed_by_iree(type_: Type, ours: str) -> str:
    """Return our canonical text with MLIR's two ways of losing a value put back in.

    In a quantile used as storage, MLIR prints the table with `%e`, six digits, whatever the values. Sub-channel scales
    that need it are printed as the bits of the expressed type; we print decimals.
    """
    ours = re.sub(
        r"((?:uniform|any)<!quant\.quantile<[^{]*\{)([^}]*)",
        lambda table: table[1] + ",".join(f"{_value(entry):e}" for entry in table[2].split(",")),
        ours,
    )
    for element in _elements(type_):
        if isinstance(element, UniformSubChannelType):
            ours = ours.replace(print_type(element), _with_bits(print_type(element), element.expressed.name))
    return ours


def _with_bits(text: str, expressed: str) -> str:
    text = re.sub(r"(?<=[{ ])([0-9]+)\.0(?=[,:}])", lambda number: _bits_text(float(number[1]), expressed), text)
    return text.replace("1.0E+400", _bits_text(float("inf"), expressed)) if "1.0E+400" in text else text


def _elements(type_: Type) -> Iterator[Type]:
    if isinstance(type_, TupleType):
        for member in type_.members:
            yield from _elements(member)
    else:
        yield type_.element if isinstance(type_, TensorType) else type_


def _encodings(type_: Type) -> Iterator[str]:
    if isinstance(type_, TupleType):
        for member in type_.members:
            yield from _encodings(member)
    elif isinstance(type_, TensorType) and type_.encoding is not None:
        yield type_.encoding


def _differs_at_ends_only(type_: Type, ours: str, theirs: str) -> bool:
    """Whether the texts differ only in sub-channel scales that MLIR prints as a number outside its own interval."""
    formats = [element.expressed for element in _elements(type_) if isinstance(element, UniformSubChannelType)]
    our_words, their_words = re.split(r"([0-9][^{}, :]*)", ours), re.split(r"([0-9][^{}, :]*)", theirs)
    pairs = [pair for pair in zip(our_words, their_words, strict=False) if pair[0] != pair[1]]
    return len(our_words) == len(their_words) and all(
        re.fullmatch(r"[0-9.]+[eE][-+][0-9]+", their)
        and any(
            not element.smallest <= float(their) <= element.largest
            and float(our) in (element.smallest, element.largest)
            and abs(float(their) / float(our) - 1) < 2.0**-element.precision
            for element in formats
        )
        for our, their in pairs
    )


def _value(entry: str) -> float:
    return _from_bits(entry[2:]) if entry.startswith("0x") else float(entry)


def _bits_text(value: float, expressed: str) -> str:
    """Return the bits of a number that is an integer or infinite, in a format wide enough for MLIR to need them."""
    if expressed == "f32":
        return f"0x{int.from_bytes(struct.pack('>f', value)):X}"
    if expressed == "f64":
        return f"0x{int.from_bytes(struct.pack('>d', value)):X}"
    bits = int.from_bytes(struct.pack(">d", value))
    exponent = (bits >> 52) - 1023 + 16383 if value != float("inf") else 0x7FFF
    fraction = bits & ((1 << 52) - 1)
    if expressed == "f128":
        return f"0x{exponent << 112 | fraction << 60:X}"
    assert expressed == "f80", expressed
    return f"0x{exponent << 64 | 1 << 63 | fraction << 11:X}"


def _texts(kind: str) -> list[str]:
    random = Random(SEEDS[kind])
    if kind == "generated":
        return [type_text(random) for _ in range(GENERATED)]
    return [mutated(random, type_text(random)) for _ in range(MUTATED)]


def _disagreement(text: str, theirs: str | None) -> str | None:
    """Return None when both agree, the name of a known divergence, or a description that starts with `!`."""
    try:
        type_ = parse_type(text)
    except TypeTextError as error:
        if theirs is None:
            return None
        return _refused_on_purpose(text, error.offset) or f"! refused: {text!r} ({error}), iree-opt: {theirs}"
    ours = print_type(type_)
    assert print_type(parse_type(ours)) == ours
    if ours == theirs:
        return None
    if any(not re.fullmatch(r'"[ a-z<>-]*"', encoding) for encoding in _encodings(type_)):
        return "encoding that is kept as it is"
    if theirs is None:
        return f"! accepted: {text!r} as {ours}"
    expected = _as_printed_by_iree(type_, ours)
    if expected == theirs or _differs_at_ends_only(type_, expected, theirs):
        return "value that MLIR prints with a loss"
    return f"! printed: {text!r} as {ours}, iree-opt: {theirs}"


@pytest.mark.parametrize("kind", ["generated", "mutated"])
def test_agrees_with_mlir_on_random_texts(kind: str) -> None:
    texts = _texts(kind)
    printed = [result for start in range(0, len(texts), _BATCH) for result in run_iree(texts[start : start + _BATCH])]
    found = Counter(filter(None, map(_disagreement, texts, printed)))
    unknown = [description for description in found if description.startswith("!")]
    assert not unknown, "\n".join(unknown[:20])
    record(systems.IREE, [types("parse")], len(texts) - found.total(), 0, {"type_language": found.total()})
    assert sum(result is not None for result in printed) > len(texts) // 10
    # Divergences stay what they are: rare.
    assert found.total() < len(texts) // 20, found


@pytest.mark.parametrize("cast", list(Cast))
def test_agrees_with_mlir_on_random_casts(cast: Cast) -> None:
    random = Random(20261123)
    pairs = [cast_operands(random, cast.value) for _ in range(CASTS)]
    done = _run(
        [
            f"func.func @f{index}(%a: {operand}) -> {result} {{\n"
            f"%0 = {cast} %a : {operand} to {result}\nreturn %0 : {result}\n}}\n"
            for index, (operand, result) in enumerate(pairs)
        ]
    )
    accepted = {int(index) for index in re.findall(rb"@f(\d+)\(", done.stdout)}
    assert CASTS // 10 < len(accepted) < CASTS * 9 // 10
    for index, (operand, result) in enumerate(pairs):
        reason = cast_reason(cast, parse_type(operand), parse_type(result))
        assert (reason is None) == (index in accepted), (operand, result, reason)
    record(systems.IREE, [types("cast")], CASTS)


def test_our_decimals_are_read_by_mlir_as_the_same_value() -> None:
    """Where our canonical text differs from MLIR's, MLIR reads ours back to what it had printed of the original."""
    texts = [
        f"!quant.uniform<i8:{expressed}:{{0:1}}, {{{{{scale}}}, {{1.0:5}}}}>"
        for expressed in ("f32", "f64", "f80", "f128")
        for scale in ("1234567.0", "0x41646ABBA0000000", "16777215.0", "7654321.0", "0x7FF0000000000000")
        if scale != "0x7FF0000000000000" or expressed in ("f80", "f128")
    ]
    ours = [print_type(parse_type(text)) for text in texts]
    assert run_iree(ours) == run_iree(texts)
    assert None not in run_iree(texts)


def test_scales_at_the_ends_of_a_format_are_read_by_mlir_as_the_same_value() -> None:
    """MLIR rounds f32's largest to 3.40282347E+38, which it then refuses as too large. Ours it reads."""
    elements = [element for element in FLOATS.values() if element.smallest > 0.0]
    texts = [
        f"!quant.uniform<i8:{element.name}:{{}}, {{{_hexadecimal(scale)}}}>"
        for element in elements
        for scale in (element.smallest, element.largest)
    ]
    ours = [print_type(parse_type(text)) for text in texts]
    theirs = [text for text in run_iree(texts) if text is not None]
    assert run_iree(ours) == theirs
    different = [their for our, their in zip(ours, theirs, strict=True) if our != their]
    assert len(different) > 5
    assert run_iree(different) == [None] * len(different)


def _hexadecimal(value: float) -> str:
    return f"0x{int.from_bytes(struct.pack('>d', value)):X}"


@pytest.mark.parametrize("text", ["!quant.uniform<i8:f32, 1.0:300>", "tensor<4xf32,>", "tensor<0x10xf32>", "tuple<>"])
def test_what_looks_wrong_is_mlir(text: str) -> None:
    assert run_iree([text]) == [print_type(parse_type(text))]
