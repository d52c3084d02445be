"""Every text of the vector files: 293 types with the canonical text of iree-opt 3.13, 185 texts that it refuses, and
its verdict on containers and casts (`tests/vectors/README.md`)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from requant.errors import TypeTextError
from requant.mlir import parse_type, print_type
from requant.mlir.casts import Cast, cast_reason
from requant.mlir.verifier import fault

_VECTORS = Path(__file__).parents[2] / "vectors"

# The divergences of docs/types.md, each with the reason.
REFUSED_ON_PURPOSE = {
    "!quant.uniform<i8:f32:false, {1.0}>": "`false` is no integer",
    "!quant.uniform<i8:f32, 1.0:true>": "`true` is no integer",
    "!quant.uniform<i8:f32:{0:1}, {{1.0:1}, {2.0:true}}>": "`true` is no integer",
    "!quant.uniform<i8:f32, 0x7FF8000000000000>": "NaN is no scale",
    "!quant.uniform<i8:f32:{0:1}, {{0x7FF8000000000000}, {1.0}}>": "NaN is no scale",
    "!quant.uniform<i1:f32:{0:1}, {{1.0:-1},{2.0:1}}>": "MLIR would cut the zero point 1 to -1",
    "!quant.uniform<i8:f32:{0:1}, {{1.0:256},{2.0:512}}>": "MLIR would cut the zero points to 0",
}
PRINTED_ON_PURPOSE = {
    # MLIR prints the bits of the f32, 0x4B2355DD, and reads them back as those of an f64.
    "!quant.uniform<i8:f32:{0:1}, {{0x3FF0000000000000}, {0x41646ABBA0000000:5}}>": (
        "!quant.uniform<i8:f32:{0:1}, {{1.000000e+00}, {10704349.0:5}}>"
    ),
}


def _load(name: str) -> Any:
    return json.loads((_VECTORS / name).read_text())


VALID: list[dict[str, Any]] = _load("quant_types_valid.json")
INVALID: list[dict[str, Any]] = _load("quant_types_invalid.json")
RULES: dict[str, list[dict[str, Any]]] = _load("quant_tensor_and_op_rules.json")
CONTAINERS = RULES["container_types"]


def test_the_files_are_whole() -> None:
    assert (len(VALID), len(INVALID), len(CONTAINERS), len(RULES["ops"])) == (293, 185, 21, 57)
    texts = {entry["text"] for entry in VALID}
    assert set(REFUSED_ON_PURPOSE) | set(PRINTED_ON_PURPOSE) <= texts


@pytest.mark.parametrize("entry", VALID + [e for e in CONTAINERS if e["accepted"]], ids=lambda entry: entry["text"])
def test_valid_text(entry: dict[str, Any]) -> None:
    text = entry["text"]
    if text in REFUSED_ON_PURPOSE:
        with pytest.raises(TypeTextError):
            parse_type(text)
        return
    type_ = parse_type(text)
    canonical = print_type(type_)
    assert canonical == PRINTED_ON_PURPOSE.get(text, entry["canonical"])
    assert print_type(parse_type(canonical)) == canonical
    assert "0x7FF8" in canonical or parse_type(canonical) == type_  # NaN is not equal to itself
    assert fault(type_) is None


@pytest.mark.parametrize(
    "entry", INVALID + [e for e in CONTAINERS if not e["accepted"]], ids=lambda entry: entry["text"]
)
def test_invalid_text(entry: dict[str, Any]) -> None:
    text = entry["text"]
    with pytest.raises(TypeTextError) as caught:
        parse_type(text)
    assert 0 <= caught.value.offset <= len(text)


@pytest.mark.parametrize("entry", RULES["ops"], ids=lambda entry: f"{entry['op']} {entry['input']} {entry['result']}")
def test_cast(entry: dict[str, Any]) -> None:
    try:
        operand, result = parse_type(entry["input"]), parse_type(entry["result"])
    except TypeTextError:
        assert not entry["accepted"]
        assert entry["input"].startswith("vector<")
        return
    reason = cast_reason(Cast(entry["op"]), operand, result)
    assert (reason is None) == entry["accepted"], reason
