"""A pytest plugin: of each test two cases, since each takes twenty times as long in QEMU; of vectors all."""

from __future__ import annotations

from collections import defaultdict

import pytest

# Their oracles, in Python, take up to a minute each; the last one measures time. What they call is in the digests.
_SLOW = frozenset({
    "test_encoding_against_the_oracle", "test_every_code_is_decoded", "test_pieces_and_counts", "test_percentiles",
    "test_ranges_of_every_magnitude", "test_the_work_of_all_tensors_is_limited", "test_all_shifts",
    "test_many_pixels_and_channels", "test_counts_are_numpys", "test_each_parameter_by_itself",
    "test_a_pixel_in_wide_padding",
})  # fmt: skip


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep the first and the last case of each test."""
    tests = defaultdict(list)
    for item in items:
        tests[item.nodeid.partition("[")[0]].append(item)
    kept: set[pytest.Item] = set()
    for name, cases in tests.items():
        # Hypothesis reads the constants of all modules before its first integer, which takes minutes here.
        drawn = getattr(getattr(cases[0], "function", None), "is_hypothesis_test", False)
        if name.rpartition("::")[2] not in _SLOW and not drawn:
            kept.update(cases if "test_vectors.py" in name else (cases[0], cases[-1]))
    config.hook.pytest_deselected(items=[item for item in items if item not in kept])
    items[:] = [item for item in items if item in kept]
