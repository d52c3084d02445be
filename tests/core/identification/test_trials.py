"""Calls that are drawn to tell candidates apart."""

from __future__ import annotations

from requant.functions import FUNCTIONS


def test_of_an_operation_that_has_no_default_scheme() -> None:
    observed = {"multiplier": [1690499128], "shift": [-6]}
    call = {"operation": "derive_multiplier", "arguments": {"factors": [0.0123]}, "observed": observed}
    found = FUNCTIONS["identify"]([call], suspects=["litert", "litert_emulate_float", "tosa"])
    assert [each["candidates"] for each in found["consistent"]] == [
        [{"scheme": "litert"}],
        [{"scheme": "litert_emulate_float"}],
    ]
    (tried,) = found["try_next"]
    assert [each["name"] for each in tried["tensors"]] == ["factors"]
    first, second = tried["outcomes"]
    assert first != second
