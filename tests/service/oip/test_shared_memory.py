"""Tensors in system shared memory, over HTTP: the same bits as in a body, and a clear error for what cannot be used."""

from __future__ import annotations

import json
import os
import random
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import numpy as np
import pytest

from tests.conftest import Server, started
from tests.support.oip_wire import DTYPES, Array, Input, datatype, infer, read

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="objects of shared memory are files on Linux")

I8 = "!quant.uniform<i8:f32, 0.5:3>"
ROUTE = "/v2/systemsharedmemory"
MOST = 6
SIZE = 1 << 20
RNG = np.random.default_rng(9)
# More than one piece, and a last one that is not whole.
REAL = RNG.normal(0, 30, (2 << 20) + 13).astype("<f4")
STORED = RNG.integers(-128, 128, 1000).astype(np.int8)


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A service with shared memory."""
    options = ("--shared-memory", "true", "--max-shared-memory-regions", str(MOST), "--drain-seconds", "0")
    with started(tmp_path_factory.mktemp("shared") / "log", *options) as (server, _):
        yield server


@pytest.fixture
def triton(shared: Server) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=shared.url, timeout=120, verify=False) as connected:
        yield connected
        connected.post(f"{ROUTE}/unregister").raise_for_status()


@contextmanager
def memory_object(size: int) -> Iterator[Path]:
    """An object of shared memory."""
    path = Path("/dev/shm") / f"requant-test-{uuid4().hex}"
    with path.open("wb") as made:
        made.truncate(size)
    try:
        yield path
    finally:
        path.unlink(missing_ok=True)


@pytest.fixture
def memory() -> Iterator[Path]:
    with memory_object(16 * SIZE) as path:
        yield path


def register(client: httpx.Client, region: str, path: Path, offset: int = 0, size: int = 16 * SIZE) -> httpx.Response:
    given = {"key": f"/{path.name}", "offset": offset, "byte_size": size}
    return client.post(f"{ROUTE}/region/{region}/register", json=given)


def part(region: str, size: int, offset: int = 0) -> dict[str, Any]:
    return {"shared_memory_region": region, "shared_memory_byte_size": size, "shared_memory_offset": offset}


def given(name: str, array: Array, place: dict[str, Any]) -> dict[str, Any]:
    return {"name": name, "shape": list(array.shape), "datatype": datatype(array), "parameters": place}


def ask(client: httpx.Client, model: str, inputs: list[Any], **members: Any) -> httpx.Response:
    body = json.dumps({"inputs": inputs, **members})
    return client.post(f"/v2/models/{model}/infer", content=body)


def taken(path: Path, output: dict[str, Any], start: int = 0) -> Array:
    """Read an output where the reply says that it is. `start`: where the region begins in the object."""
    assert "data" not in output
    place = output["parameters"]
    dtype = np.dtype(DTYPES[output["datatype"]])
    offset = start + place.get("shared_memory_offset", 0)
    data = path.read_bytes()[offset : offset + place["shared_memory_byte_size"]]
    return np.frombuffer(data, dtype).reshape(output["shape"])


MODELS: dict[str, tuple[str, list[tuple[str, Array]], dict[str, Any]]] = {
    "quantize": ("quantize", [("x", REAL)], {"output_type": I8}),
    "packed": ("quantize", [("x", REAL)], {"output_type": "!quant.uniform<i4:f32, 9.5>", "packing": "dense"}),
    "with the error": ("quantize", [("x", REAL[:999])], {"output_type": I8, "error": True}),
    "scale": ("quantize", [("x", REAL), ("scale", np.array([0.25], "<f4"))], {"storage_type": "i8"}),
    "dequantize": ("dequantize", [("x", STORED)], {"input_type": I8}),
    "requantize": (
        "requantize",
        [("x", RNG.integers(-9999, 9999, 4321).astype("<i4"))],
        {"input_type": "!quant.uniform<i32:f32, 0.01>", "output_type": I8},
    ),
    "compare": ("compare", [("a", STORED), ("b", STORED[::-1].copy())], {}),
    "blocks": ("quantize_blocks", [("x", REAL[:6400].reshape(-1, 64))], {"format": "mxfp4_e2m1"}),
    "in place": ("compare", [("a", REAL[:99_999]), ("b", REAL[1:100_000])], {}),
    "no elements": ("quantize", [("x", REAL[:0])], {"output_type": I8}),
}


@pytest.mark.parametrize("misaligned", [0, 3])
@pytest.mark.parametrize("name", MODELS)
def test_every_tensor_in_shared_memory(triton: httpx.Client, memory: Path, name: str, misaligned: int) -> None:
    """What is in a body and what is in memory give the same. An offset of the region is no page's."""
    model, tensors, parameters = MODELS[name]
    start = 4096 + 64
    assert register(triton, "all", memory, start, 16 * SIZE - start).json() == {}
    expected = read(
        infer(
            triton,
            model,
            [Input(each, array) for each, array in tensors],
            parameters={**parameters, "binary_data_output": True},
        )
    )
    inputs, at = [], misaligned
    with memory.open("r+b") as file:
        for each, array in tensors:
            file.seek(start + at)
            file.write(array.tobytes())
            inputs.append(given(each, array, part("all", array.nbytes, at)))
            at += array.nbytes + 61
    outputs, at = [], 11 * SIZE + misaligned
    for each, array in expected.outputs.items():
        # More room than needed is no error.
        outputs.append({"name": each, "parameters": part("all", array.nbytes + 5, at)})
        at += array.nbytes + 64
    for _ in range(2):
        reply = ask(triton, model, inputs, outputs=outputs, parameters=parameters)
        assert reply.status_code == 200, reply.text
        assert reply.json()["parameters"] == expected.head["parameters"]
        for output in reply.json()["outputs"]:
            found = taken(memory, output, start)
            np.testing.assert_array_equal(found, expected.outputs[output["name"]])
            assert output["parameters"]["shared_memory_byte_size"] == found.nbytes


