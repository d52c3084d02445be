"""The most expensive calls of models whose JSON routes take less: tensors in binary, of up to 64 MiB."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import numpy as np

from tests.load.case import Case, model_case, noise, numbers, scale_list
from tests.support.oip_wire import Input

ENTRIES = 65_536
_I8 = "!quant.uniform<i8:f32, 0.01:3>"
_WIDE = 16_700_000


def _products() -> Iterator[Case]:
    def pair(
        lhs: tuple[int, ...], rhs: tuple[int, ...], kind: str = "i1", names: tuple[str, str] = ("lhs", "rhs")
    ) -> Any:
        return lambda: [Input(names[0], noise(lhs, kind)), Input(names[1], noise(rhs, kind))]

    quantized = {"lhs_type": _I8, "rhs_type": _I8, "output_type": _I8}
    yield model_case("matmul", "2000 cubed", pair((2000, 2000), (2000, 2000)), **quantized)
    yield model_case("matmul", "4096 by 4096, one product each", pair((4096, 1), (1, 4096)), **quantized)
    yield model_case("matmul", "one row, 30000 columns", pair((1, 1000), (1000, 30_000)), **quantized)
    yield model_case("matmul", "stages of 65536 sums", pair((256, 12_000), (12_000, 256)), **quantized, trace=True)
    yield model_case("conv2d", "64 channels", pair((1, 256, 256, 64), (64, 5, 5, 64), names=("x", "weights")),
                     input_type=_I8, weights_type=_I8, output_type=_I8)  # fmt: skip
    yield model_case("conv2d", "one channel to 16",
                     pair((1, 1000, 1000, 1), (16, 17, 17, 1), names=("x", "weights")),
                     input_type=_I8, weights_type=_I8, output_type=_I8)  # fmt: skip
    for profile in ("litert", "stablehlo", "litert_xnnpack"):
        yield model_case("add", f"16 million, {profile}", pair((1 << 24,), (1 << 24,)), **quantized, profile=profile)


def _calibrations() -> Iterator[Case]:
    def search(what: str, shape: tuple[int, ...], **parameters: Any) -> Case:
        return model_case("derive_from_tensor", what, lambda: [Input("x", noise(shape))], storage="i8", **parameters)

    for method in ("min_max", "percentile", "entropy", "moving_average", "torch_histogram", "entropy_model_optimizer"):
        yield search(f"{method}, 16 million", (_WIDE,), method=method)
    yield search("mse, 16 million, 32 candidates", (_WIDE,), method="mse", candidates=32)
    for method in ("min_max", "percentile", "entropy", "moving_average"):
        yield search(f"{method}, 65536 channels", (ENTRIES, 250), method=method, axis=0)
        yield search(f"{method}, 65536 channels, last axis", (250, ENTRIES), method=method, axis=1)
    yield search(
        "percentile of magnitudes, 65536 channels", (ENTRIES, 250), method="percentile", magnitudes=True, axis=0
    )
    yield search("mse, 8 candidates, 65536 channels", (ENTRIES, 250), method="mse", candidates=8, axis=0)
    yield model_case("derive_from_tensor", "percentile, 256 tensors", lambda: [
        Input(f"x_{index}", (1 + np.float32(index / 256)) * noise((60_000,))) for index in range(256)],
        storage="i8", method="percentile")  # fmt: skip
    yield model_case("derive_from_tensor", "percentile, 32 million f16", lambda: [
        Input("x", noise((33_000_000,), "f2"))], storage="i8", method="percentile")  # fmt: skip


def _ranges() -> Iterator[Case]:
    def ends() -> list[Input]:
        return [Input("minimum", -np.array(numbers(ENTRIES))), Input("maximum", np.array(numbers(ENTRIES, 1.0)))]

    for scheme in ("litert", "torch_observer", "onnxruntime", "onednn"):
        yield model_case("derive_from_range", f"65536 ranges, {scheme}", ends, storage="i8", axis=0, scheme=scheme)
    yield model_case("fake_quantize", "16 million f32", lambda: [
        Input("x", noise((_WIDE,))), Input("minimum", np.array([-1.0])),
        Input("maximum", np.array([1.0]))])  # fmt: skip
    yield model_case("fake_quantize", "65536 ranges", lambda: [Input("x", noise((240, ENTRIES))), *ends()], axis=1)
    yield model_case("derive_bias", "65536 scales", lambda: [
        Input("input_scale", np.array([0.5])), Input("weight_scale", np.array(numbers(ENTRIES))),
        Input("bias", noise((ENTRIES,)))], scheme="litert")  # fmt: skip
    yield model_case("derive_bias", "16 million elements of one scale", lambda: [
        Input("input_scale", np.array([0.5])), Input("weight_scale", np.array([0.25])), Input("bias", noise((_WIDE,)))],
        scheme="torch")  # fmt: skip
    for scheme in ("litert", "tosa", "fbgemm"):
        yield model_case(
            "derive_multiplier",
            f"4096 factors, {scheme}",
            lambda: [Input("factor", np.array(numbers(4096)))],
            scheme=scheme,
        )
    yield model_case("derive_multiplier", "4096 triples", lambda: [
        Input(f"{side}_scale", np.array(numbers(4096))) for side in ("input", "weight", "output")],
        scheme="litert")  # fmt: skip


def _texts() -> Iterator[Case]:
    scales = 55_000
    of_scales = f"tensor<{scales}x!quant.uniform<i8:f32:0, {scale_list(scales)}>>"
    yield model_case("parse_type", f"{scales} scales", list, text=of_scales)
    yield model_case("translate_type", f"{scales} scales to all systems", list, type=of_scales)
    operands = {"x_type": "i8", "x_scale": numbers(ENTRIES), "scale_shape": [ENTRIES], "axis": 0}
    yield model_case("translate_type", f"{ENTRIES} scales of onnx", list, onnx=json.dumps(operands), shape=str(ENTRIES))
    adds = "\n".join(
        f"%{index + 1} = stablehlo.add %{index or 'x'}, %{index or 'x'} : tensor<8xf32>" for index in range(2490)
    )
    chain = f"func.func @main(%x: tensor<8xf32>) -> tensor<8xf32> {{\n{adds}\nreturn %2490 : tensor<8xf32>\n}}"
    passes = ["stablehlo-legalize-quant-to-math"] * 16
    yield model_case("lower", "2490 operations, 16 passes", list, module=chain, passes=json.dumps(passes))
    yield model_case("evaluate", "2490 additions", lambda: [Input("input", np.zeros(8, "f4"))], module=chain)
    matrix = "tensor<640x640xf32>"
    yield model_case("evaluate", "products of matrices", lambda: [Input("input", noise((640, 640)))],
        module=f"func.func @main(%x: {matrix}) -> {matrix} {{\n%0 = stablehlo.dot %x, %x : ({matrix}, {matrix}) -> "
        f"{matrix}\nreturn %0 : {matrix}\n}}")  # fmt: skip
    wide = f"tensor<{8 << 20}xi8>"
    yield model_case("evaluate", "8 million i8, negated", lambda: [Input("input", noise((8 << 20,), "i1"))],
        module=f"func.func @main(%x: {wide}) -> {wide} {{\n%0 = stablehlo.negate %x : {wide}\n"
        f"return %0 : {wide}\n}}")  # fmt: skip


def operation_models() -> Iterator[Case]:
    """Yield all of them."""
    for group in (_products, _calibrations, _ranges, _texts):
        yield from group()
