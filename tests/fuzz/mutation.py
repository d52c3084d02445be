"""Changes to requests that work: to JSON by what its values are, to query, header fields, `.npy` files and bytes.

Most keep a request close to one that works, so that it gets past the first checks; a few spoil it altogether. All come
from the `Random` that they are given.
"""

from __future__ import annotations

import base64
import gzip
import json
import re
import zlib
from collections.abc import Callable
from random import Random
from typing import Any
from urllib.parse import quote, urlencode

import ml_dtypes
import numpy as np

from tests.fuzz.document import POSTS, TEXTS, TYPE_TEXTS, VALUES, request_fields, resolved, stated_values
from tests.fuzz.seeds import (
    INDEX,
    INFER,
    INFER_VERSION,
    ROUTES,
    Draft,
    Model,
    datatype_of,
    in_binary,
    npy,
    of_model,
    of_route,
)
from tests.fuzz.wire import Request
from tests.mlir_strategies import mutated, type_text
from tests.oip_wire import DTYPES

# A number in the spelling that is sent: what Python would write otherwise, or not at all.
_SPELLED = "\ue000"
_SPELLING = re.compile(r'"\\ue000([^"]*)"')
_SPELLINGS = [
    "-0", "0e0", "1E+2", "1e400", "-1e400", "1e-400", "0.1e-320", "NaN", "Infinity", "-Infinity", "1.0", "5e-1",
    "9" * 400, "0." + "1" * 400, "01", "1.", ".5", "+1", "0x10", "1_000", "18446744073709551616", "1e309",
]  # fmt: skip
_INTEGERS = [
    0, 1, -1, 2, 3, 4, 7, 8, 15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 128, -128, -129, 255, 256, 1000, 4096, 4097,
    32767, 65535, 65536, 1 << 24, (1 << 24) + 1, 1 << 30, (1 << 31) - 1, 1 << 31, -(1 << 31), -(1 << 31) - 1,
    (1 << 32) - 1, 1 << 32, 1 << 53, (1 << 63) - 1, 1 << 63, -(1 << 63), -(1 << 63) - 1, (1 << 64) - 1, 1 << 64, 10**30,
]  # fmt: skip
_FLOATS = [
    0.0, -0.0, 0.5, -0.5, 1.0, 1.5, 2.5, 0.1, -2.5, 1e-45, 1.4e-45, 1.1754943508222875e-38, 1e-38, 5e-324, 1e-10, 1e10,
    65504.0, 65520.0, 448.0, 464.0, 16777217.0, 2147483648.0, -2147483648.5, 9.2e18, 1.8e19, 3.4028234663852886e38,
    3.4028235677973366e38, 1e39, -1e39, 1.7976931348623157e308, 0.99999994, 1.00000012,
]  # fmt: skip
_WORDS = ["NaN", "Infinity", "-Infinity", "", "null", "0", "1", "-1", "1.0", "1e400", "true", "None", "[]", "[[]]",
          "{}", "é", "\u0000", "\ud800", "\U0001f600", "%s%n", "a" * 100, "q" * 5000, " ", "../../x"]  # fmt: skip
_NUMBER = re.compile(r"-?\d+(?:\.\d*)?(?:[eE][-+]?\d+)?")
_ELEMENTS = [
    "f32", "f32", "f32", "f16", "bf16", "f64", "i8", "ui8", "si8", "i4", "ui4", "i1", "i16", "ui16", "i32", "ui32",
    "i64", "ui64", "i2", "i3", "i7", "i24", "f8E4M3FN", "f8E5M2", "f8E4M3FNUZ", "f8E8M0FNU", "f4E2M1FN", "f6E2M3FN",
    "tf32", "index", "i128", "u8", "i0",
]  # fmt: skip
_ELEMENT = re.compile(r"\b(?:tf32|bf16|f\d+(?:E\dM\d\w*)?|[su]?i\d+|u\d+)\b")
_DATATYPES = ["BOOL", "INT8", "UINT8", "INT16", "UINT16", "INT32", "UINT32", "INT64", "UINT64", "FP16", "FP32", "FP64",
              "BF16", "BYTES", "FP8"]  # fmt: skip
_MEDIA_TYPES = ["application/json", "application/octet-stream", "application/x-npy", "text/plain", "", "a/b; c=d",
                "application/json; charset=latin-1", "APPLICATION/JSON ;charset=UTF-8", "*/*"]  # fmt: skip


def _integer(random: Random) -> int:
    if random.random() < 0.7:
        return random.choice(_INTEGERS) + random.choice([0, 0, 0, 1, -1])
    return random.randint(-20, 20)


