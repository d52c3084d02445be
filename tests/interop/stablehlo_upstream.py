"""StableHLO's own passes and its reference interpreter, which jaxlib carries."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

ir: Any = pytest.importorskip("jaxlib.mlir.ir")
passes: Any = pytest.importorskip("jaxlib.mlir.passmanager")
stablehlo: Any = pytest.importorskip("jaxlib.mlir.dialects.stablehlo")
chlo: Any = pytest.importorskip("jaxlib.mlir.dialects.chlo")

Array = NDArray[Any]

MATH = "stablehlo-legalize-quant-to-math"
TO_QDQ = "stablehlo-legalize-quantized-op-to-qdq"
TO_QUANTIZED = "stablehlo-legalize-qdq-to-quantized-op"
# What upstream runs after its arithmetic, so that its interpreter takes the module.
REST = (
    "builtin.module(func.func(chlo-legalize-to-stablehlo),"
    "func.func(shape-legalize-to-stablehlo,stablehlo-canonicalize-dynamism))"
)


@contextmanager
def loaded() -> Iterator[None]:
    """A context of MLIR with StableHLO's dialects, passes, and the quant dialect."""
    stablehlo.register_stablehlo_passes()
    with ir.Context() as opened, ir.Location.unknown():
        stablehlo.register_dialect(opened)
        chlo.register_dialect(opened)
        # Loads the quant dialect, which jaxlib has no function for.
        passes.PassManager.parse("builtin.module(vhlo-legalize-to-stablehlo)").run(ir.Module.parse("").operation)
        yield


def is_valid(text: str) -> bool:
    """Return whether upstream's parser and verifiers take a module."""
    try:
        ir.Module.parse(text)
    except ir.MLIRError:
        return False
    return True


def after(text: str, *pipelines: str) -> str | None:
    """Return what upstream makes of a module that it takes; None where a pass fails."""
    module = ir.Module.parse(text)
    try:
        for pipeline in pipelines:
            whole = pipeline if pipeline.startswith("builtin") else f"builtin.module(func.func({pipeline}))"
            passes.PassManager.parse(whole).run(module.operation)
    except ir.MLIRError:
        return None
    return str(module)


def interpreted(text: str, inputs: Sequence[tuple[str, Array]], dtype: np.dtype[Any]) -> Array:
    """Run the one function of a module of StableHLO, as it is, on arrays of these element types."""
    given = [
        ir.DenseElementsAttr.get(np.ascontiguousarray(array), shape=list(array.shape), type=ir.Type.parse(element))
        for element, array in inputs
    ]
    (found,) = stablehlo.eval_module(ir.Module.parse(text), given)
    return np.array(found).view(dtype)
