"""Sizes at their extremes: every attribute that is an integer or lists them, and every element of a tensor that is a
shape, alone and in pairs. The reply is one of those that are documented, and quick.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from copy import deepcopy
from dataclasses import dataclass
from itertools import combinations, product
from typing import Any

import httpx
import pytest

from requant.description import Kind
from requant.operators.description import Operator
from requant.operators.registry import OPERATORS
from requant_service.json_api.catalog.operators import route_path

ALONE = (0, 1, 2, 3, 7, 1000, 1 << 20, (1 << 31) - 1, 1 << 31, 1 << 62, -1, -(1 << 31))
PAIRED = (2, 1 << 16, (1 << 31) - 1)
SECONDS = 5
"""What the slowest takes many times over, also on a machine with other work."""
_LISTED = 4
_MOST_VALUES = 8

Request = dict[str, Any]


def copy_of(operator: Operator) -> Request:
    """The example, whose attributes and inputs may be changed."""
    return deepcopy({"attributes": {}, **operator.example})


@dataclass(frozen=True)
class Place:
    """One number of a request: an attribute, or one of those that an attribute or a tensor lists."""

    member: str
    name: str
    listed: tuple[int, ...] | None = None
    index: int = 0

    def put(self, request: Request, value: int) -> None:
        member = request[self.member]
        if self.listed is None:
            member[self.name] = value
        elif self.member == "inputs":
            member[self.name]["values"][self.index] = value
        else:
            member.setdefault(self.name, [*self.listed])[self.index] = value


def places(operator: Operator) -> Iterator[Place]:
    example = copy_of(operator)
    for attribute in operator.attributes:
        if attribute.kind is Kind.INTEGER:
            yield Place("attributes", attribute.name)
        elif attribute.kind is Kind.INTEGERS:
            listed = example["attributes"].get(attribute.name) or [int(attribute.name != "pads")] * _LISTED
            yield from (Place("attributes", attribute.name, tuple(listed), index) for index in range(len(listed)))
    for name, given in example["inputs"].items():
        values = given.get("values", ())
        if given["type"].endswith(("xi32>", "xi64>")) and len(values) <= _MOST_VALUES:
            yield from (Place("inputs", name, tuple(values), index) for index in range(len(values)))


def requests(operator: Operator) -> Iterator[Request]:
    found = [*places(operator)]
    for place, value in product(found, ALONE):
        request = copy_of(operator)
        place.put(request, value)
        yield request
    for pair, values in product(combinations(found, 2), product(PAIRED, repeat=2)):
        request = copy_of(operator)
        for place, value in zip(pair, values, strict=True):
            place.put(request, value)
        yield request


@pytest.mark.sample(1)
@pytest.mark.parametrize(
    "operator", [operator for operator in OPERATORS.values() if any(places(operator))], ids=lambda each: each.full_name
)
def test_no_size_takes_long_or_ends_in_an_internal_error(client: httpx.Client, operator: Operator) -> None:
    for request in requests(operator):
        began = time.perf_counter()
        reply = client.post(route_path(operator), json=request)
        took = time.perf_counter() - began
        assert reply.status_code in (200, 400, 413, 422), (request, reply.text)
        assert took < SECONDS, (request, took)
