"""TensorFlow's dumps: each label gives its bits."""

from __future__ import annotations

import pytest

from tests.interop.blind.dump import check
from tests.interop.seed_of_the_day import generator

pytest.importorskip("tensorflow")

from tests.interop.blind import tensorflow_ranges

pytestmark = pytest.mark.interop


def test_labels_of_fake_quantization_and_passes() -> None:
    check("TensorFlow", tensorflow_ranges.dumps(generator(613), 160), at_least=160)


# TensorFlow's own name of LiteRT's interpreter, which reads the model here and runs nothing.
@pytest.mark.filterwarnings(r"ignore:\s*Warning. tf.lite.Interpreter is deprecated:UserWarning")
def test_labels_of_the_converter() -> None:
    rng = generator(614)
    dumps = (each for _ in range(2) for each in tensorflow_ranges.ranges_of_converter(rng))
    check("TensorFlow's converter", dumps, at_least=64)
