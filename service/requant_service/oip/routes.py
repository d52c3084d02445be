"""The Open Inference Protocol: every operation as a model, its tensors as JSON, in binary or in shared memory."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import cache, partial
from typing import Any

from fastapi import APIRouter, Depends
from starlette.requests import Request
from starlette.responses import Response

from requant.errors import UnknownNameError
from requant_service.http.json_body import read_json
from requant_service.http.openapi_operation import get_operation, json_operation, problems, static_operation
from requant_service.http.problems import error_response
from requant_service.http.query import no_query
from requant_service.http.request_body import BodyReader
from requant_service.http.responses import StaticContent, json_list_response, json_response, static_json
from requant_service.oip import inference, metadata, schemas
from requant_service.oip.models.model import Model
from requant_service.oip.models.registry import MODELS, model_named
from requant_service.oip.shared_memory import registered_regions, without_cuda
from requant_service.runtime.runtime import require_open, runtime
from requant_service.runtime.shared_memory.regions import SharedMemory
from requant_service.runtime.shared_memory.registry import RegionStatus

router = APIRouter(prefix="/v2", tags=["oip"])

_MODEL_LIST = static_json(lambda: schemas.ModelList(models=list(MODELS)))


@cache
def _server_metadata(shared_memory: bool) -> StaticContent:
    return static_json(partial(metadata.server_metadata, shared_memory=shared_memory))


@cache
def _model_metadata(model: Model) -> StaticContent:
    return static_json(partial(metadata.model_metadata, model))


_PLAIN = [Depends(no_query)]
_MODEL = {"model": "quantize"}
_VERSION = {**_MODEL, "version": "1"}
_EXAMPLE = {
    "id": "1",
    "parameters": {"output_type": "!quant.uniform<i8:f32, 0.5:3>", "profile": "onnx"},
    "inputs": [{"name": "x", "shape": [2, 2], "datatype": "FP32", "data": [[0.25, 0.75], [-1.5, "Infinity"]]}],
}


@router.get("", dependencies=_PLAIN, **static_operation("oipGetServer", "Server metadata", schemas.ServerMetadata))
async def server_metadata(request: Request) -> Response:
    """Server metadata: name, version and protocol extensions."""
    return await _server_metadata(runtime(request).shared_memory is not None).response(request)


@router.get("/health/live", dependencies=_PLAIN, **get_operation("oipGetLive", "Liveness", schemas.ServerLive))
async def live(request: Request) -> Response:
    """Liveness: the process responds."""
    return json_response(schemas.ServerLive(live=True))


@router.get(
    "/health/ready",
    dependencies=_PLAIN,
    **get_operation("oipGetReady", "Readiness of all models", schemas.ServerReady, 503),
)
async def ready(request: Request) -> Response:
    """Readiness: 200 if every model can be used, 503 if not."""
    require_open(request)
    return json_response(schemas.ServerReady(ready=True, live=True))


@router.get(
    "/models",
    dependencies=_PLAIN,
    **static_operation("oipListModels", "List models", schemas.ModelList, excerpt="models"),
)
async def list_models(request: Request) -> Response:
    """List the names of all models."""
    return await _MODEL_LIST.response(request)


@router.post(
    "/repository/index",
    dependencies=_PLAIN,
    **get_operation("oipIndexModels", "Repository index", list[schemas.ModelState], excerpt=""),
)
async def index_models(request: Request) -> Response:
    """Repository index: every version of every model, and its state."""
    return json_list_response(metadata.repository_index(runtime(request).health))


@router.get(
    "/models/{model}",
    dependencies=_PLAIN,
    **static_operation("oipGetModel", "Model metadata", schemas.ModelMetadata, 404, path=_MODEL),
)
async def get_model(request: Request, model: str) -> Response:
    """Model metadata: inputs, outputs and parameters."""
    return await _with_model(request, model, None, _metadata)


@router.get(
    "/models/{model}/versions/{version}",
    dependencies=_PLAIN,
    **static_operation("oipGetModelVersion", "Metadata of a version", schemas.ModelMetadata, 404, path=_VERSION),
)
async def get_model_version(request: Request, model: str, version: str) -> Response:
    """Metadata of one version of a model."""
    return await _with_model(request, model, version, _metadata)


@router.get(
    "/models/{model}/ready",
    dependencies=_PLAIN,
    **get_operation("oipGetModelReady", "Readiness of a model", schemas.ModelReady, 404, 503, path=_MODEL),
)
async def get_model_ready(request: Request, model: str) -> Response:
    """Readiness of a model: 200 if it can be used, 503 if not."""
    return await _with_model(request, model, None, _ready)


@router.get(
    "/models/{model}/versions/{version}/ready",
    dependencies=_PLAIN,
    **get_operation("oipGetModelVersionReady", "Readiness of a version", schemas.ModelReady, 404, 503, path=_VERSION),
)
async def get_model_version_ready(request: Request, model: str, version: str) -> Response:
    """Readiness of one version of a model: 200 if it can be used, 503 if not."""
    return await _with_model(request, model, version, _ready)


def _infer_operation(operation_id: str, title: str, path: dict[str, str]) -> dict[str, Any]:
    described = json_operation(
        operation_id, title, schemas.InferenceRequest, schemas.InferenceReply, _EXAMPLE, path=path
    )
    described["responses"] |= problems(404)
    return described


@router.post("/models/{model}/infer", **_infer_operation("oipInfer", "Run a model", _MODEL))
async def infer(request: Request, model: str) -> Response:
    """Run a model, with tensors as JSON. For binary tensors see docs/open_inference_protocol.md.

    Bodies may be compressed with gzip or deflate. No content type is required.
    """
    return await _with_model(request, model, None, inference.infer)


@router.post(
    "/models/{model}/versions/{version}/infer",
    **_infer_operation("oipInferVersion", "Run a version of a model", _VERSION),
)
async def infer_version(request: Request, model: str, version: str) -> Response:
    """Run one version of a model."""
    return await _with_model(request, model, version, inference.infer)


Handler = Callable[[Request, Model, str], Awaitable[Response]]


async def _with_model(request: Request, name: str, version: str | None, handler: Handler) -> Response:
    """Find the model that the path names, and hand it on with the version that is meant."""
    try:
        model, meant = model_named(name, version)
    except UnknownNameError as error:
        return error_response(request, error, status=404)
    return await handler(request, model, meant)


async def _metadata(request: Request, model: Model, version: str) -> Response:
    return await _model_metadata(model).response(request)


async def _ready(request: Request, model: Model, version: str) -> Response:
    require_open(request)
    return json_response(schemas.ModelReady(name=model.name, ready=True))


# Triton's clients begin by unregistering whatever is there, of system and of CUDA shared memory. There never is any of
# CUDA, so that succeeds, and there is none to list; anything that names a region of it is refused.
shared_memory_router = APIRouter(prefix="/v2", tags=["shared_memory"], dependencies=[Depends(no_query)])

_LONGEST_BODY = 16 << 10
_REGION = {"region": "input"}
_REGION_EXAMPLE = {"key": "/requant_example", "offset": 0, "byte_size": 64}


@shared_memory_router.get(
    "/systemsharedmemory/status",
    **get_operation(
        "oipListSharedMemory", "List regions", list[schemas.SharedMemoryRegion], after="oipRegisterSharedMemory"
    ),
)
async def list_regions(request: Request) -> Response:
    """List the registered regions of system shared memory."""
    return json_list_response(map(_described, _regions(request).statuses()))


@shared_memory_router.get(
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


@shared_memory_router.post(
    "/systemsharedmemory/region/{region}/register",
    **json_operation(
        "oipRegisterSharedMemory",
        "Register a region",
        schemas.SharedMemoryRegistration,
        schemas.Done,
        _REGION_EXAMPLE,
        path=_REGION,
    ),
)
async def register_region(request: Request, region: str) -> Response:
    """Register a part of a shared memory object as a region. No content type is required."""
    running = runtime(request)
    regions = registered_regions(running)
    text = (await BodyReader(request.scope, request.receive, _LONGEST_BODY).rest()).tobytes()
    registration = read_json(text, schemas.SharedMemoryRegistration, running.settings)
    regions.register(region, registration.key, registration.offset, registration.byte_size)
    return json_response(schemas.Done())


@shared_memory_router.post(
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


@shared_memory_router.post(
    "/systemsharedmemory/unregister",
    **get_operation("oipUnregisterAllSharedMemory", "Unregister all regions", schemas.Done),
)
async def unregister_regions(request: Request) -> Response:
    """Unregister all regions of system shared memory."""
    running = runtime(request)
    regions = registered_regions(running)
    await running.executor.run_array(regions.mapped_bytes, regions.unregister_all)
    return json_response(schemas.Done())


@shared_memory_router.get(
    "/cudasharedmemory/status",
    **get_operation("oipListCudaSharedMemory", "List CUDA regions", list[schemas.SharedMemoryRegion]),
)
async def list_cuda_regions(request: Request) -> Response:
    """List the registered regions of CUDA shared memory: there are none."""
    return json_list_response([])


@shared_memory_router.post(
    "/cudasharedmemory/unregister",
    **get_operation("oipUnregisterAllCudaSharedMemory", "Unregister all CUDA regions", schemas.Done),
)
async def unregister_cuda_regions(request: Request) -> Response:
    """Unregister all regions of CUDA shared memory: there are none."""
    return json_response(schemas.Done())


@shared_memory_router.get("/cudasharedmemory/region/{region}/status", include_in_schema=False)
async def get_cuda_region(request: Request, region: str) -> Response:
    """Not supported."""
    raise without_cuda()


@shared_memory_router.post("/cudasharedmemory/region/{region}/register", include_in_schema=False)
async def register_cuda_region(request: Request, region: str) -> Response:
    """Not supported."""
    raise without_cuda()


@shared_memory_router.post("/cudasharedmemory/region/{region}/unregister", include_in_schema=False)
async def unregister_cuda_region(request: Request, region: str) -> Response:
    """Not supported."""
    raise without_cuda()


def _regions(request: Request) -> SharedMemory:
    return registered_regions(runtime(request))


def _described(status: RegionStatus) -> schemas.SharedMemoryRegion:
    return schemas.SharedMemoryRegion(
        name=status.name, key=status.key, offset=status.offset, byte_size=status.byte_size
    )
