"""Long JSON in slices: what a parser makes of the whole, and nothing that it would not take."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic_core import from_json

from requant_service.http import json_document
from requant_service.http.json_document import SlicedDocument

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-99, 99) | st.floats(allow_nan=False) | st.text('a"\\,[]{}é:', max_size=6),
    lambda inner: st.lists(inner, max_size=6) | st.dictionaries(st.text('ab"\\,{]', max_size=3), inner, max_size=6),
    max_leaves=40,
)


@pytest.fixture(params=[2, 3, 5], autouse=True)
def small_slices(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_document, "SLICE_TOKENS", request.param)
    monkeypatch.setattr(json_document, "_WINDOW", 7)


def read(body: bytes) -> Any:
    """What the parser makes of the whole, or the kind of error."""
    try:
        return from_json(body, cache_strings=False)
    except ValueError:
        return ValueError


def read_in_slices(body: bytes) -> Any:
    try:
        return SlicedDocument(body).value
    except ValueError:
        return ValueError


@given(VALUES, st.sampled_from([None, 1, "\t"]), st.booleans())
def test_the_slices_make_the_whole(value: Any, indent: int | str | None, ascii_only: bool) -> None:
    body = json.dumps(value, indent=indent, ensure_ascii=ascii_only).encode()
    assert SlicedDocument(body).value == value
    assert SlicedDocument(bytearray(body)).value == value


@given(st.text('[]{}",:\\ 0a-', max_size=24))
def test_any_text_is_taken_or_refused_as_by_the_parser(text: str) -> None:
    body = text.encode() or b" "
    assert read_in_slices(body) == read(body)


@given(VALUES, st.data())
def test_a_document_with_one_character_changed(value: Any, data: st.DataObject) -> None:
    body = bytearray(json.dumps([value, value]).encode())
    at = data.draw(st.integers(0, len(body) - 1))
    change = data.draw(st.sampled_from([b"", *(bytes([code]) for code in b'[]{}",:\\0-')]))
    body[at : at + 1] = change
    assert read_in_slices(bytes(body)) == read(bytes(body))


@pytest.mark.parametrize(
    "body",
    [
        b'{"a":-[1,2,3,4,5,6]}',
        b'{"a":1[1,2,3,4,5,6]}',
        b'{"a" "b":[1,2,3,4,5,6]}',
        b"{[1,2,3,4,5,6]}",
        b"[1,2,3,4,5,6,]",
        b"[,1,2,3,4,5,6]",
        b"[1,2,3,,4,5,6]",
        b"[[1,2,3,4,5,6],]",
        b"[[1,2,3,4,5,6]",
        b"[1,2,3,4,5,6]]",
        b"[1,2,3,4,5,6}",
        b"{1,2,3,4,5,6}",
        b"x[1,2,3,4,5,6]",
        b"[1,2,3,4,5,6]x",
        b"[[1,2],[3,4] [5,6]]",
    ],
)
def test_what_looks_right_in_slices_only_is_refused(body: bytes) -> None:
    assert read(body) is ValueError
    assert read_in_slices(body) is ValueError


def test_of_a_member_that_is_there_twice_the_last_counts() -> None:
    body = b'{"a":[1,2,3,4,5,6,7],"b":0,"c":0,"d":0,"a":1,"b":[1,2,3,4,5,6,7]}'
    assert SlicedDocument(body).value == json.loads(body)


@pytest.mark.parametrize(("depth", "taken"), [(190, True), (100_000, False)])
def test_deep_nesting_ends_like_in_the_parser(depth: int, taken: bool) -> None:
    body = b"[" * depth + b",".join([b"1"] * 20) + b"]" * depth
    assert (read(body) is not ValueError) == taken
    assert (read_in_slices(body) is not ValueError) == taken


@given(VALUES)
def test_all_is_freed(value: Any) -> None:
    document = SlicedDocument(json.dumps([value, [value], {"a": value}]).encode())
    document.release()
    assert not any(document._assembled)
