"""Bearer tokens: which requests pass, and what a file of tokens may hold."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest
from starlette.responses import PlainTextResponse

from requant_service.middleware.access import BearerAuth
from requant_service.middleware.request_lifecycle import PROBES
from requant_service.runtime.credentials import Tokens, read_tokens
from tests.conftest import started

TOKENS = (b"first-token-of-the-file", b"second-token-of-the-file")


@pytest.fixture(scope="module")
def tokens(tmp_path_factory: pytest.TempPathFactory) -> Tokens:
    path = tmp_path_factory.mktemp("access") / "tokens"
    path.write_bytes(b"\n".join(TOKENS))
    return Tokens(path)


def ask(tokens: Tokens, path: str, *headers: tuple[str, str]) -> httpx.Response:
    async def send() -> httpx.Response:
        transport = httpx.ASGITransport(BearerAuth(PlainTextResponse("in"), tokens, PROBES))
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            return await client.get(path, headers=list(headers))

    return asyncio.run(send())


@pytest.mark.parametrize("token", [token.decode() for token in TOKENS])
@pytest.mark.parametrize("word", ["Bearer", "bearer"])
def test_each_token_opens(tokens: Tokens, token: str, word: str) -> None:
    assert ask(tokens, "/v1/info", ("Authorization", f"{word} {token}")).text == "in"


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
def test_anything_else_is_refused(tokens: Tokens, headers: tuple[tuple[str, str], ...]) -> None:
    reply = ask(tokens, "/v1/info", *headers)
    assert (reply.status_code, reply.json()["code"]) == (401, "unauthorized")
    assert reply.headers["www-authenticate"] == "Bearer"
    assert "token-of" not in reply.text


@pytest.mark.parametrize("path", ["/healthz", "/v2/health/live", "/v2/health/ready"])
def test_probes_need_none(tokens: Tokens, path: str) -> None:
    assert ask(tokens, path).status_code == 200


def test_a_file_of_tokens(tmp_path: Path) -> None:
    path = tmp_path / "tokens"
    path.write_text("# rotated in November\nfirst-token-of-the-file\n\n  second-token-of-the-file\r\n")
    assert read_tokens(path) == TOKENS


BAD = ["", "# nothing\n", "short\n", "with a blank in its middle\n", "not-ascii-but-long-\xe4\n", "a" * 2_000_000]


@pytest.mark.parametrize("text", BAD)
def test_a_file_that_cannot_be_used(tmp_path: Path, text: str) -> None:
    path = tmp_path / "tokens"
    path.write_text(text)
    with pytest.raises(ValueError, match="token"):
        read_tokens(path)


def test_a_file_that_is_read_again(tmp_path: Path) -> None:
    path = tmp_path / "tokens"
    path.write_bytes(TOKENS[0])
    tokens = Tokens(path)
    path.write_bytes(TOKENS[1])
    tokens.reread()
    assert tokens.known == TOKENS[1:]


def emptied(path: Path) -> None:
    path.write_text("")


def removed(path: Path) -> None:
    path.unlink()


def replaced_by_a_directory(path: Path) -> None:
    path.unlink()
    path.mkdir()


def replaced_by_a_pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def with_a_short_token(path: Path) -> None:
    path.write_text("second-token-of-the-file\nshort\n")


CHANGES = [emptied, removed, replaced_by_a_directory, replaced_by_a_pipe, with_a_short_token]


@pytest.mark.parametrize("change", CHANGES)
def test_a_bad_file_keeps_the_tokens(
    change: Callable[[Path], None], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "tokens"
    path.write_bytes(TOKENS[0])
    tokens = Tokens(path)
    change(path)
    with caplog.at_level(logging.INFO):
        tokens.reread()
    assert tokens.known == TOKENS[:1]
    (record,) = caplog.records
    assert record.levelname == "ERROR"
    assert record.getMessage().startswith("Tokens not reloaded, the old ones stay valid: ")
    assert "token-of-the-file" not in record.getMessage()


@pytest.mark.exhaustive
def test_the_server_reads_its_tokens_again_on_sighup(tmp_path: Path) -> None:
    path, log = tmp_path / "tokens", tmp_path / "log"
    path.write_bytes(TOKENS[0])

    def status(token: bytes) -> int:
        return httpx.get(f"{running.url}/v1/info", headers={"Authorization": f"Bearer {token.decode()}"}).status_code

    def hang_up(said: str) -> None:
        process.send_signal(signal.SIGHUP)
        deadline = time.monotonic() + 30
        while said not in log.read_text():
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(0.05)

    with started(log, "--drain-seconds", "0", "--tokens-file", str(path)) as (running, process):
        assert [status(token) for token in TOKENS] == [200, 401]
        path.write_bytes(TOKENS[1])
        hang_up("Tokens reloaded: 1.")
        assert [status(token) for token in TOKENS] == [401, 200]
        path.write_text("")
        hang_up("Tokens not reloaded, the old ones stay valid: the file of tokens holds none.")
        assert [status(token) for token in TOKENS] == [401, 200]
