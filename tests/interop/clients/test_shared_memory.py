"""tritonclient's utilities for system shared memory, as installed, against the running service."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any
from uuid import uuid4

import numpy as np
import pytest

http: Any = pytest.importorskip("tritonclient.http")
utils: Any = pytest.importorskip("tritonclient.utils")
memory: Any = pytest.importorskip("tritonclient.utils.shared_memory")

from tests.conftest import ROOT, started  # noqa: E402
from tests.interop.clients.model_cases import CASES, Array, ModelCase, check  # noqa: E402

pytestmark = pytest.mark.clients

SIZE = 1 << 16


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    log = tmp_path_factory.mktemp("shared") / "log"
    with started(log, "--shared-memory", "true", "--drain-seconds", "0") as (server, _):
        yield f"127.0.0.1:{server.port}"


@pytest.fixture(scope="module")
def triton(address: str) -> Iterator[Any]:
    with http.InferenceServerClient(address, network_timeout=120) as client:
        yield client


@pytest.fixture
def regions(triton: Any) -> Iterator[tuple[Any, Any]]:
    """An object for inputs and one for outputs, registered as `input_data` and `output_data`.

    It begins as Triton's examples do.
    """
    triton.unregister_system_shared_memory()
    triton.unregister_cuda_shared_memory()
    made = []
    for name in ("input_data", "output_data"):
        key = f"/requant-{uuid4().hex}"
        made.append(memory.create_shared_memory_region(name, key, SIZE))
        triton.register_system_shared_memory(name, key, SIZE)
    yield made[0], made[1]
    triton.unregister_system_shared_memory("input_data")
    triton.unregister_system_shared_memory("output_data")
    assert triton.get_system_shared_memory_status() == []
    for each in made:
        memory.destroy_shared_memory_region(each)


def input_at(name: str, array: Array, offset: int) -> Any:
    found = http.InferInput(name, list(array.shape), utils.np_to_triton_dtype(array.dtype))
    found.set_shared_memory("input_data", array.nbytes, offset)
    return found


@pytest.mark.parametrize("case", [case for case in CASES if case.expected], ids=lambda case: case.model)
@pytest.mark.parametrize("coding", [None, "gzip"])
def test_every_model(triton: Any, regions: tuple[Any, Any], case: ModelCase, coding: str | None) -> None:
    inputs, outputs, at = [], [], 0
    # The utility does not take arrays without dimensions.
    memory.set_shared_memory_region(regions[0], [array.reshape(-1) for array in case.inputs.values()])
    for name, array in case.inputs.items():
        inputs.append(input_at(name, array, at))
        at += array.nbytes
    room = SIZE // len(case.expected) // 64 * 64
    for index, name in enumerate(case.expected):
        output = http.InferRequestedOutput(name)
        output.set_shared_memory("output_data", room, index * room)
        outputs.append(output)
    for _ in range(2):
        result = triton.infer(
            case.model, inputs, outputs=outputs, parameters=case.parameters, request_compression_algorithm=coding
        )
        found = {}
        for index, name in enumerate(case.expected):
            output = result.get_output(name)
            dtype = utils.triton_to_np_dtype(output["datatype"])
            found[name] = memory.get_contents_as_numpy(regions[1], dtype, output["shape"], index * room).copy()
        check(case, found, result.get_response()["parameters"])


def test_a_large_tensor_back_and_forth(triton: Any) -> None:
    """As simple_http_shm_client.py of Triton goes about it."""
    x = np.linspace(-60, 60, 3 << 20, dtype=np.float32)
    key = f"/requant-{uuid4().hex}"
    text, parameters = "!quant.uniform<i8:f32, 0.5:3>", {"profile": "onnx"}
    handle = memory.create_shared_memory_region("all", key, 2 * x.nbytes + x.size)
    try:
        memory.set_shared_memory_region(handle, [x])
        triton.register_system_shared_memory("all", key, 2 * x.nbytes + x.size)
        (status,) = triton.get_system_shared_memory_status("all")
        assert status == {"name": "all", "key": key, "offset": 0, "byte_size": 2 * x.nbytes + x.size}
        given = http.InferInput("x", [x.size], "FP32").set_shared_memory("all", x.nbytes)
        output = http.InferRequestedOutput("y", binary_data=True)
        output.set_shared_memory("all", x.size, x.nbytes)
        result = triton.infer("quantize", [given], outputs=[output], parameters=parameters | {"output_type": text})
        assert result.get_output("y")["shape"] == [x.size]
        stored = http.InferInput("x", [x.size], "INT8").set_shared_memory("all", x.size, x.nbytes)
        output = http.InferRequestedOutput("y")
        output.set_shared_memory("all", x.nbytes, x.nbytes + x.size)
        triton.infer("dequantize", [stored], outputs=[output], parameters=parameters | {"input_type": text})
        back = memory.get_contents_as_numpy(handle, np.float32, [x.size], x.nbytes + x.size)
        np.testing.assert_array_equal(back, np.rint(x * 2) / 2)
        del back
        triton.unregister_system_shared_memory("all")
        with pytest.raises(utils.InferenceServerException, match="no shared memory region of the name 'all'"):
            triton.infer("quantize", [given], parameters={"output_type": text})
    finally:
        memory.destroy_shared_memory_region(handle)


def test_the_script_of_the_page_prints_what_stands_under_it(address: str) -> None:
    page = (ROOT / "docs" / "open_inference_protocol.md").read_text().partition("## System shared memory")[2]
    found = re.search(r"```python\n([^`]*)```\n+```\n(.*?)```", page, re.DOTALL)
    assert found is not None
    script = found[1].replace("127.0.0.1:8080", address).replace("/tensors", f"/requant-{uuid4().hex}")
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stdout) == (0, found[2]), done.stderr


def test_the_example(triton: Any, address: str) -> None:
    """What the containers of deploy/examples/shared-memory run."""
    example = ROOT / "deploy" / "examples" / "shared-memory" / "client.py"
    done = subprocess.run([sys.executable, example, address], capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stdout) == (0, "[-117 -117 -117] [123 123 123] 16777216\n"), done.stderr
    assert triton.get_system_shared_memory_status() == []


def test_errors(triton: Any) -> None:
    refused: list[tuple[Callable[[], Any], str]] = [
        (lambda: triton.register_system_shared_memory("a", "/requant-no-such-object", 1), "no such object"),
        (lambda: triton.register_system_shared_memory("a", "../etc/passwd", 1), "a key is the name of an object"),
        (lambda: triton.get_system_shared_memory_status("a"), "no shared memory region of the name 'a'"),
        (lambda: triton.unregister_system_shared_memory("a"), "no shared memory region of the name 'a'"),
        (lambda: triton.register_cuda_shared_memory("a", b"", 0, 1), "CUDA shared memory is not supported"),
    ]
    for call, says in refused:
        with pytest.raises(utils.InferenceServerException, match=says):
            call()
    assert triton.get_cuda_shared_memory_status() == []
