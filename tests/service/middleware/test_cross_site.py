"""What web pages of other sites may send, and under which names the service answers."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Collection, Iterator
from multiprocessing.shared_memory import SharedMemory
from pathlib import Path

import httpx
import pytest
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from requant_service.app import create_app
from requant_service.http.router import PathRouter
from requant_service.middleware.access import CrossSiteProtection, allowed_hosts
from requant_service.middleware.request_lifecycle import PROBES
from requant_service.runtime.settings import Settings
from tests.conftest import Server, started

UNSAFE = ("POST", "PUT", "DELETE", "PATCH", "PROPFIND")
SAFE = ("GET", "HEAD", "OPTIONS")
LISTED = "https://page.example"


def ask(
    method: str,
    fields: dict[str, str],
    *,
    host: str = "service.example",
    path: str = "/v1/quantize",
    origins: Collection[str] = (),
    hosts: Collection[str] | None = None,
) -> tuple[int, str]:
    """The status and the code of the problem."""

    async def send() -> httpx.Response:
        app = CrossSiteProtection(PlainTextResponse("in"), origins, hosts)
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://unused") as client:
            return await client.request(method, path, headers={"host": host, **fields})

    reply = asyncio.run(send())
    return reply.status_code, reply.json()["code"] if reply.is_error and reply.content else ""


IN = (200, "")
FOREIGN = (403, "cross_origin")
# What a browser states, and the Host.
OWN_PAGES = [
    ({}, "service.example"),
    ({"origin": "http://service.example"}, "service.example"),
    ({"origin": "https://service.example"}, "service.example"),
    ({"origin": "https://service.example"}, "service.example:443"),
    ({"origin": "http://service.example"}, "SERVICE.example:80"),
    ({"origin": "http://service.example:8080"}, "service.example:8080"),
    ({"origin": "http://127.0.0.1:8080"}, "127.0.0.1:8080"),
    ({"origin": "http://[::1]:8080"}, "[::1]:8080"),
    ({"origin": "http://[::1]"}, "[::1]"),
    # A proxy has changed the Host: the browser itself says what it compared.
    ({"origin": "https://service.example", "sec-fetch-site": "same-origin"}, "backend:8080"),
    ({"sec-fetch-site": "same-origin"}, "service.example"),
    ({"sec-fetch-site": "none"}, "service.example"),
]
OTHER_PAGES = [
    ({"origin": "https://evil.example"}, "service.example"),
    ({"origin": "null"}, "service.example"),
    ({"origin": ""}, "service.example"),
    ({"origin": "http://"}, "service.example"),
    ({"origin": "service.example"}, "service.example"),
    ({"origin": "file://"}, ""),
    ({"origin": "chrome-extension://service.example"}, "service.example"),
    ({"origin": "http://service.example.evil.example"}, "service.example"),
    ({"origin": "http://evil.example#service.example"}, "service.example"),
    ({"origin": "http://service.example@evil.example"}, "service.example"),
    ({"origin": "http://localhost:3000"}, "localhost:8080"),
    ({"origin": "http://localhost"}, "localhost:8080"),
    ({"origin": "https://localhost"}, "localhost:80"),
    ({"origin": "http://127.0.0.1:8080"}, "localhost:8080"),
    ({"origin": "http://[::1]:3000"}, "[::1]:8080"),
    ({"sec-fetch-site": "cross-site"}, "service.example"),
    ({"sec-fetch-site": "same-site"}, "service.example"),
    ({"sec-fetch-site": "unknown"}, "service.example"),
    ({"origin": "http://service.example", "sec-fetch-site": "cross-site"}, "service.example"),
    ({"origin": "http://localhost:3000", "sec-fetch-site": "same-site"}, "localhost:8080"),
]


@pytest.mark.parametrize("method", UNSAFE)
def test_pages_of_other_origins_change_nothing(method: str) -> None:
    for fields, host in OTHER_PAGES:
        assert ask(method, fields, host=host) == FOREIGN, (fields, host)
        # A list of other origins, and one that has this one among them.
        assert ask(method, fields, host=host, origins=[LISTED]) == FOREIGN, (fields, host)
        if fields.get("origin"):
            assert ask(method, fields, host=host, origins=[LISTED, fields["origin"]]) == IN, (fields, host)
        assert ask(method, fields, host=host, origins=["*"]) == IN, (fields, host)


@pytest.mark.parametrize("method", UNSAFE)
def test_its_own_pages_and_clients_that_are_no_browsers_pass(method: str) -> None:
    for fields, host in OWN_PAGES:
        assert ask(method, fields, host=host) == ask(method, fields, host=host, origins=[LISTED]) == IN, (fields, host)


@pytest.mark.parametrize("method", SAFE)
def test_requests_that_change_nothing_pass(method: str) -> None:
    for fields, host in OTHER_PAGES:
        assert ask(method, fields, host=host)[0] == 200, (fields, host)


def test_no_route_takes_a_page_of_another_origin() -> None:
    async def refused() -> dict[tuple[str, str], int]:
        app = create_app(Settings(shared_memory=True))
        assert isinstance(app.router, PathRouter)
        transport = httpx.ASGITransport(app)
        found = {}
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            for route in app.router.routes:
                assert isinstance(route, Route)
                for method in UNSAFE:
                    path = re.sub(r"\{.*?\}", "x", route.path)
                    reply = await client.request(method, path, headers={"origin": "https://evil.example"})
                    found[method, route.path] = reply.status_code
        return found

    assert set(asyncio.run(refused()).values()) == {403}


LOCAL = [
    "localhost",
    "LocalHost:8080",
    "localhost.",
    "localhost.:80",
    "127.0.0.1",
    "127.0.0.1:9",
    "[::1]",
    "[::1]:8080",
]
OTHER_HOSTS = [
    "evil.example",
    "evil.example:8080",
    "localhost.evil.example",
    "127.0.0.1.evil.example",
    "[::2]",
    "::1",
    "",
]


@pytest.mark.parametrize("method", [*UNSAFE, *SAFE])
def test_a_service_on_a_loopback_address_answers_to_its_own_names(method: str) -> None:
    hosts = allowed_hosts(Settings())
    for host in LOCAL:
        assert ask(method, {}, host=host, hosts=hosts)[0] == 200, host
    for host in OTHER_HOSTS:
        assert ask(method, {}, host=host, hosts=hosts)[0] == 421, host
        # What a page gets whose own name leads to the service: its origin is the same.
        rebound = {"origin": f"http://{host}", "sec-fetch-site": "same-origin"}
        assert ask(method, rebound, host=host, hosts=hosts)[0] == 421, host
    for path in PROBES:
        assert ask(method, {}, host="10.0.0.7:8080", hosts=hosts, path=path)[0] == 200
    assert ask("POST", {"origin": "http://evil.example"}, host="localhost", hosts=hosts) == FOREIGN


@pytest.mark.parametrize(
    ("given", "hosts"),
    [
        ({}, {"localhost", "127.0.0.1", "[::1]"}),
        ({"host": "::1"}, {"localhost", "127.0.0.1", "[::1]"}),
        ({"host": "localhost"}, {"localhost", "127.0.0.1", "[::1]"}),
        ({"host": "127.0.0.9"}, {"localhost", "127.0.0.1", "[::1]", "127.0.0.9"}),
        ({"host": "0.0.0.0"}, None),
        ({"host": "::"}, None),
        ({"host": "10.0.0.7"}, None),
        ({"host": "service.example"}, None),
        ({"uds": Path("/run/requant.sock")}, None),
        ({"allowed_hosts": "*"}, None),
        ({"allowed_hosts": "api.example, *"}, None),
        ({"allowed_hosts": "API.example, [2001:DB8::1]"}, {"api.example", "[2001:db8::1]"}),
        ({"host": "0.0.0.0", "allowed_hosts": "api.example"}, {"api.example"}),
        ({"uds": Path("/run/requant.sock"), "allowed_hosts": "api.example"}, {"api.example"}),
    ],
)
def test_the_names_that_a_service_answers_to(given: dict[str, str | Path], hosts: set[str] | None) -> None:
    assert allowed_hosts(Settings.model_validate(given)) == hosts


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with started(tmp_path_factory.mktemp("local") / "log", "--drain-seconds=0", "--shared-memory=true") as (server, _):
        yield server


def test_a_web_page_registers_no_shared_memory(local: Server) -> None:
    memory = SharedMemory(create=True, size=4096)
    try:
        url = f"{local.url}/v2/systemsharedmemory/region/page/register"
        body = json.dumps({"key": memory.name, "offset": 0, "byte_size": 4096})
        # What needs no preflight.
        fields = {"content-type": "text/plain", "origin": "https://evil.example"}
        for sent in (fields, fields | {"sec-fetch-site": "cross-site"}, fields | {"origin": "null"}):
            reply = httpx.post(url, content=body, headers=sent)
            assert (reply.status_code, reply.json()["code"]) == (403, "cross_origin")
            assert "access-control-allow-origin" not in reply.headers
        rebound = {"host": f"evil.example:{local.port}", "origin": f"http://evil.example:{local.port}"}
        reply = httpx.post(url, content=body, headers=fields | rebound)
        assert (reply.status_code, reply.json()["code"]) == (421, "host_not_allowed")
        regions = httpx.get(f"{local.url}/v2/systemsharedmemory/status")
        assert (regions.status_code, regions.json()) == (200, [])
        assert httpx.post(url, content=body, headers={"content-type": "text/plain"}).status_code == 200
        # Its own page, and one that has unregistered nothing.
        gone = f"{local.url}/v2/systemsharedmemory/region/page/unregister"
        assert httpx.post(gone, headers={"origin": "https://evil.example"}).status_code == 403
        assert httpx.post(gone, headers={"origin": local.url}).status_code == 200
    finally:
        memory.close()
        memory.unlink()


def test_refusals_are_counted(local: Server) -> None:
    def count(code: int) -> float:
        lines = httpx.get(f"{local.url}/metrics").text.splitlines()
        found = [line for line in lines if line.startswith("requant_requests_total") and f'code="{code}"' in line]
        return sum(float(line.rpartition(" ")[2]) for line in found)

    before = count(403), count(421)
    assert httpx.post(f"{local.url}/v1/types/parse", headers={"origin": "null"}).status_code == 403
    assert httpx.get(f"{local.url}/v1/info", headers={"host": "evil.example"}).status_code == 421
    assert (count(403), count(421)) == (before[0] + 1, before[1] + 1)
