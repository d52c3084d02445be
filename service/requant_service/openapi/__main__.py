"""`python -m requant_service.openapi` records the replies to the examples and writes `openapi/openapi.json`.

`--check` says whether that file is current; a test checks the replies.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from requant_service.app import create_app
from requant_service.openapi.recording import record
from requant_service.runtime.settings import Settings

COMMITTED = Path(__file__).parents[3] / "openapi" / "openapi.json"


def text(settings: Settings) -> str:
    """Return the document as it is committed: sorted, so that a difference is a difference in meaning."""
    return json.dumps(create_app(settings).openapi(), indent=2, sort_keys=True, ensure_ascii=False) + "\n"


def main() -> None:
    """Record the replies, then write the document to its place; with `--check`, fail if that would change it."""
    current = text(Settings())
    if "--check" in sys.argv[1:]:
        if not COMMITTED.exists() or COMMITTED.read_text(encoding="utf-8") != current:
            sys.exit("openapi/openapi.json is not current: run `make openapi`")
        return
    record(create_app(Settings()).openapi())
    COMMITTED.parent.mkdir(parents=True, exist_ok=True)
    COMMITTED.write_text(text(Settings()), encoding="utf-8")


if __name__ == "__main__":
    main()
