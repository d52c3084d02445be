"""ONNX models with quantized weights: onnxruntime's quantizer and ours write the same, and both models run alike."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper
from onnxruntime import GraphOptimizationLevel, InferenceSession, SessionOptions
from onnxruntime.capi._pybind_state import quantize_matmul_4bits, quantize_matmul_8bits, quantize_qdq_matmul_4bits
from onnxruntime.quantization.matmul_nbits_quantizer import MatMulNBitsQuantizer, QuantFormat

from requant.checkpoint.onnx.block_quantization import (
    BLOCK_SIZES,
    FORM_NAMES,
    DequantizeLinearRange,
    MatMulNBitsColumns,
    Operator,
    WeightForm,
    form_named,
    quantize_columns,
)
from requant.checkpoint.onnx.plan import plan_onnx
from requant.checkpoint.onnx.quantize import quantize_onnx
from requant.checkpoint.storage.local import LocalStore
from tests.interop.conformance import systems
from tests.interop.conformance.records import record
from tests.interop.conformance.subject import checkpoint

Array = NDArray[Any]

pytestmark = pytest.mark.interop

# onnxruntime leaves a nibble of 4-bit codes undefined where K is odd, so W3 is kept from it by its name.
ODD = "odd"


def weights(k: int, n: int, seed: int) -> Array:
    """Random values, ties, and zeros of both signs."""
    random = np.random.default_rng(seed)
    values = random.standard_normal((k, n)) * 0.05
    values[:, : n // 3] = random.integers(-15, 16, (k, n // 3)) / 64
    values[: k // 2, 0] = 0
    values[k // 4 : k // 3, 0] = -0.0
    return values


def chain(type_: int, opset: int = 21) -> onnx.ModelProto:
    """Four products, one of them with an odd K and one of them without a name."""
    sizes = [96, 40, 33, 64, 17]
    made = {f"W{i}": weights(sizes[i - 1], sizes[i], i) for i in range(1, 5)} | {
        "b": np.ones(33),
        "big": np.ones((1, 400)),
    }
    dtype = helper.tensor_dtype_to_np_dtype(type_)
    nodes = [
        helper.make_node("MatMul", ["x", "W1"], ["p1"], name="first"),
        helper.make_node("Sub", ["p1", "s"], ["p1s"], name="sub"),
        helper.make_node("MatMul", ["p1s", "W2"], ["p2"], name="second"),
        helper.make_node("Add", ["p2", "b"], ["p2b"], name="add"),
        helper.make_node("MatMul", ["p2b", "W3"], ["p3"], name=ODD),
        helper.make_node("MatMul", ["p3", "W4"], ["y"]),
        helper.make_node("ReduceSum", ["big", "axes"], ["s"], name="sum", keepdims=0),
    ]
    nodes.insert(0, nodes.pop())
    graph = helper.make_graph(
        nodes,
        "chain",
        [helper.make_tensor_value_info("x", type_, ["n", 96])],
        [helper.make_tensor_value_info("y", type_, ["n", 17])],
        [
            *(numpy_helper.from_array(values.astype(dtype), name) for name, values in made.items()),
            numpy_helper.from_array(np.array([0, 1]), "axes"),
        ],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)


def run(model: Path | bytes, inputs: dict[str, Array], *, optimized: bool = True) -> Array:
    options = SessionOptions()
    options.log_severity_level = 4
    if not optimized:
        options.graph_optimization_level = GraphOptimizationLevel.ORT_DISABLE_ALL
    found: Array = InferenceSession(str(model) if isinstance(model, Path) else model, options).run(None, inputs)[0]
    return found


def data_of(tensor: TensorProto) -> bytes:
    return bytes(tensor.raw_data or np.array(tensor.int32_data, np.uint8).tobytes())


def quantized_by_onnxruntime(model: onnx.ModelProto, form: WeightForm) -> onnx.ModelProto:
    packs_two = form.operator is Operator.MATMUL_NBITS and form.bits == 4
    quantizer = MatMulNBitsQuantizer(
        model,
        bits=form.bits,
        block_size=form.block_size,
        is_symmetric=form.symmetric,
        quant_format=QuantFormat.QOperator if form.operator is Operator.MATMUL_NBITS else QuantFormat.QDQ,
        nodes_to_exclude=[ODD] if packs_two else [],
        op_types_to_quantize=("MatMul",),
    )
    quantizer.process()
    return quantizer.model.model


@pytest.mark.parametrize("external", [True, False])
@pytest.mark.parametrize("block_size", [16, 32, 128])
@pytest.mark.parametrize("symmetric", [True, False])
@pytest.mark.parametrize("scheme", FORM_NAMES)
@pytest.mark.parametrize("type_", [TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.BFLOAT16])
def test_models_equal_those_of_its_quantizer(
    type_: int, scheme: str, symmetric: bool, block_size: int, external: bool, tmp_path: Path
) -> None:
    form = form_named(scheme, block_size=block_size, symmetric=symmetric)
    onnx.save_model(
        chain(type_), tmp_path / "m.onnx", save_as_external_data=external, location="m.bin", size_threshold=100
    )
    store = LocalStore(tmp_path)
    quantize_onnx(store, "m.onnx", store, "q.onnx", form)
    onnx.checker.check_model(str(tmp_path / "q.onnx"))
    ours, theirs = onnx.load(tmp_path / "q.onnx"), quantized_by_onnxruntime(chain(type_), form)
    found, expected = ({each.name: each for each in model.graph.initializer} for model in (ours, theirs))
    assert found.keys() == expected.keys()
    for name, tensor in found.items():
        assert (tensor.data_type, tensor.dims) == (expected[name].data_type, expected[name].dims)
        assert data_of(tensor) == data_of(expected[name]), name
    assert list(ours.graph.node) == list(theirs.graph.node)
    assert list(ours.opset_import) == list(theirs.opset_import)
    if type_ != TensorProto.BFLOAT16:
        dtype = helper.tensor_dtype_to_np_dtype(type_)
        inputs = {"x": np.random.default_rng(0).standard_normal((3, 96)).astype(dtype)}
        results = run(tmp_path / "q.onnx", inputs), run(theirs.SerializeToString(), inputs)
        assert np.isfinite(results[0]).all()
        assert np.array_equal(*results)


def packed_by_onnxruntime(values: Array, form: WeightForm) -> list[bytes]:
    """Its C++ kernels, below the quantizer in Python."""
    k, n = values.shape
    blocks = form.blocks(k)
    if form.operator is Operator.DEQUANTIZE_LINEAR:
        codes, zero_points = (np.zeros(-(-count // 2), np.uint8) for count in (k * n, blocks * n))
        scales = np.zeros((blocks, n), values.dtype)
        quantize_qdq_matmul_4bits(codes, values, scales, zero_points, form.block_size, n, k, form.symmetric)
    else:
        padded = np.pad(values, ((0, blocks * form.block_size - k), (0, 0)))
        codes = np.zeros((n, blocks, form.block_size * form.bits // 8), np.uint8)
        zero_points = np.zeros((n, -(-blocks * form.bits // 8)), np.uint8)
        scales = np.zeros((n, blocks), values.dtype)
        kernel = quantize_matmul_4bits if form.bits == 4 else quantize_matmul_8bits
        kernel(codes, padded, scales, zero_points, form.block_size, n, k, form.symmetric)
    return [codes.tobytes(), scales.tobytes(), b"" if form.symmetric else zero_points.tobytes()]


@pytest.mark.parametrize("block_size", BLOCK_SIZES)
@pytest.mark.parametrize("symmetric", [True, False])
@pytest.mark.parametrize("scheme", FORM_NAMES)
@pytest.mark.parametrize("dtype", ["F32", "F16"])
def test_weights_equal_those_of_its_kernels(dtype: str, scheme: str, symmetric: bool, block_size: int) -> None:
    """Shapes that are no multiples of the block, one column, and the smallest values of f16."""
    form = form_named(scheme, block_size=block_size, symmetric=symmetric)
    array = np.dtype({"F32": "<f4", "F16": "<f2"}[dtype])
    random = np.random.default_rng(block_size)
    cases = [weights(k, n, 100 * k + n) for k, n in ((64, 24), (96, 13), (82, 7), (256, 10), (48, 1), (16, 5), (2, 3))]
    cases += [random.integers(-span, span + 1, (64, 40)) * 2.0**-24 for span in (1, 2, 7, 16, 300)]
    cases += [np.resize(np.array([0.0, -0.0, -0.0]), (k, 4)) for k in (16, 24, 32)]
    compared = 0
    for case in cases:
        values = np.ascontiguousarray(case.astype(array))
        k, n = values.shape
        packed: MatMulNBitsColumns | DequantizeLinearRange
        if form.operator is Operator.MATMUL_NBITS:
            packed = MatMulNBitsColumns(k, n, dtype, form)
        else:
            packed = DequantizeLinearRange(k, n, dtype, form, transposed=False)
        packed.put(quantize_columns(values.astype("<f4"), dtype, form), 0, 0)
        found = [packed.codes, packed.scales] + ([] if symmetric else [packed.zero_points])
        assert [each.tobytes() for each in found] == [each for each in packed_by_onnxruntime(values, form) if each]
        compared += values.size
    record(systems.ONNXRUNTIME, [checkpoint(scheme, "quantize", "onnxruntime")], compared)
    print(f"onnxruntime {scheme}: {compared:,} elements compared")  # noqa: T201


def gemm(transposed: bool, **attributes: Any) -> onnx.ModelProto:
    shape = (20, 64) if transposed else (64, 20)
    initializers = [numpy_helper.from_array(weights(64, 20, 5).astype("f4").reshape(shape), "w")]
    initializers.append(numpy_helper.from_array(np.linspace(-1, 1, 20).astype("f4"), "c"))
    then = helper.make_graph(
        [helper.make_node("MatMul", ["h", "w2"], ["t"], name="inner")],
        "then",
        [],
        [helper.make_tensor_value_info("t", 1, ["n", 16])],
        [numpy_helper.from_array(weights(20, 16, 6).astype("f4"), "w2")],
    )
    other = helper.make_graph(
        [helper.make_node("MatMul", ["h", "w3"], ["e"], name="other")],
        "else",
        [],
        [helper.make_tensor_value_info("e", 1, ["n", 16])],
    )
    initializers.append(numpy_helper.from_array(weights(20, 16, 7).astype("f4"), "w3"))
    graph = helper.make_graph(
        [
            helper.make_node("Gemm", ["x", "w", "c"], ["h"], name="gemm", transB=int(transposed), **attributes),
            helper.make_node("If", ["flag"], ["z"], then_branch=then, else_branch=other),
            helper.make_node("MatMul", ["h", "w3"], ["again"], name="again"),
            helper.make_node("Add", ["z", "again"], ["y"]),
        ],
        "g",
        [helper.make_tensor_value_info("x", 1, ["n", 64]), helper.make_tensor_value_info("flag", 9, [])],
        [helper.make_tensor_value_info("y", 1, ["n", 16])],
        initializers,
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def dequantized(model: onnx.ModelProto, form: WeightForm) -> onnx.ModelProto:
    """The model with the values that its quantized weights mean, in f32."""
    node = model.graph.node[0]
    transposed = any(attribute.name == "transB" and attribute.i for attribute in node.attribute)
    for graph in (model.graph, *(attribute.g for attribute in model.graph.node[1].attribute)):
        for tensor in graph.initializer:
            if tensor.name.startswith("w"):
                stored = numpy_helper.to_array(tensor)
                turned = transposed and tensor.name == "w"
                values = meant(np.ascontiguousarray(stored.T if turned else stored), form)
                tensor.CopyFrom(
                    numpy_helper.from_array(np.ascontiguousarray(values.T if turned else values), tensor.name)
                )
    return model


def meant(values: Array, form: WeightForm) -> Array:
    """What the codes of a weight [K, N] mean."""
    blocks = quantize_columns(values, "F32", form)
    both = (blocks.zero_points, blocks.scales)
    zero_points, scales = (np.repeat(each.astype("f4"), form.block_size, axis=0)[: len(values)] for each in both)
    found: Array = (blocks.codes.astype("f4") - zero_points) * scales
    return found


@pytest.mark.parametrize("attributes", [{}, {"alpha": 0.5, "beta": 2.0}])
@pytest.mark.parametrize("symmetric", [True, False])
@pytest.mark.parametrize("transposed", [True, False])
@pytest.mark.parametrize("scheme", FORM_NAMES)
def test_gemm_subgraphs_and_shared_weights_run(
    scheme: str, transposed: bool, symmetric: bool, attributes: dict[str, float], tmp_path: Path
) -> None:
    """What onnxruntime's quantizer does not rewrite, or writes twice: the result is that of the weights' values."""
    model = gemm(transposed, **attributes)
    onnx.save_model(model, tmp_path / "m.onnx")
    store = LocalStore(tmp_path)
    form = form_named(scheme, block_size=16, symmetric=symmetric)
    quantize_onnx(store, "m.onnx", store, "q.onnx", form)
    plan = plan_onnx(store, "m.onnx", "q.onnx", form)
    onnx.checker.check_model(str(tmp_path / "q.onnx"))
    kept = {each.node for each in plan.nodes if each.skip_reason}
    assert kept == ({"gemm"} if attributes and scheme != "DequantizeLinear4" else set())
    expected = gemm(transposed, **attributes)
    original = numpy_helper.to_array(expected.graph.initializer[0])
    dequantized(expected, form)
    if kept:
        expected.graph.initializer[0].CopyFrom(numpy_helper.from_array(original, "w"))
    for flag in (True, False):
        inputs = {"x": np.random.default_rng(1).standard_normal((5, 64)).astype("f4"), "flag": np.array(flag)}
        reference = run(expected.SerializeToString(), inputs)
        assert np.allclose(run(tmp_path / "q.onnx", inputs, optimized=False), reference, rtol=1e-4, atol=1e-5)
        # Optimized, the products after DequantizeLinear take activations of 8 bits.
        assert np.abs(run(tmp_path / "q.onnx", inputs) - reference).max() < 0.03 * np.abs(reference).max()
