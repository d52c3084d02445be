"""Long texts are left out of the document that is parsed, and nothing else changes."""

from __future__ import annotations

import asyncio
import base64
import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from requant_service.http.json_document import _SECRET, JsonDocument
from tests.support.asgi import Reply, post, ready_app

LONG = base64.b64encode(np.arange(15_000, dtype=np.float32).tobytes()).decode()
I8 = "!quant.uniform<i8:f32, 100.0>"


def restored(document: JsonDocument) -> Any:
    """Return the value of a document with its texts back in place."""

    def back(value: Any) -> Any:
        if isinstance(value, str):
            found = document.data(value)
            return found if isinstance(found, str) else str(found, "ascii")
        if isinstance(value, dict):
            return {key: back(member) for key, member in value.items()}
        return [back(member) for member in value] if isinstance(value, list) else value

    return back(json.loads(document.text))


TEXTS = ["", "AAAA", LONG, LONG + "=", 'a"b' + LONG, LONG + '"', "a\\" + LONG, '"data": "' + LONG, "\n" + LONG]
VALUES = st.recursive(
    st.none() | st.integers() | st.sampled_from(TEXTS),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["data", 'a"data', "b"]), inner),
    max_leaves=12,
)


@given(VALUES, st.sampled_from([None, 1]), st.booleans())
def test_the_value_is_the_same(value: Any, indent: int | None, escaped: bool) -> None:
    body = json.dumps(value, indent=indent)
    if escaped:
        body = body.replace("/", "\\/")
    assert restored(JsonDocument(bytearray(body.encode()))) == value


@pytest.mark.parametrize("text", TEXTS)
def test_a_text_is_the_same_whatever_is_in_it(text: str) -> None:
    value = {"data": text, "more": {"data": LONG}}
    assert restored(JsonDocument(json.dumps(value).encode())) == value


def test_a_member_of_another_name_is_parsed() -> None:
    body = json.dumps({'a"data': LONG}).encode()
    assert JsonDocument(body).text is body


@pytest.mark.parametrize("separators", [(",", ":"), (", ", ": "), (" ,\n", "\t:\r\n ")])
def test_long_texts_are_left_out(separators: tuple[str, str]) -> None:
    value = {"a": {"type": "t", "data": LONG}, "b": [{"data": LONG}, {"data": "AAAA"}], "other": LONG}
    document = JsonDocument(json.dumps(value, separators=separators).encode())
    assert len(document.text) < len(document) - 2 * len(LONG) + 200
    assert document.text.count(_SECRET.encode()) == 2
    assert restored(document) == value


def test_a_document_without_long_texts_is_the_body() -> None:
    body = b'{"data": "AAAA"}'
    assert JsonDocument(body).text is body


def quantize(body: str) -> Reply:
    text = body.encode()
    return asyncio.run(post(ready_app(), "/v1/quantize", {}, [text], declared=len(text)))


def request(data: str, **more: Any) -> str:
    return json.dumps({"input": {"type": "tensor<15000xf32>", "data": data}, "output_type": I8, **more})


def test_a_long_text_is_decoded_where_it_lies() -> None:
    reply = quantize(request(LONG))
    assert reply.status == 200, reply.body
    found = base64.b64decode(json.loads(reply.body)["output"]["data"])
    assert found == np.clip(np.rint(np.arange(15_000) / 100), -128, 127).astype(np.int8).tobytes()


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        (request(LONG[:-4]), 400, "tensor_data"),
        (request(LONG[:-4] + "AA=="), 400, "tensor_data"),
        (request(LONG[:-1] + "*"), 400, "base64"),
        (request(LONG + "é"), 400, "base64"),
        (request(LONG, more=LONG), 422, "request_invalid"),
        (request(LONG).replace('"data": "', '"data": {"data": "').replace(LONG + '"', LONG + '"}'), 422, None),
        (request(LONG)[:-1], 400, "request_malformed"),
        (request(LONG).replace(f'{LONG}"', LONG), 400, "request_malformed"),
    ],
)
def test_what_is_wrong_with_it_is_still_said(body: str, status: int, code: str | None) -> None:
    reply = quantize(body)
    problem = json.loads(reply.body)
    assert (reply.status, problem["code"]) == (status, code or problem["code"]), problem
    assert _SECRET not in reply.body.decode()
    assert LONG[:20] not in reply.body.decode()


def test_a_fault_is_told_with_its_place_in_the_body() -> None:
    body = request(LONG)[:-1] + ' "a"'
    reply = quantize(body)
    assert f"column {len(body) - 2}" in json.loads(reply.body)["detail"]
