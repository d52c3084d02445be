"""requantize_variants.json and the output stages of tflite_multiplier.json, tflite_quantize_op.json, qgemm_conv.json,
stablehlo_passes.json and tosa_rescale.json: requantization by every scheme that a real system ran.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np

from tests.oracles import quantization as oracle
from tests.oracles import schemes as scheme_oracle
from tests.vector_cases.conversion import Array, Conversion, Derivation, Quantized, load, storage_dtype


def scheme_conversions() -> Iterator[Conversion]:
    """All of them."""
    yield from _multiplications()
    yield from _xnnpack()
    yield from _litert_accumulators(load("tflite_quantize_op")["accumulator_requant"])
    yield from _litert_quantize(load("tflite_quantize_op")["requantize"])
    yield from _matrix_products(load("qgemm_conv"))
    yield from _stablehlo(load("stablehlo_passes")["quant_to_math"]["executed"]["requantize"])
    yield from _rescale(load("tosa_rescale")["cases"])


def scheme_derivations() -> Iterator[Derivation]:
    """The multipliers of Vela."""
    for index, case in enumerate(load("requantize_variants")["vela"]):
        name = f"requantize_variants/vela/{index}"
        yield Derivation(name, "ethos_u", case["real"], case["scale"], case["shift"])
        yield Derivation(name, "ethos_u_reduced", case["real"], case["reduced_scale"], case["reduced_shift"])
    for index, case in enumerate(load("requantize_variants")["vela_mul"]):
        name = f"requantize_variants/vela_mul/{index}"
        in1, in2, out = (oracle.from_bits(case[end]) for end in ("in1", "in2", "out"))
        m, shift = case["f64"]
        yield Derivation(f"{name}/f64", "ethos_u", "", m, shift, scales=(in1.hex(), in2.hex(), out.hex()))
        # Vela forms this one in f32, as no other of its operators.
        factor = oracle.f32(Fraction(oracle.f32(Fraction(in1) * Fraction(in2))) / Fraction(out))
        yield Derivation(f"{name}/f32", "ethos_u", factor.hex(), *case["f32"])


def _options(scheme: str | None, axis: int | None) -> dict[str, Any]:
    return {name: value for name, value in (("scheme", scheme), ("axis", axis)) if value is not None}


def _given(
    name: str,
    scheme: str,
    values: Sequence[int],
    expected: Sequence[int],
    multiplier: tuple[int, int],
    *,
    storage: str = "i32",
    target: str = "i32",
) -> Conversion:
    """Plain integers to plain integers, by a given multiplier."""
    return Conversion(
        name,
        "requantize",
        "litert",
        f"tensor<{len(values)}x{storage}>",
        target,
        np.array(values, storage_dtype(storage)),
        np.array(expected, storage_dtype(target)),
        multipliers=(multiplier,),
        options={"scheme": scheme},
    )


def _multiplications() -> Iterator[Conversion]:
    data = load("tflite_multiplier")
    for index, case in enumerate(data["ties"]):
        pair = (case["m"], case["shift"])
        yield _given(f"tflite_multiplier/ties/{index}/neon_style", "arm_vector", case["x"], case["neon_style"], pair)
    for index, case in enumerate(data["int64_acc"]):
        pair = (case["m"], case["shift"])
        yield _given(
            f"tflite_multiplier/int64_acc/{index}", "litert_int64", [case["x"]], [case["y"]], pair, storage="i64"
        )
    variants = load("requantize_variants")
    for index, case in enumerate(variants["cmsis_nn"]):
        for column, scheme in (("double", "cmsis_nn"), ("single", "cmsis_nn_single_rounding")):
            pair = (case["m"], case["shift"])
            name = f"requantize_variants/cmsis_nn/{index}/{column}"
            kept = [
                (x, y)
                for x, y in zip(case["acc"], case[column], strict=True)
                if scheme_oracle.SCALED[scheme](x, *pair) is not None
            ]
            values, expected = zip(*kept, strict=True)
            yield _given(name, scheme, values, expected, pair)
            # Where the C code wraps, there is no scaled value.
            if len(kept) < len(case["acc"]):
                wrapping = [x for x in case["acc"] if scheme_oracle.SCALED[scheme](x, *pair) is None]
                undefined = _given(f"{name}/wraps", scheme, wrapping, wrapping, pair)
                yield replace(undefined, expected=None, error="precondition_failed")
    for index, case in enumerate(variants["cmsis_nn_s64"]):
        name = f"requantize_variants/cmsis_nn_s64/{index}"
        yield _given(name, "cmsis_nn_int64", [case["acc"]], [case["y"]], (case["m"], case["shift"]), storage="i64")


def _xnnpack() -> Iterator[Conversion]:
    columns = {
        "gemmlowp": "xnnpack_gemmlowp",
        "fp32_fmagic": "xnnpack_fp32",
        "fp32_lrintf": "xnnpack_fp32",
        "rndnu": "xnnpack_rndnu",
        "rndna": "xnnpack_rndna",
    }
    for index, case in enumerate(load("requantize_variants")["xnnpack"]):
        storage = "i8" if case["min"] < 0 else "u8"
        source = Quantized("i32", [oracle.from_bits(case["scale"])])
        target = f"!quant.uniform<{storage}<{case['min']}:{case['max']}>:f32, 1.0:{case['zp']}>"
        for column, scheme in columns.items():
            yield Conversion(
                f"requantize_variants/xnnpack/{index}/{column}",
                "requantize",
                "litert",
                source.tensor(len(case["acc"])),
                target,
                np.array(case["acc"], "<i4"),
                np.array(case[column], storage_dtype(storage)),
                options={"scheme": scheme},
            )


def _litert_accumulators(cases: Any) -> Iterator[Conversion]:
    """Output stages of one-op models with each resolver (C.8). The rest of `ref` is in `tests.vector_cases.litert`."""
    for index, case in enumerate(cases):
        weights = [oracle.from_bits(s) for s in case["weight_scale"]]
        input_scale, output_scale = oracle.from_bits(case["in_scale"]), oracle.from_bits(case["out_scale"])
        products = [oracle.f32(Fraction(input_scale) * Fraction(weight)) for weight in weights]
        connected = case["op"] == "FULLY_CONNECTED"
        # FULLY_CONNECTED per tensor forms its factor from the f32 product where it has a fixed point at all.
        fixed = [
            (product if connected and len(weights) == 1 else input_scale * weight) / output_scale
            for weight, product in zip(weights, products, strict=True)
        ]
        real = [input_scale * weight / output_scale for weight in weights]
        axis = 0 if len(weights) > 1 else None
        for resolver, scheme, factors in _litert_schemes(case, fixed, real):
            name = f"tflite_quantize_op/accumulator_requant/{index}/{resolver}"
            if scheme == "xnnpack_fp32":
                source = Quantized("i32", products, [0], axis)
                target = Quantized(case["out"], [output_scale], [case["out_zp"]])
                text, stored = source.tensor(len(case["acc"])), storage_dtype("i32")
                pairs: tuple[tuple[int, int], ...] = ()
                profile, named = "litert_xnnpack", None
            else:
                target = Quantized(case["out"], [1.0], [case["out_zp"]])
                text, stored = f"tensor<{len(case['acc'])}x{case['bias']}>", storage_dtype(case["bias"])
                pairs = tuple(_litert_pair(scheme, factor) for factor in factors)
                profile, named = "litert", scheme
            yield Conversion(
                name,
                "requantize",
                profile,
                text,
                str(target),
                np.array(case["acc"], stored),
                np.array(case[resolver], target.dtype),
                multipliers=pairs,
                options=_options(named, axis if pairs else None),
            )


def _litert_schemes(case: Any, fixed: list[float], real: list[float]) -> Iterator[tuple[str, str, list[float]]]:
    wide, connected = case["bias"] == "i64", case["op"] == "FULLY_CONNECTED"
    if connected:
        yield "ref", "litert_float", real
    elif wide:
        yield "ref", "litert_int64", real
    if wide:
        for resolver in ("opt", "default"):
            yield resolver, "litert_float" if connected else "litert_int64", real
        return
    yield "opt", "arm_vector", fixed
    yield "default", "xnnpack_fp32" if case["default_kernel"] == "xnnpack" else "arm_vector", fixed


def _litert_pair(scheme: str, factor: float) -> tuple[int, int]:
    if scheme != "litert_float":
        return oracle.litert_multiplier(factor)
    numerator, denominator = factor.as_integer_ratio()
    spare = 53 - numerator.bit_length()
    return numerator << spare, denominator.bit_length() - 1 + spare


def _litert_quantize(cases: Any) -> Iterator[Conversion]:
    """QUANTIZE between integers by the default interpreter, where it is defined by the element alone (C.7)."""
    for index, case in enumerate(cases):
        eight = case["in"] in ("i8", "u8") and case["out"] in ("i8", "u8")
        if eight:
            yield from _litert_vectors(f"tflite_quantize_op/requantize/{index}", case)
        if (eight and case["default_kernel"] != "xnnpack") or (case["in"], case["out"]) == ("i32", "i8"):
            continue
        source, target = (
            Quantized(case[side], [oracle.from_bits(case[f"{side}_scale"])], [case[f"{side}_zp"]])
            for side in ("in", "out")
        )
        yield Conversion(
            f"tflite_quantize_op/requantize/{index}/default",
            "requantize",
            "litert_xnnpack",
            source.tensor(len(case["x"])),
            str(target),
            np.array(case["x"], source.dtype),
            np.array(case["default"], target.dtype),
        )


def _litert_vectors(name: str, case: Any) -> Iterator[Conversion]:
    """QUANTIZE between 8 bits without the delegate: groups of 16 by the vector rule, and the rest by the scalar one."""
    vectors = len(case["x"]) // 16 * 16
    columns = ("opt",) if case["default_kernel"] == "xnnpack" else ("opt", "default")
    source, target = (Quantized(case[side], [1.0], [case[f"{side}_zp"]]) for side in ("in", "out"))
    for column in columns:
        for part, scheme in ((slice(vectors), "arm_vector"), (slice(vectors, None), "litert")):
            values = np.array(case["x"][part], source.dtype)
            yield Conversion(
                f"{name}/{column}/{scheme}",
                "requantize",
                "litert",
                source.tensor(values.size),
                str(target),
                values,
                np.array(case[column][part], target.dtype),
                multipliers=((case["m"], case["shift"]),),
                options={"scheme": scheme},
            )


def _product(
    a: Sequence[int], b: Sequence[int], rows: int, inner: int, columns: int, a_zero: int, b_zero: Sequence[int]
) -> Array:
    left = np.array(a, np.int64).reshape(rows, inner) - a_zero
    right = np.array(b, np.int64).reshape(inner, columns) - np.array(b_zero, np.int64)
    return (left @ right).ravel().astype(np.int32)


def _matrix_products(data: Any) -> Iterator[Conversion]:
    """What becomes of the exact int32 products of QLinearMatMul and FULLY_CONNECTED."""

    def stage(
        name: str, profile: str, acc: Array, columns: int, scales: list[float], target: Quantized, expected: Any
    ) -> Conversion:
        source = Quantized("i32", scales, [0], 1 if len(scales) > 1 else None)
        return Conversion(
            name,
            "requantize",
            profile,
            source.tensor(acc.size // columns, columns),
            str(target),
            acc,
            np.array(expected, target.dtype),
        )

    for index, case in enumerate(data["onnx_qlinear_matmul"]):
        acc = _product(case["a"], case["b"], case["M"], case["K"], case["N"], case["a_zp"], case["b_zp"])
        a_scale = Fraction(oracle.from_bits(case["a_scale"]))
        scales = [oracle.f32(a_scale * Fraction(oracle.from_bits(s))) for s in case["b_scale"]]
        storage = "u8" if max(case["a"]) > 127 or case["y_zp"] > 127 or max(case["ort"]) > 127 else "i8"
        target = Quantized(storage, [oracle.from_bits(case["y_scale"])], [case["y_zp"]])
        for column, profile in (("ort", "onnx"), ("ref", "onnx_reference")):
            name = f"qgemm_conv/onnx_qlinear_matmul/{index}/{column}"
            yield stage(name, profile, acc, case["N"], scales, target, case[column])
    for index, case in enumerate(data["litert_fully_connected"]):
        weights = np.array(case["w_MK"]).reshape(case["M"], case["K"]).T.ravel().tolist()
        acc = _product(case["x"], weights, case["B"], case["K"], case["M"], case["in_zp"], [0])
        acc = (acc.reshape(case["B"], -1) + np.array(case["bias"] or [0], np.int32)).ravel().astype(np.int32)
        in_scale = Fraction(oracle.from_bits(case["in_scale"]))
        scales = [oracle.f32(in_scale * Fraction(oracle.from_bits(s))) for s in case["w_scale"]]
        target = Quantized("i8", [oracle.from_bits(case["out_scale"])], [case["out_zp"]])
        name = f"qgemm_conv/litert_fully_connected/{index}/default"
        yield stage(name, "litert_xnnpack", acc, case["M"], scales, target, case["default"])


def _stablehlo(cases: Any) -> Iterator[Conversion]:
    for index, case in enumerate(cases):
        shape = "".join(f"{size}x" for size in case["shape"])
        source, target = (
            case[side].partition("<")[2].partition(":")[0].partition("<")[0].replace("ui", "u")
            for side in ("input_type", "output_type")
        )
        yield Conversion(
            f"stablehlo_passes/requantize/{index}",
            "requantize",
            "stablehlo",
            f"tensor<{shape}{case['input_type']}>",
            case["output_type"],
            np.array(case["input"], storage_dtype(source)),
            np.array(case["output"], storage_dtype(target)),
        )


def _rescale(cases: Any) -> Iterator[Conversion]:
    """RESCALE's other modes than those of the profiles, with the types that have zero points; i48 as plain integers."""
    schemes = {
        (True, "INEXACT_ROUND"): "tosa_inexact_round",
        (False, "SINGLE_ROUND"): "tosa_scale16",
        (False, "INEXACT_ROUND"): "tosa_scale16_inexact_round",
    }
    for case in cases:
        scheme = schemes.get((case["scale32"], case["rounding_mode"]))
        if scheme is None or case["status"] == "error":
            continue
        storages = [
            case[f"{side}_t"].replace("i", "u") if case[f"{side}put_unsigned"] else case[f"{side}_t"]
            for side in ("in", "out")
        ]
        if "u32" in storages:
            continue
        axis = len(case["shape"]) - 1 if case["per_channel"] else None
        shape = "".join(f"{size}x" for size in case["shape"])
        wide = storages[0] == "i48"
        source = Quantized("i32" if wide else storages[0], [1.0], [case["input_zp"]])
        target = Quantized(storages[1], [1.0], [case["output_zp"]])
        valid = case["status"] == "valid"
        of_the_multiplier = {"shift range", "multiplier<0"} & set(case.get("reasons", ()))
        yield Conversion(
            f"tosa_rescale/{case['id']}",
            "requantize",
            "tosa",
            f"tensor<{shape}{'i48' if wide else source}>",
            str(target),
            np.array(case["values"], "<i8" if wide else source.dtype),
            np.array(case.get("reference_model_output", case["output"]), target.dtype) if valid else None,
            None if valid else "parameter_invalid" if of_the_multiplier else "precondition_failed",
            tuple(zip(case["multiplier"], case["shift"], strict=True)),
            _options(scheme, axis),
        )
