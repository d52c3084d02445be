"""Types as models: what a type says, and what other systems make of it.

Lists of numbers are outputs. What is a list or an object of texts in the JSON protocol is JSON as text here, in the
parameters of the request and of the reply.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from pydantic import BaseModel, ValidationError

from requant.description import Work
from requant.errors import InvalidRequestError, MalformedRequestError, RequantError
from requant_service.http.json_body import bytes_for_objects, invalid_request, read_json, tokens_of
from requant_service.http.models import RequestModel
from requant_service.http.responses import model_text
from requant_service.oip.call import Call
from requant_service.oip.models.model import Answer, Job, Model
from requant_service.oip.models.pointers import pointing_into
from requant_service.oip.parameters import Parameter, pointer_to, read_list
from requant_service.operations.mlir.translation import translate_type, translation_characters
from requant_service.operations.mlir.translation_call import (
    LitertParameters,
    OnednnParameters,
    OnnxParameters,
    TorchParameters,
    TosaParameters,
    TranslateRequest,
    TranslationSystem,
)

_OPERANDS: dict[str, tuple[type[RequestModel], str]] = {
    "onnx": (OnnxParameters, "x_scale and x_zero_point of DequantizeLinear, and related attributes."),
    "onednn": (OnednnParameters, "Attributes and tensors of oneDNN Graph's quantizing operators."),
    "litert": (LitertParameters, "QuantizationParameters of a LiteRT tensor."),
    "torch": (TorchParameters, "Parameters of a torch tensor."),
    "tosa": (TosaParameters, "Zero points, and multipliers and shifts of a RESCALE."),
}
_TYPES = ("type", "rescale_to")
_LISTS = {"shape": int, "systems": str}


def _operands(call: Call, name: str, model: type[RequestModel]) -> RequestModel:
    """Return a system's operands, which a parameter has as the JSON object of `/v1/types/translate`."""
    place = pointer_to(name)
    try:
        return read_json(call.text(name).encode("utf-8", "surrogatepass"), model, call.settings)
    except MalformedRequestError:
        raise InvalidRequestError.of_field(place, "json", "expected a JSON object as text") from None
    except RequantError as error:
        error.pointer = place
        if isinstance(error, InvalidRequestError):
            error.faults = tuple(
                replace(fault, pointer=place, detail=f"{fault.pointer}: {fault.detail}") for fault in error.faults
            )
        raise


def _request(call: Call) -> TranslateRequest:
    members: dict[str, Any] = {name: call.text(name) for name in _TYPES if call.has(name)}
    members |= {name: read_list(name, call.text(name), kind) for name, kind in _LISTS.items() if call.has(name)}
    members |= {name: _operands(call, name, model) for name, (model, _) in _OPERANDS.items() if call.has(name)}
    try:
        return TranslateRequest.model_validate(members)
    except ValidationError as error:
        found = invalid_request(error, TranslateRequest, call.settings.max_values)
    raise found


def _plan_translate(call: Call) -> Job:
    def run() -> Answer:
        with pointing_into(call):
            reply = translate_type(_request(call), call.settings)
        return Answer(
            (),
            {
                "type": reply.type,
                "source": str(reply.source),
                "rounded": _texts(reply.rounded),
                "rounded_count": reply.rounded_count,
                "translations": _texts(reply.translations),
            },
        )

    texts = [call.text(name).encode("utf-8", "surrogatepass") for name in (*_TYPES, *_OPERANDS) if call.has(name)]
    byte_count = sum(bytes_for_objects(text, tokens_of(text), call.settings.max_json_tokens) for text in texts)
    return Job(run, byte_count, translation_characters(sum(map(len, texts))), Work.TEXTS)


def _texts(models: Iterable[BaseModel]) -> str:
    return (b"[" + b",".join(map(model_text, models)) + b"]").decode()


TRANSLATE_TYPE = Model(
    name="translate_type",
    versions=("1",),
    description="Translate a quantized type to the operands of other systems, or a system's operands to a type. The "
    "reply has the parameters type, source, rounded_count, and as JSON text rounded and translations.",
    inputs=(),
    outputs=(),
    parameters=(
        Parameter(name="type", description="MLIR text: !quant.uniform<...>, or a tensor of it.", optional=True),
        *(
            Parameter(
                name=name,
                description=f"In the place of type: {said} A JSON object as text, as /v1/types/translate takes it.",
                optional=True,
            )
            for name, (_, said) in _OPERANDS.items()
        ),
        Parameter(
            name="shape",
            description="With operands: the shape of the tensor, if known, as a JSON list in text.",
            optional=True,
        ),
        Parameter(
            name="rescale_to",
            description="MLIR text: the output type of TOSA's RESCALE, for multipliers and shifts.",
            optional=True,
        ),
        Parameter(
            name="systems",
            description=f"Which systems are answered for, a JSON list as text, of {', '.join(TranslationSystem)}. "
            "Default: all.",
            optional=True,
        ),
    ),
    plan=_plan_translate,
)
