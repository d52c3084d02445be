"""The folders of the quant dialect: a cast of a cast that restores the original type is the original value.

A dialect conversion in MLIR tries to fold an operation that is not legal before it looks for a pattern, so
`lower-quant-ops` and `strip-func-quant-types` fold casts although neither is a canonicalization: the rounding of a
`dcast(qcast(x))` disappears (`QuantizeCastOp::fold`, `DequantizeCastOp::fold` and `StorageCastOp::fold` in MLIR's
`lib/Dialect/Quant/IR/QuantOps.cpp`).
"""

from __future__ import annotations

from xdsl.ir import SSAValue

from requant.lowering.dialects.quant import CastOperation, DequantizeCast, QuantizeCast, StorageCast
from requant.lowering.module import Module

_INVERSE: dict[type[CastOperation], type[CastOperation]] = {
    QuantizeCast: DequantizeCast,
    DequantizeCast: QuantizeCast,
    StorageCast: StorageCast,
}


def fold_casts(module: Module, *foldable: type[CastOperation]) -> None:
    """Replace `inverse(cast(x))` by `x` where the outer operation is one of `foldable` and the types are the same.

    What folds is decided on the module as it is given: the operand of an operation is the cast that was written
    there, even if that one is folded too. The inner cast stays, used or not.
    """
    folded: dict[CastOperation, SSAValue] = {}
    originals: dict[SSAValue, SSAValue] = {}
    for op in module.operation.walk():
        if isinstance(op, foldable):
            original = _original(op)
            if original is not None:
                folded[op] = originals[op.result] = originals.get(original, original)
    for op, original in folded.items():
        op.result.replace_all_uses_with(original)
        assert op.parent is not None
        op.parent.erase_op(op)


def _original(op: CastOperation) -> SSAValue | None:
    """Return the value of which `op` undoes a cast, if it does."""
    inner = op.input.owner
    if isinstance(inner, _INVERSE[type(op)]) and inner.input.type == op.result.type:
        return inner.input
    return None
