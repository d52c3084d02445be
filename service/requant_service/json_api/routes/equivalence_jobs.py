"""Jobs that compare two rules for every input, where that takes longer than a request may."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import replace
from math import inf
from typing import Any

from fastapi import APIRouter, Depends
from pydantic import Field
from starlette.requests import Request
from starlette.responses import Response

from requant.checkpoint.jobs import JobState
from requant.description import PlannedWork
from requant.errors import UnknownNameError
from requant.operations.equivalence import EQUIVALENCE
from requant_service.http.json_body import receive_json
from requant_service.http.models import ABSENT, ReplyModel
from requant_service.http.openapi_operation import get_operation, json_operation
from requant_service.http.problems import error_response
from requant_service.http.query import no_query
from requant_service.http.responses import json_response
from requant_service.json_api.schemas.checkpoints import JobFailure
from requant_service.json_api.schemas.described import reply_model, request_model
from requant_service.json_api.sent_call import SentCall
from requant_service.operations.described import decimal_texts, plan_operation
from requant_service.runtime.comparison_jobs import Comparison
from requant_service.runtime.runtime import require_ready

router = APIRouter(tags=[EQUIVALENCE.group], dependencies=[Depends(no_query)])

_REQUEST = request_model(EQUIVALENCE)
_REPLY: Any = reply_model(EQUIVALENCE)


class EquivalenceJob(ReplyModel):
    """A comparison of two rules that runs in the background."""

    id: str
    state: JobState = Field(
        description="`interrupted`: the process that ran it has ended. To start a failed, cancelled or interrupted job "
        "again, send its request again."
    )
    inputs: str = Field(description="How many inputs are decided.")
    total_inputs: str = Field(description="Of how many; 0 before it is known.")
    result: _REPLY = Field(default=ABSENT, description="What was found, once it is finished.")
    error: JobFailure = ABSENT


def _start_operation() -> dict[str, Any]:
    described = json_operation(
        "startEquivalenceJob",
        "Compare two rules in the background",
        _REQUEST,
        EquivalenceJob,
        EQUIVALENCE.example,
        recorded=False,
    )
    replies = described["responses"]
    done = replies.pop(200)
    location = {"description": "The job.", "required": True, "schema": {"type": "string"}}
    replies[202] = {
        **done,
        "description": "The job.",
        "model": EquivalenceJob,
        "headers": {**done["headers"], "Location": location},
    }
    return described


@router.post("/v1/equivalence/jobs", status_code=202, **_start_operation())
async def start(request: Request) -> Response:
    """Start a comparison of up to 2^32 inputs. It runs in the background: poll the `Location`.

    The same request identifies the same job: one that runs or is finished is not started again. A job is known to the
    service that runs it, and ends with it.
    """
    running = require_ready(request)
    body, document = await receive_json(request, _REQUEST, running)
    jobs = running.comparison_jobs
    sent = SentCall(EQUIVALENCE, body, document, running.settings)

    def plan() -> PlannedWork:
        call, places = sent.call()
        limits = replace(call.limits, compute_seconds=inf, threads=jobs.threads)
        return plan_operation(EQUIVALENCE, replace(call, limits=limits), places, running.settings)

    def work() -> Mapping[str, Any]:
        return planned.run({}).report

    planned = await running.executor.run_text(sent.characters(), plan)
    digest = hashlib.sha256(body.model_dump_json().encode()).hexdigest()
    job = await jobs.start(digest[:32], work)
    return json_response(_reply(job), status_code=202, headers={"location": f"/v1/equivalence/jobs/{job.job_id}"})


_STORED: dict[str, Any] = {"path": {"job_id": "0" * 32}, "after": "startEquivalenceJob", "recorded": False}


def _job_response(request: Request, job: Comparison | None) -> Response:
    if job is not None:
        return json_response(_reply(job))
    error = UnknownNameError("there is no such job here: it is forgotten, or another process runs it")
    return error_response(request, error, status=404)


@router.get(
    "/v1/equivalence/jobs/{job_id}",
    **get_operation("getEquivalenceJob", "Get a comparison", EquivalenceJob, 404, 503, **_STORED),
)
async def get(request: Request, job_id: str) -> Response:
    """Return the state and the progress of a comparison, and what it found."""
    return _job_response(request, await require_ready(request).comparison_jobs.find(job_id))


@router.post(
    "/v1/equivalence/jobs/{job_id}/cancel",
    **get_operation("cancelEquivalenceJob", "Cancel a comparison", EquivalenceJob, 404, 503, **_STORED),
)
async def cancel(request: Request, job_id: str) -> Response:
    """Request cancellation of a comparison."""
    return _job_response(request, await require_ready(request).comparison_jobs.cancel(job_id))


def _reply(job: Comparison) -> EquivalenceJob:
    optional: dict[str, Any] = {}
    if (report := job.report) is not None:
        members = {each.name: each for each in EQUIVALENCE.members}
        optional["result"] = {name: decimal_texts(members[name], value) for name, value in report.items()}
    if job.error is not None:
        optional["error"] = JobFailure(code=job.error.code, detail=job.error.detail)
    return EquivalenceJob(
        id=job.job_id, state=job.state, inputs=str(job.inputs), total_inputs=str(job.total_inputs), **optional
    )
