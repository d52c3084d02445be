"""The scheme of CMSIS-NN against ExecuTorch's model of arm_nn_requantize, which its Cortex-M backend is tested with.

CMSIS-NN itself is in no package of a registry: this is Python of others, after the same C.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib import metadata, util
from typing import Any
from unittest.mock import MagicMock

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.interop.comparison import Comparison
from tests.interop.conformance import subject, systems
from tests.interop.schemes.accumulators import accumulators, derived, factors, requantized, right_shift
from tests.interop.seed_of_the_day import generator

torch: Any = pytest.importorskip("torch")

pytestmark = pytest.mark.interop

Array = NDArray[Any]

FILE = "executorch/backends/cortex_m/passes/passes_utils.py"
# What the file imports beside, which needs the rest of ExecuTorch and its dependencies.
OTHERS = ("executorch.exir.dialects._ops", "executorch.exir.dialects.edge._ops")


@pytest.fixture(name="arm_nn_requantize")
def requantize_cmsis(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    try:
        path = metadata.distribution("executorch").locate_file(FILE)
    except metadata.PackageNotFoundError:
        pytest.skip("ExecuTorch is in the environment of the checkpoints only")
    for name in OTHERS:
        monkeypatch.setitem(sys.modules, name, MagicMock())
    spec = util.spec_from_file_location("passes_utils", str(path))
    assert spec is not None
    assert spec.loader is not None
    loaded = util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    found: Callable[..., Any] = loaded.requantize_cmsis
    return found


def test_requantize(arm_nn_requantize: Callable[..., Any]) -> None:
    """Where no shift to the left leaves int32; there the scheme is not defined."""
    rng = generator(131)
    comparison = Comparison("ExecuTorch requantize_cmsis", systems.EXECUTORCH, subject.scheme("cmsis_nn"))
    for factor in factors(rng, 400, 2.0**-31, 2.0**29):
        multiplier = derived("cmsis_nn", factor)
        left = max(multiplier.shift, 0)
        values = accumulators(rng, multiplier.multiplier, right_shift("cmsis_nn", multiplier), left)
        ours = requantized("cmsis_nn", values, multiplier, 0, "i32")
        theirs = arm_nn_requantize(torch.from_numpy(values), multiplier.multiplier, multiplier.shift).numpy()
        comparison.add(factor, values, ours, np.asarray(theirs))
    comparison.finish(400_000)
