"""TensorFlow's dumps: each label gives the bits of its dump, and is identified."""

from __future__ import annotations

import pytest

from tests.interop.blind.rounds import check_rounds
from tests.interop.blind.systems import OF_TENSORFLOW, System, check_labels

pytestmark = [
    pytest.mark.interop,
    # TensorFlow's own name of LiteRT's interpreter, which reads models here and runs nothing.
    pytest.mark.filterwarnings(r"ignore:\s*Warning. tf.lite.Interpreter is deprecated:UserWarning"),
]


@pytest.mark.parametrize("system", OF_TENSORFLOW, ids=str)
def test_labels(system: System) -> None:
    check_labels(system)


@pytest.mark.parametrize("system", OF_TENSORFLOW, ids=str)
def test_identified(system: System) -> None:
    check_rounds(system)
