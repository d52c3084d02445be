"""The examples of upstream's own pages: StableHLO's passes, the quant dialect's casts (docs/lowering.md)."""

from __future__ import annotations

from typing import Any, cast

import pytest

from requant.lowering.evaluate import evaluate, function_named
from requant.lowering.module import read_module
from tests.core.lowering.modules import lowered, operations, unnamed
from tests.core.lowering.test_evaluate_vectors import run, tensor
from tests.support import page_listings as page


@pytest.mark.parametrize(
    ("name", "before", "after"),
    [
        ("stablehlo-legalize-qdq-to-quantized-op", page.CHAIN, page.FUSED.replace("<u8", "<ui8")),
        ("stablehlo-legalize-quant-to-math", page.ADD, page.ADD_AS_MATH),
        ("stablehlo-legalize-quantized-op-to-qdq", page.ADD, page.ADD_AS_QDQ),
    ],
)
def test_the_listings_of_stablehlo(name: str, before: str, after: str) -> None:
    assert unnamed(lowered(before, name)) == unnamed(read_module(after))


def test_the_add_and_its_lowerings() -> None:
    """The specification rounds once and the lowering rounds each side, so they differ by a step at most."""
    text = page.ADD.replace("tensor<!", "tensor<65536x!")
    left, right = [value // 256 - 128 for value in range(65536)], [value % 256 - 128 for value in range(65536)]
    given = [
        tensor(f"tensor<65536x!quant.uniform<i8:f32, {end}>>", each)
        for end, each in (("1.0:0", left), ("2.0:1", right))
    ]
    raw = [tensor("tensor<65536xi8>", each) for each in (left, right)]
    spec = run(text, given).elements
    assert run(text, given, "stablehlo-legalize-quantized-op-to-qdq").elements.tolist() == spec.tolist()
    for passes in ((), ("chlo-legalize-to-stablehlo",)):
        difference = run(text, raw, "stablehlo-legalize-quant-to-math", *passes).elements.astype(int) - spec
        assert {*difference.tolist()} == {-1, 0, 1}


def test_the_rescale_example() -> None:
    types = [f"tensor<2x2x!quant.uniform<i8:f32, {scale}:-1>>" for scale in ("0.025", "0.075")]
    text = page.ADD_TO_RESCALE
    module = lowered(text, "stablehlo-quant-legalize-to-tosa-rescale")
    constants = [
        int(cast(Any, op.properties["values"]).get_values()[0])
        for op in module.operation.walk()
        if op.name == "tosa.const"
    ]
    # Multiplier, shift, input zero point, output zero point of each rescale.
    assert constants == [1431655765, 13, -1, 0, 1073741824, 11, -1, 0, 1073741824, 50, 0, -1]
    assert [name for name in operations(module) if name != "tosa.const"] == [
        "tosa.rescale", "tosa.rescale", "stablehlo.add", "tosa.rescale", "func.return",
    ]  # fmt: skip
    # 0.25 + 0.75 is 1.05 in steps of 0.15: 9 and 9 give 6.
    given = [tensor(type_, [9] * 4) for type_ in types]
    for passes in ((), ("tosa-rescale-legalize-to-stablehlo",)):
        found = run(text, given, "stablehlo-quant-legalize-to-tosa-rescale", *passes)
        assert found.elements.tolist() == [[6, 6], [6, 6]]


# The forms of quant.qcast's types beside the page's examples: dynamic, one scale per channel, and blocks.
CASTS = [
    ("tensor<?xf32>", "tensor<?x!quant.uniform<i8:f32, 2.0>>", [3], [-3.0, 5.0, 7.9], [-1, 2, 3]),
    (
        "tensor<2x3xf32>", "tensor<2x3x!quant.uniform<i8:f32:1, {2.0:10, 3.0:20, 4.0:30}>>", [2, 3],
        [4.0, 3.0, 8.0, -4.0, -3.0, -8.0], [12, 21, 32, 8, 19, 28],
    ),
    (
        "tensor<2x4xf32>", "tensor<2x4x!quant.uniform<i8:f32:{0:1, 1:2}, {{2.0:1, 4.0:2}, {8.0:3, 16.0:4}}>>", [2, 4],
        [2.0, 4.0, 8.0, 12.0, 16.0, 24.0, 32.0, 48.0], [2, 3, 4, 5, 5, 6, 6, 7],
    ),
]  # fmt: skip


@pytest.mark.parametrize(("real", "quantized", "shape", "values", "expected"), CASTS)
def test_the_forms_of_qcast(
    real: str, quantized: str, shape: list[int], values: list[float], expected: list[int]
) -> None:
    text = f"""func.func @main(%input: {real}) -> {quantized} {{
      %result = quant.qcast %input : {real} to {quantized}
      return %result : {quantized}
    }}"""
    given = tensor("tensor<" + "".join(f"{size}x" for size in shape) + "f32>", values)
    for passes in ((), ("lower-quant-ops",), ("lower-quant-ops", "strip-func-quant-types")):
        assert run(text, [given], *passes).elements.reshape(-1).tolist() == expected


def test_an_input_of_another_type_is_refused() -> None:
    module = read_module(page.ADD)
    with pytest.raises(Exception, match="input 0 has elements of another type"):
        evaluate(module, function_named(module, "add"), [tensor("tensor<i8>", [1]), tensor("tensor<i8>", [1])])
