"""Good requests of mixed sizes with the answers that are due, and the client processes that send them."""

from __future__ import annotations

import http.client
import io
import json
import random
import time
from collections import Counter
from dataclasses import dataclass, field
from functools import cache

import numpy as np
from numpy.typing import NDArray

from tests.hostile.attacks import ATTACKS, INFER, JSON, NPY, TARGET, answer_to, outcome
from tests.hostile.test_page import rows

SIZES = {"1 KB": 256, "64 KB": 16 << 10, "1 MB": 256 << 10, "16 MB": 4 << 20}
_WEIGHTS = (70, 20, 8, 2)
_JSON_ELEMENTS = 256
_HOSTILE_SHARE = 0.1
_SCALE = 0.5

# Nothing that takes its time: those hold a client, and not the service.
_QUICK = [attack for attack in ATTACKS.values() if not attack.slow]
# What the page says that each of them gets.
_SAID = rows()


@dataclass
class Tally:
    """What one client saw. `wrong` and `lost` are to stay empty."""

    counts: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)

    def add(self, other: Tally) -> None:
        self.counts.update(other.counts)
        self.wrong += other.wrong
        self.lost += other.lost
        self.seconds += other.seconds


@dataclass(frozen=True)
class Exchange:
    """A request, and what the body of its reply ends with."""

    path: str
    headers: dict[str, str]
    body: bytes
    due: bytes


def _due(x: NDArray[np.float32]) -> NDArray[np.int8]:
    """What profile stablehlo makes of x, by numpy: RNE(clamp(x / s))."""
    due: NDArray[np.int8] = np.rint(np.clip(x / np.float32(_SCALE), -128, 127)).astype(np.int8)
    return due


@cache
def npy_exchange(elements: int) -> Exchange:
    x = np.random.default_rng(elements).normal(0, 40, elements).astype(np.float32)
    file = io.BytesIO()
    np.save(file, x)
    return Exchange(NPY, {}, file.getvalue(), _due(x).tobytes())


@cache
def json_exchange() -> Exchange:
    x = np.random.default_rng(1).normal(0, 40, _JSON_ELEMENTS).astype(np.float32)
    tensor = {"type": f"tensor<{x.size}xf32>", "values": x.tolist()}
    body = json.dumps({"input": tensor, "output_type": TARGET}).encode()
    values = json.dumps(_due(x).tolist(), separators=(",", ":")).encode()
    return Exchange(JSON, {"content-type": "application/json"}, body, values)


@cache
def inference_exchange(elements: int) -> Exchange:
    x = np.random.default_rng(elements + 1).normal(0, 40, elements).astype(np.float32)
    given = {
        "name": "x",
        "shape": [x.size],
        "datatype": "FP32",
        "parameters": {"binary_data_size": x.nbytes},
    }
    parameters = {"output_type": TARGET, "binary_data_output": True}
    text = json.dumps({"inputs": [given], "parameters": parameters}).encode()
    headers = {"inference-header-content-length": str(len(text))}
    return Exchange(INFER, headers, text + x.tobytes(), _due(x).tobytes())


class Client:
    """One kept connection, made anew when the service closes it."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._connection: http.client.HTTPConnection | None = None

    def ask(self, exchange: Exchange) -> tuple[int, bytes]:
        """Return status and body. Raise ConnectionRefusedError where nobody listens, OSError or HTTPException."""
        if self._connection is None:
            self._connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=120)
            self._connection.connect()
        try:
            self._connection.request("POST", exchange.path, exchange.body, exchange.headers)
            reply = self._connection.getresponse()
            body = reply.read()
        except BaseException:
            self.close()
            raise
        if reply.will_close:
            self.close()
        return reply.status, body

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
        self._connection = None


def good(client: Client, exchange: Exchange, tally: Tally, name: str) -> None:
    """Send a good request: the answer is right, or a refusal of admission."""
    began = time.perf_counter()
    status, body = client.ask(exchange)
    if status == 503 and json.loads(body)["code"] == "overloaded":
        tally.counts["refused with 503"] += 1
    elif status == 200 and exchange.due in body:
        tally.counts[name] += 1
        tally.seconds.append(time.perf_counter() - began)
    else:
        tally.wrong.append(f"{name}: {status} {body[:200]!r}")


def mixed(port: int, seconds: float, seed: int) -> Tally:
    """Send good requests of all sizes and forms, a tenth of all hostile, for some time."""
    rng, tally, client = random.Random(seed), Tally(), Client(port)
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if rng.random() < _HOSTILE_SHARE:
            attack = rng.choice(_QUICK)
            status, code = outcome(answer_to(attack, port))
            tally.counts["hostile"] += 1
            # An answer can be lost to a reset when the attacker is still sending: that is his own loss.
            if status >= 500 and code != "overloaded" and (status, code) != _SAID[attack.name]:
                tally.wrong.append(f"{attack.name}: {status} {code}")
            continue
        size = rng.choices(list(SIZES), _WEIGHTS)[0]
        form = rng.random()
        if form < 0.6:
            good(client, npy_exchange(SIZES[size]), tally, f"npy {size}")
        elif form < 0.8:
            good(client, inference_exchange(SIZES[size]), tally, f"/v2 {size}")
        else:
            good(client, json_exchange(), tally, "JSON")
    client.close()
    return tally


def small(port: int, seconds: float, seed: int) -> Tally:
    """Send requests of 1 KB on one connection for some time."""
    tally, client, end = Tally(), Client(port), time.monotonic() + seconds
    while time.monotonic() < end:
        good(client, npy_exchange(SIZES["1 KB"]), tally, "npy 1 KB")
    client.close()
    return tally


def large(port: int, seconds: float, seed: int) -> Tally:
    """Upload 64 MiB again and again for some time."""
    tally, client, end = Tally(), Client(port), time.monotonic() + seconds
    exchange = npy_exchange((64 << 20) // 4 - 32)
    while time.monotonic() < end:
        good(client, exchange, tally, "npy 64 MiB")
    client.close()
    return tally


def until_refused(port: int, seconds: float, seed: int) -> Tally:
    """Send requests until the service is gone. One that was sent, and has no whole reply, is lost."""
    rng, tally, client = random.Random(seed), Tally(), Client(port)
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        size = rng.choice(["1 KB", "1 MB", "16 MB"])
        try:
            good(client, npy_exchange(SIZES[size]), tally, f"npy {size}")
        except ConnectionRefusedError:
            break
        except (OSError, http.client.HTTPException) as error:
            tally.lost.append(f"{size}: {error!r}")
            break
    return tally
