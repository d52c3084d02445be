"""Logs: one JSON object to a line, with the id of the request that the line is about. Bodies are never logged.

A request's line holds its method, route, status, bytes and seconds. The route is the template out of the OpenAPI
document, never the path or query that was sent; nothing that a client chose is logged but its request id, which is a
plain short one (`requant_service.runtime.request_context`), and that of its trace.
"""

from __future__ import annotations

import json
import logging
import warnings
from datetime import UTC, datetime
from traceback import format_tb
from typing import Any, ClassVar, TextIO

from requant_service.runtime.request_context import current_request

_FIELDS = "fields"

_warnings = logging.getLogger("py.warnings")


class Lines(logging.Formatter):
    """Formats a record as a line of text."""

    def formatException(self, ei: Any) -> str:  # noqa: N802  # logging's own name
        """Return where an error came from and of what class it is. Its message may repeat a part of a request."""
        kind, _, origin = ei
        return "".join(["Traceback (most recent call last):\n", *format_tb(origin), kind.__name__])


class JsonLines(Lines):
    """Formats a record as one line of JSON. `worker`: which worker process this is, if there are several."""

    worker: ClassVar[int | None] = None

    def format(self, record: logging.LogRecord) -> str:
        """Return the line, without its end."""
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if self.worker is not None:
            line["worker"] = self.worker
        if (context := current_request.get(None)) is not None:
            line["request_id"] = context.request_id
            if context.trace_id:
                line["trace_id"] = context.trace_id
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
    # The compiler's messages about its own work are of no use here.
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