def test_with_tensors_of_other_kinds(triton: httpx.Client, memory: Path) -> None:
    """Inputs and outputs in memory, in binary and as JSON go together."""
    x = np.array([0.25, 0.75, -1.5], "<f4")
    memory.write_bytes(x.tobytes())
    os.truncate(memory, SIZE)
    register(triton, "all", memory, 0, SIZE)
    scale = Input("scale", np.array([0.5], "<f4"), data=[0.5])
    place = given("x", x, part("all", 12))
    y = [{"name": "y", "parameters": {"binary_data": True}}]
    to_memory = [{"name": "y", "parameters": {**part("all", 3, 64), "binary_data": False}}]
    parameters = {"storage_type": "i8", "profile": "onnx"}
    replies = [
        read(ask(triton, "quantize", [place, scale.head()], outputs=y, parameters=parameters)).outputs["y"],
        read(ask(triton, "quantize", [place, scale.head()], parameters=parameters)).outputs["y"],
        taken(
            memory,
            infer(triton, "quantize", [Input("x", x), scale], outputs=to_memory, parameters=parameters).json()[
                "outputs"
            ][0],
        ),
        taken(
            memory,
            ask(
                triton,
                "quantize",
                [{**place, "parameters": {}, "data": x.tolist()}, scale.head()],
                outputs=to_memory,
                parameters=parameters,
            ).json()["outputs"][0],
        ),
    ]
    assert [reply.tolist() for reply in replies] == [[0, 2, -3]] * 4


def refused(reply: httpx.Response, status: int, code: str, pointer: str | None, says: str) -> None:
    found = reply.json()
    assert (reply.status_code, found.get("code")) == (status, code), reply.text
    assert found["error"] == found["detail"]
    assert says in found["detail"], found["detail"]
    assert [each["pointer"] for each in found.get("errors", [])][:1] == ([] if pointer is None else [pointer])
    assert len(reply.content) < 2000


X = np.zeros(4, "<f4")
IN = "/inputs/0/parameters/"
OUT = "/outputs/0/parameters/"


