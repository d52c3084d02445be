"""Jobs that convert a checkpoint: begun, looked at and cancelled by any process that sees the destination."""

from __future__ import annotations

import base64
import binascii
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from requant.checkpoint.given_scales import OF_INPUTS, OF_KV_CACHE, Scales
from requant.checkpoint.jobs import ConversionJob, JobRecord, JobState, ask_to_cancel, read_record
from requant.checkpoint.name_patterns import check_linear
from requant.checkpoint.plan.dry_run import plan_document
from requant.checkpoint.plan.model import Plan, Request
from requant.checkpoint.plan.planner import plan_conversion
from requant.checkpoint.plan.scale_files import scales_from
from requant.checkpoint.run.destination import check_apart, prepare
from requant.checkpoint.storage.store import Store
from requant.errors import UnknownNameError, UnsupportedError, default_pointer
from requant_service.runtime.checkpoint_jobs import CheckpointJobs, PlanMemory
from requant_service.runtime.request_context import current_request
from requant_service.runtime.runtime import Runtime

_MAX_CHARACTERS = 2048


@dataclass(frozen=True, slots=True)
class CheckpointCall:
    """What is to be converted: places by their names below the roots, and how. `input_scales`, `kv_scales`: where the
    scales are, which the request does not have yet.
    """

    source: str
    destination: str | None
    request: Request
    input_scales: str | None = None
    kv_scales: str | None = None


@dataclass(frozen=True, slots=True)
class Job:
    """A job as it is now. `job_id` names its destination."""

    job_id: str
    destination: str
    record: JobRecord


async def plan_checkpoint(call: CheckpointCall, running: Runtime) -> dict[str, Any]:
    """Return what a conversion would do, as `requant checkpoint plan --json` prints it.

    Raises UnsupportedError where no roots are configured, and as `start_job`.
    """
    jobs = _jobs(running)
    source = await _source(call, jobs)
    destination = None if call.destination is None else (await _destination_of(call.destination, jobs)).url
    memory = PlanMemory(jobs, running.memory_budget)
    call = await _with_scales(call, jobs, memory)

    def plan() -> dict[str, Any]:
        try:
            return plan_document(_plan(call, source, memory), source=source.url, destination=destination)
        finally:
            memory.give_back()

    return await jobs.storage.plans(call.source).run(plan)


async def start_job(call: CheckpointCall, running: Runtime) -> Job:
    """Start a job, or continue one that did not finish. A job that runs or is finished is left as it is.

    Raises UnsupportedError where no roots are configured; StorageError for places that are not below them or cannot be
    used; CheckpointError and UnknownNameError for what cannot be planned; DestinationError where the destination holds
    something else; OverloadedError where as many jobs run as may, where too many requests wait for the same storage,
    and where the memory for the plan is in use; DeadlineError where storage does not answer.
    """
    place = call.destination
    assert place is not None
    jobs = _jobs(running)
    context = current_request.get(None)
    source = await _source(call, jobs)
    destination = await _destination_of(place, jobs)
    memory = PlanMemory(jobs, running.memory_budget)
    call = await _with_scales(call, jobs, memory)

    def plan() -> Plan:
        try:
            return _plan(call, source, memory)
        except BaseException:
            memory.give_back()
            raise

    planned = await jobs.storage.plans(call.source).run(plan, memory.give_back)

    def start() -> Job:
        started = False
        try:
            with default_pointer("/destination"):
                check_apart(source, destination)
                record = _record(destination, jobs)
                if record is None or record.plan != planned.digest or record.state not in _LEFT_ALONE:
                    job = ConversionJob(planned, source, destination, threads=jobs.threads)
                    log = f"(request {context.request_id})" if context else ""
                    with jobs.place_for(destination.url):
                        _prepare(planned, destination)
                        running_here = jobs.start(destination.url, job, log, memory.give_back)
                        started = running_here is job
                        record = running_here.record
            return Job(identifier_of(destination.url), destination.url, record)
        finally:
            if not started:
                memory.give_back()

    return await jobs.storage.records(place).run(start)


