"""JSON bodies: how much of them there is, and what is read from them, hostile ones included."""

from __future__ import annotations

import gc
import json
import tracemalloc
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from requant.errors import InvalidRequestError, LimitError, MalformedRequestError, RequantError
from requant.operations.conversions import QUANTIZE, REQUANTIZE
from requant.operations.multipliers import DERIVE_MULTIPLIER
from requant_service.app import create_app
from requant_service.http.json_body import read_json, token_bound
from requant_service.http.models import RequestModel
from requant_service.json_api.schemas.described import request_model
from requant_service.runtime.settings import MAX_ENTRIES, Settings
from tests.support.cpu_time import within_cpu_seconds

QuantizeRequest: Any = request_model(QUANTIZE)
RequantizeRequest: Any = request_model(REQUANTIZE)
SETTINGS = Settings()
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(st.sampled_from('a"\\,[{é'), max_size=6),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner, max_size=4),
    max_leaves=20,
)


def tokens(value: Any) -> int:
    """Count from the value: two for the quotes of a text, one for a comma, two for an opening bracket."""
    if isinstance(value, str):
        return 2
    if isinstance(value, dict):
        return 2 + max(len(value) - 1, 0) + 2 * len(value) + sum(tokens(member) for member in value.values())
    if isinstance(value, list):
        return 2 + max(len(value) - 1, 0) + sum(tokens(member) for member in value)
    return 0


@given(VALUES, st.booleans())
def test_the_bound_is_not_below_the_tokens(value: Any, ascii_only: bool) -> None:
    text = json.dumps(value, ensure_ascii=ascii_only).encode()
    assert token_bound(text) >= tokens(value)
    if not set('"\\,[{') & set("".join(texts_in(value))):
        assert token_bound(text) == tokens(value)


def texts_in(value: Any) -> list[str]:
    if isinstance(value, str):
        return [value]
    if isinstance(value, dict):
        return [*value, *(text for member in value.values() for text in texts_in(member))]
    return [text for member in value for text in texts_in(member)] if isinstance(value, list) else []