@pytest.mark.parametrize(
    ("place", "target", "status", "code", "pointer", "says"),
    [
        (part("none", 16), None, 422, "unknown_name", f"{IN}shared_memory_region", "'none'"),
        (part("n" * 5000, 16), None, 422, "unknown_name", f"{IN}shared_memory_region", "nnn..."),
        (part("all", 15), None, 400, "tensor_data", f"{IN}shared_memory_byte_size", "which is 16"),
        (part("all", 1 << 70), None, 400, "tensor_data", f"{IN}shared_memory_byte_size", "more than 2^64"),
        (part("all", -16), None, 422, "request_invalid", f"{IN}shared_memory_byte_size", "number of bytes"),
        (part("all", 16, -1), None, 422, "request_invalid", f"{IN}shared_memory_offset", "number of bytes"),
        (part("all", 16, SIZE), None, 422, "request_invalid", f"{IN}shared_memory_byte_size", f"has {SIZE}"),
        (part("all", 16, 1 << 64), None, 422, "request_invalid", f"{IN}shared_memory_byte_size", "more than 2^64"),
        ({"shared_memory_region": "all"}, None, 422, "request_invalid", f"{IN}shared_memory_byte_size", "together"),
        ({"shared_memory_byte_size": 16}, None, 422, "request_invalid", f"{IN}shared_memory_region", "together"),
        ({"shared_memory_offset": 0}, None, 422, "request_invalid", f"{IN}shared_memory_region", "together"),
        ({**part("all", 16), "shared_memory_region": 7}, None, 422, "request_invalid", f"{IN}shared_memory_region", ""),
        ({**part("all", 16), "binary_data_size": 16}, None, 422, "request_invalid", "/inputs/0", "exactly one"),
        (part("all", 16), part("none", 4), 422, "unknown_name", f"{OUT}shared_memory_region", "'none'"),
        (part("all", 16), part("all", 3, 64), 400, "tensor_data", f"{OUT}shared_memory_byte_size", "has 4 bytes"),
        (part("all", 16), part("all", 4, SIZE - 3), 422, "request_invalid", f"{OUT}shared_memory_byte_size", ""),
        (part("all", 16), part("all", 4), 422, "request_invalid", f"{OUT}shared_memory_region", "overlaps input x"),
        (part("all", 16), part("all", 4, 15), 422, "request_invalid", f"{OUT}shared_memory_region", "overlaps"),
        (part("all", 16), part("same", 4, 15), 422, "request_invalid", f"{OUT}shared_memory_region", "overlaps"),
        (part("all", 16), {**part("all", 4, 64), "binary_data": True}, 422, "request_invalid", f"{OUT}binary_data", ""),
    ],
)
def test_parameters_that_cannot_be_served(
    triton: httpx.Client,
    memory: Path,
    place: dict[str, Any],
    target: dict[str, Any] | None,
    status: int,
    code: str,
    pointer: str,
    says: str,
) -> None:
    register(triton, "all", memory, 0, SIZE)
    register(triton, "same", memory, 0, SIZE)
    outputs = [{"name": "y", "parameters": target or {}}]
    reply = ask(triton, "quantize", [given("x", X, place)], outputs=outputs, parameters={"output_type": I8})
    refused(reply, status, code, pointer, says)


def test_outputs_that_overlap(triton: httpx.Client, memory: Path) -> None:
    register(triton, "all", memory, 0, SIZE)
    inputs = [given("a", X, part("all", 16)), given("b", X, part("all", 16))]
    outputs = [{"name": "first", "parameters": part("all", 64, 64)}]
    outputs += [{"name": "histogram", "parameters": part("all", 9999, 100)}]
    reply = ask(triton, "compare", inputs, outputs=outputs)
    refused(reply, 422, "request_invalid", "/outputs/1/parameters/shared_memory_region", "overlaps output first")
    outputs[1]["parameters"] = part("all", 8, 200)
    reply = ask(triton, "compare", inputs, outputs=outputs)
    refused(reply, 400, "tensor_data", "/outputs/1/parameters/shared_memory_byte_size", "output histogram has ")


@pytest.mark.parametrize(
    ("given", "status", "code", "pointer"),
    [
        ({"key": "/../etc/passwd", "byte_size": 1}, 422, "request_invalid", "/key"),
        ({"key": "a\0b", "byte_size": 1}, 422, "request_invalid", "/key"),
        ({"key": "requant-no-such-object", "byte_size": 1}, 422, "shared_memory", "/key"),
        ({"key": "k" * 600, "byte_size": 1}, 422, "request_invalid", "/key"),
        ({"key": "a", "byte_size": 0}, 422, "request_invalid", "/byte_size"),
        ({"key": "a", "byte_size": "9"}, 422, "request_invalid", "/byte_size"),
        ({"key": "a", "byte_size": 1, "offset": -1}, 422, "request_invalid", "/offset"),
        ({"key": "a"}, 422, "request_invalid", "/byte_size"),
        ({"byte_size": 1}, 422, "request_invalid", "/key"),
        ({"key": "a", "byte_size": 1, "fd": 3}, 422, "request_invalid", "/fd"),
        ([], 422, "request_invalid", ""),
        ({"key": "a", "byte_size": 1, "pad": "p" * 20_000}, 413, "limit_exceeded", None),
    ],
)
def test_registrations_that_cannot_be_served(
    triton: httpx.Client, given: Any, status: int, code: str, pointer: str | None
) -> None:
    reply = triton.post(f"{ROUTE}/region/a/register", content=json.dumps(given))
    refused(reply, status, code, pointer, "")
    assert triton.get(f"{ROUTE}/status").json() == []


