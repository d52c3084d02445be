"""The gRPC server beside HTTP: health, reflection, tokens, metrics, slow clients, and how it stops."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from itertools import cycle
from pathlib import Path
from typing import Any

import grpc
import httpx
import numpy as np
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from requant_service.http2.frames import FrameType, frame
from requant_service.oip.grpc import inference_pb2 as pb
from tests.conftest import ROOT, Server, free_port, started
from tests.service.oip.grpc.conftest import UNLIMITED
from tests.support.cases import EXHAUSTIVE
from tests.support.certificates import make_certificate
from tests.support.http2_client import Http2Client, data, head_of, headers
from tests.support.inference_messages import SERVICE, call, infer, outputs_of, refused, request_of

SERVING, NOT_SERVING = health_pb2.HealthCheckResponse.SERVING, health_pb2.HealthCheckResponse.NOT_SERVING
TARGET = {"output_type": "!quant.uniform<i8:f32, 0.5:3>", "profile": "onnx"}
X = np.array([0.25, 0.75, -1.5, 100], np.float32)
TOKEN = "a-token-of-some-length"
BEARER = (("authorization", f"Bearer {TOKEN}"),)
INFER = f"/{SERVICE}/ModelInfer"


def quantize(**members: Any) -> pb.ModelInferRequest:
    return request_of("quantize", {"x": X}, TARGET, **members)


def test_what_the_server_says(channel: Any, grpc_server: tuple[Server, str]) -> None:
    http = grpc_server[0].url
    assert call(channel, "ServerLive", pb.ServerLiveRequest(), pb.ServerLiveResponse).live
    assert call(channel, "ServerReady", pb.ServerReadyRequest(), pb.ServerReadyResponse).ready
    said = call(channel, "ServerMetadata", pb.ServerMetadataRequest(), pb.ServerMetadataResponse)
    expected = httpx.get(f"{http}/v2", verify=False).json()
    assert {"name": said.name, "version": said.version, "extensions": list(said.extensions)} == expected
    index = call(channel, "RepositoryIndex", pb.RepositoryIndexRequest(ready=True), pb.RepositoryIndexResponse).models
    listed = httpx.post(f"{http}/v2/repository/index", verify=False).json()
    assert [{n: getattr(each, n) for n in ("name", "version", "state", "reason")} for each in index] == listed
    for name in {each.name for each in index}:
        request = pb.ModelMetadataRequest(name=name)
        model = call(channel, "ModelMetadata", request, pb.ModelMetadataResponse)
        over = httpx.get(f"{http}/v2/models/{name}", verify=False).json()
        assert (model.name, list(model.versions), model.platform) == (name, over["versions"], over["platform"])
        for found, tensors in ((model.inputs, over["inputs"]), (model.outputs, over["outputs"])):
            assert [(t.name, t.datatype, list(t.shape)) for t in found] == [
                (t["name"], t["datatype"], t["shape"]) for t in tensors
            ]
        config = call(channel, "ModelConfig", pb.ModelConfigRequest(name=name), pb.ModelConfigResponse).config
        types = [pb.DataType.Name(each.data_type).removeprefix("TYPE_") for each in config.input]
        assert types == [t["datatype"] for t in over["inputs"]]
        assert [each.optional for each in config.input] == [t["parameters"]["optional"] for t in over["inputs"]]


@pytest.mark.parametrize(
    ("name", "version", "ready"), [("quantize", "", 1), ("quantize", "1", 1), ("quantize", "2", 0)]
)
def test_ready_models(channel: Any, name: str, version: str, ready: bool) -> None:
    request = pb.ModelReadyRequest(name=name, version=version)
    assert call(channel, "ModelReady", request, pb.ModelReadyResponse).ready == ready
    assert not call(channel, "ModelReady", pb.ModelReadyRequest(name="nope"), pb.ModelReadyResponse).ready


def test_what_is_not_implemented_says_so(channel: Any) -> None:
    """Every method of the protocol is answered, none with a text of grpcio's own."""
    for method in pb.DESCRIPTOR.services_by_name["GRPCInferenceService"].methods:
        if method.client_streaming:
            continue
        outcome = channel.unary_unary(f"/{SERVICE}/{method.name}").future(b"", timeout=60)
        if (error := outcome.exception()) is None:
            continue
        code = dict(error.trailing_metadata())["requant-code"]
        if method.name in ("ModelInfer", "ModelMetadata", "ModelConfig"):
            assert (error.code(), code) == (grpc.StatusCode.NOT_FOUND, "unknown_name")
        elif "SharedMemory" in method.name:
            assert (error.code(), code) == (grpc.StatusCode.INVALID_ARGUMENT, "shared_memory")
        else:
            assert (error.code(), code) == (grpc.StatusCode.UNIMPLEMENTED, "unimplemented"), method.name


