"""Forms: any chunking gives the same parts, and what costs the parser time or memory is refused before it does."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Sequence
from email.message import EmailMessage
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from python_multipart.multipart import MultipartParser
from starlette.types import Message

from requant.errors import InvalidRequestError, LimitError, MalformedRequestError, UnreadableEncodingError
from requant_service.http.form_body import MAX_PARTS, FormReader, form_boundary
from requant_service.http.request_body import BodyReader

LIMIT = 1 << 20


def reader(chunks: Sequence[bytes], boundary: bytes, *, declared: bool) -> FormReader:
    messages: list[Message] = [{"type": "http.request", "body": chunk, "more_body": True} for chunk in chunks]
    messages.append({"type": "http.request", "body": b"", "more_body": False})

    async def receive() -> Message:
        return messages.pop(0)

    length = (b"content-length", b"%d" % sum(map(len, chunks)))
    scope: dict[str, Any] = {"type": "http", "headers": [length if declared else (b"transfer-encoding", b"chunked")]}
    return FormReader(BodyReader(scope, receive, LIMIT), boundary)


async def read(form: FormReader) -> list[tuple[str, bytes]]:
    found = []
    while (part := await form.next_part()) is not None:
        found.append((part.name, (await part.rest()).tobytes()))
    return found


def written(parts: Sequence[tuple[str, bytes]], boundary: bytes) -> bytes:
    """A form as RFC 7578 has it."""
    heads = [
        b'--%s\r\nContent-Disposition: form-data; name="%s"\r\n\r\n' % (boundary, name.encode()) for name, _ in parts
    ]
    return (
        b"".join(head + data + b"\r\n" for head, (_, data) in zip(heads, parts, strict=True)) + b"--%s--\r\n" % boundary
    )


def cut(data: bytes, places: Sequence[int]) -> list[bytes]:
    edges = [0, *sorted(place % (len(data) + 1) for place in places), len(data)]
    return [data[start:end] for start, end in itertools.pairwise(edges)]


# Data that look like the beginning of a boundary, most of all.
PIECES = st.sampled_from(
    [b"\r\n", b"\r", b"\n", b"--", b"--bound", b"\r\n--boun", b"-", b"x", b"\x00\xff", b"bound", b"x--boundary "]
)
DATA = st.lists(PIECES, max_size=12).map(b"".join)
BOUNDARY = b"boundary"


@given(
    data=st.lists(DATA, max_size=4),
    places=st.lists(st.integers(0, 600), max_size=20),
    declared=st.booleans(),
)
def test_every_chunking_gives_the_same_parts(data: list[bytes], places: list[int], declared: bool) -> None:
    parts = [(f"name{index}", each) for index, each in enumerate(data)]
    body = written(parts, BOUNDARY)
    assert asyncio.run(read(reader(cut(body, places), BOUNDARY, declared=declared))) == parts
    assert (
        asyncio.run(read(reader([body[at : at + 1] for at in range(len(body))], BOUNDARY, declared=declared))) == parts
    )


@pytest.mark.parametrize(
    ("disposition", "name"),
    [
        ('form-data; name="x"; filename="../../etc/passwd"', "x"),
        ('form-data; filename="a; name=y"; name="x"', "x"),
        ("form-data; name=x", "x"),
        ('FORM-DATA; name="x"', "x"),
        ("form-data; name=\"x\"; name*=utf-8''y", "x"),
        ('form-data; name="a\\"b"', 'a"b'),
        ("attachment; name=x", None),
        ("form-data; filename=x", None),
        ('form-data; name=""', None),
        ("form-data", None),
        ("", None),
    ],
)
def test_the_name_of_a_part(disposition: str, name: str | None) -> None:
    body = b"--b\r\nContent-Disposition: " + disposition.encode() + b"\r\n\r\ndata\r\n--b--\r\n"
    form = reader([body], b"b", declared=True)
    if name is None:
        with pytest.raises(InvalidRequestError, match="a part needs a name"):
            asyncio.run(read(form))
    else:
        assert asyncio.run(read(form)) == [(name, b"data")]


def test_a_form_that_another_library_writes() -> None:
    message = EmailMessage()
    message["Content-Type"] = "multipart/form-data"
    for name, data in (("x", b"\x93NUMPY\r\n\r\n\x00"), ("output_type", b"i8")):
        part = EmailMessage()
        part.set_content(data, "application", "octet-stream", cte="8bit", disposition="form-data")
        part.set_param("name", name, "Content-Disposition")
        message.attach(part)
    head, _, body = message.as_bytes(policy=message.policy.clone(linesep="\r\n", cte_type="8bit")).partition(
        b"\r\n\r\n"
    )
    stated = head.decode().replace("\r\n ", " ").partition("Content-Type: ")[2].partition("\r\n")[0]
    found = asyncio.run(read(reader([body], form_boundary({b"content-type": stated.encode()}), declared=False)))
    assert [name for name, _ in found] == ["x", "output_type"]
    assert found[1][1].strip() == b"i8"


@pytest.mark.parametrize(
    ("content_type", "error"),
    [
        ("multipart/form-data", MalformedRequestError),
        ("multipart/form-data; boundary=", MalformedRequestError),
        ('multipart/form-data; boundary=""', MalformedRequestError),
        ('multipart/form-data; boundary="a "', MalformedRequestError),
        ("multipart/form-data; boundary=a\u00e9", MalformedRequestError),
        (f"multipart/form-data; boundary={'a' * 71}", MalformedRequestError),
        ("multipart/mixed; boundary=a", UnreadableEncodingError),
        ("", UnreadableEncodingError),
    ],
)
def test_a_boundary_that_is_none(content_type: str, error: type[Exception]) -> None:
    with pytest.raises(error):
        form_boundary({b"content-type": content_type.encode("latin-1")})
    assert form_boundary({b"content-type": b'Multipart/Form-Data; charset=x; boundary="a b"'}) == b"a b"


HEAD = b'--b\r\nContent-Disposition: form-data; name="x"\r\n\r\n'
COSTLY = {
    "boundaries in the data": (HEAD + b"\r\n--bx" * 100_000, LimitError),
    "blanks after the first boundary": (b"--b" + b" " * 500_000, MalformedRequestError),
    "blanks after a boundary": (HEAD + b"\r\n--b" + b" " * 500_000, MalformedRequestError),
    "header fields": (b"--b\r\n" + b"a: b\r\n" * 100_000, MalformedRequestError),
    "a header field": (b"--b\r\na: " + b"b" * 500_000, MalformedRequestError),
    "blanks before a value": (b"--b\r\na:" + b" " * 500_000, MalformedRequestError),
    "parts": (b"".join(HEAD.replace(b'"x"', b'"%d"' % n) + b"\r\n" for n in range(MAX_PARTS + 2)), LimitError),
}


@pytest.mark.sample(2)
@pytest.mark.parametrize("chunk", [1 << 20, 4096, 7, 1])
@pytest.mark.parametrize("kind", COSTLY)
def test_what_costs_the_parser_time_is_refused_soon(kind: str, chunk: int, monkeypatch: pytest.MonkeyPatch) -> None:
    body, error = COSTLY[kind]
    parsed = 0
    write = MultipartParser.write

    def count(parser: MultipartParser, data: bytes) -> int:
        nonlocal parsed
        parsed += len(data)
        return write(parser, data)

    monkeypatch.setattr(MultipartParser, "write", count)
    form = reader([body[at : at + chunk] for at in range(0, len(body), chunk)], b"b", declared=False)
    with pytest.raises(error):
        asyncio.run(read(form))
    # The parser steps through one chunk of what it refuses; what has too many boundaries it does not see.
    assert parsed <= max(chunk, 4 * 4096) + 80 * MAX_PARTS


@pytest.mark.parametrize("declared", [True, False])
def test_memory_is_reserved_for_what_came_not_for_a_promise(declared: bool) -> None:
    body = written([("x", b"data"), ("text", b"i8")], b"b")
    form = reader([body], b"b", declared=declared)
    reserved: list[int] = []

    async def reserve(byte_count: int) -> None:
        reserved.append(byte_count)

    form.body.reserve = reserve

    async def run() -> None:
        part = await form.next_part()
        assert part is not None
        assert (await part.array(1 << 40)).tobytes() == b"data"
        part = await form.next_part()
        assert part is not None
        assert await part.text(1 << 20) == "i8"
        assert await form.next_part() is None

    asyncio.run(run())
    assert sum(reserved) <= (2 << 16)
    assert not declared or reserved[0] <= len(body)


def test_a_large_part_is_received_into_one_array() -> None:
    data = np.random.default_rng(1).integers(0, 256, LIMIT // 2, np.uint8)
    body = written([("x", data.tobytes())], b"b")
    form = reader(cut(body, range(0, len(body), 1 << 14)), b"b", declared=True)
    reserved: list[int] = []

    async def reserve(byte_count: int) -> None:
        reserved.append(byte_count)

    form.body.reserve = reserve

    async def run() -> None:
        part = await form.next_part()
        assert part is not None
        assert await part.head(10) == data[:10].tobytes()
        found = await part.array(data.size - 10)
        assert (found == data[10:]).all()
        assert found.flags.aligned
        assert await form.next_part() is None

    asyncio.run(run())
    assert reserved == [data.size - 10]
