"""The page of the reference: what it is made of, and that all of it comes from the service."""

from __future__ import annotations

import asyncio
import re
from html.parser import HTMLParser

import httpx
import pytest

from tests.support.asgi import ready_app


class Links(HTMLParser):
    """The addresses that a page loads or leads to, and what may not be there."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []
        self.inline: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self.found += [str(given[name]) for name in ("src", "href") if name in given]
        if tag == "style" or (tag == "script" and "src" not in given) or "style" in given:
            self.inline.append(tag)


@pytest.fixture
def page(client: httpx.Client) -> httpx.Response:
    return client.get("/docs")


def test_it_needs_no_internet_and_nothing_inline(client: httpx.Client, page: httpx.Response) -> None:
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    policy = page.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert "//" not in page.text
    links = Links()
    links.feed(page.text)
    assert not links.inline
    loaded = [link for link in links.found if link.startswith("docs/")]
    scripts = [client.get(f"/{link}").text for link in loaded if link.endswith(".js")]
    loaded += re.findall(r'"(docs/assets/[^"]+)"', client.get("/docs/assets/swagger_ui.js").text)
    loaded += [f"docs/assets/{name}" for script in scripts for name in re.findall(r'from "\./([^"]+)"', script)]
    assert len(set(loaded)) == 8
    kinds = {"js": "text/javascript", "css": "text/css", "png": "image/png"}
    for link in {*loaded, "openapi.json"} - {"openapi.json"}:
        asset = client.get(f"/{link}")
        assert asset.status_code == 200, link
        assert asset.headers["content-type"].startswith(kinds[link.rpartition(".")[2]])
    assert client.get("/docs/assets/redoc.standalone.js").status_code == 404


def test_it_lists_every_operation(client: httpx.Client, page: httpx.Response) -> None:
    links = Links()
    links.feed(page.text)
    document = client.get("/openapi.json").json()
    expected = [
        f"#/{operation['tags'][0]}/{operation['operationId']}"
        for methods in document["paths"].values()
        for operation in methods.values()
    ]
    assert sorted(link for link in links.found if link.startswith("#/")) == sorted(expected)


def test_the_files_of_examples_are_served(client: httpx.Client) -> None:
    document = client.get("/openapi.json").text
    files = re.findall(r'"x-file": ?"([^"]+)"', document)
    assert len(files) == 9
    for file in files:
        reply = client.get(f"/{file}")
        assert reply.content.startswith(b"\x93NUMPY")
        assert reply.headers["content-type"] == "application/octet-stream"
    assert client.get("/docs/examples/quantizeForm/scale.npy").status_code == 200
    assert client.get("/docs/examples/quantizeForm/nope.npy").status_code == 404


@pytest.mark.parametrize("playground", [True, False])
def test_it_links_to_the_playground_that_is_there(playground: bool) -> None:
    async def text() -> str:
        transport = httpx.ASGITransport(ready_app(playground=playground))
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            return (await client.get("/docs")).text

    assert ('<a href="./">' in asyncio.run(text())) is playground
