"""Bearer tokens: which requests pass, and what a file of tokens may hold."""

from __future__ import annotations

import asyncio
from pathlib import Path

import httpx
import pytest
from starlette.responses import PlainTextResponse

from service.access import Access, read_tokens

TOKENS = (b"first-token-of-the-file", b"second-token-of-the-file")


def ask(path: str, *headers: tuple[str, str]) -> httpx.Response:
    async def send() -> httpx.Response:
        transport = httpx.ASGITransport(Access(PlainTextResponse("in"), TOKENS))
        async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
            return await client.get(path, headers=list(headers))

    return asyncio.run(send())


@pytest.mark.parametrize("token", [token.decode() for token in TOKENS])
@pytest.mark.parametrize("word", ["Bearer", "bearer"])
def test_each_token_opens(token: str, word: str) -> None:
    assert ask("/v1/info", ("Authorization", f"{word} {token}")).text == "in"


@pytest.mark.parametrize(
    "headers",
    [
        (),
        (("Authorization", "Bearer "),),
        (("Authorization", "Bearer first-token-of-the-fil"),),
        (("Authorization", "Bearer first-token-of-the-file2"),),
        (("Authorization", "Basic first-token-of-the-file"),),
        (("Authorization", "first-token-of-the-file"),),
        (("Authorization", "Bearer x"), ("Authorization", "Bearer first-token-of-the-file")),
        (("X-Authorization", "Bearer first-token-of-the-file"),),
    ],
)
def test_anything_else_is_refused(headers: tuple[tuple[str, str], ...]) -> None:
    reply = ask("/v1/info", *headers)
    assert (reply.status_code, reply.json()["code"]) == (401, "unauthorized")
    assert reply.headers["www-authenticate"] == "Bearer"
    assert "token-of" not in reply.text


@pytest.mark.parametrize("path", ["/healthz", "/v2/health/live", "/v2/health/ready"])
def test_probes_need_none(path: str) -> None:
    assert ask(path).status_code == 200


def test_a_file_of_tokens(tmp_path: Path) -> None:
    path = tmp_path / "tokens"
    path.write_text("# rotated in November\nfirst-token-of-the-file\n\n  second-token-of-the-file\r\n")
    assert read_tokens(path) == TOKENS


@pytest.mark.parametrize(
    "text", ["", "# nothing\n", "short\n", "with a blank in its middle\n", "not-ascii-but-long-\xe4\n"]
)
def test_a_file_that_cannot_be_used(tmp_path: Path, text: str) -> None:
    path = tmp_path / "tokens"
    path.write_text(text)
    with pytest.raises(ValueError, match="token"):
        read_tokens(path)
