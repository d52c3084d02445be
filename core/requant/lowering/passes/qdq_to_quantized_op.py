"""`stablehlo-legalize-qdq-to-quantized-op`: dequantize, compute and quantize become one operation.

As upstream's: whether the operation takes such types is not asked.
"""

from __future__ import annotations

from xdsl.ir import Operation

from requant.lowering.module import Module
from requant.lowering.passes.rewriting import Options, Pass
from requant.lowering.passes.stablehlo_ops import erase_unused, is_quantized


def _fuse(module: Module, options: Options) -> None:
    for op in list(module.operation.walk()):
        if op.name == "stablehlo.uniform_quantize":
            _fuse_into(op)
    erase_unused(module)


def _fuse_into(quantize: Operation) -> None:
    compute = quantize.operands[0].owner
    if not isinstance(compute, Operation) or compute.regions or len(compute.results) != 1 or not compute.operands:
        return
    if is_quantized(compute.operand_types):
        return
    sources = []
    for operand in compute.operands:
        owner = operand.owner
        if not isinstance(owner, Operation) or owner.name != "stablehlo.uniform_dequantize":
            return
        sources.append(owner.operands[0])
    fused = type(compute).create(
        operands=sources,
        result_types=quantize.result_types,
        attributes=compute.attributes.copy(),
        properties=compute.properties.copy(),
    )
    assert compute.parent is not None
    compute.parent.insert_op_after(fused, compute)
    fused.results[0].name_hint = quantize.results[0].name_hint
    quantize.results[0].replace_all_uses_with(fused.results[0])


QDQ_TO_QUANTIZED_OP = Pass(
    "stablehlo-legalize-qdq-to-quantized-op",
    "uniform_dequantize, an operation and uniform_quantize as one quantized operation",
    _fuse,
)
