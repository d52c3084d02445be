"""What a translation says of ONNX, LiteRT and torch, tried on them: what it writes they take, what it refuses they too.

A grid of storages, granularities, zero points and expressed types. What a system takes although the translation refuses
it is listed below with its reason, and nothing else.
"""

from __future__ import annotations

import sys
from collections import Counter
from itertools import product
from typing import Any

import numpy as np
import pytest

from requant.mlir import parse_type
from requant.translation import translate
from requant.translation.translation import Written, subject_of
from tests.interop.conformance import systems
from tests.interop.conformance.records import record
from tests.interop.conformance.subject import translation
from tests.oracles import translation as oracle
from tests.oracles.translation import WIDTHS, Case

pytestmark = pytest.mark.interop

SHAPE = (4, 64)
TENSOR_TYPES = {
    "i8": "INT8", "u8": "UINT8", "i16": "INT16", "u16": "UINT16", "i32": "INT32", "u32": "UINT32", "i4": "INT4",
    "u4": "UINT4", "i2": "INT2", "f8E4M3FN": "FLOAT8_E4M3FN", "f8E5M2": "FLOAT8_E5M2",
}  # fmt: skip


def layouts(zeros: tuple[int, ...]) -> list[dict[str, Any]]:
    def many(count: int) -> dict[str, Any]:
        return {"scales": (0.5,) * count, "zero_points": tuple(zeros[i % len(zeros)] for i in range(count))}

    return [many(1), {**many(4), "axis": 0}, {**many(64), "axis": 1}, {**many(8), "blocks": (1, 32)}]


def grid(expressed: tuple[str, ...]) -> list[Case]:
    found = []
    for storage, real in product((*WIDTHS, *oracle.FLOATS), expressed):
        low, high = Case(storage, real, (1.0,), (0,)).range
        for zero in ((0,), (1,), (low,), (high, 0)):
            for layout in layouts(zero):
                if "blocks" in layout and storage in oracle.FLOATS:
                    continue  # MLIR has no such type
                found.append(Case(storage, real, **layout))
    return found


def written(case: Case, system: str) -> Written | None:
    return translate(subject_of(parse_type(case.text)), system).written


def tell(system: str, counted: Counter[str]) -> None:
    sys.stdout.write(f"{system}: {', '.join(f'{count} {what}' for what, count in sorted(counted.items()))}\n")


NUMBERS = {
    "f32": 1, "ui8": 2, "i8": 3, "ui16": 4, "i16": 5, "i32": 6, "f16": 10, "f64": 11, "ui32": 12, "bf16": 16,
    "f8E4M3FN": 17, "f8E5M2": 19, "ui4": 21, "i4": 22, "f4E2M1FN": 23, "ui2": 25, "i2": 26,
}  # fmt: skip


