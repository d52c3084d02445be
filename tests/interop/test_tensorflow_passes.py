"""The passes of the quant dialect against MLIR's own, which TensorFlow carries and runs on text.

The same module goes through upstream's pass and ours; what comes out is equal to the letter but for names of values.
"""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from requant.lowering.module import read_module
from tests.core.lowering.modules import lowered, unnamed
from tests.interop.conformance import systems
from tests.interop.conformance.records import record
from tests.interop.conformance.subject import lowering

tensorflow: Any = pytest.importorskip("tensorflow")

pytestmark = pytest.mark.interop

STORAGES = ("i2", "u4", "i8", "u8", "i8<-100:101>", "u8<3:250>", "i16", "u16<1:60000>", "i32", "u32", "i5")
EXPRESSED = ("f16", "bf16", "f32", "f64")
SHAPES = ("4x6", "?x6", "4x?", "?x?", "2x4x6", "*")


# Beside 1 in f64, f32, bf16 and f16, and subnormal, smallest normal and largest numbers of f16.
SCALES = (
    "1.0", "0.9999999999999999", "1.0000000000000002", "0.99999994", "1.00000012", "0.99609375", "1.0078125",
    "0.99951171875", "1.0009765625", "5.9604644775390625e-08", "6.103515625e-05", "6.097555160522461e-05", "65504.0",
    "32768.0",
)  # fmt: skip


def parameter(random: Random, storage: str) -> str:
    zero_point = random.choice((0, 1, 3, 200, -7, 256))
    scale = random.choice(SCALES) if random.random() < 0.3 else f"{random.uniform(1e-3, 3.0):.6f}"
    return scale + (f":{zero_point}" if random.random() < 0.7 else "")


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


CASTABLE = ("i2", "u4", "i8", "i8<-100:101>", "i16", "i32")


def module_of_chains(random: Random, count: int) -> str:
    """Casts of casts of values of a few types, calls between them, some values used several times and some never."""
    functions = []
    for index in range(count):
        shape, expressed = random.choice(("4x", "?x", "4x6x", "*x", "")), random.choice(EXPRESSED)
        storage = random.choice(CASTABLE)
        element = [f"!quant.uniform<{storage}:{expressed}, {parameter(random, storage)}>" for _ in range(2)]
        if shape == "4x" and random.random() < 0.3:
            element[1] = f"!quant.uniform<{storage}:{expressed}:0, {{1.0, 2.0:1, 3.0, 4.0}}>"
        quantized_types = [f"tensor<{shape}{each}>" if shape else each for each in element]
        real = f"tensor<{shape}{expressed}>" if shape else expressed
        stored = f"tensor<{shape}{signless(storage)}>" if shape else signless(storage)
        values = [("%a", real), ("%b", quantized_types[0]), ("%c", quantized_types[1]), ("%d", stored)]
        results = ", ".join((*quantized_types, quantized_types[0]))
        arguments = ", ".join(f"{name}: {type_}" for name, type_ in values)
        lines = []
        for step in range(random.randint(1, 12)):
            name, type_ = random.choice(values if random.random() < 0.4 else values[-2:])
            if type_ == real:
                op, target = "quant.qcast", random.choice(quantized_types)
            elif type_ == stored:
                op, target = "quant.scast", random.choice(quantized_types)
            elif random.random() < 0.2 and type_ == quantized_types[0]:
                lines.append(f"%v{step}:3 = call @e{index}({name}, {name}) : ({type_}, {type_}) -> ({results})")
                values += [(f"%v{step}#{at}", each) for at, each in enumerate((*quantized_types, quantized_types[0]))]
                continue
            else:
                op, target = random.choice((("quant.dcast", real), ("quant.scast", stored)))
            lines.append(f"%v{step} = {op} {name} : {type_} to {target}")
            values.append((f"%v{step}", target))
        returned = random.choices(values, k=3)
        shown, types = ", ".join(name for name, _ in returned), ", ".join(type_ for _, type_ in returned)
        functions.append(f"func.func private @e{index}({quantized_types[0]}, {quantized_types[0]}) -> ({results})")
        body = "\n".join([*lines, f"return {shown} : {types}"])
        functions.append(f"func.func @f{index}({arguments}) -> ({types}) {{\n{body}\n}}")
    return "\n".join(functions)


def signless(storage: str) -> str:
    """Return the integer type in which a storage type is held."""
    return "i" + storage.partition("<")[0].lstrip("iu")


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


def equal(text: str, name: str, pipeline: str, functions: int) -> None:
    assert unnamed(lowered(text, name)) == upstream(text, pipeline)
    record(systems.TENSORFLOW, [lowering(name.partition("{")[0])], functions)


def test_lower_quant_ops() -> None:
    text = module_of_casts(Random(9), 400)
    equal(text, "lower-quant-ops", "func.func(lower-quant-ops)", 400)


def test_strip_func_quant_types() -> None:
    text = module_of_calls(Random(10), 200)
    equal(text, "strip-func-quant-types", "strip-func-quant-types", 200)


@pytest.mark.parametrize("pipeline", ["func.func(lower-quant-ops)", "strip-func-quant-types"])
@pytest.mark.parametrize("seed", range(12, 16))
def test_chains_of_casts(pipeline: str, seed: int) -> None:
    text = module_of_chains(Random(seed), 150)
    name = pipeline.removeprefix("func.func(").removesuffix(")")
    equal(text, name, pipeline, 150)


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
    name = "normalize-quant-types{sign-extend-zero-points=true ignore-block-size=true}"
    equal(text, name, "any(normalize-quant-types)", 300)
