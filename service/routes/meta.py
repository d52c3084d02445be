"""What the service says about itself: readiness, versions, limits, profiles, and its own problems explained."""

from __future__ import annotations

import platform
from importlib.metadata import version

from fastapi import APIRouter, Depends
from starlette.requests import Request
from starlette.responses import Response

from core.errors import UnknownNameError, excerpt
from core.parameters.schemes import SCHEMES
from core.profiles import PROFILES
from service import VERSION, schemas
from service.lifespan import HealthStatus, runtime
from service.multiplier_models import Scheme, SchemeList
from service.operation import get_operation, health_operation
from service.problems import PROBLEMS, requant_problem
from service.profile_page import profile_page
from service.query import no_query
from service.replies import json_reply
from service.scheme_page import scheme_page
from service.settings import Limits

router = APIRouter(tags=["meta"], dependencies=[Depends(no_query)])

_PACKAGES = ("numpy", "numba", "ml_dtypes", "fastapi", "pydantic", "uvicorn")


@router.get("/healthz", **health_operation("getHealth", schemas.Health))
async def healthz(request: Request) -> Response:
    """Say whether the service takes work: 200 when it does, 503 when it does not."""
    status = runtime(request).status
    health = schemas.Health(status=status)
    if status is HealthStatus.READY:
        return json_reply(health)
    return json_reply(health, 503, {"retry-after": "1"})


@router.get("/v1/info", **get_operation("getInfo", schemas.Info))
async def info(request: Request) -> Response:
    """Say what is running, and the limits that hold for requests."""
    running = runtime(request)
    limits = Limits(**{name: getattr(running.settings, name) for name in Limits.model_fields})
    return json_reply(
        schemas.Info(
            name="requant",
            version=VERSION,
            python=platform.python_version(),
            packages={name: version(name) for name in _PACKAGES},
            machine=platform.machine(),
            threads=running.settings.threads,
            kernels=running.kernels,
            profiles=list(PROFILES),
            schemes=list(SCHEMES),
            limits=limits,
        )
    )


@router.get("/v1/profiles", **get_operation("listProfiles", schemas.ProfileList))
async def list_profiles() -> Response:
    """List the arithmetic contracts, each in words and formulas."""
    return json_reply(schemas.ProfileList(profiles=[profile_page(name) for name in PROFILES]))


@router.get("/v1/profiles/{name}", **get_operation("getProfile", schemas.Profile, 404))
async def get_profile(request: Request, name: str) -> Response:
    """Say what one arithmetic contract is."""
    try:
        return json_reply(profile_page(name))
    except UnknownNameError as error:
        return requant_problem(request, error, status=404)


@router.get("/v1/schemes", **get_operation("listSchemes", SchemeList))
async def list_schemes() -> Response:
    """List the schemes of requantization, each in words and formulas."""
    return json_reply(SchemeList(schemes=[scheme_page(name) for name in SCHEMES]))


@router.get("/v1/schemes/{name}", **get_operation("getScheme", Scheme, 404))
async def get_scheme(request: Request, name: str) -> Response:
    """Say what one scheme of requantization is."""
    try:
        return json_reply(scheme_page(name))
    except UnknownNameError as error:
        return requant_problem(request, error, status=404)


@router.get("/problems/{code}", **get_operation("getProblem", schemas.ProblemExplanation, 404))
async def get_problem(request: Request, code: str) -> Response:
    """Explain the code of a problem."""
    kind = PROBLEMS.get(code)
    if kind is None:
        error = UnknownNameError(f"no problem has the code {excerpt(code)!r}; there are {', '.join(PROBLEMS)}")
        return requant_problem(request, error, status=404)
    return json_reply(
        schemas.ProblemExplanation(code=kind.code, status=kind.status, title=kind.title, explanation=kind.explanation)
    )