@pytest.mark.parametrize("service", ["", SERVICE])
def test_health(channel: Any, service: str) -> None:
    stub = health_pb2_grpc.HealthStub(channel)
    request = health_pb2.HealthCheckRequest(service=service)
    assert stub.Check(request, timeout=60).status == SERVING
    watched = stub.Watch(request, timeout=60)
    assert next(iter(watched)).status == SERVING
    watched.cancel()


def test_health_of_another_service(channel: Any) -> None:
    with pytest.raises(grpc.RpcError) as refusal:
        health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest(service="nope"), timeout=60)
    assert refusal.value.code() is grpc.StatusCode.NOT_FOUND


def test_reflection(channel: Any) -> None:
    asked = [
        reflection_pb2.ServerReflectionRequest(list_services=""),
        reflection_pb2.ServerReflectionRequest(file_containing_symbol=SERVICE),
    ]
    replies = list(reflection_pb2_grpc.ServerReflectionStub(channel).ServerReflectionInfo(iter(asked), timeout=60))
    names = {each.name for each in replies[0].list_services_response.service}
    assert names == {SERVICE, "grpc.health.v1.Health", "grpc.reflection.v1alpha.ServerReflection"}
    assert replies[1].file_descriptor_response.file_descriptor_proto[0] == pb.DESCRIPTOR.serialized_pb


def test_limits(channel: Any) -> None:
    status, detail, code = refused(channel, pb.ModelInferRequest(model_name="a" * (9 << 20)).SerializeToString())
    assert (status, code) == (grpc.StatusCode.RESOURCE_EXHAUSTED, "limit_exceeded")
    assert "8388608 bytes besides raw_input_contents" in detail
    assert refused(channel, bytes(73 << 20))[0] is grpc.StatusCode.RESOURCE_EXHAUSTED


@pytest.mark.sample(1)
@pytest.mark.parametrize("compression", [grpc.Compression.Gzip, grpc.Compression.Deflate])
def test_compression(channel: Any, compression: grpc.Compression) -> None:
    """A message that grows as no tensor does is refused while it is inflated."""
    assert outputs_of(infer(channel, quantize(), compression=compression))["y"].tolist() == [3, 5, 0, 127]
    status, detail, _ = refused(channel, bytes((256 if EXHAUSTIVE else 80) << 20), compression=compression)
    assert status is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert "grows more than 100 times" in detail


# With tokens, a log, room for few messages, and little patience.
_BUDGET = 300 << 20  # messages have up to 72 MiB


@pytest.fixture(scope="module")
def strict(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Server, str, Path]]:
    folder, port = tmp_path_factory.mktemp("strict"), free_port()
    (folder / "tokens").write_text(TOKEN)
    arguments = ["--drain-seconds", "0", "--grpc-port", str(port), "--tokens-file", str(folder / "tokens")]
    arguments += ["--access-log", "true", "--log-format", "json", "--memory-bytes", str(_BUDGET)]
    arguments += ["--keep-alive-seconds", "2", "--max-compute-seconds", "5"]
    with started(folder / "log", *arguments) as (running, _):
        yield running, f"127.0.0.1:{port}", folder / "log"


@pytest.fixture
def strict_channel(strict: tuple[Server, str, Path]) -> Iterator[Any]:
    with grpc.insecure_channel(strict[1], options=UNLIMITED) as connected:
        yield connected


@pytest.mark.parametrize(
    "metadata", [(), (("authorization", TOKEN),), (("authorization", "Bearer x"),), (*BEARER, *BEARER)]
)
def test_no_token(strict_channel: Any, metadata: Any) -> None:
    status, detail, code = refused(strict_channel, quantize(), metadata=metadata)
    assert (status, code) == (grpc.StatusCode.UNAUTHENTICATED, "unauthorized")
    assert "authorization: Bearer" in detail
    stream = strict_channel.stream_stream(f"/{SERVICE}/ModelStreamInfer")
    with pytest.raises(grpc.RpcError) as refusal:
        list(stream(iter([b""]), metadata=metadata, timeout=60))
    assert refusal.value.code() is grpc.StatusCode.UNAUTHENTICATED


