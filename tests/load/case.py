"""A request of the load programs, and the forms in which it is sent: JSON, one `.npy`, a form, or an inference."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import httpx
import numpy as np
from numpy.typing import NDArray

from tests.requests.catalog import CATALOG
from tests.requests.files import npy
from tests.requests.inference import inference
from tests.support.oip_wire import Input, body_of

Array = NDArray[Any]

# Bytes of all tensors of a call: of 64 MiB, and of 8 MiB in base64 with a MiB for a type.
BINARY_BYTES, JSON_BYTES = 62 << 20, 5 << 20
_ELEMENTS = {"f2": "f16", "f4": "f32", "f8": "f64", "i1": "i8", "u1": "ui8", "i2": "i16", "i4": "i32", "i8": "i64"}


@dataclass(frozen=True)
class Case:
    """A request. Its body is made when it is sent: all of them together would fill the memory."""

    route: str
    what: str
    make: Callable[[], tuple[bytes, dict[str, str]]]
    query: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Call:
    """A call of an operation, made when it is sent: the body of its JSON route, with arrays as `data`."""

    what: str
    body: Callable[[], Mapping[str, Any]]


Calls = Callable[[int], Iterator[Call]]
"""The calls of an operation whose tensors have about so many bytes."""


def _in_base64(array: Array) -> str:
    return b64encode(array.tobytes()).decode()


def json_case(route: str, what: str, make: Callable[[], Any]) -> Case:
    content = {"content-type": "application/json"}
    return Case(route, what, lambda: (json.dumps(make(), default=_in_base64).encode(), content))


def model_case(name: str, what: str, make: Callable[[], list[Input]], **parameters: Any) -> Case:
    """`name` is that of a model, or `NAME/versions/VERSION`."""

    def body() -> tuple[bytes, dict[str, str]]:
        return body_of(make(), parameters={**parameters, "binary_data_output": True})

    return Case(f"/v2/models/{name}/infer", what, body)


def as_route(name: str, call: Call) -> Case:
    """A call in JSON."""
    return json_case(CATALOG[name].route, call.what, call.body)


def as_model(name: str, call: Call) -> Case:
    """A call of a model, with tensors in binary."""

    def body() -> tuple[bytes, dict[str, str]]:
        found = inference(CATALOG[name], call.body())
        return body_of(found.inputs, parameters={**found.parameters, "binary_data_output": True})

    return Case(f"/v2/models/{name}/infer", call.what, body)


def npy_case(route: str, what: str, make: Callable[[], Array], **query: str) -> Case:
    return Case(route, what, lambda: (npy(make()), {"content-type": "application/octet-stream"}), query)


def form_case(route: str, what: str, make: Callable[[], dict[str, Array]], **fields: str) -> Case:
    """A form: arrays as `.npy` files, and fields of text."""

    def body() -> tuple[bytes, dict[str, str]]:
        files = {name: (f"{name}.npy", npy(array)) for name, array in make().items()}
        request = httpx.Request("POST", "http://host", data=fields, files=files)
        return request.read(), {"content-type": request.headers["content-type"]}

    return Case(route, what, body)


def of(array: Array, element: str = "") -> dict[str, Any]:
    """An array as a tensor. `element`: its element type in MLIR's spelling, where the dtype does not say it."""
    sizes = "".join(f"{size}x" for size in array.shape)
    return {"type": f"tensor<{sizes}{element or _ELEMENTS[array.dtype.str[1:]]}>", "data": np.asarray(array)}


def tensor(type_: str, array: Array) -> dict[str, Any]:
    """An array in base64 as a tensor of a type."""
    return {"type": type_, "data": _in_base64(array)}


def million(count: int) -> str:
    return f"{count / 1e6:.1f} million" if count >= 100_000 else str(count)


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
