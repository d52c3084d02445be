"""What the service says about itself: readiness, versions, limits, metrics, and its problems explained."""

from __future__ import annotations

import platform
from functools import cache
from html import escape
from importlib.metadata import version

from fastapi import APIRouter, Depends
from pydantic import Field
from starlette.requests import Request
from starlette.responses import Response

from requant import VERSION
from requant.errors.names import unknown_name
from requant.profiles import PROFILES
from requant.schemes import SCHEMES
from requant_service.http.models import ABSENT, Int32, ProblemExplanation, ProblemList, ReplyModel
from requant_service.http.openapi_operation import health_operation, static_operation
from requant_service.http.problems import PROBLEMS, error_response
from requant_service.http.query import no_query
from requant_service.http.responses import PAGE_HEADERS, json_response, tagged_json
from requant_service.runtime.metrics import CONTENT_TYPE
from requant_service.runtime.runtime import HealthStatus, runtime
from requant_service.runtime.settings import Limits

router = APIRouter(tags=["meta"], dependencies=[Depends(no_query)])
# Scrapers know the format; clients that are generated from the document have no use for it.
metrics_router = APIRouter(include_in_schema=False)

_PACKAGES = ("numpy", "numba", "ml_dtypes", "fastapi", "pydantic", "uvicorn")


class Info(ReplyModel):
    """Versions and limits."""

    name: str
    version: str
    python: str
    packages: dict[str, str] = Field(description="Versions of the numeric packages.")
    machine: str
    threads: Int32
    kernels: Int32 = Field(description="Number of compiled kernels.")
    profiles: list[str]
    schemes: list[str]
    limits: Limits


class CompiledKernels(ReplyModel):
    """Progress of the compilation of kernels at start."""

    compiled: Int32
    total: Int32
    seconds_left: Int32 = Field(default=ABSENT, description="Expected seconds for the rest; absent until known.")


class Health(ReplyModel):
    """Readiness of the service."""

    status: HealthStatus = Field(
        description="`compiling`: requests are served, but some wait for a kernel; not ready for a load balancer yet."
    )
    kernels: CompiledKernels = Field(default=ABSENT, description="Only while kernels are compiled.")


@cache
def _versions() -> dict[str, str]:
    """Return the packages' versions, which stand in files."""
    return {name: version(name) for name in _PACKAGES}


@router.get("/healthz", **health_operation("getHealth", "Readiness", Health))
async def healthz(request: Request) -> Response:
    """Readiness: 200 if the service accepts work, 503 if not."""
    running = runtime(request)
    status = running.health
    health = Health(status=status)
    if running.compilation is not None and status is HealthStatus.COMPILING:
        compiled, total, left = running.compilation.progress()
        kernels = CompiledKernels(compiled=compiled, total=total)
        if left is not None:
            kernels = CompiledKernels(compiled=compiled, total=total, seconds_left=left)
        health = Health(status=status, kernels=kernels)
    if status is HealthStatus.READY:
        return json_response(health)
    return json_response(health, 503, {"retry-after": "1"})


@router.get(
    "/v1/info",
    **static_operation(
        "getInfo", "Versions and limits", Info, varying=("python", "packages", "machine", "threads", "kernels")
    ),
)
async def info(request: Request) -> Response:
    """Versions and limits."""
    running = runtime(request)
    limits = Limits(**{name: getattr(running.settings, name) for name in Limits.model_fields})
    return tagged_json(
        request,
        Info(
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


_BY_ACCEPT = {"vary": "accept"}


def _problem_page(problem: ProblemExplanation) -> str:
    others = " ".join(f'<a href="{code}">{code}</a>' for code in PROBLEMS if code != problem.code)
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{escape(problem.title)}: {problem.code}</title>
<link rel="stylesheet" href="../docs/assets/reference.css">
</head>
<body>
<header><h1>{escape(problem.title)}</h1></header>
<main>
<p><code>{problem.code}</code>, status {problem.status}</p>
<p>{escape(problem.explanation)}</p>
<p>Other problems: {others}</p>
</main>
</body>
</html>
"""


def _explanation(code: str) -> ProblemExplanation:
    cls = PROBLEMS[code]
    return ProblemExplanation(code=cls.code, status=cls.status, title=cls.title, explanation=cls.explanation)


@router.get("/problems", **static_operation("listProblems", "List problem codes", ProblemList, excerpt="problems"))
async def list_problems(request: Request) -> Response:
    """List all problem codes, with their explanations."""
    return tagged_json(request, ProblemList(problems=[_explanation(code) for code in PROBLEMS]))


@router.get(
    "/problems/{code}",
    **static_operation(
        "getProblem", "Explain a problem code", ProblemExplanation, 404, path={"code": "limit_exceeded"}
    ),
)
async def get_problem(request: Request, code: str) -> Response:
    """Explain a problem code."""
    if code not in PROBLEMS:
        return error_response(request, unknown_name("problem", code, PROBLEMS), status=404)
    explained = _explanation(code)
    # A problem's `type` is a link, and people follow it with a browser.
    if "text/html" in request.headers.get("accept", ""):
        return Response(_problem_page(explained), headers={**PAGE_HEADERS, **_BY_ACCEPT}, media_type="text/html")
    return tagged_json(request, explained, _BY_ACCEPT)


@metrics_router.get("/metrics")
async def metrics(request: Request) -> Response:
    """All metrics, in Prometheus' text format."""
    return Response(await runtime(request).metrics_text(), media_type=CONTENT_TYPE)
