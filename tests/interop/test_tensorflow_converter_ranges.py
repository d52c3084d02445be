"""Rule `litert_converter` and the bias `litert` against TensorFlow's converter, by whole models of many layers.

By the older of the converter's two quantizers. The default one gives -245 to 105 the zero point 50, where the f32 steps
of the rule make a tie and 51.
Post-training quantization of matrix products with a bias: the parameters of inputs and weights and the biases stand in
the converted model. Left out is what the converter widens before: inputs narrower than 2e-6, and weights whose bias
would overflow.
"""

from __future__ import annotations

import numpy as np
import pytest

from requant.calibration.bias import bias_rule_named, bias_scales, quantize_bias
from tests.interop.comparison import Comparison
from tests.interop.conformance import subject, systems
from tests.interop.range_cases import RangeComparison
from tests.interop.seed_of_the_day import generator

pytest.importorskip("tensorflow")

from tests.interop.tensorflow_ranges import (
    CHANNELS,
    LAYERS,
    biases,
    converted,
    input_ranges,
    layers,
    parameters,
    weights,
)

pytestmark = pytest.mark.interop


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
