"""A request for an addition, from its body to its reply."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import numpy as np
from numpy.typing import NDArray
from starlette.requests import Request
from starlette.responses import Response

from core.errors import UnsupportedError, at, sides
from core.formats.elements import FLOATS, FloatElement, IntegerElement
from core.integer.add import AddPlan
from core.mlir import print_type
from core.mlir.types import TensorType, Type
from core.plan.packing import Packing
from service.http.json_body import MEDIA_TYPE, receive_json
from service.http.responses import Piece, PiecesResponse, json_text
from service.json_api.contraction import BYTES_OF_A_SUM, BYTES_OF_TRACED, check_output
from service.json_api.schemas.integer import AddRequest
from service.json_api.tensors import output_pieces, read_elements
from service.operations.types import read_tensor_type, read_type
from service.runtime.memory_budget import hold
from service.runtime.runtime import require_ready

Array = NDArray[Any]

_ELEMENTS: dict[str, FloatElement | IntegerElement] = {
    "int32": IntegerElement(32),
    "int64": IntegerElement(64),
    "float16": FLOATS["f16"],
    "float32": FLOATS["f32"],
    "float64": FLOATS["f64"],
}


async def answer_add(request: Request, plan_for: Callable[[TensorType, TensorType, Type, str], AddPlan]) -> Response:
    """Receive, read, plan, add and reply."""
    running = require_ready(request)
    settings = running.settings
    call, body = await receive_json(request, AddRequest, running)
    tensors = {"lhs": call.lhs, "rhs": call.rhs}
    pointers = {side: f"/{side}/type" for side in tensors}

    def decide() -> tuple[AddPlan, str]:
        lhs, rhs = (read_tensor_type(each.type, settings, pointers[side]) for side, each in tensors.items())
        output = read_type(call.output_type, settings.max_type_bytes, "/output_type")
        with at("/profile", UnsupportedError), sides(**pointers, output="/output_type"):
            plan = plan_for(lhs, rhs, output, call.profile)
        check_output(plan.elements, settings, traced=call.trace)
        return plan, print_type(plan.output_type)

    def compute() -> Response:
        dense = call.packing is Packing.DENSE
        arrays = []
        for side, tensor in tensors.items():
            type_, integers = plan.operand(side)
            elements = int(np.prod(integers.shape, dtype=object))
            packed = dense and "data" in tensor.model_fields_set
            arrays.append(read_elements(tensor, type_, integers.dtype, elements, side, body, settings, dense=packed))
        target = np.empty(plan.elements, plan.output_dtype)
        with sides(lhs="/lhs", rhs="/rhs"):
            report = plan.run(arrays[0], arrays[1], target)._asdict()
        if plan.arithmetic.scheme is not None:
            report["scheme"] = plan.arithmetic.scheme
        in_values = "values" in call.lhs.model_fields_set
        output = output_pieces(
            plan.output_type, output_type, target, in_values=in_values, dense=dense and not in_values
        )
        pieces: list[Piece] = [b'{"output":', *output, b',"report":' + json_text(report)]
        if call.trace:
            pieces += [b',"trace":', *_trace(plan, arrays, output, in_values=in_values)]
        return PiecesResponse([*pieces, b"}"], MEDIA_TYPE)

    characters = len(call.output_type) + sum(len(each.type) for each in tensors.values())
    plan, output_type = await running.compute.texts(characters, decide)
    await hold(request.scope, (BYTES_OF_TRACED if call.trace else BYTES_OF_A_SUM) * plan.elements)
    return await running.compute.arrays(max(len(body), plan.elements * 4), compute)


def _trace(plan: AddPlan, arrays: list[Array], output: list[Piece], *, in_values: bool) -> list[Piece]:
    multipliers = [asdict(each) for each in plan.arithmetic.multipliers]
    pieces: list[Piece] = [b'{"multipliers":' + json_text(multipliers)]
    for name, elements in plan.stages(arrays[0], arrays[1]).items():
        type_ = TensorType(plan.shape, _ELEMENTS[elements.dtype.name])
        pieces.append(b',"' + name.encode("ascii") + b'":')
        pieces += output_pieces(type_, print_type(type_), elements, in_values=in_values)
    return [*pieces, b',"after_clamp":', *output, b"}"]
