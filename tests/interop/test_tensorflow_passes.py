"""The passes of the quant dialect against MLIR's own, which TensorFlow carries and runs on text.

The same module goes through upstream's pass and ours; what comes out is equal to the letter but for names of values.
"""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from core.lowering.module import read_module
from tests.core.lowering.modules import lowered, unnamed

tensorflow: Any = pytest.importorskip("tensorflow")

pytestmark = pytest.mark.interop

STORAGES = ("i2", "u4", "i8", "u8", "i8<-100:101>", "u8<3:250>", "i16", "u16<1:60000>", "i32", "u32", "i5")
EXPRESSED = ("f16", "bf16", "f32", "f64")
SHAPES = ("4x6", "?x6", "4x?", "?x?", "2x4x6", "*")


def parameter(random: Random, storage: str) -> str:
    zero_point = random.choice((0, 1, 3, 200, -7, 256))
    return f"{random.uniform(1e-3, 3.0):.6f}" + (f":{zero_point}" if random.random() < 0.7 else "")


def quantized(random: Random) -> tuple[str, str, str]:
    """Return a shape, an expressed type and a quantized element type that fits the shape."""
    storage, expressed, shape = random.choice(STORAGES), random.choice(EXPRESSED), random.choice(SHAPES)
    kind = random.choice(("tensor", "axis", "blocks"))
    if kind == "tensor":
        return (
            random.choice((shape, "")),
            expressed,
            f"!quant.uniform<{storage}:{expressed}, {parameter(random, storage)}>",
        )
    if kind == "axis" or "?" in shape or shape == "*":
        axis, count = (0, 4) if shape == "4x?" or random.random() < 0.4 else (len(shape.split("x")) - 1, 6)
        if shape == "2x4x6" and axis == 0:
            count = 2
        listed = ", ".join(parameter(random, storage) for _ in range(count))
        return shape, expressed, f"!quant.uniform<{storage}:{expressed}:{axis}, {{{listed}}}>"
    rows = [[f"{random.uniform(0.5, 3.0):.3f}:{random.choice((0, 1))}" for _ in range(3)] for _ in range(2)]
    scales = ", ".join(f"{{{', '.join(row)}}}" for row in rows)
    if shape == "2x4x6":
        return shape, expressed, f"!quant.uniform<{storage}:{expressed}:{{1:2, 2:2}}, {{{{{scales}}}}}>"
    return "4x6", expressed, f"!quant.uniform<{storage}:{expressed}:{{0:2, 1:2}}, {{{scales}}}>"


def module_of_casts(random: Random, count: int) -> str:
    functions = []
    for index in range(count):
        shape, expressed, element = quantized(random)
        real, stored = (f"tensor<{shape}x{each}>" if shape else each for each in (expressed, element))
        op, source, target = random.choice((("qcast", real, stored), ("dcast", stored, real)))
        functions.append(f"""func.func @f{index}(%x: {source}) -> {target} {{
          %r = quant.{op} %x : {source} to {target}
          return %r : {target}
        }}""")
    return "\n".join(functions)


def module_of_calls(random: Random, count: int) -> str:
    functions = []
    for index in range(count):
        shape, _, element = quantized(random)
        type_ = f"tensor<{shape}x{element}>" if shape else element
        functions.append(f"func.func private @e{index}({type_}, i1) -> ({type_}, i1)")
        shown = random.choice(("%x, %r#0", "%r#0, %r#0", "%x, %x", "%s#0, %x"))
        functions.append(f"""func.func @f{index}(%x: {type_}, %y: i1) -> ({type_}, {type_}) {{
          %r:2 = call @e{index}(%x, %y) : ({type_}, i1) -> ({type_}, i1)
          %s:2 = call @e{index}(%r#0, %r#1) : ({type_}, i1) -> ({type_}, i1)
          return {shown} : {type_}, {type_}
        }}""")
    return "\n".join(functions)


def upstream(text: str, pipeline: str) -> str:
    found: str = tensorflow.mlir.experimental.run_pass_pipeline(text, pipeline)
    return unnamed(read_module(found))


def test_lower_quant_ops() -> None:
    text = module_of_casts(Random(9), 400)
    assert unnamed(lowered(text, "lower-quant-ops")) == upstream(text, "func.func(lower-quant-ops)")


def test_strip_func_quant_types() -> None:
    text = module_of_calls(Random(10), 200)
    assert unnamed(lowered(text, "strip-func-quant-types")) == upstream(text, "strip-func-quant-types")


def test_normalize_quant_types() -> None:
    random = Random(11)
    functions = []
    for index in range(300):
        shape = random.choice(((4, 1), (1, 1), (1, 6), (2, 3), (4, 6), (1, 3)))
        rows = [[parameter(random, "").partition(":")[0] + f":{random.choice((0, 1, 5))}" for _ in range(shape[1])]
                for _ in range(shape[0])]  # fmt: skip
        scales = ", ".join(f"{{{', '.join(row)}}}" for row in rows)
        blocks = f"{{0:{4 // shape[0]}, 1:{6 // shape[1]}}}"
        type_ = f"tensor<4x6x!quant.uniform<{random.choice(('i8', 'u8', 'i4'))}:f32:{blocks}, {{{scales}}}>>"
        functions.append(f"""func.func @f{index}(%x: {type_}) -> {type_} {{
          return %x : {type_}
        }}""")
    text = "\n".join(functions)
    ours = lowered(text, "normalize-quant-types{sign-extend-zero-points=true ignore-block-size=true}")
    assert unnamed(ours) == upstream(text, "any(normalize-quant-types)")
