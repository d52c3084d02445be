"""Signatures from annotations."""

from __future__ import annotations

import pytest
from numba import types

from requant.kernels.jit.signature import F32, I64, U8, Bool, In, Out, Real, signature_of


def scale(source: In[Real], factor: F32, target: Out[Real], counts: Out[I64], counting: Bool) -> None:
    raise NotImplementedError


def found(source: In[U8], start: I64) -> I64:
    raise NotImplementedError


def array(element: types.Type, readonly: bool) -> types.Array:
    return types.Array(element, 1, "C", readonly=readonly)


@pytest.mark.parametrize("real", [types.float32, types.float64])
def test_a_type_variable_is_what_it_is_bound_to(real: types.Type) -> None:
    expected = (array(real, True), types.float32, array(real, False), array(types.int64, False), types.boolean)
    assert signature_of(scale, {Real: real}) == types.void(*expected)


def test_a_result_has_its_type() -> None:
    assert signature_of(found, {}) == types.int64(array(types.uint8, True), types.int64)


def test_a_type_variable_has_to_be_bound() -> None:
    with pytest.raises(KeyError):
        signature_of(scale, {})
