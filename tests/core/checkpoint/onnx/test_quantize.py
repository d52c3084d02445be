"""ONNX models quantized as a whole: which nodes, which names, what stays, when the files are there."""

from __future__ import annotations

import errno
import os
from contextlib import ExitStack
from pathlib import Path
from threading import Event, Thread
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from onnx import GraphProto, ModelProto, NodeProto

from requant.checkpoint.onnx.block_quantization import (
    FORM_NAMES,
    DequantizeLinearRange,
    MatMulNBitsColumns,
    Operator,
    form_named,
    quantize_columns,
)
from requant.checkpoint.onnx.plan import plan_onnx
from requant.checkpoint.onnx.quantize import quantize_onnx
from requant.checkpoint.run.work import Progress
from requant.checkpoint.storage.local import LocalStore
from requant.checkpoint.storage.local_writer import LocalWriter
from requant.checkpoint.storage.store import FileWriter
from requant.errors import CheckpointError, DestinationError, ParameterError, StorageError
from tests.support import onnx_models as models
from tests.support.cpu_time import within_cpu_seconds

Array = NDArray[Any]

RANDOM = np.random.default_rng(3)


def weight(*shape: int, dtype: str = "<f4") -> Array:
    return RANDOM.standard_normal(shape).astype(dtype)


def quantize(directory: Path, made: ModelProto, scheme: str = "MatMulNBits4", **options: Any) -> ModelProto:
    models.save(made, directory / "m.onnx")
    store = LocalStore(directory)
    quantize_onnx(store, "m.onnx", store, "q.onnx", form_named(scheme, block_size=16), **options)
    return models.load(directory / "q.onnx")


def single(operator: str = "MatMul", shape: tuple[int, int] = (64, 20), **attributes: Any) -> ModelProto:
    inputs = ["x", "w", "c"] if operator == "Gemm" else ["x", "w"]
    initializers = [models.tensor("w", weight(*shape)), models.tensor("c", weight(20))]
    return models.model(
        [models.node(operator, inputs, ["y"], "product", **attributes)],
        initializers[: len(inputs) - 1],
        [models.value("x", "n", 64)],
        [models.value("y", "n", 20)],
    )


def names(made: ModelProto) -> list[str]:
    return [each.name for each in made.graph.initializer]


def described(each: NodeProto) -> tuple[str, str, list[str], list[str]]:
    return each.op_type, each.name, list(each.input), list(each.output)


def test_matmul_becomes_matmul_nbits(tmp_path: Path) -> None:
    found = quantize(tmp_path, single())
    assert described(found.graph.node[0]) == (
        "MatMulNBits",
        "product_Q4",
        ["x", "w_Q4", "w_scales", "w_zero_points"],
        ["y"],
    )
    attributes = {each.name: each.i for each in found.graph.node[0].attribute}
    assert attributes == {"K": 64, "N": 20, "bits": 4, "block_size": 16}
    assert [tuple(each.dims) for each in found.graph.initializer] == [(20, 4, 8), (20, 4), (20, 2)]
    assert {each.domain: each.version for each in found.opset_import} == {"": 21, "com.microsoft": 1}
    assert sorted(os.listdir(tmp_path)) == ["m.onnx", "q.onnx", "q.onnx.data"]


def test_matmul_is_preceded_by_dequantize_linear(tmp_path: Path) -> None:
    found = quantize(tmp_path, single(), "DequantizeLinear4")
    assert [described(each) for each in found.graph.node] == [
        ("DequantizeLinear", "product_DQ_Q4", ["w_DQ_Q4", "w_DQ_scales", "w_DQ_zero_points"], ["w_DQ_Q4_output"]),
        ("MatMul", "product_matmul_Q4", ["x", "w_DQ_Q4_output"], ["y"]),
    ]
    assert {each.name: each.i for each in found.graph.node[0].attribute} == {"axis": 0, "block_size": 16}
    assert [(tuple(each.dims), each.data_type) for each in found.graph.initializer] == [
        ((64, 20), 21),
        ((4, 20), 1),
        ((4, 20), 21),
    ]


