"""Changes to what JSON is not: `.npy` files, bytes, queries, header fields and paths."""

from __future__ import annotations

import re
from random import Random
from typing import Any

import ml_dtypes
import numpy as np

from tests.fuzz.json_mutation import changed_text, dumped, of_schema
from tests.fuzz.samples import any_text, real
from tests.fuzz.seeds import Draft
from tests.requests.files import npy
from tests.support.mlir_strategies import mutated

_MEDIA_TYPES = ["application/json", "application/octet-stream", "application/x-npy", "text/plain", "", "a/b; c=d",
                "application/json; charset=latin-1", "APPLICATION/JSON ;charset=UTF-8", "*/*"]  # fmt: skip


def changed_bytes(random: Random, data: bytes) -> bytes:
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


def changed_npy(random: Random, file: bytes) -> bytes:
    """Another array, or the same file with another header or other data."""
    match random.randrange(5):
        case 0 | 1:
            dtype = random.choice([*map(np.dtype, _SERVED), np.dtype(ml_dtypes.bfloat16)])
            shape = [random.choice([0, 1, 2, 3, 5, 8, 32]) for _ in range(random.choice([0, 1, 1, 2, 3, 4]))]
            with np.errstate(all="ignore"):
                numbers = [real(random) for _ in range(min(int(np.prod(shape)), 1 << 14))]
                array = np.resize(np.array(numbers, np.float64), shape).astype(dtype)
            return npy(np.asfortranarray(array) if random.random() < 0.05 else array)
        case 2:
            return _NPY_HEADER.sub(
                lambda found: mutated(random, found[0].decode("latin-1")).encode("latin-1", "replace"), file
            )
        case 3:
            described = f"'descr': {random.choice(_DESCRIPTIONS)!r}".encode()
            return re.sub(rb"'descr': '[^']*'", described, file)
        case _:
            return changed_bytes(random, file)


def changed_query(random: Random, draft: Draft, known: dict[str, dict[str, Any]]) -> None:
    match random.randrange(5):
        case 0 if draft.query and random.random() < 0.3:
            del draft.query[random.randrange(len(draft.query))]
        case 1 | 2 if known:
            name = random.choice(list(known))
            value = of_schema(random, name, known[name])
            draft.query = [entry for entry in draft.query if entry[0] != name or random.random() < 0.05]
            draft.query.append((name, value if isinstance(value, str) else dumped(value)))
        case 3 if random.random() < 0.2:
            draft.query.append((random.choice(["", "x", "profile", "é", *known]), str(any_text(random))))
        case _ if draft.query:
            at = random.randrange(len(draft.query))
            name, value = draft.query[at]
            draft.query[at] = name, str(changed_text(random, value))


def changed_form(random: Random, draft: Draft, known: dict[str, dict[str, Any]]) -> None:
    """Change the fields of a form: a file, a text, or which there are."""
    at = random.randrange(len(draft.parts)) if draft.parts else 0
    name, data = draft.parts[at] if draft.parts else ("x", b"")
    match random.randrange(8):
        case 0 if draft.parts and random.random() < 0.3:
            del draft.parts[at]
        case 1 if random.random() < 0.2:
            draft.parts.append((random.choice(["", "x", name, 'a"b', "é", "a" * 100]), data))
        case 2 | 3:
            name = random.choice(list(known))
            value = of_schema(random, name, known[name])
            text = value if isinstance(value, str) else dumped(value)
            draft.parts = [entry for entry in draft.parts if entry[0] != name]
            draft.parts.append(
                (name, changed_npy(random, data) if _is_file(known[name]) else text.encode("utf-8", "replace"))
            )
        case _ if draft.parts and _is_file(known.get(name, {})):
            draft.parts[at] = name, changed_npy(random, data)
        case _ if draft.parts:
            changed = str(changed_text(random, data.decode("utf-8", "replace")))
            draft.parts[at] = name, changed.encode("utf-8", "replace")


def _is_file(schema: dict[str, Any]) -> bool:
    return schema.get("format") == "binary"


def form_of(parts: list[tuple[str, bytes]], boundary: bytes) -> bytes:
    """A form as a client writes it."""
    head = b'--%s\r\nContent-Disposition: form-data; name="%s"\r\n\r\n'
    escaped = [(name.replace('"', "%22").encode("utf-8", "replace"), data) for name, data in parts]
    written = b"".join(head % (boundary, name) + data + b"\r\n" for name, data in escaped)
    return written + b"--%s--\r\n" % boundary


def changed_fields(random: Random, fields: list[tuple[str, str]], length: int) -> None:
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


def near_path(random: Random, path: str) -> str:
    """Mostly the path itself, in few cases one beside it."""
    if random.random() > 0.003:
        return path
    return random.choice([path + "/", path.upper(), path[:-1], path + "%00", path.replace("/v", "//v"), path + "/é"])
