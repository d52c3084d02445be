"""What the kernels are to reach, as ratios within one run, and what they reached."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from benchmarks.kernels.row import Row
from benchmarks.section import table


class Goal(NamedTuple):
    """`row` is to be `wanted` times faster than `against`: one of its contenders, or ours in another row."""

    row: str
    elements: int
    against: str
    wanted: float


_SMALL, _CACHED, _LARGE = 1_000, 100_000, 10_000_000
_PER_TENSOR, _LAST = "f32 to i8", "f32 to i8, last axis"

GOALS = (
    *(
        goal
        for row in (_PER_TENSOR, "f32 to u8")
        for goal in (
            Goal(row, _CACHED, "onnxruntime", 2.5),
            Goal(row, _CACHED, "litert", 0.85),
            Goal(row, _LARGE, "onnxruntime", 1.1),
            Goal(row, _LARGE, "limit", 0.95),
        )
    ),
    Goal("f32 to i8, litert_xnnpack", _CACHED, "litert", 1.0),
    Goal("i8 to f32", _CACHED, "onnxruntime", 2.5),
    Goal("i8 to f32", _LARGE, "onnxruntime", 1.1),
    Goal("f32 to i16", _CACHED, "onnxruntime", 4.0),
    Goal("f32 to i16", _LARGE, "onnxruntime", 1.25),
    Goal("f32 to i4, packed", _CACHED, "onnxruntime", 4.0),
    Goal("f32 to i4, packed", _LARGE, "onnxruntime", 2.0),
    Goal("f32 to i8, blocks of 32", _CACHED, "onnxruntime", 2.5),
    Goal("f32 to i8, blocks of 32", _LARGE, "onnxruntime", 1.9),
    Goal("f16 to i8", _CACHED, "onnxruntime", 50.0),
    Goal("f16 to i8", _LARGE, "onnxruntime", 40.0),
    Goal("f32 to f8E4M3FN", _CACHED, "onnxruntime", 25.0),
    Goal("f32 to f8E4M3FN", _LARGE, "onnxruntime", 18.0),
    Goal("bf16 to i8", _CACHED, "torch", 10.0),
    Goal("bf16 to i8", _LARGE, "torch", 20.0),
    Goal(_LAST, _CACHED, "onnxruntime", 100.0),
    Goal(_LAST, _LARGE, "onnxruntime", 100.0),
    Goal(_LAST, _CACHED, _PER_TENSOR, 1 / 2.2),
    Goal(_LAST, _LARGE, _PER_TENSOR, 1 / 1.3),
    Goal("i32 to i8, double rounding", _CACHED, "litert", 25.0),
    Goal("i32 to i8, double rounding", _LARGE, "litert", 20.0),
    Goal("i32 to i8, double rounding", _LARGE, "limit", 1 / 1.3),
    Goal("i8 to i8", _CACHED, "litert", 0.9),
    Goal("i8 to i8", _LARGE, "litert", 1.0),
    Goal("minimum and maximum", _CACHED, "torch", 1.5),
    Goal("minimum and maximum", _LARGE, "torch", 1.1),
    Goal(_PER_TENSOR, _SMALL, "onnxruntime", 3.0),
    Goal("f32 to i8, 1 % subnormal", _CACHED, "f32 to i8, normal", 1 / 1.2),
)


def _ratios(goal: Goal, rows: Sequence[Row]) -> tuple[float | None, float | None]:
    """How many times faster ours is, and a loop that only reads and writes as much."""
    found = {row.name: row.seconds for row in rows if row.asked == goal.elements}
    own = found.get(goal.row, {})
    theirs = own.get(goal.against) or found.get(goal.against, {}).get("ours")
    if theirs is None or "ours" not in own:
        return None, None
    return theirs / own["ours"], theirs / own["limit"] if "limit" in own else None


def _verdict(goal: Goal, measured: float | None, limit: float | None) -> str:
    if measured is None:
        return "not measured"
    if measured >= goal.wanted:
        return "reached"
    return "not reached" if limit is None or limit >= goal.wanted else "not reached, beyond the limit"


def goals_table(rows: Sequence[Row]) -> str:
    """Return the table: times faster than whom it is to be, and is."""
    cells = []
    for goal in GOALS:
        ratios = _ratios(goal, rows)
        measured, limit = ("" if each is None else f"{each:.2f}" for each in ratios)
        numbers = [f"{goal.elements:,}", goal.against, f"{goal.wanted:.2f}", measured, limit]
        cells.append([goal.row, *numbers, _verdict(goal, *ratios)])
    return table(["conversion", "elements", "against", "wanted", "measured", "the limit's", ""], cells)