class TestOnnx:
    """Models of one node: onnx's checker with strict shape inference, and onnxruntime where it has a kernel."""

    @staticmethod
    def model(operator: str, operands: dict[str, Any], opset: int) -> Any:
        onnx = pytest.importorskip("onnx")
        stored, real = NUMBERS[operands["x_type"]], NUMBERS[operands["scale_type"]]
        shape = operands["scale_shape"]
        zero = onnx.helper.make_tensor("z", stored, shape, [float(z) for z in operands["x_zero_point"]])
        scale = onnx.helper.make_tensor("s", real, shape, operands["x_scale"])
        attributes = {name: operands[name] for name in ("axis", "block_size") if name in operands}
        node = onnx.helper.make_node(operator, ["x", "s", "z"], ["y"], **attributes)
        into, out = (real, stored) if operator == "QuantizeLinear" else (stored, real)
        infos = [onnx.helper.make_tensor_value_info(n, t, SHAPE) for n, t in (("x", into), ("y", out))]
        graph = onnx.helper.make_graph([node], "g", infos[:1], infos[1:], [scale, zero])
        return onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", opset)], ir_version=11)

    def accepts(self, operator: str, operands: dict[str, Any], opset: int) -> bool:
        onnx = pytest.importorskip("onnx")
        try:
            onnx.checker.check_model(self.model(operator, operands, opset), full_check=True)
        except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError):
            return False
        return True

    def runs(self, operator: str, operands: dict[str, Any], opset: int) -> bool:
        """Whether onnxruntime loads the model."""
        ort = pytest.importorskip("onnxruntime")
        options = ort.SessionOptions()
        options.log_severity_level = 4
        try:
            data = self.model(operator, operands, opset).SerializeToString()
            ort.InferenceSession(data, options, providers=["CPUExecutionProvider"])
        except ort.capi.onnxruntime_pybind11_state.NotImplemented:
            return False
        return True

    def test_what_is_written_is_a_model_of_the_first_opset_that_has_it(self) -> None:
        counted: Counter[str] = Counter()
        versions = (10, 13, 19, 21, 23, 24, 25, 28)
        for case in grid(("f32", "f16", "bf16")):
            found = written(case, "onnx")
            if found is None:
                counted["refused"] += 1
                continue
            assert found.opset in versions
            for operator in found.operators:
                assert self.accepts(operator, found.operands, found.opset), (case.text, operator)
                counted["models accepted"] += 1
                before = [version for version in versions if version < found.opset]
                if before:
                    earlier = self.accepts(operator, found.operands, before[-1])
                    counted["refused in the version before"] += 1
                    assert not earlier, (case.text, operator)
                if found.opset <= 27:
                    loaded = self.runs(operator, found.operands, found.opset)
                    counted["loaded by onnxruntime" if loaded else "without a kernel in onnxruntime"] += 1
                    if loaded or case.expressed == "bf16":
                        continue
                    assert case.storage == "f4E2M1FN", case.text
        tell("ONNX", counted)
        record(systems.ONNX_REFERENCE, [translation("onnx")], counted["models accepted"])
        record(systems.ONNXRUNTIME, [translation("onnx")], counted["loaded by onnxruntime"])
        assert counted["models accepted"] > 500
        assert counted["loaded by onnxruntime"] > 300

    @pytest.mark.parametrize(
        ("operator", "stored", "real", "taken"),
        [
            ("QuantizeLinear", "i32", "f32", False), ("DequantizeLinear", "i32", "f32", True),
            ("QuantizeLinear", "ui32", "f32", False), ("DequantizeLinear", "ui32", "f32", False),
            ("DequantizeLinear", "i8", "f64", False), ("DequantizeLinear", "i8", "f16", True),
        ],
    )  # fmt: skip
    def test_types_that_the_operators_do_not_have(self, operator: str, stored: str, real: str, taken: bool) -> None:
        """What it refuses otherwise are zero points of floats and of i32, which ONNX's text has as 0."""
        operands = {"x_type": stored, "scale_type": real, "scale_shape": [], "x_scale": [0.5], "x_zero_point": [0]}
        assert self.accepts(operator, operands, 28) == taken
        found = written(Case(stored.replace("ui", "u"), real, (0.5,), (0,)), "onnx")
        assert (found is not None and operator in found.operators) == taken


class TestLitert:
    """One-operator models, in the reference and the default interpreter."""

    @staticmethod
    def takes(operator: str, operands: dict[str, Any], storage: str) -> bool:
        pytest.importorskip("ai_edge_litert")
        from ai_edge_litert import schema_py_generated as schema
        from ai_edge_litert.interpreter import Interpreter

        from tests.interop import litert_models as models

        models.TYPES[storage] = getattr(schema.TensorType, operands["type"])
        stored = models.Operand(
            storage,
            np.array(operands["scale"]),
            np.array(operands["zero_point"]),
            operands["quantized_dimension"],
        )
        real = models.Operand("f32")
        code = models.QUANTIZE if operator == "QUANTIZE" else models.DEQUANTIZE
        source, target = (real, stored) if operator == "QUANTIZE" else (stored, real)
        model = models.one_operator(code, SHAPE, source, target)
        verdicts = set()
        for resolver in (models.REFERENCE, models.DEFAULT):
            try:
                interpreter = Interpreter(model_content=model, experimental_op_resolver_type=resolver, num_threads=1)
                interpreter.allocate_tensors()
                interpreter.invoke()
                verdicts.add(True)
            except (RuntimeError, ValueError):
                verdicts.add(False)
        assert len(verdicts) == 1
        return verdicts.pop()

    def test_kernels_take_what_operators_say_and_no_more(self) -> None:
        counted: Counter[str] = Counter()
        for case in grid(("f32",)):
            if case.blocks is not None or case.storage not in TENSOR_TYPES:
                continue
            found = written(case, "litert")
            operands = {
                "type": TENSOR_TYPES[case.storage],
                "scale": list(case.scales),
                "zero_point": list(case.zero_points),
                "quantized_dimension": case.axis or 0,
            }
            if found is not None:
                assert found.operands == operands
            for operator in ("QUANTIZE", "DEQUANTIZE"):
                ours = found is not None and operator in found.operators
                assert self.takes(operator, operands, case.storage) == ours, (case.text, operator)
                counted["taken by both" if ours else "refused by both"] += 1
        tell("LiteRT", counted)
        record(systems.LITERT, [translation("litert")], counted.total())
        assert min(counted.values()) > 50


