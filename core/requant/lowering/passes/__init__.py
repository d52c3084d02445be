"""The passes by name, and a list of them applied to a module."""

from __future__ import annotations

import re
from collections.abc import Sequence

from requant.errors import UnknownNameError, excerpt
from requant.errors.names import unknown_name
from requant.lowering.module import Module
from requant.lowering.passes.chlo_to_stablehlo import CHLO_TO_STABLEHLO
from requant.lowering.passes.lower_quant_ops import LOWER_QUANT_OPS
from requant.lowering.passes.qdq import QDQ_TO_QUANTIZED_OP, QUANTIZED_OP_TO_QDQ
from requant.lowering.passes.quant_to_math import QUANT_TO_MATH
from requant.lowering.passes.quant_types import NORMALIZE_QUANT_TYPES, STRIP_FUNC_QUANT_TYPES
from requant.lowering.passes.requant_to_integer_arith import REQUANT_TO_INTEGER_ARITH
from requant.lowering.passes.rewriting import Options, Pass
from requant.lowering.passes.tosa_rescale import QUANT_TO_TOSA_RESCALE, TOSA_RESCALE_TO_STABLEHLO

PASSES: dict[str, Pass] = {
    each.name: each
    for each in (
        QDQ_TO_QUANTIZED_OP,
        QUANTIZED_OP_TO_QDQ,
        QUANT_TO_MATH,
        CHLO_TO_STABLEHLO,
        QUANT_TO_TOSA_RESCALE,
        TOSA_RESCALE_TO_STABLEHLO,
        LOWER_QUANT_OPS,
        STRIP_FUNC_QUANT_TYPES,
        NORMALIZE_QUANT_TYPES,
        REQUANT_TO_INTEGER_ARITH,
    )
}
_SPELLING = re.compile(r"([a-z0-9-]{1,64})(?:\{([a-z0-9=_ -]{0,256})\})?", re.ASCII)


def parse_pass(text: str) -> tuple[Pass, Options]:
    """Return the pass that `name` or `name{option=value option=value}` means, and all its options.

    Raises UnknownNameError for a name or an option that there is not, with those that there are.
    """
    match = _SPELLING.fullmatch(text)
    pass_ = PASSES.get(match[1]) if match else None
    if match is None or pass_ is None:
        raise unknown_name("pass", text, PASSES)
    options = {}
    for entry in (match[2] or "").split():
        name, _, value = entry.partition("=")
        if name not in pass_.options or value not in pass_.options[name] or name in options:
            listed = "; ".join(f"{each}={'|'.join(values)}" for each, values in pass_.options.items()) or "none"
            raise UnknownNameError(f"{pass_.name} has no option {excerpt(entry)!r}; its options: {listed}")
        options[name] = value
    return pass_, {name: options.get(name, values[0]) for name, values in pass_.options.items()}


def apply(module: Module, passes: Sequence[tuple[Pass, Options]]) -> None:
    """Run the passes on the module, one after the other. Raises LoweringError where one cannot."""
    for each, options in passes:
        each.run(module, options)
        module.check_size()


__all__ = ["PASSES", "Pass", "apply", "parse_pass"]
