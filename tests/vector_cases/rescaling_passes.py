"""stablehlo_passes.json: the RESCALEs that StableHLO's passes make of quantized operations, and their numbers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from tests.vector_cases.conversion import Conversion, Derivation, Quantized, load


def _cases() -> Iterator[tuple[str, Any]]:
    passes = load("stablehlo_passes")["quant_to_tosa_rescale"]
    for group in ("upstream_tests", "computed"):
        for index, case in enumerate(passes[group]):
            yield f"stablehlo_passes/{group}/{index}", case


def rescaling_derivations() -> Iterator[Derivation]:
    """Every RESCALE's multiplier, of its real factor; and of the operation's scales where they alone make it."""
    for name, case in _cases():
        for side, rescale in case["rescales"].items():
            error = None if rescale["shift_valid"] else "parameter_invalid"
            factor = float(rescale["real_scale"]).hex()
            yield Derivation(f"{name}/{side}", "tosa", factor, rescale["multiplier"], rescale["shift"], error)
        if case["op"] in ("multiply", "divide", "abs"):
            rescale = case["rescales"]["result"]
            other = repr(case["rhs"]["scale"]) if "rhs" in case else ""
            scales = (repr(case["lhs"]["scale"]), other, repr(case["result"]["scale"]))
            m, shift = rescale["multiplier"], rescale["shift"]
            yield Derivation(f"{name}/result/scales", "tosa", "", m, shift, scales=scales)


def rescaling_conversions() -> Iterator[Conversion]:
    """The numbers before and after every RESCALE that ran, and those of the other pass."""
    for name, case in _cases():
        numbers = case["numeric"]
        if numbers["status"] != "ok":
            continue
        for side, rescale in case["rescales"].items():
            ends = ("op_i32", "output") if side == "result" else (side, f"{side}_i32")
            storages = ("i32", case["storage"]) if side == "result" else (case["storage"], "i32")
            yield _conversion(f"{name}/{side}", rescale, storages, *(numbers[end] for end in ends))
    for index, case in enumerate(load("stablehlo_passes")["tosa_rescale_to_stablehlo"]["computed"]):
        name = f"stablehlo_passes/tosa_rescale_to_stablehlo/{index}"
        bound = 1 << (case["shift"] - 1)
        pairs = list(zip(case["input"], case["output"], strict=True))
        kept = [pair for pair in pairs if -bound <= pair[0] - case["input_zp"] < bound]
        storages = (case["in_t"], case["out_t"])
        yield _conversion(name, case, storages, *map(list, zip(*kept, strict=True)))
        # Where RESCALE is unpredictable, the pass makes something of it, and we nothing.
        beyond = [pair[0] for pair in pairs if pair not in kept]
        if beyond:
            undefined = _conversion(f"{name}/unpredictable", case, storages, beyond, beyond[:0])
            yield replace(undefined, expected=None, error="precondition_failed")


def _conversion(
    name: str, rescale: Any, storages: tuple[str, str], values: list[int], expected: list[int]
) -> Conversion:
    source = Quantized(storages[0], [1.0], [rescale["input_zp"]])
    target = Quantized(storages[1], [1.0], [rescale["output_zp"]])
    return Conversion(
        name,
        "requantize",
        "tosa",
        source.tensor(len(values)),
        str(target),
        np.array(values, source.dtype),
        np.array(expected, target.dtype),
        multipliers=((rescale["multiplier"], rescale["shift"]),),
    )
