"""Heads that are kept: a kept head is what its text says, whatever else was asked before."""

from __future__ import annotations

import json
from dataclasses import fields
from random import Random
from typing import Any

import pytest

from requant.errors import RequantError
from requant_service.oip.models.registry import MODELS
from requant_service.oip.wire import InferenceHead, head_text, read_head
from requant_service.runtime.settings import Settings
from tests.support.cases import EXHAUSTIVE

SETTINGS = Settings()
MODEL = MODELS["quantize"]
TYPE = "!quant.uniform<i8:f32, 0.5:3>"


def tensors(**parameters: Any) -> dict[str, Any]:
    shape = {"name": "x", "shape": [2, 3], "datatype": "FP32", "parameters": {"binary_data_size": 24}}
    return {
        "parameters": {"output_type": TYPE, **parameters},
        "inputs": [shape],
        "outputs": [{"name": "y", "parameters": {"binary_data": True}}],
    }


TEXTS = [
    json.dumps(value, separators=separators).encode()
    for separators in ((",", ":"), (", ", ": "))
    for value in (
        {"id": "a1", **tensors()},
        {**tensors(), "id": "a1"},
        {"model_name": "quantize", "id": "a1", **tensors(profile="onnx")},
        {"id": "", **tensors(rounding="nearest_even")},
        tensors(),
        {**tensors(), "inputs": [{"name": "x", "shape": [1], "datatype": "FP32", "data": [0.5]}]},
        {"id": "a1", **tensors(), "inputs": [{"name": "x", "shape": [1], "datatype": "FP32", "data": [0.5]}]},
    )
]
# What means the same but for the id, or only seems to.
TEXTS += [TEXTS[0][:-1] + b',"id":"b2"}', b'{"id":"b2",' + TEXTS[0][1:], b' {"id":"a1",' + TEXTS[4][1:]]
TEXTS += [b'{"\\u0069d":"c3",' + TEXTS[1][1:], b'{"id":"\\u0061",' + TEXTS[4][1:], b'{"id":"\xc3\xa9",' + TEXTS[4][1:]]
TEXTS += [TEXTS[0][:-1] + b',"\\u0069d":"c3"}'] * 4
TEXTS += [TEXTS[4][:-1] + b',"\\u0069d":"c3"}', TEXTS[4][:-1] + b',"model_name":"quantize","id":"d4"} ']
TEXTS += [TEXTS[4].replace(b'"f32', b'"id":"a1"'), TEXTS[4][:-1] + b',"model_name":",\\"id\\":\\"a1"}']
PIECES = [
    b'"id":"a1"',
    b'"id":"b2",',
    b',"id":"c3"}',
    b'"',
    b"\\",
    b"{",
    b"}",
    b",",
    b" ",
    b":",
    b"[",
    b"id",
    b"\xff",
    b"0",
    b"1",
]


def mutated(rng: Random, text: bytes) -> bytes:
    """Return a text that differs in its id, or in anything."""
    kind = rng.random()
    if kind < 0.5:
        return text.replace(b"a1", rng.choice((b"", b"b2", b"zz", b"{}", b"a,b", b"x" * 256, b"x" * 257, b"[[")))
    for _ in range(rng.randrange(1, 4)):
        at = rng.randrange(len(text) + 1)
        if kind < 0.8:
            at = max(0, text.find(b'"id"', at)) + rng.randrange(12)
        text = text[:at] + rng.choice((b"", rng.choice(PIECES))) + text[at + rng.choice((0, 0, 1, 2)) :]
    return text


def meaning(text: bytes) -> InferenceHead | str:
    try:
        return read_head(text, MODEL, SETTINGS)
    except RequantError as error:
        return f"{error.code}: {error}"


def same(kept: InferenceHead, fresh: InferenceHead | str, given_id: str | None) -> bool:
    """Return whether a kept head, with the id that was cut out, is the one that its text says."""
    if isinstance(fresh, str):
        return False
    skipped = {"id", "planned", "replied", "inputs"}
    names = [each.name for each in fields(InferenceHead) if each.name not in skipped]
    equal = all(getattr(kept, name) == getattr(fresh, name) for name in names) and not fresh.inputs
    return equal and fresh.id == (kept.id if given_id is None else given_id)


@pytest.mark.sample(2)
@pytest.mark.parametrize("seed", range(10))
def test_a_kept_head_is_what_its_text_says(seed: int) -> None:
    rng = Random(seed)
    kept: dict[Any, InferenceHead] = {}
    hits = 0
    for _ in range(100_000 if EXHAUSTIVE else 1500):
        text = rng.choice(TEXTS)
        if rng.random() < 0.8:
            text = mutated(rng, text)
        cut = head_text(text)
        assert cut.id is None or cut.before + cut.id.encode() + cut.after == text
        fresh = meaning(text)
        found = kept.get((cut.before, cut.after))
        if found is not None:
            hits += 1
            assert same(found, fresh, cut.id), text
        elif isinstance(fresh, InferenceHead) and cut.is_text_of(fresh):
            kept[cut.before, cut.after] = fresh
    assert hits > 300


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (TEXTS[0], "a1"),
        (TEXTS[1], "a1"),
        (TEXTS[7], "a1"),
        (TEXTS[8], "a1"),
        (TEXTS[3], ""),
        (TEXTS[2], None),
        (TEXTS[4], None),
        (b'{"id":"\\u0061"}', None),
        (b'{"id":1}', None),
        (b'{"id":"a"', "a"),
        (b"", None),
    ],
)
def test_an_id_is_cut_out_at_either_end(text: bytes, found: str | None) -> None:
    assert head_text(text).id == found


def test_long_texts_are_not_searched() -> None:
    """The id at the end is looked for in the last bytes only."""
    text = b'{"inputs":' + b'[{"id"' * 2_000_000
    assert head_text(text).id is None
