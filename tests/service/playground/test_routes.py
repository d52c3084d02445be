"""The playground's files: all of them are served, under a strict Content-Security-Policy, and name no other origin."""

from __future__ import annotations

import asyncio
import re
from hashlib import sha256
from pathlib import Path
from posixpath import dirname, join, normpath

import httpx
import pytest

from requant_service.app import Application
from requant_service.operations.described import MAX_EXPLAINED
from requant_service.playground import routes
from requant_service.runtime.settings import Settings
from tests.support.asgi import ready_app

STATIC = Path(routes.__file__).parent / "static"
POLICY = {
    "default-src": "'none'",
    "script-src": "'self'",
    "style-src": "'self'",
    "img-src": "'self' data:",
    "connect-src": "'self'",
    "base-uri": "'none'",
    "form-action": "'none'",
    "frame-ancestors": "'none'",
}
MEDIA_TYPES = {".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}
# Names that are no places to load from.
NAMESPACES = {"http://www.w3.org/2000/svg"}
TOKEN = "0123456789abcdef"


@pytest.fixture(scope="module")
def app() -> Application:
    return ready_app()


def get(app: Application, path: str, headers: dict[str, str] | None = None) -> httpx.Response:
    async def reply() -> httpx.Response:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://localhost") as client:
            return await client.get(path, headers=headers)

    return asyncio.run(reply())


def references(name: str, text: str) -> set[str]:
    """The files that a file loads, as paths from `/`."""
    if name.endswith(".js"):
        found = re.findall(r"""^(?:import|export)\s[^;"'()]*?\bfrom\s*["']([^"']+)["'];""", text, re.MULTILINE)
        assert not re.search(r"""\bimport\s*[("']""", text), f"{name}: an import that this test does not see"
        assert all(each.startswith(("./", "../")) for each in found), name
        return {normpath(join(dirname(name), each)) for each in found}
    if name == "":
        # Relative: the page may stand behind a prefix.
        return {each for each in re.findall(r'(?:href|src)="([^"]+)"', text) if each.startswith("playground/")}
    assert "@import" not in text
    assert "url(" not in text
    return set()


def test_every_file_that_the_page_loads_is_served(app: Application) -> None:
    found, todo = set(), {""}
    while todo:
        name = todo.pop()
        reply = get(app, f"/{name}")
        assert reply.status_code == 200, name
        expected = MEDIA_TYPES[Path(name).suffix] if name else "text/html"
        assert reply.headers["content-type"].startswith(expected), name
        assert reply.headers["x-content-type-options"] == "nosniff"
        found.add(name)
        todo |= references(name, reply.text) - found
    documents = {"playground/uplot/LICENSE", "playground/uplot/README.md"}
    files = {f"playground/{path.relative_to(STATIC).as_posix()}" for path in STATIC.rglob("*") if path.is_file()}
    assert found | documents == files - {"playground/index.html"} | {""}
    assert {f"/{name}" for name in found | documents} == routes.PATHS


@pytest.mark.parametrize("path", ["/", "/playground/app.js"])
def test_content_security_policy(app: Application, path: str) -> None:
    policy = get(app, path).headers["content-security-policy"]
    assert dict(directive.strip().split(" ", 1) for directive in policy.split(";")) == POLICY


def test_no_file_names_another_origin() -> None:
    """But uPlot, in comments. The browser's tests see which requests there are."""
    for path in STATIC.rglob("*"):
        if path.suffix in (".js", ".css", ".html", ".svg") and path.parent.name != "uplot":
            named = set(re.findall(r"(?:https?:)?//[\w-]+\.[\w.-]+[^\s\"']*", path.read_text()))
            assert named <= NAMESPACES, path


def test_nothing_is_stored() -> None:
    for path in STATIC.rglob("*.js"):
        assert not re.search(r"localStorage|sessionStorage|indexedDB|document\.cookie|caches\.", path.read_text()), path


def test_a_client_that_has_the_page_gets_304(app: Application) -> None:
    tag = get(app, "/").headers["etag"]
    assert get(app, "/", headers={"if-none-match": tag}).status_code == 304


def test_the_page_can_be_turned_off() -> None:
    app = ready_app(playground=False)
    for path in ("/", "/playground/app.js"):
        reply = get(app, path)
        assert (reply.status_code, reply.json()["code"]) == (404, "not_found")


def test_the_files_need_no_token_and_the_api_does(tmp_path: Path) -> None:
    tokens = tmp_path / "tokens"
    tokens.write_text(f"{TOKEN}\n")
    app = ready_app(tokens_file=tokens)
    assert [get(app, path).status_code for path in sorted(routes.PATHS)] == [200] * len(routes.PATHS)
    assert get(app, "/playground/absent.js").status_code == 401
    assert get(app, "/v1/profiles").status_code == 401
    closed = ready_app(tokens_file=tokens, playground=False)
    assert get(closed, "/").status_code == 401


def test_the_limits_of_the_page_are_those_of_the_service() -> None:
    def number(name: str, file: str) -> int:
        (found,) = re.findall(rf"const {name} = (\d+);", (STATIC / file).read_text())
        return int(found)

    assert number("MAX_EXPLAINED", "comparison/explanation.js") == MAX_EXPLAINED
    assert number("MAX_NUMBERS", "views/quantize.js") == Settings().max_values


def test_the_vendored_files_are_those_that_their_readme_names() -> None:
    folder = STATIC / "uplot"
    rows = re.findall(r"^\| (\S+) \| \S+ \| ([0-9a-f]{64}) \|$", (folder / "README.md").read_text(), re.MULTILINE)
    assert {name for name, _ in rows} == {path.name for path in folder.iterdir()} - {"README.md"}
    for name, digest in rows:
        assert sha256((folder / name).read_bytes()).hexdigest() == digest, name