def test_regions_by_name(triton: httpx.Client, memory: Path) -> None:
    assert "system_shared_memory" in triton.get("/v2").json()["extensions"]
    assert register(triton, "a%20b", memory, 64, 100).json() == {}
    status = [{"name": "a b", "key": f"/{memory.name}", "offset": 64, "byte_size": 100}]
    assert triton.get(f"{ROUTE}/region/a%20b/status").json() == triton.get(f"{ROUTE}/status").json() == status
    refused(register(triton, "a%20b", memory), 422, "shared_memory", None, "registered already")
    for method, path in (("GET", "status"), ("POST", "unregister")):
        refused(triton.request(method, f"{ROUTE}/region/b/{path}"), 404, "unknown_name", None, "'b'")
    refused(register(triton, "n" * 300, memory), 422, "request_invalid", "", "1 to 256 characters")
    refused(register(triton, "c", memory, 0, 17 * SIZE), 422, "shared_memory", "/byte_size", f"has {16 * SIZE}")
    for index in range(MOST - 1):
        assert register(triton, f"r{index}", memory, 0, 50).status_code == 200
    refused(register(triton, "more", memory), 413, "limit_exceeded", None, f"{MOST} regions")
    lines = triton.get("/metrics").text.splitlines()
    assert f"requant_shared_memory_regions {MOST}.0" in lines
    assert f"requant_shared_memory_bytes {100 + 50 * (MOST - 1)}.0" in lines
    assert triton.post(f"{ROUTE}/region/a%20b/unregister").json() == {}
    assert len(triton.get(f"{ROUTE}/status").json()) == MOST - 1
    assert triton.post(f"{ROUTE}/unregister", content=b"").json() == {}
    assert triton.get(f"{ROUTE}/status").json() == []
    assert triton.get("/v1/info").json()["limits"]["max_shared_memory_regions"] == MOST


def test_without_the_setting(client: httpx.Client) -> None:
    assert "system_shared_memory" not in client.get("/v2").json()["extensions"]
    place = given("x", X, part("all", 16))
    outputs = [{"name": "y", "parameters": part("all", 4)}]
    asked: list[tuple[httpx.Response, str | None]] = [
        (client.get(f"{ROUTE}/status"), None),
        (client.get(f"{ROUTE}/region/a/status"), None),
        (client.post(f"{ROUTE}/region/a/register", json={"key": "a", "byte_size": 1}), None),
        (client.post(f"{ROUTE}/unregister"), None),
        (client.post(f"{ROUTE}/region/a/unregister"), None),
        (ask(client, "quantize", [place], parameters={"output_type": I8}), f"{IN}shared_memory_region"),
        (
            infer(client, "quantize", [Input("x", X)], outputs=outputs, parameters={"output_type": I8}),
            f"{OUT}shared_memory_region",
        ),
    ]
    for reply, pointer in asked:
        refused(reply, 422, "shared_memory", pointer, "REQUANT_SHARED_MEMORY=true")


def test_cuda_shared_memory(client: httpx.Client) -> None:
    """There is none: that is true of the list and of its end, and the rest is refused."""
    route = "/v2/cudasharedmemory"
    assert client.get(f"{route}/status").json() == []
    assert client.post(f"{route}/unregister").status_code == 200
    given = {"raw_handle": {"b64": ""}, "device_id": 0, "byte_size": 1}
    refused(client.post(f"{route}/region/a/register", json=given), 422, "shared_memory", None, "not supported")
    refused(client.post(f"{route}/region/a/unregister"), 422, "shared_memory", None, "not supported")
    refused(client.get(f"{route}/region/a/status"), 422, "shared_memory", None, "not supported")


