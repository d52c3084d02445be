"""Our conversion of a directory, from its plan to its last file."""

from __future__ import annotations

from pathlib import Path

from requant.checkpoint.plan.model import Direction, Plan, Request, SchemeFor
from requant.checkpoint.plan.planner import plan_conversion
from requant.checkpoint.run.run import run_plan
from requant.checkpoint.storage.location import open_store

CPU = "compressed-tensors-cpu"
CUDA = "compressed-tensors-cuda"
MANIFEST = "requant-manifest.json"


def convert(source: Path, target: Path, request: Request) -> Plan:
    """Convert a directory, and return the plan."""
    store = open_store(str(source))
    plan = plan_conversion(store, request)
    run_plan(plan, store, open_store(str(target)), threads=2, progress=None)
    return plan


def quantize(source: Path, target: Path, scheme: str, ignore: tuple[str, ...] = (), *, profile: str = CPU) -> Path:
    """Quantize a directory, and return the new one."""
    convert(source, target, Request(Direction.QUANTIZE, (SchemeFor(scheme),), profile, ignore))
    return target


def dequantize(source: Path, target: Path, dtype: str | None = None, *, profile: str = CPU) -> Path:
    """Dequantize a directory, and return the new one."""
    convert(source, target, Request(Direction.DEQUANTIZE, (), profile, dtype=dtype))
    return target
