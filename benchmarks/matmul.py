"""Integer products in one thread: ours with every step of the output stage, beside onnxruntime's operators and numpy.

onnxruntime's bits are compared with ours before anything is timed. `python -m benchmarks.matmul` prints the table;
without onnxruntime its columns are empty.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.measure import Contender, compare
from benchmarks.section import Section, table
from requant.integer.conv2d import Layout, WeightsLayout, Window, conv2d_integers
from requant.integer.matmul import matmul_integers, plan_matmul
from requant.kernels.jit.warmup import compile_kernels
from requant.mlir import parse_type
from requant.mlir.types import TensorType

Array = NDArray[Any]
Run = Callable[[], Array]

_SIZE = 1024
_NUMPY_TYPES = {"i8": np.dtype(np.int8), "u8": np.dtype(np.uint8)}


def _tensor(text: str) -> TensorType:
    parsed = parse_type(text)
    assert isinstance(parsed, TensorType)
    return parsed


def _in_onnxruntime(operator: str, inputs: dict[str, Array], output: np.dtype[Any], **attributes: Any) -> Run:
    """One node in one thread. All inputs but the first are constants, which onnxruntime packs once."""
    onnx, ort = import_module("onnx"), import_module("onnxruntime")
    helper = onnx.helper
    first, *others = inputs
    kind = helper.np_dtype_to_tensor_dtype
    free = helper.make_tensor_value_info(first, kind(inputs[first].dtype), list(inputs[first].shape))
    result = helper.make_tensor_value_info("y", kind(output), None)
    constants = [onnx.numpy_helper.from_array(inputs[name], name) for name in others]
    node = helper.make_node(operator, list(inputs), ["y"], **attributes)
    graph = helper.make_graph([node], operator, [free], [result], constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    session = ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return lambda: np.asarray(session.run(None, {first: inputs[first]})[0])


def _requantized(storage: str) -> tuple[Run, Run | None, Run]:
    """[1024, 1024] by [1024, 1024] to 8 bits, with a scale for each column: ours, onnxruntime, numpy."""
    rng = np.random.default_rng(1)
    dtype = _NUMPY_TYPES[storage]
    limits = np.iinfo(dtype)
    a = rng.integers(limits.min, limits.max + 1, (_SIZE, _SIZE)).astype(dtype)
    b = rng.integers(-127, 128, (_SIZE, _SIZE)).astype(np.int8)
    scales = rng.uniform(0.002, 0.02, _SIZE).astype(np.float32)
    zero_a, zero_y, scale_y = (0, 3, np.float32(2.0)) if storage == "i8" else (128, 130, np.float32(2.0))
    columns = ", ".join(f"{scale!r}" for scale in scales.tolist())
    plan = plan_matmul(
        _tensor(f"tensor<{_SIZE}x{_SIZE}x!quant.uniform<{storage}:f32, 0.5:{zero_a}>>"),
        _tensor(f"tensor<{_SIZE}x{_SIZE}x!quant.uniform<i8:f32:1, {{{columns}}}>>"),
        parse_type(f"!quant.uniform<{storage}:f32, {float(scale_y)}:{zero_y}>"),
        "onnx",
    )
    target = np.empty(plan.elements, dtype)

    def ours() -> Array:
        plan.run(a.ravel(), b.ravel(), None, target)
        return target.reshape(_SIZE, _SIZE)

    factors = np.float32(0.5) * scales / scale_y

    def numpy() -> Array:
        # Sums of 1024 products of 8 bits are exact in f32.
        sums = (a.astype(np.float32) - np.float32(zero_a)) @ b.astype(np.float32)
        stored: Array = np.clip(np.rint(sums * factors) + zero_y, limits.min, limits.max).astype(dtype)
        return stored

    inputs: dict[str, Array] = {
        "a": a, "as": np.array(0.5, np.float32), "az": np.array(zero_a, dtype),
        "b": b, "bs": scales, "bz": np.zeros(_SIZE, np.int8),
        "ys": np.array(scale_y), "yz": np.array(zero_y, dtype),
    }  # fmt: skip
    theirs = _in_onnxruntime("QLinearMatMul", inputs, dtype) if find_spec("onnxruntime") else None
    return ours, theirs, numpy


def _sums(storage: str) -> tuple[Run, Run | None, Run]:
    """MatMulInteger: the same product to int32."""
    rng = np.random.default_rng(2)
    dtype = _NUMPY_TYPES[storage]
    limits = np.iinfo(dtype)
    a = rng.integers(limits.min, limits.max + 1, (_SIZE, _SIZE)).astype(dtype)
    b = rng.integers(-127, 128, (_SIZE, _SIZE)).astype(np.int8)
    inputs = {"a": a, "b": b}
    theirs = _in_onnxruntime("MatMulInteger", inputs, np.dtype(np.int32)) if find_spec("onnxruntime") else None

    def numpy() -> Array:
        found: Array = (a.astype(np.float32) @ b.astype(np.float32)).astype(np.int32)
        return found

    return partial(matmul_integers, a, b), theirs, numpy


def _convolution() -> tuple[Run, Run | None, None]:
    """ConvInteger: 64 channels of 56 by 56 to 64, a window of 3 by 3, NCHW."""
    rng = np.random.default_rng(3)
    x = rng.integers(0, 256, (1, 64, 56, 56)).astype(np.uint8)
    w = rng.integers(-127, 128, (64, 64, 3, 3)).astype(np.int8)
    window = Window(layout=Layout.NCHW, weights_layout=WeightsLayout.OIHW, pads=(1, 1, 1, 1))
    zero = np.array(7, np.uint8)
    inputs = {"x": x, "w": w, "xz": zero}
    theirs = None
    if find_spec("onnxruntime"):
        theirs = _in_onnxruntime("ConvInteger", inputs, np.dtype(np.int32), pads=[1, 1, 1, 1])
    return lambda: conv2d_integers(x, w, 7, window=window), theirs, None


def matmul_rows() -> list[list[str]]:
    """Return a row for each product."""
    compile_kernels()
    products = _SIZE**3
    cases: list[tuple[str, int, tuple[Run, Run | None, Run | None]]] = [
        ("1024 x 1024 x 1024, i8 by i8 to i8, a scale for each column", products, _requantized("i8")),
        ("the same, u8 by i8 to u8", products, _requantized("u8")),
        ("1024 x 1024 x 1024, i8 by i8 to i32", products, _sums("i8")),
        ("the same, u8 by i8", products, _sums("u8")),
        ("conv 3 x 3, 64 channels of 56 x 56, u8 by i8 to i32, NCHW", 64 * 64 * 9 * 56 * 56, _convolution()),
    ]
    rows = []
    for name, count, (ours, theirs, numpy) in cases:
        contenders: dict[str, Contender] = {"ours": ours}
        for other, run in (("onnxruntime", theirs), ("numpy", numpy)):
            if run is None:
                continue
            if run().tobytes() != np.ascontiguousarray(ours()).tobytes():
                raise AssertionError(f"{name}: the bits of {other} differ from ours")
            contenders[other] = run
        # numpy uses all CPUs, so the clock decides.
        times = compare(contenders, rounds=15, threads=2).seconds
        ratios = [
            f"{times[other] / times['ours']:.2f}x" if other in times else "" for other in ("onnxruntime", "numpy")
        ]
        rows.append([name, f"{times['ours'] * 1e3:.2f}", f"{count / times['ours'] / 1e9:.0f}", *ratios])
    return rows


def matmul() -> Section:
    """Return the section."""
    header = [
        "product",
        "ms",
        "billion products a second",
        "faster than onnxruntime",
        "faster than numpy (f32 BLAS, all threads)",
    ]
    rows = matmul_rows()
    data = [dict(zip(header, row, strict=True)) for row in rows]
    return Section("Integer products, one thread", table(header, rows), data)


if __name__ == "__main__":
    print(matmul().markdown)
