"""What the service says about itself: readiness, versions, limits, profiles, and its own problems explained."""

from __future__ import annotations

import platform
from functools import cache, partial
from importlib.metadata import version

from fastapi import APIRouter, Depends
from starlette.requests import Request
from starlette.responses import Response

from core.errors import UnknownNameError, excerpt
from core.profiles import PROFILES, profile_named
from core.schemes import SCHEMES, scheme_named
from service import VERSION
from service.http.openapi_operation import health_operation, static_operation
from service.http.problems import PROBLEMS, error_response
from service.http.query import no_query
from service.http.responses import json_response
from service.http.static_content import static_json, tagged_json
from service.json_api.catalog.profiles import profile_page
from service.json_api.catalog.schemes import scheme_page
from service.json_api.schemas import base as schemas
from service.json_api.schemas.multipliers import Scheme, SchemeList
from service.runtime.runtime import HealthStatus, runtime
from service.runtime.settings import Limits

router = APIRouter(tags=["meta"], dependencies=[Depends(no_query)])

_PACKAGES = ("numpy", "numba", "ml_dtypes", "fastapi", "pydantic", "uvicorn")

_PROFILES = {name: static_json(partial(profile_page, name)) for name in PROFILES}
_PROFILE_LIST = static_json(lambda: schemas.ProfileList(profiles=[profile_page(name) for name in PROFILES]))
_SCHEMES = {name: static_json(partial(scheme_page, name)) for name in SCHEMES}
_SCHEME_LIST = static_json(lambda: SchemeList(schemes=[scheme_page(name) for name in SCHEMES]))


@cache
def _versions() -> dict[str, str]:
    """Return the packages' versions, which stand in files."""
    return {name: version(name) for name in _PACKAGES}


@router.get("/healthz", **health_operation("getHealth", schemas.Health))
async def healthz(request: Request) -> Response:
    """Readiness: 200 if the service accepts work, 503 if not."""
    status = runtime(request).status
    health = schemas.Health(status=status)
    if status is HealthStatus.READY:
        return json_response(health)
    return json_response(health, 503, {"retry-after": "1"})


@router.get("/v1/info", **static_operation("getInfo", schemas.Info))
async def info(request: Request) -> Response:
    """Versions and limits."""
    running = runtime(request)
    limits = Limits(**{name: getattr(running.settings, name) for name in Limits.model_fields})
    return tagged_json(
        request,
        schemas.Info(
            name="requant",
            version=VERSION,
            python=platform.python_version(),
            packages=_versions(),
            machine=platform.machine(),
            threads=running.settings.threads,
            kernels=running.kernels,
            profiles=list(PROFILES),
            schemes=list(SCHEMES),
            limits=limits,
        ),
    )


@router.get("/v1/profiles", **static_operation("listProfiles", schemas.ProfileList))
async def list_profiles(request: Request) -> Response:
    """List the profiles: arithmetic contracts in words and formulas."""
    return await _PROFILE_LIST.response(request)


@router.get("/v1/profiles/{name}", **static_operation("getProfile", schemas.Profile, 404))
async def get_profile(request: Request, name: str) -> Response:
    """Describe one profile."""
    try:
        profile = profile_named(name)
    except UnknownNameError as error:
        return error_response(request, error, status=404)
    return await _PROFILES[profile.name].response(request)


@router.get("/v1/schemes", **static_operation("listSchemes", SchemeList))
async def list_schemes(request: Request) -> Response:
    """List the requantization schemes, in words and formulas."""
    return await _SCHEME_LIST.response(request)


@router.get("/v1/schemes/{name}", **static_operation("getScheme", Scheme, 404))
async def get_scheme(request: Request, name: str) -> Response:
    """Describe one requantization scheme."""
    try:
        scheme = scheme_named(name)
    except UnknownNameError as error:
        return error_response(request, error, status=404)
    return await _SCHEMES[scheme.name].response(request)


@router.get("/problems/{code}", **static_operation("getProblem", schemas.ProblemExplanation, 404))
async def get_problem(request: Request, code: str) -> Response:
    """Explain a problem code."""
    kind = PROBLEMS.get(code)
    if kind is None:
        error = UnknownNameError(f"no problem has the code {excerpt(code)!r}; available: {', '.join(PROBLEMS)}")
        return error_response(request, error, status=404)
    return tagged_json(
        request,
        schemas.ProblemExplanation(code=kind.code, status=kind.status, title=kind.title, explanation=kind.explanation),
    )
