"""Jobs that convert whole checkpoints. They name storage below the configured roots; nothing is uploaded."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from fastapi import APIRouter, Depends
from starlette.requests import Request
from starlette.responses import Response

from requant.checkpoint.plan.model import Direction, Repack, SchemeFor
from requant.checkpoint.plan.model import Request as ConversionRequest
from requant.checkpoint.schemes import scheme_named
from requant.errors import InvalidRequestError, UnknownNameError, default_pointer
from requant_service.http.json_body import receive_json
from requant_service.http.openapi_operation import get_operation, json_operation, problems
from requant_service.http.problems import error_response
from requant_service.http.query import no_query
from requant_service.http.responses import json_response
from requant_service.json_api.schemas.checkpoints import (
    CheckpointJob,
    CheckpointPlan,
    CheckpointRequest,
    JobFailure,
    JobProgress,
)
from requant_service.operations.checkpoint_jobs import (
    CheckpointCall,
    Job,
    cancel_job,
    identifier_of,
    plan_checkpoint,
    read_job,
    start_job,
)
from requant_service.runtime.runtime import require_ready

router = APIRouter(tags=["checkpoints"], dependencies=[Depends(no_query)])

EXAMPLE_ROOT = "/models"
"""The root that the examples assume."""

_EXAMPLE = {
    "source": f"{EXAMPLE_ROOT}/tiny",
    "destination": f"{EXAMPLE_ROOT}/tiny-W4A16",
    "scheme": "W4A16",
}


# What the examples name is not there.
_STORED: dict[str, Any] = {
    "path": {"job_id": identifier_of(f"{EXAMPLE_ROOT}/tiny-W4A16")},
    "after": "startCheckpointJob",
    "recorded": False,
}


def _start_operation() -> dict[str, Any]:
    described = json_operation(
        "startCheckpointJob", "Convert a checkpoint", CheckpointRequest, CheckpointJob, _EXAMPLE, recorded=False
    )
    replies = described["responses"]
    done = replies.pop(200)
    location = {"description": "The job.", "required": True, "schema": {"type": "string"}}
    replies[200] = {**done, "description": "The plan, for a dry run.", "model": CheckpointPlan}
    replies[202] = {**done, "description": "The job.", "headers": {**done["headers"], "Location": location}}
    replies |= problems(409)
    return described


@router.post("/v1/checkpoints", status_code=202, **_start_operation())
async def start(request: Request) -> Response:
    """Start a job, or resume one that did not finish. It runs in the background: poll the `Location`.

    The same request identifies the same job: a running or finished job is not restarted. With `dry_run` the
    response is the plan, and nothing is converted. Disabled unless the setting `checkpoint_roots` lists locations
    that jobs may use.
    """
    running = require_ready(request)
    body, _ = await receive_json(request, CheckpointRequest, running)
    call = _call(body)
    if body.dry_run:
        return json_response(_plan(await plan_checkpoint(call, running)))
    if call.destination is None:
        raise InvalidRequestError.of_field("/destination", "missing", "a destination is needed, or dry_run")
    job = await start_job(call, running)
    headers = {"location": f"/v1/checkpoints/{job.job_id}"}
    if "respond-async" in request.headers.get("prefer", ""):
        headers["preference-applied"] = "respond-async"
    return json_response(_reply(job), status_code=202, headers=headers)


@router.get(
    "/v1/checkpoints/{job_id}",
    **get_operation("getCheckpointJob", "Get a checkpoint job", CheckpointJob, 404, 503, **_STORED),
)
async def get(request: Request, job_id: str) -> Response:
    """Return the state and the progress of a job, whichever replica runs it."""
    try:
        return json_response(_reply(await read_job(job_id, require_ready(request))))
    except UnknownNameError as error:
        return error_response(request, error, status=404)


@router.post(
    "/v1/checkpoints/{job_id}/cancel",
    **get_operation("cancelCheckpointJob", "Cancel a checkpoint job", CheckpointJob, 404, 503, **_STORED),
)
async def cancel(request: Request, job_id: str) -> Response:
    """Request cancellation of a job, whichever replica runs it. Files already written are kept, and the same
    request resumes it."""
    try:
        return json_response(_reply(await cancel_job(job_id, require_ready(request))))
    except UnknownNameError as error:
        return error_response(request, error, status=404)


_OF_QUANTIZATION = {
    "scheme": "dequantization takes the scheme from config.json",
    "schemes": "dequantization takes the schemes from config.json",
    "profile": "dequantization takes the scheme from config.json",
    "ignore": "dequantization converts all quantized weights",
    "targets": "dequantization converts all quantized weights",
    "not_finite": "dequantization refuses no weight for its values",
    "input_scales": "dequantization drops scales of activations",
    "kv_scales": "dequantization drops scales of activations",
}


_OF_SELECTION = {
    "ignore": "a repack moves all quantized weights",
    "targets": "a repack moves all quantized weights",
    "not_finite": "a repack refuses no weight for its values",
    "input_scales": "a repack takes no scales of activations",
    "kv_scales": "a repack takes no scales of activations",
}


def _check_direction(body: CheckpointRequest) -> None:
    """Raise InvalidRequestError for a member without effect. Defaults may be written out: some clients do that."""
    if body.direction is Direction.DEQUANTIZE:
        without_effect = _OF_QUANTIZATION
    elif body.repack is not Repack.NO:
        without_effect = _OF_SELECTION
    else:
        return
    for name, why in without_effect.items():
        default = CheckpointRequest.model_fields[name].default
        if name in body.model_fields_set and getattr(body, name) not in (default, []):
            raise InvalidRequestError.of_field(f"/{name}", "unexpected", why)


def _call(body: CheckpointRequest) -> CheckpointCall:
    sent = body.model_fields_set
    _check_direction(body)
    schemes = _schemes(body)
    if body.direction is Direction.QUANTIZE and not schemes:
        raise InvalidRequestError.of_field("/scheme", "missing", "quantizing requires a scheme")
    profile = body.profile if "profile" in sent else ""
    repacks = body.repack is not Repack.NO
    if schemes and not profile:
        with default_pointer("/scheme"):
            profile = scheme_named(schemes[0].scheme).profiles[0]
    return CheckpointCall(
        body.source,
        body.destination if "destination" in sent else None,
        ConversionRequest(
            direction=body.direction,
            schemes=schemes,
            profile=profile,
            ignore=tuple(body.ignore) if body.direction is Direction.QUANTIZE and not repacks else (),
            not_finite=body.not_finite,
            dtype=body.dtype if "dtype" in sent else None,
            repack=body.repack,
            certify=body.certify,
        ),
        input_scales=body.input_scales if "input_scales" in sent else None,
        kv_scales=body.kv_scales if "kv_scales" in sent else None,
    )


def _schemes(body: CheckpointRequest) -> tuple[SchemeFor, ...]:
    """Return the schemes of a request. Raise InvalidRequestError for both ways to state them, UnknownNameError."""
    sent = body.model_fields_set
    targets = tuple(body.targets)
    if "schemes" not in sent:
        return (SchemeFor(body.scheme, targets),) if "scheme" in sent else ()
    if "scheme" in sent:
        raise InvalidRequestError.of_field("/scheme", "unexpected", "schemes are given: state this one there")
    if targets != tuple(CheckpointRequest.model_fields["targets"].default):
        raise InvalidRequestError.of_field("/targets", "unexpected", "schemes are given: state targets with each")
    for number, each in enumerate(body.schemes):
        with default_pointer(f"/schemes/{number}/scheme"):
            scheme_named(each.scheme)
    return tuple(SchemeFor(each.scheme, tuple(each.targets)) for each in body.schemes)


def _plan(document: dict[str, Any]) -> CheckpointPlan:
    known = {name: value for name, value in document.items() if value is not None}
    return CheckpointPlan.model_validate(known)


def _reply(job: Job) -> CheckpointJob:
    record = job.record
    rate = record.bytes_per_second
    optional: dict[str, Any] = {}
    if record.error is not None:
        error = {name: value for name, value in asdict(record.error).items() if value is not None}
        optional["error"] = JobFailure(**error)
    return CheckpointJob(
        id=job.job_id,
        state=record.state,
        destination=job.destination,
        request=record.request,
        progress=JobProgress(**asdict(record.progress), **({} if rate is None else {"bytes_per_second": round(rate)})),
        warnings=list(record.warnings),
        **optional,
    )
