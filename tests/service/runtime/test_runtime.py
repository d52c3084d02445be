"""Readiness: work is refused until the kernels are there, probes are always answered."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable

import httpx
import pytest

from requant.errors import SelfTestError, UnavailableError
from requant.kernels.jit.cache_directory import CacheDirectoryError
from requant_service.app import create_app
from requant_service.runtime import runtime as lifespan
from requant_service.runtime.settings import Settings


def replies(app_status: lifespan.HealthStatus) -> dict[str, httpx.Response]:
    app = create_app(Settings())
    app.state.runtime.status = app_status

    async def ask() -> dict[str, httpx.Response]:
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            found = {path: await client.post(path) for path in ("/v1/quantize", "/v1/npy/requantize")}
            found["/healthz"] = await client.get("/healthz")
            found["/v1/info"] = await client.get("/v1/info")
            return found

    return asyncio.run(ask())


WORKING = (lifespan.HealthStatus.COMPILING, lifespan.HealthStatus.READY, lifespan.HealthStatus.DRAINING)


@pytest.mark.parametrize("status", [s for s in lifespan.HealthStatus if s not in WORKING])
def test_until_ready_work_is_refused_and_probes_are_answered(status: lifespan.HealthStatus) -> None:
    found = replies(status)
    assert found["/v1/info"].status_code == 200
    for path in ("/v1/quantize", "/v1/npy/requantize", "/healthz"):
        assert found[path].status_code == 503, path
        assert found[path].headers["retry-after"] == "1"
    assert found["/healthz"].json() == {"status": str(status)}
    assert found["/v1/quantize"].json()["code"] == "not_ready"


def test_while_it_drains_work_is_done_and_no_more_is_asked_for() -> None:
    found = replies(lifespan.HealthStatus.DRAINING)
    assert found["/healthz"].status_code == 503
    assert found["/healthz"].json() == {"status": "draining"}
    assert found["/v1/quantize"].status_code == 400
    assert {reply.headers["connection"] for reply in found.values()} == {"close"}
    assert "connection" not in replies(lifespan.HealthStatus.READY)["/healthz"].headers


def test_ready_is_ready() -> None:
    found = replies(lifespan.HealthStatus.READY)
    assert found["/healthz"].json() == {"status": "ready"}
    assert found["/v1/quantize"].status_code == 400


FAILURES = [
    None,
    OSError("no compiler"),
    SelfTestError("quantize of f32 to i8 under onnx gave 1; expected 2"),
    CacheDirectoryError("others can write to /kernels (mode 777)"),
]


@pytest.mark.parametrize("fails", FAILURES, ids=lambda error: type(error).__name__)
def test_ready_follows_the_kernels(
    fails: Exception | None, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def prepare_kernels(*_: object) -> int:
        if fails is not None:
            raise fails
        return 7

    monkeypatch.setattr(lifespan, "prepare_kernels", prepare_kernels)
    app = create_app(Settings())
    runtime: lifespan.Runtime = app.state.runtime

    async def live() -> lifespan.HealthStatus:
        async with lifespan.lifespan(app):
            seen = [runtime.status]
            while seen[-1] is lifespan.HealthStatus.STARTING:
                await asyncio.sleep(0.001)
                seen.append(runtime.status)
            return seen[-1]

    reached = asyncio.run(live())
    assert reached is (lifespan.HealthStatus.FAILED if fails else lifespan.HealthStatus.READY)
    assert runtime.kernels == (0 if fails else 7)
    assert str(runtime.status) == "stopping"
    # What is ours says why; the messages of others are never logged.
    told = [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]
    assert (str(fails) in "".join(told)) is isinstance(fails, SelfTestError | CacheDirectoryError)


def test_work_is_refused_while_wrong_kernels_are_compiled_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    refused = threading.Event()

    def prepare_kernels(_: int, begin: object, answering: Callable[[bool], None]) -> int:
        answering(True)
        answering(False)
        refused.wait(30)
        return 7

    monkeypatch.setattr(lifespan, "prepare_kernels", prepare_kernels)
    app = create_app(Settings())
    runtime: lifespan.Runtime = app.state.runtime
    seen: list[str] = []
    runtime.status_listeners.append(lambda status: seen.append(str(status)))

    async def live() -> None:
        async with lifespan.lifespan(app):
            while seen[-1:] != ["ready"]:
                await asyncio.sleep(0.001)
                if seen[-1:] == ["starting"]:
                    with pytest.raises(UnavailableError):
                        runtime.require_ready()
                    refused.set()

    asyncio.run(live())
    assert seen == ["compiling", "starting", "ready", "stopping"]