def _float(random: Random) -> float:
    match random.randrange(4):
        case 0:
            return random.choice(_FLOATS) * random.choice([1, 1, 1, -1, 2.0, 0.5])
        case 1:
            return random.uniform(-10, 10)
        case 2:
            return random.uniform(-1, 1) * 2.0 ** random.randint(-160, 160)
        case _:
            return float(random.randint(-300, 300)) / random.choice([1, 2, 4, 10])


def _text(random: Random) -> str:
    match random.randrange(5):
        case 0:
            return random.choice(_WORDS)
        case 1:
            return type_text(random)
        case 2:
            return random.choice(TYPE_TEXTS)
        case 3:
            return mutated(random, random.choice(TYPE_TEXTS))
        case _:
            return random.choice(TEXTS)


def anything(random: Random) -> Any:
    """A JSON value of any kind."""
    return random.choice(_KINDS)(random)


def _list(random: Random) -> list[Any]:
    kind = random.choice(_KINDS)
    return [kind(random) for _ in range(random.choice([0, 0, 1, 1, 2, 3, 5, 17]))]


_KINDS: list[Callable[[Random], Any]] = [
    _integer,
    _float,
    _text,
    lambda random: random.choice([True, False, None]),
    lambda random: _SPELLED + random.choice(_SPELLINGS),
    lambda random: [],
    lambda random: {},
    _list,
    lambda random: tensor(random),
]


def tensor(random: Random, shape: list[int] | None = None, element: str | None = None) -> dict[str, Any]:
    """A JSON tensor whose values are as many as its type says, mostly of a kind that it takes."""
    if shape is None and random.random() < 0.02:
        shape = random.choice([[20_000], [4, 5000], [300, 300]])
    elif shape is None:
        shape = [random.choice([0, 1, 1, 2, 2, 3, 4, 5, 8, 32]) for _ in range(random.choice([0, 1, 1, 2, 2, 3, 4]))]
    if element is None:
        element = random.choice(_ELEMENTS) if random.random() < 0.6 else random.choice(TYPE_TEXTS)
        element = element if not element.startswith("tensor<") else element.rpartition("x")[2].removesuffix(">")
    elements = min(int(np.prod(shape)), 100_000)
    count = min(elements, 5000)
    values: list[Any]
    if element.startswith(("f", "b", "t")) and not element.startswith(("f4", "f6", "f8")):
        values = [_float(random) for _ in range(count)]
        if values and random.random() < 0.2:
            values[random.randrange(count)] = random.choice(["NaN", "Infinity", "-Infinity"])
    else:
        unsigned = element.startswith(("u", "f", "!quant.uniform<u"))
        limit = random.choice([1, 7, 15, 127, 255, 300, 1 << 16, 1 << 31])
        values = [random.randint(0 if unsigned else -limit, limit) for _ in range(count)]
    said = f"tensor<{''.join(f'{size}x' for size in shape)}{element}>"
    if random.random() < 0.2 or elements > count:
        dtype = DTYPES[datatype_of(element)] if random.random() < 0.95 else random.choice(list(DTYPES.values()))
        with np.errstate(all="ignore"):
            numbers = np.resize(np.array([float(each) for each in values]), elements).astype(dtype)
        return {"type": said, "data": base64.b64encode(numbers.tobytes()).decode()}
    return {"type": said, "values": values}


def _changed_text(random: Random, text: str) -> Any:
    """A text close to a given one: another number in it, another element type, a character more or less."""
    if text.startswith("[") and random.random() < 0.6:
        # A list as text, as the parameters of the inference protocol have them.
        try:
            listed = json.loads(text)
        except ValueError:
            return text[:-1]
        return dumped(changed(random, listed))
    match random.randrange(6):
        case 0 if numbers := list(_NUMBER.finditer(text)):
            number = random.choice(numbers)
            other = str(random.choice([_integer(random), _float(random), random.choice(_SPELLINGS)]))
            return text[: number.start()] + other + text[number.end() :]
        case 1 if elements := list(_ELEMENT.finditer(text)):
            element = random.choice(elements)
            return text[: element.start()] + random.choice(_ELEMENTS) + text[element.end() :]
        case 2 | 0:
            return mutated(random, text)
        case 3:
            return random.choice(
                [text.upper(), text.lower(), text + " ", text * 2, text[::-1], f" {text}", text + "\0"]
            )
        case 4:
            return _text(random)
        case _:
            return type_text(random) if text.startswith(("tensor", "!", "f3", "i8", "u")) else random.choice(TEXTS)


