"""`tests/arm64/python -m tests.arm64.live DIRECTORY LEVEL`: operators beside onnxruntime and LiteRT for 64-bit ARM.

With kernels of DIRECTORY. The calls are those of the live tests on x86-64, a few of each. Exits with 1 if one differs.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from requant.kernels.jit.baked import use_baked

Array = NDArray[Any]
Compared = tuple[Array | None, Array | None, Array | None]
"""Ours, theirs, and which elements are compared; all without that."""


def count(name: str, compared: Iterable[Compared]) -> int:
    """Print how many elements were compared, and return how many differ. What either refuses is not compared."""
    calls = elements = differ = 0
    first = ""
    for ours, theirs, which in compared:
        if ours is None or theirs is None:
            continue
        bits = [np.ascontiguousarray(each).reshape(-1) for each in (ours, theirs)]
        unequal = (bits[0] != bits[1]) & ~((bits[0] != bits[0]) & (bits[1] != bits[1]))
        kept = np.ones(unequal.shape, bool) if which is None else which.reshape(-1)
        calls, elements = calls + 1, elements + int(kept.sum())
        for index in np.flatnonzero(unequal & kept)[:1]:
            first = first or f"; the first gives {bits[0][index]!r}, not {bits[1][index]!r}"
        differ += int((unequal & kept).sum())
    sys.stdout.write(f"{name}: {elements:,} elements of {calls} calls, {differ} differ{first}\n")
    sys.stdout.flush()
    return differ + (not elements)


def of_onnxruntime() -> int:
    """Compare its operators. Return how many elements differ."""
    from requant.errors import RequantError
    from tests.interop.operators import test_onnxruntime_operators as cases
    from tests.interop.operators.typed_arrays import operand
    from tests.support.operator_calls import run

    def compared(nodes: Iterable[Any], **attributes: Any) -> Iterable[Compared]:
        for node in nodes:
            given = replace(node, attributes={**node.attributes, **attributes})
            yield cases.by_us(given), cases.by_onnxruntime(node), None

    def held_by_i32(nodes: Iterable[Any], stage: str) -> Iterable[Compared]:
        """Without NaN, and numbers that i32 does not hold: CPUs convert them in their own ways."""
        for node in nodes:
            inputs = {name: operand(array) for name, array in node.inputs.items()}
            try:
                traced = run(node.full_name, inputs, {**node.attributes, "trace": True})
            except RequantError:
                continue
            with np.errstate(invalid="ignore"):
                held = np.abs(traced[stage]) < 2.0**31 if stage in traced else None
            yield list(traced.values())[-1], cases.by_onnxruntime(node), held

    elementwise = cases.elementwise_nodes
    nodes: dict[str, Callable[[Any], Iterable[Any]]] = {
        "QLinearSigmoid": partial(cases.unary_nodes, operator="QLinearSigmoid"),
        "QLinearLeakyRelu": partial(cases.unary_nodes, operator="QLinearLeakyRelu"),
        "QLinearConcat": cases.joined_nodes,
        "QLinearWhere": cases.chosen_nodes,
        "QLinearGlobalAveragePool": cases.global_pool_nodes,
    }
    added = elementwise(np.random.default_rng(1), "QLinearAdd", cases.scales_of_three)
    differ = count("com.microsoft.QLinearAdd, kernel neon", compared(added, kernel="neon"))
    multiplied = elementwise(np.random.default_rng(2), "QLinearMul", cases.scales_of_product)
    differ += count("com.microsoft.QLinearMul, sums that i32 holds", held_by_i32(multiplied, "shifted"))
    gemm = cases.gemm_nodes(np.random.default_rng(3))
    differ += count("com.microsoft.QGemm, products that i32 holds", held_by_i32(gemm, "scaled"))
    for name, of in nodes.items():
        differ += count(f"com.microsoft.{name}", compared(of(np.random.default_rng(3))))
    for name in ("MatMulIntegerToFloat", "DynamicQuantizeMatMul"):
        floats = cases.float_nodes(np.random.default_rng(4), name)
        differ += count(f"com.microsoft.{name}, kernel neon", compared(floats, kernel="neon"))
    return differ


def of_litert() -> int:
    """Compare the operators of its reference kernels. Return how many elements differ."""
    from tests.interop.operators import test_litert_operators as cases

    def compared(nodes: Iterable[Any]) -> Iterable[Compared]:
        for node in nodes:
            ours = node.ours("reference")
            yield ours, None if ours is None else node.theirs("reference"), None

    several: dict[Callable[..., Iterable[Any]], tuple[str, ...]] = {
        cases.binary_nodes: ("MUL", "SUB", "PRELU"),
        cases.pool_nodes: ("AVERAGE_POOL_2D", "MAX_POOL_2D"),
        cases.unary_nodes: cases.UNARY,
        cases.reduced_nodes: ("MEAN", "SUM"),
        cases.resized_nodes: ("RESIZE_BILINEAR", "RESIZE_NEAREST_NEIGHBOR"),
    }
    single: dict[str, Callable[[Any], Iterable[Any]]] = {
        "SOFTMAX": cases.softmax_nodes,
        "CONCATENATION": cases.joined_nodes,
        "PAD": cases.padded_nodes,
        "BATCH_MATMUL": cases.matmul_nodes,
        "TRANSPOSE_CONV": cases.transposed_nodes,
    }
    nodes = {name: partial(of, operator=name) for of, names in several.items() for name in names} | single
    return sum(
        count(f"litert.{name}, kernel reference", compared(of(np.random.default_rng(number))))
        for number, (name, of) in enumerate(nodes.items())
    )


def main(directory: Path, level: str) -> int:
    """Return 1 if an element differs or nothing was compared."""
    if (taken := use_baked(directory)) != level:
        sys.exit(f"this CPU is taken for one of {taken}, not of {level}")
    return 1 if of_onnxruntime() + of_litert() else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2]))
