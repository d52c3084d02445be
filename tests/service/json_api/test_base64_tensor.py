"""base64 data: exactly standard base64 with padding, exactly the bytes that the type has."""

from __future__ import annotations

import base64
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from requant.errors import Base64Error, TensorDataError
from requant_service.json_api import base64_tensor

I8 = np.dtype("i1")


@given(npst.arrays(st.sampled_from(["i1", "u1", "<i2", "<u2", "<i4", "<f4"]).map(np.dtype), st.integers(0, 70)))
def test_round_trip(array: np.ndarray[Any, Any]) -> None:
    text = base64_tensor.encode(array).decode("ascii")
    assert text == base64.b64encode(array.tobytes()).decode("ascii")
    decoded = base64_tensor.decode(text, array.dtype, array.size)
    assert decoded.dtype == array.dtype
    assert decoded.tobytes() == array.tobytes()
    assert decoded.flags.aligned
    assert decoded.flags.c_contiguous


@pytest.mark.parametrize(
    "text",
    [
        "!!!!",
        "AAA",
        "AA A",
        "AAA\n",
        "A\u00e9AA",
        "=AAA",
        "A=AA",
        "A===",
        "====",
        "AA-_",
        "data:,AA",
        "AAAA====",
        "AA==AA==",
    ],
)
def test_what_is_not_base64_is_refused_at_any_length(text: str) -> None:
    for elements in (0, 1, 2, 3, 6, 1000):
        with pytest.raises(Base64Error):
            base64_tensor.decode(text, I8, elements)


@pytest.mark.parametrize(("text", "found"), [("", 0), ("AAAA", 3), ("AAA=", 2), ("AA==", 1), ("AAAAAAAA", 6)])
@pytest.mark.parametrize("elements", [0, 1, 2, 3, 4, 5, 6])
def test_the_byte_count_has_to_be_that_of_the_type(text: str, found: int, elements: int) -> None:
    if found == elements:
        assert base64_tensor.decode(text, I8, elements).size == elements
    else:
        with pytest.raises(TensorDataError, match=f"has {found} bytes.*which is {elements}$") as caught:
            base64_tensor.decode(text, I8, elements)
        assert not isinstance(caught.value, Base64Error)


def test_a_huge_promise_is_refused_by_arithmetic() -> None:
    with pytest.raises(TensorDataError):
        base64_tensor.decode("AAAA", np.dtype("<f4"), 2**80)