def test_gemm_keeps_its_attributes_before_dequantize_linear(tmp_path: Path) -> None:
    found = quantize(tmp_path, single("Gemm", (20, 64), transB=1, alpha=0.5), "DequantizeLinear4")
    assert [each.op_type for each in found.graph.node] == ["DequantizeLinear", "Gemm"]
    assert {each.name: each.i for each in found.graph.node[0].attribute} == {"axis": 1, "block_size": 16}
    assert [tuple(each.dims) for each in found.graph.initializer[1:]] == [(20, 64), (20, 4), (20, 4)]
    assert len(found.graph.node[1].attribute) == 2


def test_gemm_becomes_matmul_nbits_and_add(tmp_path: Path) -> None:
    found = quantize(tmp_path, single("Gemm", (20, 64), transB=1))
    assert [described(each) for each in found.graph.node] == [
        (
            "MatMulNBits",
            "product_Q4",
            ["x", "w_Q4", "w_scales", "w_zero_points"],
            ["y_Q4_without_bias"],
        ),
        ("Add", "product_Q4_bias", ["y_Q4_without_bias", "c"], ["y"]),
    ]
    assert names(found) == ["c", "w_Q4", "w_scales", "w_zero_points"]


@pytest.mark.parametrize("dtype", ["<f4", "<f2"])
@pytest.mark.parametrize("symmetric", [True, False])
@pytest.mark.parametrize("scheme", FORM_NAMES)
@pytest.mark.parametrize("transposed", [True, False])
def test_pieces_do_not_show(
    scheme: str, symmetric: bool, transposed: bool, dtype: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The data file is what the arithmetic gives at once, for pieces of all kinds and an odd N."""
    values = weight(88, 21, dtype=dtype)
    stored = np.ascontiguousarray(values.T) if transposed else values
    made = single("Gemm", transB=int(transposed))
    made.graph.initializer[0].CopyFrom(models.tensor("w", stored))
    models.save(made, tmp_path / "m.onnx")
    monkeypatch.setattr("requant.checkpoint.onnx.quantize._CODES", 700)
    monkeypatch.setattr("requant.checkpoint.onnx.quantize._ELEMENTS", 100)
    store, form = LocalStore(tmp_path), form_named(scheme, block_size=16, symmetric=symmetric)
    seen: list[Progress] = []
    quantize_onnx(store, "m.onnx", store, "q.onnx", form, threads=2, progress=seen.append)
    name = {"<f4": "F32", "<f2": "F16"}[dtype]
    blocks = quantize_columns(values.astype("<f4"), name, form)
    packed: MatMulNBitsColumns | DequantizeLinearRange
    if form.operator is Operator.MATMUL_NBITS:
        packed = MatMulNBitsColumns(88, 21, name, form)
    else:
        packed = DequantizeLinearRange(88, 21, name, form, transposed=transposed)
    packed.put(blocks, 0, 0)
    expected = [packed.codes, packed.scales] + ([] if symmetric else [packed.zero_points])
    found = models.load(tmp_path / "q.onnx").graph.initializer
    new = [models.bytes_of(each, tmp_path) for each in found if each.name != "c"]
    assert new == [each.tobytes() for each in expected]
    assert seen[-1].bytes_read == seen[-1].bytes_to_read
    assert seen[-1].outputs_finished == 2


def test_other_tensors_are_copied_once(tmp_path: Path) -> None:
    values = weight(64, 20)
    (tmp_path / "data").write_bytes(values.tobytes())
    made = single()
    place = {"location": "data", "offset": "0", "length": str(values.nbytes)}
    made.graph.initializer.extend(
        [
            models.external("a", (64, 20), **place),
            models.external("b", (20, 64), **place),
            models.tensor("small", weight(3)),
            models.tensor("large", weight(300)),
        ]
    )
    made.graph.node.append(models.node("Sum", ["a", "b", "small", "large"], ["z"]))
    found = {each.name: each for each in quantize(tmp_path, made).graph.initializer}
    assert models.bytes_of(found["a"], tmp_path) == values.tobytes()
    assert found["a"].external_data == found["b"].external_data
    assert found["small"] == made.graph.initializer[3]
    assert models.bytes_of(found["large"], tmp_path) == made.graph.initializer[4].raw_data
    offsets = [int(entry.value) for each in found.values() for entry in each.external_data if entry.key == "offset"]
    assert all(offset % 4096 == 0 for offset in offsets)


def test_a_weight_of_two_nodes_is_stored_once(tmp_path: Path) -> None:
    made = single()
    made.graph.node.append(models.node("MatMul", ["x", "w"], ["z"], "second"))
    found = quantize(tmp_path, made)
    assert names(found) == ["w_Q4", "w_scales", "w_zero_points"]
    assert [each.input[1] for each in found.graph.node] == ["w_Q4", "w_Q4"]
    os.remove(tmp_path / "q.onnx")
    os.remove(tmp_path / "q.onnx.data")
    found = quantize(tmp_path, made, "DequantizeLinear4")
    assert [each.output[0] for each in found.graph.node] == ["w_DQ_Q4_output", "y", "w_DQ_Q4_output_1", "z"]


def test_a_weight_that_others_read_stays_too(tmp_path: Path) -> None:
    made = single()
    made.graph.node.append(models.node("Gather", ["w", "i"], ["z"]))
    assert names(quantize(tmp_path, made)) == ["w", "w_Q4", "w_scales", "w_zero_points"]


def test_a_weight_that_is_an_input_too_is_one_no_more(tmp_path: Path) -> None:
    made = single()
    made.ir_version = 3
    made.graph.input.append(models.value("w", 64, 20))
    found = quantize(tmp_path, made)
    assert [each.name for each in found.graph.input] == ["x"]
    assert found.ir_version == 4


def test_names_that_are_taken_get_a_number(tmp_path: Path) -> None:
    made = single()
    made.graph.initializer.append(models.tensor("w_Q4", weight(4)))
    assert names(quantize(tmp_path, made)) == ["w_Q4", "w_Q4_1", "w_scales", "w_zero_points"]


def test_weights_of_and_in_subgraphs(tmp_path: Path) -> None:
    """A subgraph sees the weights of the graphs around it, unless it gives their names another meaning.

    ONNX forbids that; a weight stays where anything of its name is read.
    """
    then = models.model(
        [models.node("MatMul", ["x", "w"], ["t"], "outer"), models.node("MatMul", ["t", "v"], ["u"], "inner")],
        [models.tensor("v", weight(20, 8))],
        [],
        [models.value("u", "n", 8)],
    ).graph
    other = models.model(
        [models.node("Identity", ["z"], ["w"]), models.node("MatMul", ["x", "w"], ["u"], "shadowed")], [], [], []
    ).graph
    made = single()
    made.graph.node[0].CopyFrom(models.node("If", ["c"], ["y"], then_branch=then, else_branch=other))
    found = quantize(tmp_path, made)
    branches = [each.g for each in found.graph.node[0].attribute]
    assert names(found) == ["w", "w_Q4", "w_scales", "w_zero_points"]
    assert [each.name for each in branches[0].initializer] == ["v_Q4", "v_scales", "v_zero_points"]
    assert [each.input[1] for each in branches[0].node] == ["w_Q4", "v_Q4"]
    assert [each.op_type for each in branches[1].node] == ["Identity", "MatMul"]


def test_codes_for_dequantize_linear_are_in_the_graph_of_their_node(tmp_path: Path) -> None:
    """onnxruntime looks for them nowhere else. Both initializers have the same bytes of the file."""
    then = models.model([models.node("MatMul", ["x", "w"], ["t"])], [], [], []).graph
    made = single()
    made.graph.node.append(models.node("If", ["c"], ["z"], then_branch=then))
    found = quantize(tmp_path, made, "DequantizeLinear4").graph
    inner = found.node[2].attribute[0].g
    assert [each.name for each in found.initializer] == ["w_DQ_Q4", "w_DQ_scales", "w_DQ_zero_points"]
    assert [each.name for each in inner.initializer] == ["w_DQ_Q4_1", "w_DQ_scales_1", "w_DQ_zero_points_1"]
    for outer_one, inner_one in zip(found.initializer, inner.initializer, strict=True):
        assert outer_one.external_data == inner_one.external_data
    assert [each.input[0] for each in inner.node] == ["w_DQ_Q4_1", "x"]


KEPT: dict[str, tuple[ModelProto, str]] = {
    "odd K": (single(shape=(63, 20)), "K is odd"),
    "alpha": (single("Gemm", alpha=0.5), "no alpha"),
    "beta": (single("Gemm", beta=2.0), "no alpha"),
    "transA": (single("Gemm", transA=1), "or transA"),
}


@pytest.mark.parametrize("name", KEPT)
def test_what_matmul_nbits_cannot_do_stays(name: str, tmp_path: Path) -> None:
    made, reason = KEPT[name]
    models.save(made, tmp_path / "m.onnx")
    with pytest.raises(CheckpointError, match=f"no weight of the model can be quantized; for example 'w': .*{reason}"):
        plan_onnx(LocalStore(tmp_path), "m.onnx", "q.onnx", form_named("MatMulNBits4"))
    both = ModelProto()
    both.CopyFrom(made)
    both.graph.initializer.append(models.tensor("v", weight(64, 20)))
    both.graph.node.append(models.node("MatMul", ["x", "v"], ["z"]))
    found = quantize(tmp_path, both)
    assert found.graph.node[0] == made.graph.node[0]


def test_what_is_no_matrix_of_floats_or_is_ignored_stays(tmp_path: Path) -> None:
    made = single()
    made.graph.initializer.extend(
        [models.tensor("three", weight(2, 64, 20)), models.tensor("integers", np.zeros((64, 20), "<i8"))]
    )
    for name in ("three", "integers"):
        made.graph.node.append(models.node("MatMul", ["x", name], [f"y_{name}"], name))
    made.graph.node.append(models.node("MatMul", ["x", "w"], ["z"], "head"))
    made.graph.node.append(models.node("MatMul", ["x", "unknown"], ["q"], "dynamic"))
    models.save(made, tmp_path / "m.onnx")
    plan = plan_onnx(LocalStore(tmp_path), "m.onnx", "q.onnx", form_named("MatMulNBits4"), ignore=["re:he"])
    assert {each.node: each.skip_reason for each in plan.nodes} == {
        "product": None,
        "three": "its weight is not a matrix",
        "integers": "its weight is not f32, f16 or bf16",
        "head": "ignored",
    }
    assert list(plan.lines())[2:] == [
        "1 weights quantized: MatMulNBits, 4 bits, asymmetric, blocks of 128",
        "  MatMul product w [64x20]",
        "  MatMul three three [2x64x20] stays: its weight is not a matrix",
        "  MatMul integers integers [64x20] stays: its weight is not f32, f16 or bf16",
        "  MatMul head w [64x20] stays: ignored",
    ]
    assert plan.as_json()["profile"] == "onnxruntime-matmulnbits"


def test_dequantize_linear_in_blocks_needs_opset_21(tmp_path: Path) -> None:
    made = single()
    made.opset_import[0].version = 20
    with pytest.raises(CheckpointError, match="opset 20, but DequantizeLinear supports blocks only from opset 21 on"):
        quantize(tmp_path, made, "DequantizeLinear4")
    made.opset_import[0].version, made.ir_version = 21, 8
    assert quantize(tmp_path, made, "DequantizeLinear4").ir_version == 10


def test_a_value_that_is_not_finite_leaves_nothing(tmp_path: Path) -> None:
    made = single("Gemm", (20, 64), transB=1)
    values = weight(20, 64)
    values[3, 40] = np.inf
    made.graph.initializer[0].CopyFrom(models.tensor("w", values))
    with pytest.raises(CheckpointError, match=r"'w' cannot be quantized at \[3, 40\]: the value is not finite"):
        quantize(tmp_path, made)
    assert os.listdir(tmp_path) == ["m.onnx"]


def test_files_that_are_there_are_not_overwritten(tmp_path: Path) -> None:
    for name in ("q.onnx", "q.onnx.data"):
        (tmp_path / name).write_bytes(b"mine")
        with pytest.raises(DestinationError, match=f"holds '{name}' already"):
            quantize(tmp_path, single())
        assert (tmp_path / name).read_bytes() == b"mine"
        os.remove(tmp_path / name)


@pytest.mark.parametrize("name", ["q.onnx", "q.onnx.data"])
@pytest.mark.parametrize("obstacle", ["a directory", "a FIFO", "a FIFO for its part", "another writer"])
def test_what_cannot_be_begun_is_refused_before_the_work(tmp_path: Path, name: str, obstacle: str) -> None:
    seen: list[Progress] = []
    with ExitStack() as others:
        if obstacle == "a directory":
            (tmp_path / name).mkdir()
        elif obstacle == "another writer":
            others.enter_context(LocalStore(tmp_path).create(name, 1))
        else:
            os.mkfifo(tmp_path / (name if obstacle == "a FIFO" else f"{name}.part"))
        before = {*os.listdir(tmp_path), "m.onnx"}
        with pytest.raises((DestinationError, StorageError), match=name):
            quantize(tmp_path, single(), progress=seen.append)
        assert {*os.listdir(tmp_path)} == before
    assert not seen


def test_a_model_that_cannot_have_its_name_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rename = os.rename

    def renamed(before: str, after: str, **folders: int) -> None:
        if after == "q.onnx":
            raise OSError(errno.ENOSPC, "no space")
        rename(before, after, **folders)

    monkeypatch.setattr(os, "rename", renamed)
    with pytest.raises(StorageError, match="the disk is full"):
        quantize(tmp_path, single())
    assert os.listdir(tmp_path) == ["m.onnx"]


def test_the_data_of_a_model_that_has_its_name_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The names in the directory cannot be made durable, but the model may be loaded."""

    def synced(_: int) -> None:
        if (tmp_path / "q.onnx").exists():
            raise OSError(errno.EIO, "error")

    monkeypatch.setattr("requant.checkpoint.storage.local_writer.sync_directory", synced)
    with pytest.raises(StorageError, match="input/output error"):
        quantize(tmp_path, single())
    assert {*os.listdir(tmp_path)} == {"m.onnx", "q.onnx", "q.onnx.data"}


@pytest.mark.parametrize("name", ["q.onnx", "q.onnx.data"])
def test_a_file_that_appears_before_the_work_is_not_overwritten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    create = LocalStore.create

    def created(self: LocalStore, *arguments: Any) -> FileWriter:
        (tmp_path / name).write_bytes(b"mine")
        return create(self, *arguments)

    monkeypatch.setattr(LocalStore, "create", created)
    with pytest.raises(DestinationError, match=f"holds '{name}' already"):
        quantize(tmp_path, single())
    assert (tmp_path / name).read_bytes() == b"mine"
    assert {*os.listdir(tmp_path)} == {"m.onnx", name}


def test_files_of_two_runs_are_not_mixed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second run has seen no file, and begins its own when the first one has only its data."""
    alone = tmp_path / "alone"
    alone.mkdir()
    made = single()
    quantize(alone, made, "MatMulNBits8")
    models.save(made, tmp_path / "m.onnx")
    store, create, rename = LocalStore(tmp_path), LocalStore.create, os.rename
    half_done, go_on = Event(), Event()
    form = form_named("MatMulNBits8", block_size=16)
    first = Thread(target=quantize_onnx, args=(store, "m.onnx", store, "q.onnx", form))

    def created(self: LocalStore, *arguments: Any) -> FileWriter:
        if first.ident is None:
            first.start()
            assert half_done.wait(60)
        return create(self, *arguments)

    def renamed(before: str, after: str, **folders: int) -> None:
        rename(before, after, **folders)
        if not half_done.is_set():
            half_done.set()
            assert go_on.wait(60)

    monkeypatch.setattr(LocalStore, "create", created)
    monkeypatch.setattr(os, "rename", renamed)
    try:
        with pytest.raises(DestinationError, match=r"another process writes .*q\.onnx\.part") as refused:
            quantize_onnx(store, "m.onnx", store, "q.onnx", form_named("MatMulNBits4", block_size=16))
    finally:
        go_on.set()
        first.join()
    assert refused.value.busy
    for name in ("q.onnx", "q.onnx.data"):
        assert (tmp_path / name).read_bytes() == (alone / name).read_bytes()
    assert {*os.listdir(tmp_path)} == {"alone", "m.onnx", "q.onnx", "q.onnx.data"}


def test_at_least_one_thread(tmp_path: Path) -> None:
    with pytest.raises(ParameterError, match="threads is -1; expected 1 or more"):
        quantize(tmp_path, single(), threads=-1)
    assert os.listdir(tmp_path) == ["m.onnx"]


def test_the_model_file_comes_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    order = []
    rename = os.rename

    def noted(before: str, after: str, *, src_dir_fd: int, dst_dir_fd: int) -> None:
        order.append(after)
        rename(before, after, src_dir_fd=src_dir_fd, dst_dir_fd=dst_dir_fd)

    monkeypatch.setattr(os, "rename", noted)
    quantize(tmp_path, single())
    assert order == ["q.onnx.data", "q.onnx"]


@pytest.mark.parametrize("scheme", FORM_NAMES)
def test_no_name_is_given_twice(tmp_path: Path, scheme: str) -> None:
    """Of nodes and of values, whatever the model calls its own."""
    made = single("Gemm", transB=0)
    plain = quantize(tmp_path, made, scheme)
    (tmp_path / "q.onnx").unlink()
    (tmp_path / "q.onnx.data").unlink()
    for each in plain.graph.node:
        made.graph.node.append(models.node("Relu", ["x"], [f"of_{each.name}"], each.name))
    for name in set(names(plain)) - set(names(made)):
        made.graph.sparse_initializer.add().values.CopyFrom(models.tensor(name, weight(3)))
    found = quantize(tmp_path, made, scheme)
    nodes = [each.name for each in found.graph.node]
    values = [*names(found), *(each.values.name for each in found.graph.sparse_initializer)]
    assert len(nodes) == len(set(nodes)) > len(plain.graph.node)
    assert len(values) == len(set(values)) > len(plain.graph.initializer)


@pytest.mark.parametrize("scheme", FORM_NAMES)
def test_an_input_of_a_subgraph_that_has_the_name_of_a_weight_stays(tmp_path: Path, scheme: str) -> None:
    made = single()
    body = GraphProto(name="body", input=[models.value("w", 1)], output=[models.value("v", 1)])
    body.node.append(models.node("Abs", ["x"], ["v"]))
    made.graph.node.append(models.node("Loop", ["", "", "x"], ["z"], body=body))
    found = quantize(tmp_path, made, scheme)
    assert [each.name for each in found.graph.node[-1].attribute[0].g.input] == ["w"]


def test_external_data_in_subgraphs_of_functions_are_carried_over(tmp_path: Path) -> None:
    carried = weight(20)
    (tmp_path / "w.bin").write_bytes(carried.tobytes())
    at = {"offset": "0", "length": str(carried.nbytes)}
    branch = GraphProto(name="branch", output=[models.value("k", 20)])
    branch.initializer.append(models.external("k", (20,), "w.bin", **at))
    branch.node.append(models.node("Constant", [], ["l"]))
    constant = branch.node[0].attribute.add(name="value", type=4)
    constant.t.CopyFrom(models.external("", (20,), "w.bin", **at))
    made = single()
    function = made.functions.add(name="F", domain="local", input=["c"], output=["o"])
    function.node.append(models.node("If", ["c"], ["o"], then_branch=branch, else_branch=branch))
    found = quantize(tmp_path, made)
    for attribute in found.functions[0].node[0].attribute:
        for each in (attribute.g.initializer[0], attribute.g.node[0].attribute[0].t):
            assert {entry.key: entry.value for entry in each.external_data}["location"] == "q.onnx.data"
            np.testing.assert_array_equal(models.array_of(each, tmp_path), carried)


def test_a_model_file_may_have_any_name(tmp_path: Path) -> None:
    name = "a:b\\c.onnx"
    models.save(single(), tmp_path / name)
    store = LocalStore(tmp_path)
    quantize_onnx(store, name, store, "q.onnx", form_named("MatMulNBits4"))
    assert models.load(tmp_path / "q.onnx").graph.node[0].op_type == "MatMulNBits"


def test_every_byte_is_written_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Object stores count what was written."""
    seen: dict[str, list[tuple[int, int]]] = {}
    write, copy = LocalWriter.write, LocalWriter.copy

    def noted(self: LocalWriter, offset: int, data: bytes | memoryview) -> None:
        seen.setdefault(self._name, []).append((offset, offset + len(data)))
        write(self, offset, data)

    def noted_copy(self: LocalWriter, offset: int, source: int, begin: int, size: int) -> bool:
        copied = copy(self, offset, source, begin, size)
        if copied:
            seen.setdefault(self._name, []).append((offset, offset + size))
        return copied

    monkeypatch.setattr(LocalWriter, "write", noted)
    monkeypatch.setattr(LocalWriter, "copy", noted_copy)
    made = single()
    made.graph.initializer.append(models.tensor("large", weight(3000)))
    made.graph.node.append(models.node("Abs", ["large"], ["z"]))
    quantize(tmp_path, made, "DequantizeLinear4")
    for name, ranges in seen.items():
        ends = [0, *(end for _, end in sorted(ranges))]
        assert [begin for begin, _ in sorted(ranges)] == ends[:-1]
        assert ends[-1] == (tmp_path / name).stat().st_size


def test_the_hashes_are_those_of_the_files(tmp_path: Path) -> None:
    import hashlib

    models.save(single(), tmp_path / "m.onnx")
    store = LocalStore(tmp_path)
    report = quantize_onnx(store, "m.onnx", store, "q.onnx", form_named("MatMulNBits8"))
    assert [file.name for file in report.files] == ["q.onnx.data", "q.onnx"]
    for file in report.files:
        assert hashlib.sha256((tmp_path / file.name).read_bytes()).hexdigest() == file.sha256


@pytest.mark.sample(1)
@pytest.mark.parametrize("form", ["MatMulNBits4", "DequantizeLinear4"])
def test_a_weight_may_have_many_uses(form: str, tmp_path: Path) -> None:
    """Names that are free are found without asking for all that are not."""
    nodes = [models.node("Gemm", ["x", "w", "b"], ["y"], "n") for _ in range(8000)]
    models.save(
        models.model(nodes, [models.tensor("w", np.ones((32, 4), "<f4"))], [models.value("x", 1, 32)], []),
        tmp_path / "m.onnx",
    )
    assert within_cpu_seconds(
        lambda: plan_onnx(LocalStore(tmp_path), "m.onnx", "o.onnx", form_named(form, block_size=32)), 3
    )
    plan = plan_onnx(LocalStore(tmp_path), "m.onnx", "o.onnx", form_named(form, block_size=32))
    made = ModelProto()
    made.ParseFromString(plan.model)
    names = [each.name for each in made.graph.node]
    assert len(names) == len(set(names)) == 16_000
