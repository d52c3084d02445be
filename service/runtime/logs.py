"""Logs: one JSON object to a line, with the id of the request that the line is about. No body ever gets here.

A request's line holds its method, route, status, bytes and seconds. The route is the template out of the OpenAPI
document, never the path or query that was sent; nothing that a client chose is logged but its request id, which is a
plain short one (`service.middleware.request_lifecycle`), and that of its trace.
"""

from __future__ import annotations

import json
import logging
import warnings
from contextvars import ContextVar
from datetime import UTC, datetime
from traceback import format_tb
from typing import Any, TextIO

request_of_log: ContextVar[str] = ContextVar("request_of_log", default="")
"""The id of the request that is served."""

trace_of_log: ContextVar[str] = ContextVar("trace_of_log", default="")
"""The id of the trace that the request belongs to, if it says one (W3C Trace Context)."""

_FIELDS = "fields"

_warnings = logging.getLogger("py.warnings")


class Lines(logging.Formatter):
    """Formats a record as a line of text."""

    def formatException(self, ei: Any) -> str:  # noqa: N802  # logging's own name
        """Return where an error came from and of what class it is. Its message may repeat a part of a request."""
        kind, _, origin = ei
        return "".join(["Traceback (most recent call last):\n", *format_tb(origin), kind.__name__])


class JsonLines(Lines):
    """Formats a record as one line of JSON."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line, without its end."""
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if request := request_of_log.get():
            line["request_id"] = request
        if trace := trace_of_log.get():
            line["trace_id"] = trace
        line.update(getattr(record, _FIELDS, {}))
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=True)


def set_up_logs(level: str, form: str) -> None:
    """Send every log of the process, and the warnings of its packages, to standard error, as `json` or as `text`."""
    handler = logging.StreamHandler()
    text = Lines("%(asctime)s %(levelname)s %(name)s: %(message)s")
    handler.setFormatter(JsonLines() if form == "json" else text)
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    # What the compiler says of its own work is of no use to anybody here.
    logging.getLogger("numba").setLevel(logging.WARNING)
    warnings.showwarning = _log_warning


def _log_warning(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    """Log where a warning came from and of what class it is. As with errors, its message may repeat a request."""
    _warnings.warning("%s at %s:%d", category.__name__, filename, lineno)


def log_request(logger: logging.Logger, **fields: Any) -> None:
    """Log that a request was served."""
    logger.info("%(method)s %(route)s %(status)s", fields, extra={_FIELDS: fields})
