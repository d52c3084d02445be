"""What is kept, and what makes room for it."""

from __future__ import annotations

from requant.convert.quantize import plan_quantize
from requant.convert.requantize import plan_requantize
from requant.mlir import parse_type
from requant.mlir.types import TensorType
from requant_service.operations.conversion_call import plan_bytes
from requant_service.runtime.runtime import PlanCache


def test_what_was_used_last_is_kept() -> None:
    cache: PlanCache[int] = PlanCache(100)
    for number in range(10):
        cache.put(number, number, 10)
    assert cache.get(0) == 0
    cache.put("new", 10, 10)
    assert (cache.get(1), cache.get(0), cache.get("new")) == (None, 0, 10)


def test_a_value_is_kept_once() -> None:
    cache: PlanCache[int] = PlanCache(100)
    for _ in range(50):
        cache.put("a", 1, 10)
    cache.put("b", 2, 10)
    assert (cache.get("a"), cache.get("b")) == (1, 2)


def test_one_that_would_drive_out_the_others_is_not_kept() -> None:
    cache: PlanCache[int] = PlanCache(100)
    cache.put("a", 1, 10)
    cache.put("large", 2, 13)
    assert (cache.get("a"), cache.get("large")) == (1, None)


def test_nothing_is_kept_without_room() -> None:
    cache: PlanCache[int] = PlanCache(0)
    cache.put("a", 1, 1)
    assert cache.get("a") is None


def test_a_plan_counts_all_that_it_holds() -> None:
    scales = ", ".join(["0.5"] * 1000)
    source, target = (f"tensor<1000x3x!quant.uniform<{storage}:f32:0, {{{scales}}}>>" for storage in ("i32", "i8"))
    source_type = parse_type(source)
    assert isinstance(source_type, TensorType)
    bare = plan_bytes(None, 10)
    assert plan_bytes(plan_requantize(source_type, parse_type(target), "litert"), 10) > bare + 1000 * 100
    real_type = parse_type("tensor<1000x3xf32>")
    assert isinstance(real_type, TensorType)
    assert plan_bytes(plan_quantize(real_type, parse_type(target), "onnx"), 10) > bare + 1000 * 8
