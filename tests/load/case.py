"""A request of the load programs, and the forms in which it is sent: JSON, one `.npy`, or an inference."""

from __future__ import annotations

import io
import json
from base64 import b64encode
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import httpx
import numpy as np
from numpy.typing import NDArray

from tests.support.oip_wire import Input, body_of

Array = NDArray[Any]


@dataclass(frozen=True)
class Case:
    """A request. Its body is made when it is sent: all of them together would fill the memory."""

    route: str
    what: str
    make: Callable[[], tuple[bytes, dict[str, str]]]
    query: dict[str, str] = field(default_factory=dict)


def json_case(route: str, what: str, make: Callable[[], Any]) -> Case:
    return Case(route, what, lambda: (json.dumps(make()).encode(), {"content-type": "application/json"}))


def npy_case(route: str, what: str, make: Callable[[], Array], **query: str) -> Case:
    def body() -> tuple[bytes, dict[str, str]]:
        file = io.BytesIO()
        np.save(file, make())
        return file.getvalue(), {"content-type": "application/octet-stream"}

    return Case(route, what, body, query)


def form_case(route: str, what: str, make: Callable[[], dict[str, Array]], **fields: str) -> Case:
    """A form: arrays as `.npy` files, and fields of text."""

    def body() -> tuple[bytes, dict[str, str]]:
        files = {}
        for name, array in make().items():
            file = io.BytesIO()
            np.save(file, array)
            files[name] = (f"{name}.npy", file.getvalue())
        request = httpx.Request("POST", "http://host", data=fields, files=files)
        return request.read(), {"content-type": request.headers["content-type"]}

    return Case(route, what, body)


def model_case(name: str, what: str, make: Callable[[], list[Input]], **parameters: Any) -> Case:
    """`name` is that of a model, or `NAME/versions/VERSION`."""

    def body() -> tuple[bytes, dict[str, str]]:
        return body_of(make(), parameters={**parameters, "binary_data_output": True})

    return Case(f"/v2/models/{name}/infer", what, body)


def tensor(type_: str, array: Array) -> dict[str, str]:
    return {"type": type_, "data": b64encode(array.tobytes()).decode()}


def noise(shape: tuple[int, ...], dtype: str = "f4") -> Array:
    rng = np.random.default_rng(1)
    if dtype[0] == "f":
        return rng.standard_normal(shape).astype(dtype)
    limits = np.iinfo(dtype)
    return rng.integers(limits.min, limits.max, shape, endpoint=True).astype(dtype)


def positive(shape: tuple[int, ...]) -> Array:
    """Scales that are all different."""
    return np.abs(noise(shape)) + np.float32(1e-3)


def numbers(count: int, first: float = 1e-3) -> list[float]:
    """Different numbers of 17 digits each, all of one magnitude."""
    return [float(each) for each in first * (1 + np.random.default_rng(2).random(count))]


def scale_list(count: int, first: float = 1e-3, zeros: bool = True) -> str:
    """The list of a type: as many different scales as its length allows."""
    pairs = enumerate(numbers(count, first))
    return "{" + ", ".join(f"{each:.10g}" + (f":{index % 100}" if zeros else "") for index, each in pairs) + "}"
