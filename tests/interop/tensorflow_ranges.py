"""Scales and zero points that TensorFlow derives: its pass quant-convert-fake-quant-to-qdq, and its converter."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import numpy as np
import tensorflow
from numpy.typing import NDArray

Array = NDArray[Any]

_TYPE = re.compile(r'"quantization.qcast".*!quant\.uniform<i8(<-?\d+:-?\d+>)?:f32(?::0)?, \{?([^>}]*)')


def constant(name: str, numbers: Array) -> str:
    """A tensor of f32 written by its bits; of one number, without dimensions."""
    bits = ", ".join(f"0x{pattern:08X}" for pattern in numbers.view(np.uint32).tolist())
    type_ = "tensor<f32>" if numbers.size == 1 else f"tensor<{numbers.size}xf32>"
    dense = bits if numbers.size == 1 else f"[{bits}]"
    return f'%{name} = "tf.Const"() {{value = dense<{dense}> : {type_}}} : () -> {type_}'


def fake_quantize(index: int, lows: Array, highs: Array, narrow: bool) -> str:
    """A function of one operator, with a range for each channel if there are several."""
    count = lows.size
    operator, ends = "FakeQuantWithMinMaxVars", "tensor<f32>"
    if count > 1:
        operator, ends = "FakeQuantWithMinMaxVarsPerChannel", f"tensor<{count}xf32>"
    type_ = f"tensor<{count}xf32>"
    return f"""func.func @f{index}(%x: {type_}) -> {type_} {{
      {constant("low", lows)}
      {constant("high", highs)}
      %r = "tf.{operator}"(%x, %low, %high) {{num_bits = 8 : i64, narrow_range = {str(narrow).lower()}}}
        : ({type_}, {ends}, {ends}) -> {type_}
      return %r : {type_}
    }}"""


def parameters_of_pass(functions: list[str], narrow: bool) -> list[tuple[float, int]]:
    """Scales and zero points of the types that the pass makes."""
    found = tensorflow.mlir.experimental.run_pass_pipeline(
        "\n".join(functions), "func.func(quant-convert-fake-quant-to-qdq)"
    )
    types = _TYPE.findall(found)
    assert {bounds for bounds, _ in types} == {"<-127:127>" if narrow else ""}
    pairs = [each.partition(":") for _, listed in types for each in listed.split(",")]
    return [(number(scale), int(zero_point or 0)) for scale, _, zero_point in pairs]


def number(text: str) -> float:
    """An f64, which MLIR writes in decimals or, where that would be long, by its bits."""
    return float(np.uint64(int(text, 16)).view(np.float64)) if text.startswith("0x") else float(text)


LAYERS, DEPTH, CHANNELS = 16, 4, 48


def input_ranges(rng: np.random.Generator) -> Array:
    """[LAYERS, 2] of f32: of both signs, of one, on steps, without width but at 0, and one ulp beside symmetric."""
    found = np.sort(rng.standard_normal((LAYERS, 2)) * 10.0 ** rng.uniform(-4, 6, (LAYERS, 1)), axis=1)
    found[::4] = np.sort(rng.integers(-600, 600, (LAYERS // 4, 2)) / 2, axis=1)
    found = found.astype(np.float32)
    found[1] = 3, 3
    found[2] = -0.0, 255
    found[3] = -127.5, np.nextafter(np.float32(127.5), np.float32(0))
    found[5] = -1.5, 253.5
    return found


def weights(rng: np.random.Generator) -> Array:
    """[LAYERS, DEPTH, CHANNELS], of many sizes of channels."""
    found = rng.standard_normal((LAYERS, DEPTH, CHANNELS)) * 10.0 ** rng.uniform(-4, 3, (LAYERS, 1, CHANNELS))
    found[:, :, ::5] = np.trunc(found[:, :, ::5]) + 1
    return found.astype(np.float32)


def biases(rng: np.random.Generator, ends: Array, matrices: Array) -> Array:
    """[LAYERS, CHANNELS], at and beside ties, and of at most 2^29 steps."""
    lows, highs = np.minimum(ends[:, 0], 0), np.maximum(ends[:, 1], 0)
    steps = ((highs - lows) / np.float32(255))[:, None] * (np.abs(matrices).max(axis=1) / np.float32(127))
    counts = np.trunc(rng.choice([-1, 1], steps.shape) * 2.0 ** rng.uniform(0, 29, steps.shape)) + 0.5
    found = (counts * steps).astype(np.float32)
    towards = rng.choice(np.array([-np.inf, np.inf], np.float32), found.shape)
    return np.asarray(np.where(rng.random(found.shape) < 0.5, np.nextafter(found, towards), found))


def converted(ends: Array, matrices: Array, added: Array, *, wide: bool) -> Any:
    """An interpreter of the model, with inputs of 16 bits or of 8."""
    module = tensorflow.Module()
    module.matrices = [tensorflow.constant(each) for each in matrices]
    module.added = [tensorflow.constant(each) for each in added]
    signature = [tensorflow.TensorSpec((1, DEPTH), tensorflow.float32, name=f"x{index}") for index in range(LAYERS)]

    def products(*inputs: Any) -> list[Any]:
        return [tensorflow.matmul(x, w) + b for x, w, b in zip(inputs, module.matrices, module.added, strict=True)]

    def samples() -> Iterator[dict[str, Array]]:
        yield {f"x{index}": np.array([[low, high, high, low]], np.float32) for index, (low, high) in enumerate(ends)}

    lite = tensorflow.lite
    converter = lite.TFLiteConverter.from_concrete_functions(
        [tensorflow.function(products, input_signature=signature).get_concrete_function()], module
    )
    converter.optimizations = [lite.Optimize.DEFAULT]
    converter.representative_dataset = samples
    converter.experimental_new_quantizer = False
    sets = lite.OpsSet
    kind = sets.EXPERIMENTAL_TFLITE_BUILTINS_ACTIVATIONS_INT16_WEIGHTS_INT8 if wide else sets.TFLITE_BUILTINS_INT8
    converter.target_spec.supported_ops = [kind]
    converter.inference_input_type = converter.inference_output_type = tensorflow.int16 if wide else tensorflow.int8
    return lite.Interpreter(model_content=converter.convert())


def layers(interpreter: Any) -> list[tuple[Any, Any, Any]]:
    """The details of input, weights and bias of each layer, in order."""
    details = {detail["index"]: detail for detail in interpreter.get_tensor_details()}
    found = {}
    for node in interpreter._get_ops_details():
        if node["op_name"] == "FULLY_CONNECTED":
            x, w, b = (details[index] for index in node["inputs"])
            found[int(x["name"].partition("_x")[2].partition(":")[0])] = x, w, b
    assert sorted(found) == list(range(LAYERS))
    return [found[index] for index in range(LAYERS)]


def parameters(detail: Any) -> list[tuple[float, int]]:
    quantization = detail["quantization_parameters"]
    return list(zip(quantization["scales"].tolist(), quantization["zero_points"].tolist(), strict=True))
