"""The arithmetic: types, profiles, kernels. Nothing here knows of the web."""

from __future__ import annotations

import platform
import sys

if sys.byteorder != "little":
    raise ImportError(f"Requant needs a little-endian CPU, as tensors are little-endian; {platform.machine()} is not")
if sys.platform == "win32" or (sys.platform == "darwin" and platform.machine() == "x86_64"):
    raise ImportError(f"Requant does not support {platform.platform()}: see docs/platforms.md for what it runs on")
