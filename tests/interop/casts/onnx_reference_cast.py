"""Cast of ONNX's reference evaluator."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnx import reference

from requant.profiles import Rounding
from tests.interop.casts.cast_data import DTYPES, ROUND_MODES
from tests.interop.onnx_nodes import cast_node

Array = NDArray[Any]


@cache
def evaluator(*node: Any) -> Any:
    return reference.ReferenceEvaluator(cast_node(*node))


def run(data: Array, source: str, target: str, saturate: bool | None = None, rounding: Rounding | None = None) -> Array:
    node = evaluator(source, target, saturate, None if rounding is None else ROUND_MODES[rounding])
    with np.errstate(all="ignore"):
        (result,) = node.run(None, {"x": data.view(DTYPES[source])})
    assert result.dtype == DTYPES[target]
    return np.asarray(result)