def test_an_object_that_has_shrunk(triton: httpx.Client, memory: Path) -> None:
    register(triton, "all", memory)
    os.truncate(memory, 8)
    for place, target, pointer in (
        (part("all", 16), part("all", 4, 64), f"{IN}shared_memory_region"),
        (part("all", 16), part("all", 4, 2 * SIZE), f"{OUT}shared_memory_region"),
    ):
        outputs = [{"name": "y", "parameters": target}]
        reply = ask(triton, "quantize", [given("x", X, place)], outputs=outputs, parameters={"output_type": I8})
        refused(reply, 422, "shared_memory", pointer, "has shrunk to")
        os.truncate(memory, SIZE)


def while_it_goes_on(work: Callable[[], None], seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        work()


@pytest.mark.exhaustive
def test_truncation_and_unregistration_under_requests(shared: Server, triton: httpx.Client) -> None:
    """Whatever another process does to the object: an answer with the right bits, or an error that says what it did."""
    x = RNG.normal(0, 30, 3 << 18).astype("<f4")
    expected = np.clip(np.rint(x / np.float32(0.5)) + 3, -128, 127).astype(np.int8)
    kinds: dict[str, int] = {}
    with memory_object(x.nbytes) as source, memory_object(x.size) as target:
        source.write_bytes(x.tobytes())
        inputs = [given("x", x, part("in", x.nbytes))]
        ended = threading.Event()

        def requests() -> None:
            with httpx.Client(base_url=shared.url, timeout=120, verify=False) as client:
                for place in (part("out", x.size), {"binary_data": True}):
                    while_it_goes_on(partial(one, client, place), 1.5)

        def one(client: httpx.Client, place: dict[str, Any]) -> None:
            outputs = [{"name": "y", "parameters": place}]
            parameters = {"output_type": I8, "profile": "onnx"}
            reply = ask(client, "quantize", inputs, outputs=outputs, parameters=parameters)
            if reply.status_code == 200:
                kinds["answered"] = kinds.get("answered", 0) + 1
                if "binary_data" in place:
                    # The source may have been zeros for a moment, and never anything else.
                    y = read(reply).outputs["y"]
                    assert ((y == expected) | (y == 3)).all()
                return
            found = reply.json()
            assert found["code"] in ("shared_memory", "unknown_name"), reply.text
            words = ("shrank while", "has shrunk", "no shared memory region")
            (says,) = (each for each in words if each in found["detail"])
            kinds[says] = kinds.get(says, 0) + 1

        def truncations() -> None:
            for path in (source, target) * 100_000:
                if ended.is_set():
                    return
                size = path.stat().st_size
                os.truncate(path, random.randrange(size))
                time.sleep(random.random() * 1e-3)
                os.truncate(path, size)
                time.sleep(random.random() * 3e-3)

        def registrations() -> None:
            with httpx.Client(base_url=shared.url, timeout=120, verify=False) as client:
                while not ended.is_set():
                    register(client, "in", source, 0, x.nbytes)
                    register(client, "out", target, 0, x.size)
                    time.sleep(0.02)
                    client.post(f"{ROUTE}/unregister").raise_for_status()

        register(triton, "in", source, 0, x.nbytes)
        register(triton, "out", target, 0, x.size)
        others = [threading.Thread(target=each) for each in (truncations, registrations)]
        workers = [threading.Thread(target=requests) for _ in range(2)]
        for thread in (*others, *workers):
            thread.start()
        for thread in workers:
            thread.join()
        ended.set()
        for thread in others:
            thread.join()
        assert kinds["answered"] > 10, kinds
        assert kinds["shrank while"] > 10, kinds
        # All is well as soon as the client leaves its objects alone.
        source.write_bytes(x.tobytes())
        triton.post(f"{ROUTE}/unregister")
        register(triton, "in", source, 0, x.nbytes)
        register(triton, "out", target, 0, x.size)
        outputs = [{"name": "y", "parameters": part("out", x.size)}]
        reply = ask(triton, "quantize", inputs, outputs=outputs, parameters={"output_type": I8, "profile": "onnx"})
        np.testing.assert_array_equal(taken(target, reply.json()["outputs"][0]), expected)
