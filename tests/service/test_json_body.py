"""Counting the tokens of a JSON text without parsing it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.json_body import token_count

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(st.sampled_from('a"\\,[{é'), max_size=6),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner, max_size=4),
    max_leaves=20,
)


def tokens(value: Any) -> int:
    """Count the slow way: from the value."""
    if isinstance(value, str):
        return 1
    if isinstance(value, dict):
        return 1 + max(len(value) - 1, 0) + len(value) + sum(tokens(member) for member in value.values())
    if isinstance(value, list):
        return 1 + max(len(value) - 1, 0) + sum(tokens(member) for member in value)
    return 0


@given(VALUES, st.booleans())
def test_the_count_is_that_of_the_value(value: Any, ascii_only: bool) -> None:
    assert token_count(json.dumps(value, ensure_ascii=ascii_only).encode()) == tokens(value)


@pytest.mark.parametrize("text", [b"", b'"', b'"\\', b'"\\"', b'\\\\"', b"[[[["])
def test_texts_that_are_not_json_are_counted_too(text: bytes) -> None:
    assert token_count(text) >= 0
