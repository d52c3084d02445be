"""NVIDIA's and KServe's gRPC clients, as installed, against the running service."""

from __future__ import annotations

import queue
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np
import pytest

triton_grpc: Any = pytest.importorskip("tritonclient.grpc")
utils: Any = pytest.importorskip("tritonclient.utils")
service_pb2: Any = pytest.importorskip("tritonclient.grpc.service_pb2")
ml_dtypes: Any = pytest.importorskip("ml_dtypes")

from google.protobuf import descriptor_pb2, descriptor_pool  # noqa: E402

from tests.conftest import ROOT, free_port, started  # noqa: E402
from tests.interop.clients.model_cases import CASES, Array, ModelCase, check  # noqa: E402

pytestmark = pytest.mark.clients

TARGET = {"output_type": "!quant.uniform<i8:f32, 0.5:3>", "profile": "onnx"}
PROTO = "requant_service/oip/grpc/inference.proto"


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    port = free_port()
    arguments = ("--drain-seconds", "0", "--grpc-port", str(port), "--shared-memory", "true")
    with started(tmp_path_factory.mktemp("grpc") / "log", *arguments):
        yield f"127.0.0.1:{port}"


@pytest.fixture(scope="module")
def triton(address: str) -> Iterator[Any]:
    with triton_grpc.InferenceServerClient(address) as client:
        yield client


def given(name: str, array: Array) -> Any:
    found = triton_grpc.InferInput(name, list(array.shape), utils.np_to_triton_dtype(array.dtype))
    return found.set_data_from_numpy(array)


def outputs_of(result: Any) -> dict[str, Array]:
    return {output.name: result.as_numpy(output.name) for output in result.get_response().outputs}


def values_of(parameters: Any) -> dict[str, Any]:
    return {name: getattr(each, each.WhichOneof("parameter_choice")) for name, each in parameters.items()}


def described(message: Any, prefix: str = "") -> dict[str, tuple[Any, ...]]:
    """The fields of a message and of those in it: number, type, label, the name of its message, and its oneof."""
    found = {}
    for field in message.field:
        oneof = message.oneof_decl[field.oneof_index].name if field.HasField("oneof_index") else ""
        named = field.type_name.rpartition(".")[2]
        found[f"{prefix}{message.name}.{field.name}"] = field.number, field.type, field.label, named, oneof
    for nested in message.nested_type:
        found |= described(nested, f"{prefix}{message.name}.")
    return found


def file_of(descriptor: Any) -> Any:
    found = descriptor_pb2.FileDescriptorProto()
    descriptor.CopyToProto(found)
    return found


def ours(tmp_path: Path) -> Any:
    """The descriptor of our .proto, in no pool: this process has another of the same package."""
    protoc = pytest.importorskip("grpc_tools.protoc")
    target = tmp_path / "descriptors"
    assert protoc.main(["protoc", f"-I{ROOT / 'service'}", f"--descriptor_set_out={target}", PROTO]) == 0
    return descriptor_pb2.FileDescriptorSet.FromString(target.read_bytes()).file[0]


def test_fields_are_those_of_the_protocol(tmp_path: Path) -> None:
    """Every field that we have is a field of Triton's messages, with the same number and type; so are the methods."""
    own, theirs = ours(tmp_path), file_of(service_pb2.DESCRIPTOR)
    config = file_of(descriptor_pool.Default().FindFileByName("model_config.proto"))
    fields = {name: field for message in own.message_type for name, field in described(message).items()}
    known = {n: f for file in (theirs, config) for message in file.message_type for n, f in described(message).items()}
    assert {name: known.get(name) for name in fields} == fields
    values = {value.name: value.number for value in config.enum_type[0].value}
    assert {value.name: value.number for value in own.enum_type[0].value} == values
    for found, due in zip(own.service[0].method, theirs.service[0].method, strict=True):
        assert (found.name, found.input_type, found.output_type) == (due.name, due.input_type, due.output_type)
        assert (found.client_streaming, found.server_streaming) == (due.client_streaming, due.server_streaming)
    # Those that a client fills or reads for an inference are there to the last field.
    whole = [name for name in known if name.startswith(("ModelInfer", "InferTensor", "InferParam", "ModelMetadata"))]
    assert not [name for name in whole if name not in fields]


def test_server_and_models(triton: Any) -> None:
    assert triton.is_server_live()
    assert triton.is_server_ready()
    assert triton.get_server_metadata().name == "requant"
    index = triton.get_model_repository_index().models
    assert {case.model for case in CASES} <= {entry.name for entry in index}
    for entry in index:
        assert triton.is_model_ready(entry.name, entry.version)
        metadata = triton.get_model_metadata(entry.name, entry.version)
        assert entry.version in metadata.versions
        config = triton.get_model_config(entry.name, entry.version).config
        assert [each.name for each in config.input] == [each.name for each in metadata.inputs]
    assert not triton.is_model_ready("nope")
    assert not triton.is_model_ready("quantize", "2")


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.model)
@pytest.mark.parametrize("coding", [None, "gzip", "deflate"])
@pytest.mark.parametrize("named", [True, False])
def test_every_model(triton: Any, case: ModelCase, coding: str | None, named: bool) -> None:
    result = triton.infer(
        case.model,
        [given(name, array) for name, array in case.inputs.items()],
        model_version="1",
        outputs=[triton_grpc.InferRequestedOutput(name) for name in case.expected] if named else None,
        request_id="id-1",
        parameters=case.parameters,
        compression_algorithm=coding,
    )
    response = result.get_response()
    assert (response.id, response.model_name, response.model_version) == ("id-1", case.model, "1")
    if named:
        check(case, outputs_of(result), values_of(response.parameters))


