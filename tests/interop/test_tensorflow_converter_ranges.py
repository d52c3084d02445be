"""Rule `litert_converter` and the bias `litert` against TensorFlow's converter, by whole models of many layers.

By the older of the converter's two quantizers. The default one gives -245 to 105 the zero point 50, where the f32 steps
of the rule make a tie and 51.
Post-training quantization of matrix products with a bias: the parameters of inputs and weights and the biases stand in
the converted model. Left out is what the converter widens before: inputs narrower than 2e-6, and weights whose bias
would overflow.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from requant.calibration.bias import bias_rule_named, bias_scales, quantize_bias
from tests.interop.comparison import Comparison
from tests.interop.conformance import subject, systems
from tests.interop.range_cases import RangeComparison
from tests.interop.seed_of_the_day import generator

tensorflow: Any = pytest.importorskip("tensorflow")

pytestmark = pytest.mark.interop

Array = NDArray[Any]

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


# TensorFlow's own name of LiteRT's interpreter, which reads the model here and runs nothing.
@pytest.mark.filterwarnings(r"ignore:\s*Warning. tf.lite.Interpreter is deprecated:UserWarning")
@pytest.mark.parametrize("wide", [False, True], ids=["i8", "i16"])
def test_models(wide: bool) -> None:
    rule = bias_rule_named("litert")
    rng = generator(124, wide)
    of_inputs = RangeComparison(
        systems.TENSORFLOW, "litert_converter", "i16" if wide else "i8", **({"symmetric": True} if wide else {})
    )
    of_weights = RangeComparison(systems.TENSORFLOW, "litert_converter", "i8", symmetric=True)
    of_biases = Comparison("TensorFlow's converter, bias", systems.TENSORFLOW, subject.bias("litert"))
    for _ in range(8):
        ends, matrices = input_ranges(rng), weights(rng)
        added = biases(rng, ends, matrices) / np.float32(512 if wide else 1)
        interpreter = converted(ends, matrices, added, wide=wide)
        ours_of_inputs = of_inputs.pairs(*ends.T)
        for index, (x, w, b) in enumerate(layers(interpreter)):
            low, high, ours_scale, ours_zero = next(ours_of_inputs)
            ((scale, zero_point),) = parameters(x)
            of_inputs.add((low, high), (ours_scale, ours_zero), (scale, zero_point))
            columns = matrices[index].min(axis=0), matrices[index].max(axis=0)
            for (*of, weight_scale, weight_zero), found in zip(of_weights.pairs(*columns), parameters(w), strict=True):
                of_weights.add(of, (weight_scale, weight_zero), found)
            if not wide:
                scales = bias_scales(rule, scale, np.array([each for each, _ in parameters(w)]))
                what = (index, ends[index], "scale")
                theirs = np.array([each for each, _ in parameters(b)])
                of_biases.add(what, added[index], scales, theirs)
                ours_of_bias = quantize_bias(rule, added[index], scales).values
                of_biases.add((index, ends[index]), added[index], ours_of_bias, interpreter.get_tensor(b["index"]))
    of_inputs.finish(8 * LAYERS)
    of_weights.finish(8 * LAYERS * CHANNELS)
    if not wide:
        of_biases.finish(16 * LAYERS * CHANNELS)
