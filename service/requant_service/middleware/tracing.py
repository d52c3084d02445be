"""Optional tracing with OpenTelemetry: one span for each request, below the trace that its `traceparent` names.

OpenTelemetry's own variables say where spans go: OTEL_EXPORTER_OTLP_ENDPOINT, OTEL_TRACES_SAMPLER, and so on. Its
packages are the extra `telemetry`; nothing here is imported unless the setting `telemetry` is on.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import SpanKind, Status, StatusCode, Tracer
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
from starlette.types import ASGIApp, Receive, Scope, Send

from requant import VERSION
from requant_service.middleware.request_lifecycle import MONITORING, route_of
from requant_service.runtime.request_context import context_of

_PROPAGATOR = TraceContextTextMapPropagator()
_CARRIED = ("traceparent", "tracestate")


def tracer_to_collector() -> Tracer:
    """Return a tracer whose spans are sent in batches, by a thread of its own, as OTLP over HTTP."""
    named = Resource({"service.name": "requant", "service.version": VERSION})
    provider = TracerProvider(resource=named.merge(OTELResourceDetector().detect()))
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    return provider.get_tracer("requant", VERSION)


class Tracing:
    """Pure ASGI middleware. `fixed` are the paths of the routes that have no parameters. Probes have no spans.

    `tracer` is made here: its thread would not survive a fork, and middleware is made in the process that serves.

    A span has the route, the status, the id of the request, and the seconds of `Server-Timing`; nothing of the
    request's path, query, body or other headers.
    """

    def __init__(self, app: ASGIApp, tracer: Callable[[], Tracer], fixed: Collection[str]) -> None:
        self.app = app
        self._tracer = tracer()
        self._fixed = frozenset(fixed)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Trace a request from its head to the end of the reply."""
        if scope["type"] != "http" or scope["path"] in MONITORING:
            await self.app(scope, receive, send)
            return
        context = context_of(scope)
        carried = {name: context.headers.get(name.encode(), b"").decode("latin-1") for name in _CARRIED}

        span = self._tracer.start_span(scope["method"], _PROPAGATOR.extract(carried), SpanKind.SERVER)
        try:
            await self.app(scope, receive, send)
        finally:
            route, status = route_of(scope, self._fixed), context.status
            span.update_name(f"{scope['method']} {route}")
            span.set_attributes(
                {
                    "http.request.method": scope["method"],
                    "http.route": route,
                    "http.response.status_code": status,
                    "requant.request_id": context.request_id,
                    "requant.received_seconds": context.received,
                    "requant.waited_seconds": context.waited,
                    "requant.worked_seconds": context.worked,
                }
            )
            if status == 0 or status >= 500:
                span.set_status(Status(StatusCode.ERROR))
            span.end()