def _changed_list(random: Random, members: list[Any]) -> Any:
    match random.randrange(12):
        case 0:
            return []
        case 1 if members:
            del members[random.randrange(len(members))]
        case 2 | 3 if members:
            members.insert(random.randrange(len(members) + 1), _copied(random.choice(members)))
        case 4 if random.random() < 0.3:
            members.insert(random.randrange(len(members) + 1), anything(random))
        case 5 if members:
            return members * random.choice([2, 3, 16, 256, 4097 // len(members) + 1])
        case 6 if random.random() < 0.3:
            return [members]
        case 7 if members:
            return members[: random.randrange(len(members))]
        case 8:
            random.shuffle(members)
        case 9 if members and random.random() < 0.3:
            return members[random.randrange(len(members))]
        case 10 if members:
            return [changed(random, _copied(member)) for member in members[:64]]
        case _ if members:
            at = random.randrange(len(members))
            members[at] = changed(random, members[at])
    return members


def _changed_tensor(random: Random, members: dict[str, Any]) -> dict[str, Any]:
    """Another tensor: of another shape, of another element type, or both. Its values fit its type again."""
    said = str(members["type"])
    shape = [int(size) for size in re.findall(r"\b(\d{1,3})x", said)]
    element = re.sub(r"^tensor<(?:\d+x)*|>$", "", said) if said.startswith("tensor<") else None
    match random.randrange(4):
        case 0:
            return tensor(random, None, element)
        case 1 if np.prod(shape) < 5000:
            return tensor(random, shape)
        case 2 | 3 if np.prod(shape) < 5000:
            return tensor(random, shape, element)
        case _:
            return tensor(random)


def _changed_object(random: Random, members: dict[str, Any], known: dict[str, dict[str, Any]]) -> Any:
    if "type" in members and random.random() < 0.7:
        return _changed_tensor(random, members)
    # What is rarely of use once the service refuses unknown fields stays rare here.
    odd = random.random()
    if odd < 0.03:
        members[random.choice(list(VALUES))] = anything(random)
    elif odd < 0.06 and members:
        name = random.choice(list(members))
        members[random.choice([f"{name}_", name.upper(), "", "é", "k" * 300, "a/b~c"])] = members[name]
    elif odd < 0.13 and members:
        del members[random.choice(list(members))]
    elif odd < 0.2 and members:
        one, other = random.choice(list(members)), random.choice(list(members))
        members[one], members[other] = members[other], members[one]
    elif odd < 0.75 and known:
        name = random.choice(list(known))
        members[name] = _of_schema(random, name, known[name])
    elif names := [name for name in members if name in VALUES]:
        name = random.choice(names)
        members[name] = _copied(random.choice(VALUES[name]))
    return members


def _of_schema(random: Random, name: str, schema: dict[str, Any]) -> Any:
    """A value for a field that the document describes."""
    stated = stated_values(schema) + VALUES.get(name, [])
    if stated and random.random() < 0.7:
        return _copied(random.choice(stated))
    found = resolved(schema)
    match found.get("type"):
        case "integer":
            return _integer(random)
        case "number":
            return _float(random)
        case "boolean":
            return random.random() < 0.5
        case "string":
            return _text(random)
        case "array":
            return [_of_schema(random, name, found.get("items", {})) for _ in range(random.randrange(4))]
        case "object":
            fields = found.get("properties", {})
            return {each: _of_schema(random, each, fields[each]) for each in fields if random.random() < 0.6}
        case _:
            return anything(random)


def _copied(value: Any) -> Any:
    return json.loads(json.dumps(value))


def changed(random: Random, value: Any, known: dict[str, dict[str, Any]] | None = None) -> Any:
    """A JSON value with one change somewhere in it, or in place of it. `known`: the fields of an object by schema."""
    if random.random() < 0.012:
        return anything(random)
    if isinstance(value, (dict, list)) and value and random.random() < 0.7:
        key = random.choice(list(value) if isinstance(value, dict) else range(len(value)))
        field = resolved(known[key]) if known and key in known else {}
        value[key] = changed(random, value[key], field.get("properties"))
        return value
    alike = random.random() < 0.85
    match value:
        case bool() | None:
            return random.choice([True, False]) if alike else random.choice([None, 0, 1, "true", anything(random)])
        case int() if alike:
            return random.choice([value + 1, value - 1, -value, value * 2, _integer(random), _integer(random)])
        case float() if alike:
            return random.choice([-value, value * 2, value / 3, _float(random), _float(random), "NaN"])
        case int() | float():
            return random.choice([str(value), _integer(random), _float(random), _SPELLED + random.choice(_SPELLINGS)])
        case str():
            return _changed_text(random, value)
        case list():
            return _changed_list(random, value)
        case dict():
            return _changed_object(random, value, known or {})
    return anything(random)


def dumped(value: Any) -> str:
    # In ASCII: half a surrogate pair can be sent as an escape only.
    return _SPELLING.sub(r"\1", json.dumps(value))


def _changed_inference(random: Random, draft: Draft, model: Model) -> None:
    """Change what only the inference protocol has, and put inputs into binary form."""
    body = draft.body
    for head in body["inputs"]:
        match random.randrange(60):
            case 0:
                head["datatype"] = random.choice(_DATATYPES)
            case 1:
                head["shape"] = changed(random, head["shape"])
            case 2:
                head["data"] = changed(random, head.get("data", []))
            case 3 | 4 if head["name"] in model.datatypes:
                head["datatype"] = random.choice(model.datatypes[head["name"]])
    if random.random() < 0.1:
        body["outputs"] = [{"name": random.choice(["y", "dst", "output", "elements", "first", ""])}]
    if random.random() < 0.05:
        draft.body = body = changed(random, body)
    if isinstance(body, dict) and random.random() < 0.1 and isinstance(body.get("parameters"), dict):
        name = random.choice([*sorted(model.parameters), "binary_data_output"])
        body["parameters"][name] = _copied(random.choice(VALUES[name])) if name in VALUES else anything(random)
    if isinstance(body, dict) and random.random() < 0.3 and isinstance(body.get("parameters"), dict):
        body["parameters"]["binary_data_output"] = True
    if isinstance(body, dict) and random.random() < 0.5 and isinstance(body.get("inputs"), list) and not draft.data:
        draft.data = b"".join(in_binary(head) or b"" for head in body["inputs"] if isinstance(head, dict))
        for head in body["inputs"]:
            if isinstance(head, dict) and "parameters" in head and random.random() < 0.05:
                head["parameters"] = changed(random, head["parameters"])


def _changed_bytes(random: Random, data: bytes) -> bytes:
    """Bytes with one of them changed, some missing, some more, or some in another place."""
    at = random.randrange(len(data) + 1)
    match random.randrange(5):
        case 0:
            return data[:at] + bytes([random.randrange(256)]) + data[at + 1 :]
        case 1:
            return data[:at]
        case 2:
            return data[:at] + random.choice([b"\0", b"\xff", b'"', b"{", b"[", b"\xc3", b"\n", b"9" * 30]) + data[at:]
        case 3:
            return data[:at] + data[at + random.randrange(1, 9) :]
        case _:
            return data + data[at:]


_NPY_HEADER = re.compile(rb"\{.*\}", re.DOTALL)
_SERVED = ["<f4", "<f2", "<f8", "|i1", "|u1", "<i2", "<i4", "<i8", "<u2", "<u4", "<u8", "|b1"]
_DESCRIPTIONS = [*_SERVED, ">f4", "|V1", "<c8", "<U1", "|O", "<f16", "f4", "<f4<f4", ""]


def _changed_npy(random: Random, file: bytes) -> bytes:
    """Another array, or the same file with another header or other data."""
    match random.randrange(5):
        case 0 | 1:
            dtype = random.choice([*map(np.dtype, _SERVED), np.dtype(ml_dtypes.bfloat16)])
            shape = [random.choice([0, 1, 2, 3, 5, 8, 32]) for _ in range(random.choice([0, 1, 1, 2, 3, 4]))]
            with np.errstate(all="ignore"):
                numbers = [_float(random) for _ in range(min(int(np.prod(shape)), 1 << 14))]
                array = np.resize(np.array(numbers, np.float64), shape).astype(dtype)
            return npy(np.asfortranarray(array) if random.random() < 0.05 else array)
        case 2:
            return _NPY_HEADER.sub(lambda found: mutated(random, found[0].decode()).encode("latin-1", "replace"), file)
        case 3:
            described = f"'descr': {random.choice(_DESCRIPTIONS)!r}".encode()
            return re.sub(rb"'descr': '[^']*'", described, file)
        case _:
            return _changed_bytes(random, file)


def _changed_query(random: Random, draft: Draft, known: dict[str, dict[str, Any]]) -> None:
    match random.randrange(5):
        case 0 if draft.query and random.random() < 0.3:
            del draft.query[random.randrange(len(draft.query))]
        case 1 | 2 if known:
            name = random.choice(list(known))
            value = _of_schema(random, name, known[name])
            draft.query = [entry for entry in draft.query if entry[0] != name or random.random() < 0.05]
            draft.query.append((name, value if isinstance(value, str) else dumped(value)))
        case 3 if random.random() < 0.2:
            draft.query.append((random.choice(["", "x", "profile", "é", *known]), str(_text(random))))
        case _ if draft.query:
            at = random.randrange(len(draft.query))
            name, value = draft.query[at]
            draft.query[at] = name, str(_changed_text(random, value))


def _changed_fields(random: Random, fields: list[tuple[str, str]], length: int) -> None:
    """Change the header fields that are about the message, not about the connection."""
    name, values = random.choice(
        [
            ("Content-Type", _MEDIA_TYPES),
            ("Content-Encoding", ["gzip", "deflate", "br", "identity", "", "gzip, gzip", "GZIP"]),
            (
                "Inference-Header-Content-Length",
                ["0", "1", str(length), str(length + 1), "-1", "1e3", "9" * 30, "", "é"],
            ),
            ("Accept", ["*/*", "application/json", "text/html", "", "a/b;q=x"]),
            ("Want-Repr-Digest", ["sha-256=1", "sha-256=10, sha-512=3", "sha-256", "=", "md5=1", "sha-256=0"]),
            ("X-Request-Id", ["1", "a" * 64, "a" * 300, "é", "a b", ""]),
            ("Traceparent", ["00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "00-0-0-0", "", "é"]),
            ("Origin", ["http://a", "null", ""]),
            ("Authorization", ["Bearer x", "Basic x", ""]),
        ]
    )
    if random.random() < 0.8:
        fields[:] = [entry for entry in fields if entry[0] != name]
    fields.append((name, random.choice(values)))


def _path(random: Random, path: str) -> str:
    """Mostly the path itself, in few cases one beside it."""
    if random.random() > 0.003:
        return path
    return random.choice([path + "/", path.upper(), path[:-1], path + "%00", path.replace("/v", "//v"), path + "/é"])


def encoded(random: Random | None, draft: Draft) -> Request:
    """The request as bytes, with changes that are made to bytes; without `random` as it is."""
    text = b"" if draft.body is None else dumped(draft.body).encode()
    fields = list(draft.fields)
    models = draft.operation in (INFER, INFER_VERSION)
    body, path = text + draft.data, draft.path
    if models and draft.data:
        fields.append(("Inference-Header-Content-Length", str(len(text))))
    elif not models:
        fields.append(("Content-Type", "application/octet-stream" if draft.body is None else "application/json"))
    if random is not None:
        if random.random() < 0.04:
            body = _changed_bytes(random, body)
        if models and random.random() < 0.05:
            encoding = random.choice(["gzip", "deflate"])
            fields.append(("Content-Encoding", encoding))
            body = gzip.compress(body, mtime=0) if encoding == "gzip" else zlib.compress(body)
        if random.random() < 0.05:
            _changed_fields(random, fields, len(text))
        path = _path(random, path)
    query = f"?{urlencode(draft.query, quote_via=quote, errors='replace')}" if draft.query else ""
    return Request(draft.operation, quote(path, safe="/%") + query, tuple(fields), body)


def _parameters(path: str) -> dict[str, dict[str, Any]]:
    return {each["name"]: each["schema"] for each in POSTS[path].get("parameters", ()) if each["in"] == "query"}


def _changes(random: Random) -> int:
    return random.choice([0, 1, 1, 1, 1, 1, 2, 2, 3, 4, 6])


def _draft(random: Random, models: list[Model]) -> Draft:
    kind = random.random()
    if kind < 0.42:
        model = random.choice(models)
        body = of_route(model.route).body
        body = _copied(body)
        for _ in range(_changes(random)):
            body = changed(random, body, request_fields(model.route))
        version = random.choice([*model.versions, *model.versions, "9"]) if random.random() < 0.15 else None
        draft = of_model(model, body, version)
        _changed_inference(random, draft, model)
        return draft
    path = random.choice([route for route in ROUTES if "/npy/" in route] if kind < 0.57 else ROUTES)
    draft = of_route(path)
    if draft.data:
        if random.random() < 0.5:
            draft.data = _changed_npy(random, draft.data)
        for _ in range(_changes(random)):
            _changed_query(random, draft, _parameters(path))
    else:
        draft.body = _copied(draft.body) if path != INDEX else random.choice([None, {}, {"ready": True}])
        for _ in range(_changes(random)):
            draft.body = changed(random, draft.body, request_fields(path))
    if random.random() < 0.01:
        draft.query.append((random.choice(["", "x", "profile"]), "1"))
    return draft


def fuzzed(seed: str, index: int, models: list[Model]) -> Request:
    """The request of that number. The same seed, number, document and models give the same request."""
    random = Random(f"{seed}:{index}")
    return encoded(random, _draft(random, models))
