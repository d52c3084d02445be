"""The HTTP service: wire bytes in, `core` for every decision about numbers, wire bytes out."""

from __future__ import annotations

VERSION = "0.1.0"
