"""Hostile requests to the routes of checkpoint jobs, by a seed and a number."""

from __future__ import annotations

import base64
import json
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from tests.checkpoint_jobs.places import Places

JSON = "application/json"


@dataclass(frozen=True)
class Request:
    """A request as it goes to the service. `target`: path and query as they are on the wire."""

    method: str
    target: str
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes = b""


class HostileRequests:
    """What strangers send. `url`: of an HTTP root."""

    def __init__(self, places: Places, url: str, seed: str) -> None:
        self._root, self._outside, self._url, self._seed = str(places.root), str(places.outside), url, seed
        self._odd = sorted(f"odd/{path.name}" for path in (places.root / "odd").iterdir() if "chain" not in path.name)

    def request(self, number: int) -> Request:
        """Return the request of a number, always the same one."""
        chosen = random.Random(f"{self._seed}/{number}")
        if chosen.random() < 0.25:
            return self._about_a_job(chosen)
        body = self._body(chosen)
        return Request("POST", "/v1/checkpoints" + self._query(chosen), self._headers(chosen), body)

    def _about_a_job(self, chosen: random.Random) -> Request:
        place = self._place(chosen)
        encoded = base64.urlsafe_b64encode(place.encode("utf-8", "surrogatepass")).rstrip(b"=").decode()
        name = chosen.choice(
            (
                lambda: encoded,
                lambda: encoded + "=" * chosen.randrange(4),
                lambda: base64.b64encode(place.encode("utf-8", "surrogatepass")).decode(),
                lambda: base64.urlsafe_b64encode(chosen.randbytes(chosen.randrange(40))).rstrip(b"=").decode(),
                lambda: quote(place, safe="", errors="surrogatepass"),
                lambda: quote(place, safe="/:[]", errors="surrogatepass"),
                lambda: quote(chosen.randbytes(chosen.randrange(1, 20))),
                lambda: "%" * chosen.randrange(5),
                lambda: encoded[: chosen.randrange(1, 30)],
                lambda: encoded * 50,
            )
        )()
        method, tail = chosen.choice(
            (("GET", ""), ("GET", ""), ("POST", "/cancel"), ("DELETE", ""), ("GET", "/cancel"))
        )
        return Request(method, f"/v1/checkpoints/{name}{tail}" + self._query(chosen), self._headers(chosen))

    def _query(self, chosen: random.Random) -> str:
        return chosen.choice(("",) * 40 + ("?", "?x=1", "?dry_run=true", "?%00"))

    def _headers(self, chosen: random.Random) -> tuple[tuple[str, str], ...]:
        kind = chosen.choice(
            (JSON,) * 60 + (f"{JSON}; charset=utf-16", "text/plain", "", "application/json-seq", "\xff")
        )
        found = [("content-type", kind)]
        for name, values in {
            "prefer": ("respond-async", "wait=1e9", ";" * 50, "respond-async, respond-sync"),
            "accept": ("text/html", "*/*;q=0", "application/x-npy"),
            "content-encoding": ("gzip", "br", "identity", "deflate, gzip"),
            "if-match": ("*",),
            "x-request-id": ("a" * 300, "../../x", "\xe4"),
            "idempotency-key": ("x",),
        }.items():
            if chosen.random() < 0.04:
                found.append((name, chosen.choice(values)))
        return tuple(found)

    def _body(self, chosen: random.Random) -> bytes:
        members: dict[str, Any] = {"source": self._place(chosen), "scheme": "W8A8"}
        if chosen.random() < 0.6:
            members["source"] = f"{self._root}/{chosen.choice(('source', 'second', 'odd/in', *self._odd[::4]))}"
        if chosen.random() < 0.25:
            # What the others disturb: a job.
            return json.dumps({**members, "source": f"{self._root}/source", "destination": self._out(chosen)}).encode()
        if chosen.random() < 0.75:
            members["destination"] = self._destination(chosen)
        if chosen.random() < 0.4:
            members["dry_run"] = True
        for _ in range(chosen.choice((0, 0, 0, 0, 1, 2))):
            name, make = chosen.choice(sorted(self._members(chosen).items()))
            members[name] = make()
        text = json.dumps(members, ensure_ascii=chosen.random() < 0.7).encode("utf-8", "surrogatepass")
        if chosen.random() < 0.06:
            changed = bytearray(text)
            for _ in range(chosen.randrange(1, 4)):
                changed[chosen.randrange(len(changed))] = chosen.choice(b'\x00\xff"{}[],:\\ue9') if changed else 0
            return bytes(changed[: chosen.randrange(1, len(changed) + 1)])
        return text

    def _members(self, chosen: random.Random) -> dict[str, Callable[[], Any]]:
        return {
            "scheme": lambda: chosen.choice(
                (
                    "W4A17",
                    "W4A16:group=32",
                    "W4A16:group=0",
                    "W4A16:group=-1",
                    "W4A16:group=9" + "9" * 50,
                    "W4A16:",
                    "W4A16:group",
                    "W4A16:group=32,group=64",
                    "W4A16:=",
                    "w4a16",
                    "W4A16 ",
                    "\0",
                    "FP8_BLOCK:block=1x1",
                    "NVFP4A16",
                    "GPTQ_W4A16:group=1_0",
                    "AWQ:group=\u0663\u0662",
                    "W4A16:" + "x=1," * 60,
                    "",
                    "\ud800",
                )
            ),
            "profile": lambda: chosen.choice(("onnx", "compressed-tensors-cuda", "../x", "\0", "", "\udfff")),
            "ignore": lambda: chosen.choice(
                (
                    [],
                    ["lm_head"],
                    ["re:.*"],
                    ["re:("],
                    ["re:(a+)+$"],
                    [r"re:\1"],
                    ["re:(?=a)"],
                    ["re:" + "(" * 400],
                    ["re:a{1,1000}{1,1000}"],
                    ["\0"],
                    ["\ud800"],
                    ["re:[\U0010ffff-\ud800]"],
                    ["re:(?i)\u0130"],
                    [""],
                    ["x" * 1024],
                    ["x" * 1025],
                    ["y"] * 100,
                    [[]],
                    [None],
                    "lm_head",
                    {"re:": 1},
                    ["re:[[:alpha:]]"],
                    ["re:(?P<n>x)(?P=n)"],
                    ["re:(?#" + "x" * 500 + ")"],
                    ["re:\\N{BULLET}"],
                    ["re:(?R)"],
                )
            ),
            "targets": lambda: chosen.choice((["Linear"], ["linear"], ["re:.*k_proj"], [], ["\0"], ["re:\\"], None)),
            "direction": lambda: chosen.choice(("dequantize", "quantize", "QUANTIZE", "", 1, None, "\ud800")),
            "not_finite": lambda: chosen.choice(("refuse", "convert", "", True)),
            "dtype": lambda: chosen.choice(("BF16", "F32", "F64", "F32\n", None)),
            "dry_run": lambda: chosen.choice((True, False, "true", 1, None, [])),
            "source": lambda: chosen.choice((None, 1, [], {}, "", "x" * 1024, True, 1e400)),
            "destination": lambda: chosen.choice((None, 1, [], {}, "", "x" * 1025)),
            chosen.choice(("upload", "", "__class__", "\0", "\ud800")): lambda: 1,
        }

    def _destination(self, chosen: random.Random) -> str:
        return self._place(chosen) if chosen.random() < 0.5 else self._out(chosen)

    def _out(self, chosen: random.Random) -> str:
        names = ("c/d", "x" * 255, "x" * 256, "\u03b1", "e\u0301", *(str(number) for number in range(100)))
        return f"{self._root}/out/{chosen.choice(names)}"

    def _place(self, chosen: random.Random) -> str:
        """Return a path or a URL, seldom a plain one."""
        root, outside, url = self._root, self._outside, self._url
        inside = f"{root}/{chosen.choice(('source', 'second', 'out/a', 'nothing', *self._odd))}"
        makers: tuple[Callable[[], str], ...] = (
            lambda: inside,
            lambda: f"{root}/odd/chain{chosen.randrange(1200)}",
            lambda: f"{outside}/source",
            lambda: f"{root}/../outside/source",
            lambda: (
                f"{inside}/{'../' * chosen.randrange(1, 12)}{chosen.choice(('outside/source', 'etc', 'root/in', ''))}"
            ),
            lambda: f"{inside}/{chosen.choice(('.', '..', './/.', '...', '~', '-', '*', '$HOME', '%2e%2e', '..%2f'))}",
            lambda: f"{root}{chosen.choice(('', '/', '//', '-2/x', '/.', chr(0x2215) + 'source', chr(92) + 'source'))}",
            lambda: inside.replace("/", "//"),
            lambda: inside.replace("/", "/./"),
            lambda: inside.replace("/", "\\"),
            lambda: quote(inside, errors="surrogatepass"),
            lambda: quote(inside, safe="", errors="surrogatepass"),
            lambda: (
                inside
                + chosen.choice(("\0", "\n", "\r", "\t", " ", "\x7f", "\u202e", "\u200b", "\ufeff", "\U0010ffff"))
            ),
            lambda: inside + chosen.choice(("\ud800", "\udcff", "\udfff", "\udc80/x")),
            lambda: f"{root}/{'x' * chosen.choice((255, 256, 900, 1100))}",
            lambda: f"{root}/{'d/' * chosen.randrange(1, 500)}x",
            lambda: chosen.choice(
                ("~", "~root/x", ".", "", "/", "//", "/etc", "/dev/zero", "/proc/self/root" + root, "C:\\x")
            ),
            lambda: f"/proc/self/fd/{chosen.randrange(30)}",
            lambda: f"file://{inside}",
            lambda: (
                f"{chosen.choice(('FILE', 'file', 'FiLe'))}://{chosen.choice(('localhost', 'host', '[', ''))}{inside}"
            ),
            lambda: f"{url}/{chosen.choice(('model', 'redirect', 'nothing', 'model/..', '%2e%2e', 'a b', chr(0xE9)))}",
            lambda: (
                url.replace("127.0.0.1", chosen.choice(("localhost", "127.1", "[::1]", "0x7f.1", "2130706433")))
                + "/model"
            ),
            lambda: f"{url}/model{chosen.choice(('?x', '#x', ';x', '@host', chr(92), ':80', '%00'))}",
            lambda: url.replace("//", f"//{chosen.choice(('u@', 'u:p@', '@', ':@', 'localhost@'))}") + "/model",
            lambda: (
                f"s3://bucket/models/{chosen.choice(('x', '../x', '', '//', '%2e', 'x' * 1100, chr(0), chr(0xD800)))}"
            ),
            lambda: f"{chosen.choice(SCHEMES)}{chosen.choice(HOSTS)}{chosen.choice(TAILS)}",
            lambda: "".join(
                chosen.choice("http:/[]s3.@%\\?#\u2100a\u00ad\u3002\uff0f0 \ud800") for _ in range(chosen.randrange(12))
            ),
        )
        return chosen.choice(makers)()


SCHEMES = (
    "http://", "https://", "HTTP://", "s3://", "gs://", "az://", "gopher://", "file://", "://", "http:/", "http:", "//",
    "memory://", "data:", "s3a://", "http+unix://", " http://", "\0http://",
)  # fmt: skip
HOSTS = (
    "[", "]", "[]", "[::1", "::1]", "]x[", "[x]", "[v1.x]", "[::1%25lo]", "[::ffff:127.0.0.1]", "a\u2100b", "\u2100",
    "\uff0f", "a:b", "a:99999", "a:-1", "a:\u0663", ":80", "", "@", "u@", "u:p@h", "%", "%5b", "\u00ad", "xn--",
    "xn--\u00e4", "a..b", ".",
    "a" * 300, "169.254.169.254", "metadata.invalid", "\ud800", "\u202e", " ", "\\", "bucket", "a\tb", "[fe80::1]%eth0",
)  # fmt: skip
TAILS = (
    "",
    "/",
    "/x",
    "/b/",
    "/models/x",
    "/%2e%2e/x",
    "/..",
    "?q",
    "#f",
    "/[",
    "/]",
    "/\u2100",
    "/\0",
    "//x",
    "/" + "x" * 1100,
)