@pytest.mark.parametrize("mark", [b'"', b",", b"[", b"{", b"\\", b'\\"', b"a"])
def test_counting_is_fast_and_takes_no_memory(mark: bytes) -> None:
    body = mark * ((8 << 20) // len(mark))
    assert within_cpu_seconds(lambda: token_bound(body), 0.5)  # measured: 0.01
    tracemalloc.start()
    try:
        token_bound(body)
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


def requantize_body(**fields: Any) -> bytes:
    return json.dumps({"input": {"type": "x", "data": ""}, "output_type": "y", **fields}).encode()


def test_lists_of_65536_entries_are_within_the_limits() -> None:
    pairs = [{"multiplier": 2**30, "shift": -3}] * MAX_ENTRIES
    scales = ",".join(["0.5:3"] * MAX_ENTRIES)
    body = requantize_body(output_type=scales, input={"type": scales, "data": ""}, multipliers=pairs)
    assert token_bound(body) <= SETTINGS.max_json_tokens
    assert len(read_json(body, RequantizeRequest, SETTINGS).multipliers) == MAX_ENTRIES
    with pytest.raises(LimitError, match=str(MAX_ENTRIES)):
        read_json(requantize_body(multipliers=[*pairs, pairs[0]]), RequantizeRequest, SETTINGS)


MOST = SETTINGS.max_json_tokens - 100
HOSTILE = {
    "fields": "{" + ",".join(f'"k{number}":0' for number in range(MOST // 3)) + "}",
    "fields of the input": '{"input":{' + ",".join(f'"k{number}":0' for number in range(MOST // 3)) + "}}",
    "lists": '{"x":[' + ",".join(["[]"] * (MOST // 3)) + "]}",
    "lists in lists": '{"x":[' + ",".join(["[" * 100 + "]" * 100] * (MOST // 201)) + "]}",
    "lists of values": '{"input":{"type":"x","values":[[' + ",".join(["[]"] * (MOST // 3 - 20)) + "]]}}",
    "deep lists of values": '{"input":{"type":"x","values":[['
    + ",".join(["[" * 60 + "]" * 60] * (MOST // 124))
    + "]]}}",
    "multipliers of other fields": '{"multipliers":[' + ",".join(['{"a":0}'] * 60_000) + "]}",
    "multipliers that are numbers": '{"multipliers":[' + ",".join(["0"] * 60_000) + "]}",
}


@pytest.mark.sample(1)
@pytest.mark.parametrize("name", HOSTILE)
def test_the_worst_within_the_limit_is_refused_soon_and_shortly(name: str) -> None:
    body = HOSTILE[name].encode()
    assert token_bound(body) <= SETTINGS.max_json_tokens

    def refused() -> None:
        with pytest.raises(InvalidRequestError) as caught:
            read_json(body, RequantizeRequest, SETTINGS)
        assert len(caught.value.faults) < 16

    assert within_cpu_seconds(refused, 0.6)  # measured: 0.01 to 0.12
    assert gc.isenabled()


def test_wrong_factors_end_at_the_first() -> None:
    body = json.dumps({"scheme": "litert", "factors": [None] * (MOST - 10)}).encode()
    with pytest.raises(InvalidRequestError) as caught:
        read_json(body, request_model(DERIVE_MULTIPLIER), SETTINGS)
    assert [fault.pointer for fault in caught.value.faults] == ["/factors/0"]


@pytest.mark.parametrize("count", [MAX_ENTRIES + 1, 70_000, 400_000])
def test_far_too_many_values_name_the_limit_for_values(count: int) -> None:
    body = json.dumps({"input": {"type": "x", "values": [0] * count}, "output_type": "y"}).encode()
    with pytest.raises(LimitError, match="4096") as caught:
        read_json(body, QuantizeRequest, SETTINGS)
    assert (caught.value.limit, caught.value.pointer) == (4096, "/input/values")


@pytest.mark.parametrize(
    "body",
    [b"", b'"', b'"\\', b"[" * 10_000, b'{"a":1', b"\xff\xfe", b'"\\ud800"', b"1" * 5000, b"\xef\xbb\xbf{}", b"{}{}"],
)
def test_what_is_not_json_is_malformed(body: bytes) -> None:
    with pytest.raises(MalformedRequestError):
        read_json(body, QuantizeRequest, SETTINGS)


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (b"[]", "an object"),
        (b'{"input":3,"output_type":"y"}', "an object"),
        (requantize_body(multipliers=3), "an array"),
    ],
)
def test_kinds_are_named_in_the_terms_of_json(body: bytes, says: str) -> None:
    with pytest.raises(RequantError, match=says) as caught:
        read_json(body, RequantizeRequest, SETTINGS)
    assert "Request" not in caught.value.detail


def request_models(base: type[RequestModel] = RequestModel) -> list[type[RequestModel]]:
    """Every model of a body, by itself or as a part."""
    return [base, *(each for below in base.__subclasses__() for each in request_models(below))]


def examples() -> list[tuple[str, Any]]:
    """The example of every operation in the document, with the name of its model."""
    found = []
    for path in create_app(SETTINGS).openapi()["paths"].values():
        for operation in path.values():
            content = operation.get("requestBody", {}).get("content", {}).get("application/json")
            if content:
                found.append((content["schema"]["$ref"].rpartition("/")[2], content["example"]))
    return found


@pytest.mark.parametrize("size", [2, 5])
@pytest.mark.parametrize(("name", "value"), examples())
def test_a_model_holds_nothing_that_goes_with_its_slices(
    name: str, value: Any, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = {each.__name__: each for each in request_models()}[name]
    body = json.dumps(value).encode()
    whole = read_json(body, model, SETTINGS)
    monkeypatch.setattr("requant_service.http.json_body.SLICE_TOKENS", 0)
    monkeypatch.setattr("requant_service.http.json_document.SLICE_TOKENS", size)
    assert read_json(body, model, SETTINGS) == whole
