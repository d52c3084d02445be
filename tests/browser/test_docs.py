"""The reference in Chromium: every operation is executed as shown; the list is there at once and can be filtered."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.browser.watched_page import watched_page
from tests.conftest import Server, started

pytestmark = pytest.mark.browser

SHARED_MEMORY = "/v2/systemsharedmemory"
# Members of replies that differ from machine to machine.
VARYING = {"getInfo": {"python", "packages", "machine", "threads", "kernels"}, "startEquivalenceJob": {"id"}}
# Those about checkpoint jobs, which are off here, and about a comparison that nobody has started.
JOBS = {
    "startCheckpointJob", "getCheckpointJob", "cancelCheckpointJob", "getEquivalenceJob", "cancelEquivalenceJob",
}  # fmt: skip


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A service with shared memory."""
    options = ("--shared-memory", "true", "--drain-seconds", "0")
    with started(tmp_path_factory.mktemp("docs") / "log", *options) as (server, _):
        yield server


@pytest.fixture(scope="module")
def document(shared: Server) -> dict[str, Any]:
    found: dict[str, Any] = httpx.get(f"{shared.url}/openapi.json").json()
    return found


@pytest.fixture
def register(shared: Server, document: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The example of a registration, whose object is there."""
    operation = document["paths"][f"{SHARED_MEMORY}/region/{{region}}/register"]["post"]
    example: dict[str, Any] = operation["requestBody"]["content"]["application/json"]["example"]
    path = Path("/dev/shm") / example["key"].lstrip("/")
    path.write_bytes(bytes(example["byte_size"]))
    yield example
    path.unlink()


def executed(page: Any, operation_id: str) -> tuple[str, str]:
    """Choose an operation in the list, press Execute, and return the status and the body that are shown."""
    from playwright.sync_api import expect

    page.locator(f"#operations a[href$='/{operation_id}']").click()
    shown = page.locator(f"#operation .opblock[id$='-{operation_id}']")
    shown.locator(".responses-wrapper .response").first.wait_for()
    files = shown.locator("input[type=file]")
    if files.count():
        # All are chosen at once. The first is that of the tensor, which every example has.
        expect(files.first).to_have_value(re.compile("."))
    shown.get_by_role("button", name="Execute").click()
    live = shown.locator(".live-responses-table .response").first
    live.wait_for()
    status = live.locator(".response-col_status").inner_text().split()[0]
    body = live.locator(".response-col_description .highlight-code code")
    return status, body.inner_text() if body.count() else ""


def test_every_operation_is_executed_as_shown(
    chromium: Any, shared: Server, document: dict[str, Any], register: dict[str, Any]
) -> None:
    wrong = {}
    with watched_page(chromium, shared.url) as page:
        page.goto("/docs")
        for path, methods in document["paths"].items():
            for operation in methods.values():
                name = operation["operationId"]
                if name in JOBS:
                    continue
                if path.startswith(SHARED_MEMORY):
                    httpx.post(f"{shared.url}{SHARED_MEMORY}/unregister").raise_for_status()
                    if name in ("oipGetSharedMemory", "oipUnregisterSharedMemory", "oipListSharedMemory"):
                        url = f"{shared.url}{SHARED_MEMORY}/region/input/register"
                        httpx.post(url, json=register).raise_for_status()
                status, body = executed(page, name)
                expected = next(each for each in ("200", "202") if each in operation["responses"])
                content, *_ = operation["responses"][expected]["content"].values()
                if status != expected:
                    wrong[name] = f"{status}: {body[:300]}"
                elif "example" in content and without(name, json.loads(body)) != without(name, content["example"]):
                    wrong[name] = f"another reply than the one that is shown: {body[:300]}"
    assert not wrong


def without(name: str, reply: Any) -> Any:
    varying = VARYING.get(name, set())
    return {key: value for key, value in reply.items() if key not in varying} if varying else reply


def test_the_list_is_painted_before_scripts_and_the_document_arrive(chromium: Any, shared: Server) -> None:
    from playwright.sync_api import expect

    with watched_page(chromium, shared.url) as page:
        page.route(re.compile(r"\.(js|json)$"), lambda route: None)
        page.goto("/docs", wait_until="commit")
        # Resolved by the browser: what Playwright polls in the page, the Content-Security-Policy forbids.
        page.evaluate(
            "() => new Promise(painted =>"
            " new PerformanceObserver(() => painted()).observe({type: 'paint', buffered: true}))"
        )
        expect(page.locator("#operations li").first).to_be_in_viewport()
        page.unroute_all(behavior="ignoreErrors")


def test_the_list_is_filtered(page: Any) -> None:
    page.goto("/docs")
    entries = page.locator("#operations li")
    every = entries.count()
    page.get_by_label("Filter operations").fill("onnx quantizelinear")
    visible = page.locator("#operations li:visible")
    assert [each.split("\n")[0] for each in visible.all_inner_texts()] == [
        "onnx.QuantizeLinear",
        "onnx.DequantizeLinear",
        "onnx.DynamicQuantizeLinear",
    ]
    assert page.locator("#found").inner_text() == f"3 of {every} operations"
    assert page.locator("#operations h2:visible").all_inner_texts() == ["Operators of other systems"]
    page.get_by_label("Filter operations").press("Enter")
    assert page.url.endswith("#/onnx/onnxQuantizeLinear")
    page.get_by_label("Filter operations").fill("")
    assert visible.count() == every


def test_an_address_leads_to_its_operation(chromium: Any, page: Any) -> None:
    page.goto("/docs#/ops/quantize")
    page.locator("#operation .opblock[id$='-quantize']").wait_for()
    assert page.locator("#operations a[aria-current=page]").inner_text().startswith("Quantize")
    assert page.title() == "Quantize · Requant API reference"
    page.goto("/docs#/ops/nope")
    page.locator("#introduction").wait_for()


@pytest.mark.parametrize("operation", ["npy/quantizeNpy", "multipart/quantizeForm"])
def test_files_are_labelled_before_their_examples_arrive(chromium: Any, shared: Server, operation: str) -> None:
    with watched_page(chromium, shared.url) as page:
        page.route("**/docs/examples/**", lambda route: None)
        page.goto(f"/docs#/{operation}")
        page.locator("#operation input[type=file][aria-label]").first.wait_for()
        assert not page.locator("#operation input[type=file]:not([aria-label])").count()
        page.unroute_all(behavior="ignoreErrors")


def test_the_introduction_stays_when_the_document_arrives_late(chromium: Any, shared: Server) -> None:
    held: list[Any] = []
    with watched_page(chromium, shared.url) as page:
        page.route("**/openapi.json", lambda route: held.append(route))
        with page.expect_request("**/openapi.json"):
            page.goto("/docs")
        while not held:
            page.wait_for_timeout(10)
        page.goto("/docs#/ops/quantize")
        page.locator("#loading").wait_for()
        page.go_back()
        page.locator("#introduction").wait_for()
        assert not page.locator("#loading").is_visible()
        with page.expect_response("**/openapi.json"):
            held[0].continue_()
        page.wait_for_load_state("networkidle")
        assert page.locator("#introduction").is_visible()
        assert not page.locator("#operation .opblock").is_visible()
