"""System shared memory as Triton's clients register it, and CUDA shared memory, which is not supported.

Those clients begin by unregistering whatever is there, of both kinds. There never is any CUDA shared memory here, so
that succeeds, and there is none to list; anything that names a region of it is refused.
"""

from __future__ import annotations

from functools import partial

from fastapi import APIRouter, Depends
from starlette.requests import Request
from starlette.responses import Response

from requant.errors import UnknownNameError
from requant_service.http.json_body import read_json
from requant_service.http.openapi_operation import get_operation, json_operation
from requant_service.http.problems import error_response
from requant_service.http.query import no_query
from requant_service.http.request_body import BodyReader
from requant_service.http.responses import json_list_response, json_response
from requant_service.oip import schemas
from requant_service.oip.shared_memory.tensors import registered_regions, without_cuda
from requant_service.runtime.runtime import runtime
from requant_service.runtime.shared_memory.regions import RegionStatus, SharedMemory

router = APIRouter(prefix="/v2", tags=["shared_memory"], dependencies=[Depends(no_query)])

_LONGEST_BODY = 16 << 10
_REGION = {"region": "input"}
_EXAMPLE = {"key": "/requant_example", "offset": 0, "byte_size": 64}


@router.get(
    "/systemsharedmemory/status",
    **get_operation(
        "oipListSharedMemory", "List regions", list[schemas.SharedMemoryRegion], after="oipRegisterSharedMemory"
    ),
)
async def list_regions(request: Request) -> Response:
    """List the registered regions of system shared memory."""
    return json_list_response(map(_described, _regions(request).statuses()))


@router.get(
    "/systemsharedmemory/region/{region}/status",
    **get_operation(
        "oipGetSharedMemory",
        "Status of a region",
        list[schemas.SharedMemoryRegion],
        404,
        path=_REGION,
        after="oipRegisterSharedMemory",
    ),
)
async def get_region(request: Request, region: str) -> Response:
    """Status of a region: a list with one element, as Triton returns it."""
    regions = _regions(request)
    try:
        status = regions.status(region)
    except UnknownNameError as error:
        return error_response(request, error, status=404)
    return json_list_response([_described(status)])


@router.post(
    "/systemsharedmemory/region/{region}/register",
    **json_operation(
        "oipRegisterSharedMemory",
        "Register a region",
        schemas.SharedMemoryRegistration,
        schemas.Done,
        _EXAMPLE,
        path=_REGION,
    ),
)
async def register_region(request: Request, region: str) -> Response:
    """Register a part of a shared memory object as a region. No content type is required."""
    running = runtime(request)
    regions = registered_regions(running)
    text = (await BodyReader(request.scope, request.receive, _LONGEST_BODY).rest()).tobytes()
    given = read_json(text, schemas.SharedMemoryRegistration, running.settings)
    regions.register(region, given.key, given.offset, given.byte_size)
    return json_response(schemas.Done())


@router.post(
    "/systemsharedmemory/region/{region}/unregister",
    **get_operation(
        "oipUnregisterSharedMemory",
        "Unregister a region",
        schemas.Done,
        404,
        path=_REGION,
        after="oipRegisterSharedMemory",
    ),
)
async def unregister_region(request: Request, region: str) -> Response:
    """Unregister a region. Requests that are using it are not affected."""
    running = runtime(request)
    regions = registered_regions(running)
    try:
        await running.executor.run_array(regions.status(region).byte_size, partial(regions.unregister, region))
    except UnknownNameError as error:
        return error_response(request, error, status=404)
    return json_response(schemas.Done())


@router.post(
    "/systemsharedmemory/unregister",
    **get_operation("oipUnregisterAllSharedMemory", "Unregister all regions", schemas.Done),
)
async def unregister_regions(request: Request) -> Response:
    """Unregister all regions of system shared memory."""
    running = runtime(request)
    regions = registered_regions(running)
    await running.executor.run_array(regions.mapped_bytes, regions.unregister_all)
    return json_response(schemas.Done())


@router.get(
    "/cudasharedmemory/status",
    **get_operation("oipListCudaSharedMemory", "List CUDA regions", list[schemas.SharedMemoryRegion]),
)
async def list_cuda_regions(request: Request) -> Response:
    """List the registered regions of CUDA shared memory: there are none."""
    return json_list_response([])


@router.post(
    "/cudasharedmemory/unregister",
    **get_operation("oipUnregisterAllCudaSharedMemory", "Unregister all CUDA regions", schemas.Done),
)
async def unregister_cuda_regions(request: Request) -> Response:
    """Unregister all regions of CUDA shared memory: there are none."""
    return json_response(schemas.Done())


@router.get("/cudasharedmemory/region/{region}/status", include_in_schema=False)
async def get_cuda_region(request: Request, region: str) -> Response:
    """Not supported."""
    raise without_cuda()


@router.post("/cudasharedmemory/region/{region}/register", include_in_schema=False)
async def register_cuda_region(request: Request, region: str) -> Response:
    """Not supported."""
    raise without_cuda()


@router.post("/cudasharedmemory/region/{region}/unregister", include_in_schema=False)
async def unregister_cuda_region(request: Request, region: str) -> Response:
    """Not supported."""
    raise without_cuda()


def _regions(request: Request) -> SharedMemory:
    return registered_regions(runtime(request))


def _described(status: RegionStatus) -> schemas.SharedMemoryRegion:
    return schemas.SharedMemoryRegion(
        name=status.name, key=status.key, offset=status.offset, byte_size=status.byte_size
    )
