"""Between quantized operations and floats around them, as upstream's passes.

`stablehlo-legalize-qdq-to-quantized-op`: dequantize, compute and quantize become one operation, whether or not it takes
such types. `stablehlo-legalize-quantized-op-to-qdq`: an operation as dequantize, compute, quantize.
"""

from __future__ import annotations

from xdsl.ir import Operation

from requant.lowering.module import Module
from requant.lowering.passes.rewriting import (
    DEQUANTIZED,
    Emitter,
    Options,
    Pass,
    dequantized_type,
    erase_unused,
    is_quantized,
    make,
)


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


def _decompose(module: Module, options: Options) -> None:
    for op in list(module.operation.walk()):
        if op.name in DEQUANTIZED and is_quantized([*op.operand_types, *op.result_types]):
            through_floats(op)


def through_floats(op: Operation) -> list[Operation]:
    """Replace `op` by the same on floats, between uniform_dequantize and uniform_quantize. Return what was inserted."""
    emitter = Emitter(op)
    inserted: list[Operation] = []
    operands = list(op.operands)
    for index, operand in enumerate(operands):
        if is_quantized([operand.type]):
            inserted.append(make("uniform_dequantize", [operand], dequantized_type(operand.type)))
            operands[index] = emitter.add(inserted[-1])
    regions = [op.detach_region(region) for region in list(op.regions)]
    compute = type(op).create(
        operands=operands,
        result_types=[dequantized_type(type_) for type_ in op.result_types],
        attributes=op.attributes.copy(),
        regions=regions,
    )
    emitter.add(compute)
    inserted.append(compute)
    results = list(compute.results)
    values = []
    for result, type_ in zip(results, op.result_types, strict=True):
        if is_quantized([type_]):
            inserted.append(make("uniform_quantize", [result], type_))
            values.append(emitter.add(inserted[-1]))
        else:
            values.append(result)
    emitter.replace_anchor(*values)
    return inserted


QUANTIZED_OP_TO_QDQ = Pass(
    "stablehlo-legalize-quantized-op-to-qdq",
    "quantized operations as uniform_dequantize, the same on floats, and uniform_quantize",
    _decompose,
)