def test_probes_need_no_token(strict_channel: Any) -> None:
    assert call(strict_channel, "ServerReady", pb.ServerReadyRequest(), pb.ServerReadyResponse).ready
    stub = health_pb2_grpc.HealthStub(strict_channel)
    assert stub.Check(health_pb2.HealthCheckRequest(), timeout=60).status == SERVING
    asked = iter([reflection_pb2.ServerReflectionRequest(list_services="")])
    with pytest.raises(grpc.RpcError) as refusal:
        list(reflection_pb2_grpc.ServerReflectionStub(strict_channel).ServerReflectionInfo(asked, timeout=60))
    assert refusal.value.code() is grpc.StatusCode.UNAUTHENTICATED


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline


def metric(server: Server, name: str, **labels: str) -> float:
    text = httpx.get(f"{server.url}/metrics", headers={"authorization": f"Bearer {TOKEN}"}, verify=False).text
    for line in text.splitlines():
        if line.startswith(name) and all(f'{key}="{value}"' in line for key, value in labels.items()):
            return float(line.rpartition(" ")[2])
    return 0.0


def test_metrics_and_log(strict: tuple[Server, str, Path], strict_channel: Any) -> None:
    server, _, log = strict
    counted = {"route": INFER, "method": "POST"}
    before = metric(server, "requant_requests_total", **counted, code="200")
    refusals = metric(server, "requant_requests_total", **counted, code="422")
    metadata = (*BEARER, ("x-request-id", "this-one"))
    infer(strict_channel, quantize(), metadata=metadata)
    request = quantize()
    request.parameters["nope"].bool_param = True
    refused(strict_channel, request, metadata=metadata)
    # A call is counted when its reply has left, a moment after the client has it.
    until(lambda: metric(server, "requant_requests_total", **counted, code="200") == before + 1)
    until(lambda: metric(server, "requant_requests_total", **counted, code="422") == refusals + 1)
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    found = [line for line in lines if line.get("request_id") == "this-one"]
    assert [(line["route"], line["status"]) for line in found] == [(INFER, 200), (INFER, 422)]
    assert found[0]["received"] == quantize().ByteSize()
    assert not [line for line in lines if "Health" in line.get("route", "")]
    assert metric(server, "requant_inflight_bytes") == 0
    assert metric(server, "requant_inflight_requests") == 1  # the one that asks


def test_request_id_is_returned(strict_channel: Any) -> None:
    method = strict_channel.unary_unary(INFER, pb.ModelInferRequest.SerializeToString)
    _, ended = method.with_call(quantize(), metadata=(*BEARER, ("x-request-id", "mine")), timeout=60)
    assert dict(ended.trailing_metadata())["x-request-id"] == "mine"


@pytest.mark.exhaustive
def test_streams_take_nothing_of_others_and_do_not_idle_for_ever(
    strict: tuple[Server, str, Path], strict_channel: Any
) -> None:
    waiting = threading.Event()

    def requests() -> Iterator[pb.ModelInferRequest]:
        yield quantize()
        waiting.wait(30)

    stream = strict_channel.stream_stream(
        f"/{SERVICE}/ModelStreamInfer",
        pb.ModelInferRequest.SerializeToString,
        pb.ModelStreamInferResponse.FromString,
    )
    opened = [stream(requests(), metadata=BEARER, timeout=60) for _ in range(20)]
    for each in opened:
        assert outputs_of(next(each).infer_response)["y"].tolist() == [3, 5, 0, 127]
    until(lambda: metric(strict[0], "requant_inflight_bytes") == 0)
    infer(strict_channel, quantize(), metadata=BEARER)
    for each in opened:
        with pytest.raises(grpc.RpcError) as end:
            next(each)
        assert end.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
        assert end.value.details() == "no request came in the stream for 2 s"
    waiting.set()


def test_messages_that_do_not_arrive_take_nothing_of_others(
    strict: tuple[Server, str, Path], strict_channel: Any
) -> None:
    """Stated lengths take no memory: a hundred messages of 60 MiB would fill the budget of 300 MiB 20 times."""
    with Http2Client(strict[1]) as slow:
        for stream in range(1, 201, 2):
            began = headers(stream, head_of(INFER, BEARER)) + data(
                stream, b"\0" + (60 << 20).to_bytes(4, "big") + b"\x0a"
            )
            slow.send(began)
        slow.send(frame(FrameType.PING, 0, 0, bytes(8)))
        while not slow.incoming.pings:
            assert slow.read()
        assert try_infer(strict_channel) is grpc.StatusCode.OK
        assert metric(strict[0], "requant_inflight_bytes") < 1000
    until(lambda: metric(strict[0], "requant_inflight_bytes") == 0)


