"""A request for a product, from its body to its reply: the same for every operation that sums products."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from starlette.requests import Request
from starlette.responses import Response

from core.errors import LimitError, UnsupportedError, at, sides
from core.integer.product import ProductPlan
from core.integer.trace import STAGES_OF_SUMS, trace_product
from core.mlir import print_type
from core.mlir.types import TensorType, Type
from core.plan.packing import Packing
from core.plan.report import Report
from core.schemes import scheme_named
from service.http.json_body import MEDIA_TYPE, receive_json
from service.http.json_document import JsonDocument
from service.http.responses import Piece, PiecesResponse, json_text
from service.json_api.schemas.integer import ProductRequest
from service.json_api.schemas.tensors import Tensor
from service.json_api.tensors import output_pieces, read_elements
from service.operations.types import read_tensor_type, read_type
from service.runtime.memory_budget import hold
from service.runtime.runtime import require_ready
from service.runtime.settings import Settings

Array = NDArray[Any]
Call = TypeVar("Call", bound=ProductRequest)

# An element of the output: its sum, the steps from there, what becomes of it, and base64 of that.
BYTES_OF_A_SUM = 24
# The same with every stage, of up to 8 bytes, and its base64.
BYTES_OF_TRACED = 256
# How many products take as long as the work on a byte of a tensor.
_PRODUCTS_OF_A_BYTE = 16


@dataclass(frozen=True, slots=True)
class Types:
    """The types of a request: of both operands, of the bias if there is one, and of the output."""

    lhs: TensorType
    rhs: TensorType
    bias: TensorType | None
    output: Type


def chosen(call: ProductRequest) -> dict[str, Any]:
    """Return what a request says of how to compute, as arguments of a plan."""
    given = call.model_fields_set
    with at("/scheme"):
        scheme = scheme_named(call.scheme).name if "scheme" in given else None
    return {
        "scheme": scheme,
        "accumulator": call.accumulator if "accumulator" in given else None,
        "overflow": call.overflow if "overflow" in given else None,
    }


async def answer_product(
    request: Request, model: type[Call], names: tuple[str, str], plan_for: Callable[[Call, Types], ProductPlan]
) -> Response:
    """Receive, read, plan, compute and reply. `names` are the fields of the two operands."""
    running = require_ready(request)
    settings = running.settings
    call, body = await receive_json(request, model, running)
    tensors = dict(zip(("lhs", "rhs"), (getattr(call, name) for name in names), strict=True))
    fields = dict(zip(("lhs", "rhs"), names, strict=True))
    if "bias" in call.model_fields_set:
        tensors["bias"], fields["bias"] = call.bias, "bias"
    pointers = {side: f"/{field}/type" for side, field in fields.items()}

    def cost_of(plan: ProductPlan) -> int:
        return plan.accumulation.cost * (1 + STAGES_OF_SUMS if call.trace else 1)

    def decide() -> ProductPlan:
        read = {side: read_tensor_type(each.type, settings, pointers[side]) for side, each in tensors.items()}
        output = read_type(call.output_type, settings.max_type_bytes, "/output_type")
        with at("/profile", UnsupportedError), sides(**pointers, output="/output_type"):
            plan = plan_for(call, Types(read["lhs"], read["rhs"], read.get("bias"), output))
        check_size(plan.elements, cost_of(plan), settings, traced=call.trace)
        return plan

    def compute() -> Response:
        arrays = _read(plan, tensors, fields, body, settings, dense=call.packing is Packing.DENSE)
        target = np.empty(plan.elements, plan.output_dtype)
        with sides(**{side: f"/{field}" for side, field in fields.items()}):
            report = plan.run(arrays["lhs"], arrays["rhs"], arrays.get("bias"), target)
        in_values = "values" in tensors["lhs"].model_fields_set
        shown = _Shown(in_values, call.packing is Packing.DENSE and not in_values)
        pieces: list[Piece] = [b'{"output":', *shown.pieces(plan.output_type, target)]
        pieces.append(b',"report":' + json_text(_report(plan, report)))
        if call.trace:
            pieces += [b',"trace":', *_trace(plan, arrays, target, shown)]
        return PiecesResponse([*pieces, b"}"], MEDIA_TYPE)

    characters = len(call.output_type) + sum(len(each.type) for each in tensors.values())
    plan = await running.compute.texts(characters, decide)
    await hold(request.scope, (BYTES_OF_TRACED if call.trace else BYTES_OF_A_SUM) * plan.elements)
    weight = max(len(body), weight_of(plan.elements, cost_of(plan)))
    return await running.compute.arrays(weight, compute)


def weight_of(elements: int, products: int) -> int:
    """Return about how many bytes of a tensor take as long as sums of that many products in all."""
    return max(elements * 4, products // _PRODUCTS_OF_A_BYTE)


def check_output(elements: int, settings: Settings, *, traced: bool) -> None:
    """Raise LimitError for an output that is too large to be computed, or to be traced."""
    if elements > settings.max_sums:
        limit = settings.max_sums
        raise LimitError(f"the output has {elements} elements; at most {limit} are computed", limit=limit)
    if traced and elements > settings.max_traced:
        limit = settings.max_traced
        detail = f"the output has {elements} elements; the stages of at most {limit} are traced"
        raise LimitError(detail, limit=limit, pointer="/trace")


def check_size(elements: int, products: int, settings: Settings, *, traced: bool = False) -> None:
    """Raise LimitError for what `check_output` refuses, and for too many multiplications."""
    check_output(elements, settings, traced=traced)
    limit = settings.max_products
    if products > limit:
        detail = f"the output takes {products} multiplications, or as long as so many; at most {limit} are done"
        raise LimitError(detail, limit=limit)


def _read(
    plan: ProductPlan,
    tensors: Mapping[str, Tensor],
    fields: Mapping[str, str],
    document: JsonDocument,
    settings: Settings,
    *,
    dense: bool,
) -> dict[str, Array]:
    """Return the stored numbers of each tensor. A bias is never packed."""
    found = {}
    for side, tensor in tensors.items():
        type_, integers = plan.operand(side)
        elements = int(np.prod(integers.shape, dtype=object))
        packed = dense and side != "bias" and "data" in tensor.model_fields_set
        found[side] = read_elements(
            tensor, type_, integers.dtype, elements, fields[side], document, settings, dense=packed
        )
    return found


def _report(plan: ProductPlan, report: Report) -> dict[str, Any]:
    accumulation, stage = plan.accumulation, plan.stage
    scheme = {} if stage is None or stage.scheme is None else {"scheme": stage.scheme.name}
    how = {"accumulator": accumulation.accumulator, "overflow": accumulation.overflow}
    return {**report._asdict(), **scheme, **how}


@dataclass(frozen=True, slots=True)
class _Shown:
    """The form of the tensors of a reply."""

    in_values: bool
    dense: bool

    def pieces(self, type_: TensorType, elements: Array, *, dense: bool = True) -> list[Piece]:
        text = print_type(type_)
        return output_pieces(type_, text, elements, in_values=self.in_values, dense=self.dense and dense)


def _trace(plan: ProductPlan, arrays: Mapping[str, Array], target: Array, shown: _Shown) -> list[Piece]:
    trace = trace_product(plan, arrays["lhs"], arrays["rhs"], arrays.get("bias"), target)
    pieces: list[Piece] = [b'{"multipliers":' + json_text([asdict(each) for each in trace.multipliers])]
    for stage in trace.stages:
        pieces.append(b',"' + stage.name.encode("ascii") + b'":')
        pieces += shown.pieces(stage.tensor, stage.elements, dense=stage.tensor == plan.output_type)
    return [*pieces, b"}"]