async def read_job(name: str, running: Runtime) -> Job:
    """Return a job as it is now. Raises UnsupportedError, UnknownNameError, StorageError."""
    jobs = _jobs(running)
    place = _place_of(name)

    def read() -> Job:
        destination = jobs.roots.destination(place)
        record = _record(destination, jobs)
        if record is None:
            raise _unknown_job()
        return Job(name, destination.url, record)

    return await jobs.storage.records(place).run(read)


async def cancel_job(name: str, running: Runtime) -> Job:
    """Ask a job to stop, wherever it runs, and return it as it is now. What it has written stays.

    Raises as `read_job`.
    """
    jobs = _jobs(running)
    place = _place_of(name)

    def cancel() -> Job:
        destination = jobs.roots.destination(place)
        record = _record(destination, jobs)
        if record is None:
            raise _unknown_job()
        if record.state is JobState.RUNNING:
            here = jobs.job(destination.url)
            if here is None:
                ask_to_cancel(destination)
            else:
                here.stop()
        return Job(name, destination.url, record)

    return await jobs.storage.records(place).run(cancel)


_LEFT_ALONE = (JobState.RUNNING, JobState.FINISHED)


def _jobs(running: Runtime) -> CheckpointJobs:
    if running.checkpoint_jobs is None:
        raise UnsupportedError(
            "checkpoint jobs are disabled: set checkpoint_roots (REQUANT_CHECKPOINT_ROOTS) to the directories and URL "
            "prefixes that they may use"
        )
    return running.checkpoint_jobs


async def _source(call: CheckpointCall, jobs: CheckpointJobs) -> Store:
    with default_pointer("/source"):
        return await jobs.storage.plans(call.source).run(lambda: jobs.roots.source(call.source))


async def _destination_of(place: str, jobs: CheckpointJobs) -> Store:
    with default_pointer("/destination"):
        return await jobs.storage.records(place).run(lambda: jobs.roots.destination(place))


async def _with_scales(call: CheckpointCall, jobs: CheckpointJobs, memory: PlanMemory) -> CheckpointCall:
    """Return a call whose request has the scales that are in files. Each root is waited for by its own threads."""
    given = {"input_scales": (call.input_scales, OF_INPUTS), "kv_scales": (call.kv_scales, OF_KV_CACHE)}
    found: dict[str, Any] = {}
    for name, (place, parameters) in given.items():
        if place is not None:
            read = partial(_scales, name, place, parameters, jobs, memory)
            found[name] = await jobs.storage.plans(place).run(read, memory.give_back)
    return replace(call, request=replace(call.request, **found))


def _scales(name: str, place: str, parameters: tuple[str, ...], jobs: CheckpointJobs, memory: PlanMemory) -> Scales:
    try:
        with default_pointer(f"/{name}"):
            return scales_from(place, parameters, jobs.roots, memory.reserve)
    except BaseException:
        memory.give_back()
        raise


def _plan(call: CheckpointCall, source: Store, memory: PlanMemory) -> Plan:
    targets = "/targets" if len(call.request.schemes) < 2 else "/schemes"
    for pointer, patterns in (("/ignore", call.request.ignore), (targets, call.request.targets)):
        with default_pointer(pointer):
            check_linear(patterns)
    return plan_conversion(source, call.request, memory.reserve)


def _prepare(plan: Plan, destination: Store) -> None:
    """Look whether the destination may be written, before the request is answered."""
    with destination.lock(shared=True):
        prepare(plan, destination, alone=False)


def _record(destination: Store, jobs: CheckpointJobs) -> JobRecord | None:
    here = jobs.job(destination.url)
    return here.record if here is not None else read_record(destination)


def identifier_of(destination: str) -> str:
    """Return the name of a destination as a part of a path."""
    return base64.urlsafe_b64encode(destination.encode()).rstrip(b"=").decode()


def _place_of(name: str) -> str:
    """Return the destination that a name means."""
    try:
        if len(name) > _MAX_CHARACTERS:
            raise _unknown_job()
        padded = name + "=" * (-len(name) % 4)
        destination = base64.b64decode(padded, altchars=b"-_", validate=True).decode()
    except (binascii.Error, ValueError):
        raise _unknown_job() from None
    if identifier_of(destination) != name:
        raise _unknown_job()
    return destination


def _unknown_job() -> UnknownNameError:
    return UnknownNameError("no checkpoint job has this id")
