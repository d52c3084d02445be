"""The operations of StableHLO by name: a class each, made from a table of what differs between them."""

from __future__ import annotations

from typing import cast

from xdsl.irdl import (
    IRDLOperation,
    irdl_op_definition,
    traits_def,
    var_operand_def,
    var_region_def,
    var_result_def,
)
from xdsl.parser import Parser
from xdsl.printer import Printer
from xdsl.traits import IsTerminator, Pure

from requant.lowering.dialects.stablehlo.format import Format
from requant.lowering.dialects.stablehlo.formats import (
    Compare,
    Constant,
    Keyed,
    ReducePrecision,
    Select,
    Slice,
    Typed,
    WithTypes,
)
from requant.lowering.dialects.stablehlo.products import DotGeneral, Product
from requant.lowering.dialects.stablehlo.reduction import ReduceFormat
from requant.lowering.dialects.stablehlo.verifier import BINARY, UNARY, verify
from requant.lowering.dialects.stablehlo.window import ConvolutionFormat

_TYPED = Typed()
_DIMS = Keyed({"dims": "broadcast_dimensions"})
_FORMATS: dict[str, Format] = {
    **dict.fromkeys((*UNARY, *BINARY, "clamp", "convert", "uniform_quantize", "uniform_dequantize"), _TYPED),
    **dict.fromkeys(("bitcast_convert", "reshape", "is_finite", "dynamic_reshape"), Typed(short=False)),
    "constant": Constant(),
    "compare": Compare(),
    "select": Select(),
    "broadcast_in_dim": _DIMS,
    "dynamic_broadcast_in_dim": _DIMS,
    "transpose": Keyed({"dims": "permutation"}),
    "concatenate": Keyed({"dim": "dimension"}),
    "get_dimension_size": Keyed({"dim": "dimension"}),
    "reverse": Keyed({"dims": "dimensions"}, short=True),
    "iota": Keyed({"dim": "iota_dimension"}, short=True),
    "pad": Keyed({"low": "edge_padding_low", "high": "edge_padding_high", "interior": "interior_padding"}),
    "dynamic_slice": Keyed({"sizes": "slice_sizes"}),
    "slice": Slice(),
    "dot_general": DotGeneral(),
    "dot": Product(),
    "convolution": ConvolutionFormat(),
    "reduce": ReduceFormat(),
    "reduce_precision": ReducePrecision(),
    "optimization_barrier": WithTypes(results=True),
    "return": WithTypes(results=False),
}
# Carried through and printed; with quantized types most passes refuse them.
_GENERIC = (
    "all_gather", "all_reduce", "all_to_all", "after_all", "batch_norm_grad", "batch_norm_inference",
    "batch_norm_training", "case", "cholesky", "collective_permute", "composite", "custom_call", "dynamic_conv",
    "dynamic_gather", "dynamic_pad", "dynamic_update_slice", "fft", "gather", "get_tuple_element", "if", "map",
    "reduce_scatter", "reduce_window", "rng", "rng_bit_generator", "scatter", "select_and_scatter",
    "set_dimension_size", "sort", "triangular_solve", "tuple", "while",
)  # fmt: skip


# The syntax of each operation that has one, by its full name.
FORMS: dict[str, Format] = {f"stablehlo.{name}": form for name, form in _FORMATS.items()}


class Operation(IRDLOperation):
    """Base of StableHLO's operations: any operands, results and regions; `verify` knows what each of them takes."""

    arguments = var_operand_def()
    outputs = var_result_def()
    bodies = var_region_def()

    def verify_(self) -> None:
        verify(self)


class FormattedOperation(Operation):
    """An operation with a syntax of its own."""

    @classmethod
    def parse(cls, parser: Parser) -> FormattedOperation:
        parts = FORMS[cls.name].parse(parser)
        return cls.create(
            operands=parts.operands, result_types=parts.results, attributes=parts.attributes, regions=parts.regions
        )

    def print(self, printer: Printer) -> None:
        FORMS[self.name].print(printer, self)


def _operation(name: str) -> type[Operation]:
    traits = traits_def(IsTerminator()) if name == "return" else traits_def(Pure())
    members = {"__module__": __name__, "name": f"stablehlo.{name}", "traits": traits, "__doc__": f"`stablehlo.{name}`."}
    base = FormattedOperation if f"stablehlo.{name}" in FORMS else Operation
    return cast(
        type[Operation], irdl_op_definition(type(f"{name.title().replace('_', '')}Operation", (base,), members))
    )


OPERATIONS: dict[str, type[Operation]] = {name: _operation(name) for name in (*_FORMATS, *_GENERIC)}