@pytest.mark.filterwarnings("ignore:torch.quantize_per_tensor")
class TestTorch:
    """Eager quantized tensors made and read back, and quantized_decomposed called."""

    def test_tensors_keep_the_parameters(self) -> None:
        torch = pytest.importorskip("torch")
        pytest.importorskip("torch.ao.quantization.fx._decomposed")
        x = torch.zeros(SHAPE)
        counted: Counter[str] = Counter()
        for case in grid(("f32",)):
            found = written(case, "torch")
            if found is None:
                counted["refused"] += 1
                continue
            operands = found.operands
            axis, dtype = operands.get("axis"), getattr(torch, operands["dtype"])
            scales = torch.tensor(operands["scale"], dtype=torch.float64)
            zeros = torch.tensor(operands["zero_point"], dtype=torch.int64)
            bounds = operands["quant_min"], operands["quant_max"]
            decomposed = torch.ops.quantized_decomposed
            if axis is None:
                stored = decomposed.quantize_per_tensor(
                    x, operands["scale"][0], operands["zero_point"][0], *bounds, dtype
                )
            else:
                stored = decomposed.quantize_per_channel(x, scales, zeros, axis, *bounds, dtype)
            assert stored.dtype is dtype
            # 0 is stored as the zero point; one that f32 does not hold goes through f32 in torch.
            zero = operands["zero_point"][0]
            assert stored[0, 0].item() == zero or abs(zero) > 1 << 24
            counted["decomposed"] += 1
            if "quantized_dtype" in operands:
                self.check_eager(torch, x, operands)
                counted["eager"] += 1
        tell("torch", counted)
        record(systems.TORCH, [translation("torch")], counted["decomposed"] + counted["eager"])
        assert min(counted.values()) > 20

    @staticmethod
    def check_eager(torch: Any, x: Any, operands: dict[str, Any]) -> None:
        dtype = getattr(torch, operands["quantized_dtype"])
        if operands["qscheme"] == "per_tensor_affine":
            made = torch.quantize_per_tensor(x, operands["scale"][0], operands["zero_point"][0], dtype)
            assert (made.q_scale(), made.q_zero_point()) == (operands["scale"][0], operands["zero_point"][0])
        else:
            scales = torch.tensor(operands["scale"], dtype=torch.float64)
            zeros = torch.tensor(operands["zero_point"], dtype=torch.int64)
            made = torch.quantize_per_channel(x, scales, zeros, operands["axis"], dtype)
            assert made.q_per_channel_scales().tolist() == operands["scale"]
            assert made.q_per_channel_zero_points().tolist() == operands["zero_point"]
            assert made.q_per_channel_axis() == operands["axis"]
        assert str(made.qscheme()) == f"torch.{operands['qscheme']}"

    def test_scales_of_f64_are_kept(self) -> None:
        torch = pytest.importorskip("torch")
        assert torch.quantize_per_tensor(torch.zeros(1), 0.1, 0, torch.qint8).q_scale() == 0.1

    @pytest.mark.parametrize(("dtype", "zero"), [("qint8", 128), ("quint8", -1), ("qint32", 2**31)])
    def test_zero_points_outside_are_refused(self, dtype: str, zero: int) -> None:
        torch = pytest.importorskip("torch")
        storage = {"qint8": "i8", "quint8": "u8", "qint32": "i32"}[dtype]
        assert written(Case(storage, "f32", (0.5,), (zero,)), "torch") is None
        with pytest.raises(RuntimeError, match="zero_point"):
            torch.quantize_per_tensor(torch.zeros(1), 0.5, zero, getattr(torch, dtype))
