"""Places for messages that are received before their handlers are called."""

from __future__ import annotations

import pytest

from service.oip.grpc import read_ahead
from service.oip.grpc.read_ahead import ReadAhead


def test_a_place_that_is_never_given_back_is_free_after_a_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = 0.0
    monkeypatch.setattr(read_ahead, "monotonic", lambda: now)
    places = ReadAhead(2, 10.0)
    assert [places.take() for _ in range(3)] == [True, True, False]
    places.give_back()
    now = 9.0
    assert [places.take() for _ in range(2)] == [True, False]
    # The first call was left; the second one has ended.
    places.give_back()
    now = 10.1
    assert [places.take() for _ in range(3)] == [True, True, False]
    for _ in range(5):
        places.give_back()
    assert [places.take() for _ in range(3)] == [True, True, False]


def test_without_places_none_is_taken() -> None:
    assert not ReadAhead(0, 10.0).take()
