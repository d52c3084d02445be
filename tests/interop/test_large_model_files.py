"""Models beyond protobuf's 2 GiB, and memory that does not grow with them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import gguf
import numpy as np
import pytest
from onnx import TensorProto, helper
from onnxruntime import InferenceSession, SessionOptions

pytestmark = pytest.mark.interop

ROOT = Path(__file__).parents[2]
MAX_MIB = 256
ONNX = """
from requant.checkpoint.onnx.quantize import quantize_onnx
from requant.checkpoint.onnx.block_quantization import form_named
quantize_onnx(store, "m.onnx", store, "q.onnx", form_named("{scheme}", block_size=32), threads=2)
"""
GGUF = """
from requant.checkpoint.gguf.quantize import quantize_gguf
quantize_gguf(store, "m.gguf", store, "q.gguf", "{type_}", threads=2, pure=True)
"""


def peak_mib(directory: Path, code: str) -> int:
    """Run a conversion in a process of its own, and return the most memory that it had."""
    program = f"""
import os
from requant.checkpoint.storage.local import LocalStore
from tests.support.process_memory import peak_kib
store = LocalStore({str(directory)!r})
{code}
print(peak_kib(os.getpid()) // 1024)
"""
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, check=True, capture_output=True, text=True)
    return int(done.stdout)


@pytest.mark.parametrize("scheme", ["MatMulNBits4", "DequantizeLinear4"])
def test_an_onnx_model_of_more_than_2_gib(scheme: str, tmp_path: Path) -> None:
    k, n = 16384, 36864
    with (tmp_path / "m.data").open("wb") as data:
        data.truncate(4 * k * n)
        # All but the last column is zeros, which take no space.
        for row in range(0, k, 64):
            data.seek(4 * (row * n + n - 1))
            data.write(np.float32(row / 64 % 5 - 2).tobytes())
    weight = TensorProto(name="w", data_type=1, dims=(k, n), data_location=TensorProto.EXTERNAL)
    weight.external_data.add(key="location", value="m.data")
    node = helper.make_node("MatMul", ["x", "w"], ["y"], name="product")
    inputs, outputs = (helper.make_tensor_value_info(name, 1, ["n", size]) for name, size in (("x", k), ("y", n)))
    graph = helper.make_graph([node], "g", [inputs], [outputs], [weight])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    (tmp_path / "m.onnx").write_bytes(model.SerializeToString())
    memory = peak_mib(tmp_path, ONNX.format(scheme=scheme))
    assert memory < MAX_MIB
    print(f"ONNX of {4 * k * n / 2**30:.1f} GiB to {scheme}: {memory} MiB")  # noqa: T201
    (tmp_path / "m.data").unlink()
    options = SessionOptions()
    options.log_severity_level = 4
    session = InferenceSession(str(tmp_path / "q.onnx"), options)
    ones = np.ones((1, k), np.float32)
    found = session.run(None, {"x": ones})[0]
    assert not found[0, :-1].any()
    assert found[0, -1] == pytest.approx(sum(row % 5 - 2 for row in range(k // 64)), abs=0.5)


@pytest.mark.parametrize(
    ("scheme", "type_"),
    [("Q8_0", "Q8_0"), ("MXFP4", "MXFP4"), ("F32", "F32"), ("Q4_K_S", "Q4_K"), ("IQ4_XS", "IQ4_XS")],
)
def test_a_gguf_file_of_a_gibibyte(scheme: str, type_: str, tmp_path: Path) -> None:
    writer = gguf.GGUFWriter(str(tmp_path / "m.gguf"), "llama")
    rows, row = 65536, 8192
    writer.add_tensor_info("blk.0.ffn_up.weight", [rows, row], np.dtype(np.float16), rows * row * 2)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    writer.close()
    with (tmp_path / "m.gguf").open("r+b") as file:
        size = len(file.read())
        file.truncate(-(-size // 32) * 32 + rows * row * 2)
    memory = peak_mib(tmp_path, GGUF.format(type_=scheme))
    assert memory < MAX_MIB
    print(f"GGUF of 1 GiB to {scheme}: {memory} MiB")  # noqa: T201
    assert gguf.GGUFReader(tmp_path / "q.gguf").tensors[0].tensor_type.name == type_
    (tmp_path / "q.gguf").unlink()