def try_infer(channel: Any) -> grpc.StatusCode:
    try:
        infer(channel, quantize(), metadata=BEARER)
    except grpc.RpcError as error:
        found: grpc.StatusCode = error.code()
        return found
    return grpc.StatusCode.OK


def test_a_call_ends_when_the_client_leaves(strict: tuple[Server, str, Path], strict_channel: Any) -> None:
    """A client that does not wait for its reply: the call is counted as given up, and holds no memory."""
    side = 2000
    inputs = {"A": np.ones((side, side), np.uint8), "B": np.ones((side, side), np.int8)}
    given_up = {"route": INFER, "code": "0"}
    before = metric(strict[0], "requant_requests_total", **given_up)
    request = request_of("onnx.MatMulInteger", inputs, {})

    # The time should be over after the call has begun and before it ends, on a busy machine and on a quick one.
    seconds = cycle((0.01, 0.02, 0.03, 0.05, 0.1, 0.3))

    def is_counted() -> bool:
        multiply = strict_channel.unary_unary(INFER, pb.ModelInferRequest.SerializeToString)
        multiply.future(request, metadata=BEARER, timeout=next(seconds)).exception()
        return metric(strict[0], "requant_requests_total", **given_up) > before

    until(is_counted)
    until(lambda: metric(strict[0], "requant_inflight_bytes") == 0)


@pytest.mark.exhaustive
def test_settings_of_the_port(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        command = [sys.executable, "-m", "requant", "serve", "--port", str(free_port()), "--grpc-port", str(port)]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 3
    assert f"grpc_port: cannot listen on 127.0.0.1:{port}" in done.stderr


@pytest.mark.exhaustive
def test_stop(tmp_path: Path) -> None:
    """At SIGTERM the health says so, calls are served through the drain period, and streams end with it."""
    port = free_port()
    arguments = ("--drain-seconds", "1.5", "--shutdown-seconds", "20", "--grpc-port", str(port))
    with started(tmp_path / "log", *arguments) as (_, process), grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        stub = health_pb2_grpc.HealthStub(channel)
        watched = stub.Watch(health_pb2.HealthCheckRequest(service=SERVICE), timeout=60)
        assert next(watched).status == SERVING
        idle = threading.Event()

        def requests() -> Iterator[pb.ModelInferRequest]:
            yield quantize()
            idle.wait(30)

        stream = channel.stream_stream(
            f"/{SERVICE}/ModelStreamInfer",
            pb.ModelInferRequest.SerializeToString,
            pb.ModelStreamInferResponse.FromString,
        )(requests(), timeout=60)
        next(stream)
        begun = time.monotonic()
        process.terminate()
        assert next(watched).status == NOT_SERVING
        assert not call(channel, "ServerReady", pb.ServerReadyRequest(), pb.ServerReadyResponse).ready
        assert outputs_of(infer(channel, quantize()))["y"].tolist() == [3, 5, 0, 127]
        with pytest.raises(grpc.RpcError) as end:
            next(stream)
        assert (end.value.code(), end.value.details()) == (grpc.StatusCode.UNAVAILABLE, "the service is stopping")
        process.wait(timeout=60)
        idle.set()
        assert 1.4 < time.monotonic() - begun < 8


@pytest.mark.exhaustive
def test_tls_with_a_certificate_that_is_replaced(tmp_path: Path) -> None:
    port, files, others = free_port(), make_certificate(tmp_path / "first"), make_certificate(tmp_path / "second")
    arguments = ["--tls-certificate", str(files.certificate), "--tls-key", str(files.key), "--drain-seconds", "0"]
    arguments += ["--metrics-port", str(free_port())]  # where it is asked whether the service is ready

    def serves(trusted: bytes) -> bool:
        credentials = grpc.ssl_channel_credentials(trusted)
        with grpc.secure_channel(f"localhost:{port}", credentials) as channel:
            ready = channel.unary_unary(f"/{SERVICE}/ServerReady").future(b"", timeout=10)
            return ready.exception() is None

    first, second = files.certificate.read_bytes(), others.certificate.read_bytes()
    with started(tmp_path / "log", *arguments, "--grpc-port", str(port)) as (_, process):
        assert serves(first)
        assert not serves(second)
        others.certificate.replace(files.certificate)
        others.key.replace(files.key)
        process.send_signal(signal.SIGHUP)
        until(lambda: serves(second))
        assert not serves(first)