@pytest.mark.parametrize("dtype", [np.float16, np.float32, ml_dtypes.bfloat16])
def test_every_kind_of_reals(triton: Any, dtype: Any) -> None:
    x = np.array([0.25, 0.75, -1.5], dtype)
    expressed = {np.float16: "f16", np.float32: "f32"}.get(dtype, "bf16")
    text = f"!quant.uniform<i8:{expressed}, 0.5:3>"
    y = triton.infer("quantize", [given("x", x)], parameters={"output_type": text}).as_numpy("y")
    assert y.tolist() == [4, 4, 0]
    back = triton.infer("dequantize", [given("x", y)], parameters={"input_type": text}).as_numpy("y")
    assert back.tolist() == [0.5, 0.5, -1.5]


def test_large_tensors(triton: Any) -> None:
    x = np.random.default_rng(0).normal(size=16 << 20).astype(np.float32)
    result = triton.infer("quantize", [given("x", x)], parameters=TARGET)
    due = np.clip(np.rint(x.astype(np.float64) / 0.5) + 3, -128, 127).astype(np.int8)
    assert np.array_equal(result.as_numpy("y"), due)


def test_asynchronous_calls_and_streams(triton: Any) -> None:
    tensors = [given("x", np.array([index, 2 * index], np.float32)) for index in range(8)]
    due = [[2 * index + 3, 4 * index + 3] for index in range(8)]
    done: queue.SimpleQueue[Any] = queue.SimpleQueue()
    for index, tensor in enumerate(tensors):
        triton.async_infer(
            "quantize", [tensor], lambda **found: done.put(found), request_id=str(index), parameters=TARGET
        )
    found = sorted(
        (each["result"] for each in (done.get(timeout=60) for _ in tensors)), key=lambda r: r.get_response().id
    )
    assert [each.as_numpy("y").tolist() for each in found] == due
    triton.start_stream(lambda **found: done.put(found))
    for tensor in tensors:
        triton.async_stream_infer("quantize", [tensor], parameters=TARGET)
    triton.async_stream_infer("quantize", [tensors[0]], parameters={"output_type": "f"})
    assert [done.get(timeout=60)["result"].as_numpy("y").tolist() for _ in tensors] == due
    assert "a type" in str(done.get(timeout=60)["error"])
    triton.stop_stream()


def test_shared_memory(triton: Any) -> None:
    """One tensor in shared memory and one in the message, both ways; the client counts the outputs in the reply."""
    memory = pytest.importorskip("tritonclient.utils.shared_memory")
    triton.unregister_system_shared_memory()
    triton.unregister_cuda_shared_memory()
    x = np.array([5, -1000, 7], np.int64)
    key = f"/requant-{uuid4().hex}"
    handle = memory.create_shared_memory_region("tensors", key, 4096)
    try:
        memory.set_shared_memory_region(handle, [x])
        triton.register_system_shared_memory("tensors", key, 4096)
        region = triton.get_system_shared_memory_status("tensors").regions["tensors"]
        assert (region.key, region.offset, region.byte_size) == (key, 0, 4096)
        shared = triton_grpc.InferInput("x", [3], "INT64")
        shared.set_shared_memory("tensors", x.nbytes)
        inputs = [shared, given("multiplier", np.array([1 << 30])), given("shift", np.array([0], np.int32))]
        outputs = [triton_grpc.InferRequestedOutput(name) for name in ("y", "shift")]
        outputs[0].set_shared_memory("tensors", 100, 1024)
        parameters = {"output_type": "i8", "scheme": "litert"}
        result = triton.infer("requantize", inputs, outputs=outputs, parameters=parameters)
        assert result.get_output("y").parameters["shared_memory_byte_size"].int64_param == 3
        assert result.as_numpy("shift").tolist() == [0]
        assert memory.get_contents_as_numpy(handle, np.int8, [3], 1024).tolist() == [3, -128, 4]
        triton.unregister_system_shared_memory("tensors")
        assert not triton.get_system_shared_memory_status().regions
    finally:
        memory.destroy_shared_memory_region(handle)


def test_errors(triton: Any) -> None:
    tensor = given("x", np.zeros(2, np.float32))
    for ask, status, text in (
        (lambda: triton.infer("nope", [tensor]), "NOT_FOUND", "no model is named 'nope'"),
        (lambda: triton.infer("quantize", [tensor], parameters={"nope": 1}), "INVALID_ARGUMENT", "parameter nope"),
        (triton.get_inference_statistics, "UNIMPLEMENTED", "metrics"),
        (lambda: triton.load_model("quantize"), "UNIMPLEMENTED", "neither loaded nor unloaded"),
        (lambda: triton.get_system_shared_memory_status("nope"), "NOT_FOUND", "no shared memory region"),
        (lambda: triton.get_cuda_shared_memory_status("nope"), "INVALID_ARGUMENT", "CUDA shared memory is not"),
        (triton.get_trace_settings, "UNIMPLEMENTED", "traces"),
        (triton.get_log_settings, "UNIMPLEMENTED", "logs"),
    ):
        with pytest.raises(utils.InferenceServerException, match=text) as caught:
            ask()
        assert status in caught.value.status(), text


def test_kserve(address: str) -> None:
    """Its messages have the names of Triton's, and a process takes either: so its client runs in one of its own."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.interop.clients.kserve_grpc", address],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
