"""The interactive documentation, with every asset served from here: it works without the internet."""

from __future__ import annotations

from importlib.resources import files

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from service.http.problems import not_found
from service.http.static_content import StaticContent

router = APIRouter(include_in_schema=False)

# Swagger UI, from the package fastapi-offline, of which only these files are used.
_PACKAGE = "fastapi_offline"
_ASSETS = {
    "swagger-ui-bundle.js": "text/javascript; charset=utf-8",
    "swagger-ui.css": "text/css; charset=utf-8",
    "favicon.png": "image/png",
}

PATHS = frozenset({"/openapi.json", "/docs", *(f"/docs/assets/{name}" for name in _ASSETS)})
"""All that a browser asks for to show the page."""

# validatorUrl: Swagger UI would otherwise show a badge of an online validator.
_PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Requant</title>
<link rel="stylesheet" href="docs/assets/swagger-ui.css">
<link rel="icon" href="docs/assets/favicon.png">
</head>
<body>
<div id="swagger-ui"></div>
<script src="docs/assets/swagger-ui-bundle.js"></script>
<script>
SwaggerUIBundle({url: "openapi.json", dom_id: "#swagger-ui", deepLinking: true, validatorUrl: null});
</script>
</body>
</html>
"""
_POLICY = (
    "default-src 'self'; script-src 'self' 'unsafe-inline'; style-src 'self' 'unsafe-inline'; img-src 'self' data:"
)


def _asset(name: str) -> StaticContent:
    path = files(_PACKAGE) / "static" / name
    return StaticContent(path.read_bytes, _ASSETS[name], {"cache-control": "public, max-age=86400"})


_CONTENT = {name: _asset(name) for name in _ASSETS}
_DOCS = StaticContent(_PAGE.encode, "text/html; charset=utf-8", {"content-security-policy": _POLICY})


@router.get("/openapi.json")
async def document(request: Request) -> Response:
    """The OpenAPI document."""
    content: StaticContent = request.app.document
    return await content.response(request)


@router.get("/docs")
async def docs(request: Request) -> Response:
    """The page."""
    return await _DOCS.response(request)


@router.get("/docs/assets/{name}")
async def asset(request: Request, name: str) -> Response:
    """One of the page's files."""
    if name not in _CONTENT:
        return not_found(request)
    return await _CONTENT[name].response(request)
