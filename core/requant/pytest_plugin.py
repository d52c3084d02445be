"""A plugin for pytest: `@pytest.mark.requant(...)` runs a test for each vector of an operation.

    @pytest.mark.requant("requantize", "i32", output_type="i8", profile="litert", count=64)
    def test_my_kernel(requant_vector):
        p = requant_vector.parameters
        assert my_kernel(requant_vector.input, p["multiplier"], p["shift"]) == requant_vector.expected

The arguments are those of `requant.vectors`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pytest

_FIXTURE = "requant_vector"


def pytest_configure(config: pytest.Config) -> None:
    """Make the marker known."""
    config.addinivalue_line(
        "markers", f"requant(operation, input_type, ...): run for each vector of `requant.vectors`, as {_FIXTURE}"
    )


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Give a test that is marked its vectors."""
    marker = metafunc.definition.get_closest_marker("requant")
    if marker is None or _FIXTURE not in metafunc.fixturenames:
        return
    # Kernels are needed for marked tests only.
    from requant.testing import test_vectors

    metafunc.parametrize(_FIXTURE, test_vectors(*marker.args, **marker.kwargs), ids=str)
