"""Plans of checkpoints that were made to be expensive: they can be cancelled, ask for memory, and let others run."""

from __future__ import annotations

import json
import random
import time
import tracemalloc
from collections.abc import Callable
from contextlib import suppress
from itertools import cycle, product
from typing import Any

import pytest

from requant.checkpoint.name_patterns import check_linear
from requant.checkpoint.plan.dry_run import plan_document
from requant.checkpoint.plan.planner import plan_conversion
from requant.checkpoint.plan.source import MANIFEST, read_source
from requant.checkpoint.run.destination import read_manifest
from requant.checkpoint.safetensors import scanner
from requant.checkpoint.safetensors.reader import MAX_NAME_CHARACTERS, parse_header, parse_index
from requant.checkpoint.small_json import MAX_NESTING, MAX_VALUES, parse_small_json
from requant.errors import CheckpointError, LimitError, RequantError, SafetensorsError
from requant.errors.cancellation import cancellation_check
from tests.support.cases import EXHAUSTIVE
from tests.support.cpu_time import within_cpu_seconds
from tests.support.held_interpreter import longest_hold
from tests.support.planned_checkpoint import INDEX, HeadersOnly, checkpoint, request

FILE = "model.safetensors"
MEBI = 1 << 20
SCHEMES = ("W4A16_ASYM", "NVFP4A16")
HELD = 0.25
"""CPU seconds for which one call may hold the interpreter on a machine that is loaded by others."""


def checkpoint_of(header: bytes, data: int, config: bytes = b"{}", files: int = 1) -> HeadersOnly:
    """A checkpoint of files with this header."""
    store = HeadersOnly()
    for number in range(files):
        name = FILE if files == 1 else f"{number}.safetensors"
        store.add(name, len(header).to_bytes(8, "little") + header, 8 + len(header) + data)
    store.add("config.json", config)
    return store


def tiny_tensors(count: int, first: int = 0, suffix: str = "", shape: str = "[1]") -> bytes:
    """A header of tensors of a byte."""
    entries = (
        f'"{number:x}{suffix}":{{"dtype":"U8","shape":{shape},"data_offsets":[{number - first},{number - first + 1}]}}'
        for number in range(first, first + count)
    )
    return ("{" + ",".join(entries) + "}").encode()


def weights(count: int) -> HeadersOnly:
    tensors = [(f"m.{number}.weight", "BF16", (16, 128)) for number in range(count)]
    return checkpoint({FILE: tensors})


def stacked(count: int, experts: int) -> HeadersOnly:
    return checkpoint({FILE: [(f"{number}.down_proj", "BF16", (experts, 16, 128)) for number in range(count)]})


def experts_of_gpt_oss(count: int, experts: int, *, quantized: bool) -> HeadersOnly:
    """Experts with biases."""
    tensors: list[tuple[str, str, tuple[int, ...]]] = []
    for number in range(count):
        name = f"{number}.experts.gate_up_proj"
        tensors.append((f"{name}_bias", "BF16", (experts, 32)))
        if quantized:
            tensors += [(f"{name}_blocks", "U8", (experts, 32, 4, 16)), (f"{name}_scales", "U8", (experts, 32, 4))]
        else:
            tensors.append((name, "BF16", (experts, 128, 32)))
    config = {"model_type": "gpt_oss", **({"quantization_config": {"quant_method": "mxfp4"}} if quantized else {})}
    return checkpoint({FILE: tensors}, config)


def metadata(count: int) -> HeadersOnly:
    pairs = {f"{number:x}": "" for number in range(count)}
    return checkpoint_of(
        json.dumps({"__metadata__": pairs, "a.weight": _entry()}, separators=(",", ":")).encode(), 4096
    )


def _entry() -> dict[str, Any]:
    return {"dtype": "BF16", "shape": [16, 128], "data_offsets": [0, 4096]}


def long_index(count: int) -> HeadersOnly:
    store = checkpoint({FILE: [("a.weight", "BF16", (16, 128))]})
    places = {f"{number:x}": FILE for number in range(count)} | {"a.weight": FILE}
    store.add(INDEX, json.dumps({"weight_map": places}, separators=(",", ":")).encode())
    return store


def many_files(count: int) -> HeadersOnly:
    store = checkpoint({FILE: [("a.weight", "BF16", (16, 128))]})
    for number in range(count):
        store.add(f"{number}.txt", b"")
    return store


def long_config(count: int) -> HeadersOnly:
    return checkpoint({FILE: [("a.weight", "BF16", (16, 128))]}, {"a": [[]] * count})


def patterns(count: int) -> tuple[str, ...]:
    return tuple(f"re:([a-z.]+)+(m|n)?[0-9.]*{number}!" for number in range(count))


EXPENSIVE: dict[str, Callable[[], HeadersOnly]] = {
    "tensors that stay": lambda: checkpoint_of(tiny_tensors(3000), 3000),
    "the same header twelve times": lambda: checkpoint_of(tiny_tensors(500), 500, files=12),
    "weights": lambda: weights(1500),
    "experts": lambda: stacked(3, 500),
    "experts of gpt-oss": lambda: experts_of_gpt_oss(3, 300, quantized=False),
    "experts of gpt-oss in MXFP4": lambda: experts_of_gpt_oss(3, 300, quantized=True),
    "metadata": lambda: metadata(20_000),
    "an index": lambda: long_index(20_000),
    "files": lambda: many_files(3000),
    "a config": lambda: long_config(30_000),
}


def _asked_and_taken(store: HeadersOnly, scheme: str) -> tuple[int, int]:
    """Plan a conversion. Return the bytes that were asked for, and the most that were held."""
    asked = 0

    def reserve(byte_count: int) -> None:
        nonlocal asked
        asked += byte_count

    tracemalloc.start()
    try:
        # Of what is refused memory was taken all the same.
        with suppress(CheckpointError):
            plan_document(plan_conversion(store, request(scheme), reserve), "source")
        return asked, tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.sample(1)
@pytest.mark.parametrize(
    ("name", "scheme"),
    list(product(EXPENSIVE, SCHEMES)) if EXHAUSTIVE else list(zip(EXPENSIVE, cycle(SCHEMES))),
)
def test_memory_is_asked_for_before_it_is_taken(name: str, scheme: str) -> None:
    store = EXPENSIVE[name]()
    plan_conversion(weights(1), request(scheme))
    asked, peak = _asked_and_taken(store, scheme)
    if peak >= asked + 128 * 1024:
        # A thread that another test has left behind is traced too.
        asked, peak = _asked_and_taken(store, scheme)
    assert peak < asked + 128 * 1024, (peak / len(b"".join(store.start.values())), peak, asked)
    # What is refused is refused before the rest is read, at every time at which it is asked for.
    for left in (asked // 50, asked // 2, asked - 1):
        taken = 0

        def limited(byte_count: int, left: int = left) -> None:
            nonlocal taken
            taken += byte_count
            if taken > left:
                raise LimitError("there is no memory", limit=left)

        with pytest.raises(LimitError):
            plan_conversion(store, request(scheme), limited)


@pytest.mark.sample(1)
@pytest.mark.parametrize("name", EXPENSIVE)
def test_a_plan_can_be_cancelled_at_any_time(name: str) -> None:
    store = EXPENSIVE[name]()
    asked = request("W4A16", ignore=patterns(20))
    begun, longest, checks = time.thread_time(), 0.0, 0

    def check() -> None:
        nonlocal begun, longest, checks
        now = time.thread_time()
        begun, longest, checks = now, max(longest, now - begun), checks + 1

    def plan() -> None:
        with suppress(CheckpointError):
            plan_document(plan_conversion(store, asked), "source")

    def most_between_checks() -> None:
        nonlocal begun, longest, checks
        begun, longest, checks = time.thread_time(), 0.0, 0
        plan()
        check()

    token = cancellation_check.set(check)
    try:
        # The least of three: the collector of garbage runs when it wants to.
        found = []
        for _ in range(3):
            most_between_checks()
            found.append(longest)
    finally:
        cancellation_check.reset(token)
    assert min(found) < HELD, found
    for number in {0, 1, checks // 3, checks // 2, checks - 2} & set(range(checks)):
        left = number

        def cancel() -> None:
            nonlocal left
            left -= 1
            if left < 0:
                raise KeyboardInterrupt

        token = cancellation_check.set(cancel)
        try:
            with pytest.raises(KeyboardInterrupt):
                plan()
        finally:
            cancellation_check.reset(token)


@pytest.mark.exhaustive
def test_patterns_and_tensors_do_not_multiply() -> None:
    store, asked = weights(500), request("W4A16", ignore=patterns(300))
    check_linear(asked.ignore)
    assert within_cpu_seconds(lambda: plan_document(plan_conversion(store, asked), "source"), 2)


def test_names_to_ignore_are_looked_up() -> None:
    names = tuple(f"m.{number}" for number in range(4096))
    store, asked = weights(5000), request("W4A16", ignore=names)
    assert within_cpu_seconds(lambda: plan_document(plan_conversion(store, asked), "source"), 4)


def test_experts_are_counted_before_they_are_split() -> None:
    store = checkpoint({FILE: [("a.down_proj", "BF16", (10**12, 16, 0)), ("b.weight", "BF16", (16, 128))]})
    with pytest.raises(CheckpointError, match="at most 8192"):
        plan_conversion(store, request("W4A16"))


def reversed_offsets(count: int) -> bytes:
    places = random.Random(0).sample(range(count), count)
    entries = (f'"{place:x}":{{"dtype":"U8","shape":[1],"data_offsets":[{place},{place + 1}]}}' for place in places)
    return ("{" + ",".join(entries) + "}").encode()


def _size(mebibytes: int) -> int:
    return mebibytes * MEBI if EXHAUSTIVE else mebibytes * MEBI // 2


HOLDING: dict[str, Callable[[], tuple[Callable[[bytes], Any], bytes]]] = {
    "a name": lambda: (parse_header, b'{"' + b"a" * _size(60)),
    "a name of escapes": lambda: (parse_header, b'{"' + b"\\u0061" * (_size(60) // 6) + b'":'),
    "a value of metadata": lambda: (parse_header, b'{"__metadata__":{"a":"' + b"a" * _size(60) + b'"}}'),
    "a skipped string": lambda: (parse_header, b'{"a":{"x":"' + "é".encode() * (_size(60) // 2) + b'"'),
    "digits": lambda: (parse_header, b'{"a":{"shape":[' + b"1" * _size(60)),
    "a skipped number": lambda: (parse_header, b'{"a":{"x":0.' + b"1" * _size(60)),
    "white space": lambda: (parse_header, b'{"a":{"x":1}' + b" " * _size(60)),
    "white space at the end": lambda: (parse_header, b'{"__metadata__":{}}' + b" " * _size(60)),
    "brackets": lambda: (parse_header, b'{"a":{"x":[' + b"[]," * (_size(2) // 3)),
    "offsets out of order": lambda: (parse_header, reversed_offsets(200_000 if EXHAUSTIVE else 60_000)),
    "an index": lambda: (parse_index, b'{"weight_map":{"' + b"a" * _size(60)),
    "a manifest of lists": lambda: (lambda text: parse_small_json(text, 1 << 30), b"[" + b"[]," * (10 * MEBI) + b"1]"),
    "a config of lists": lambda: (
        lambda text: parse_small_json(text, 1 << 30),
        b"[" + b"[]," * (MAX_VALUES // 2 - 2) + b"1]",
    ),
    "a config of digits": lambda: (lambda text: parse_small_json(text, 1 << 30), b"[" + b"1" * (4 * MEBI) + b"]"),
}


@pytest.mark.sample(1)
@pytest.mark.parametrize("name", HOLDING)
def test_no_text_holds_the_interpreter(name: str) -> None:
    read, text = HOLDING[name]()

    def work() -> None:
        with suppress(RequantError, ValueError):
            read(text)

    assert longest_hold(work) < HELD


@pytest.mark.exhaustive
def test_no_plan_holds_the_interpreter() -> None:
    names = [f"m.{number}.{part}.weight" for number in range(6000) for part in ("q_proj", "k_proj", "v_proj", "x")]
    random.Random(0).shuffle(names)
    store = checkpoint({FILE: [(name, "BF16", (16, 128)) for name in names]})
    asked = request("NVFP4A16", ignore=("re:.*[.]x$",))
    assert longest_hold(lambda: plan_document(plan_conversion(store, asked), "source")) < HELD


def test_small_json_is_counted_first() -> None:
    for text, reason in (
        (b"[" * (MAX_VALUES + 1), "values"),
        (b"[" * 5000 + b"]" * 5000, "nested"),
        (b"[" * (MAX_NESTING + 2) + b"]" * (MAX_NESTING + 2), "nested"),
        (b"1" * 1001, "digits"),
        (b'{"a":1,"a":2}', "duplicate"),
        (b'"\\ud800"', "surrogate"),
        (b'{"\\udfff":1}', "surrogate"),
        (b'"\xff"', "utf-8"),
        (b"\xef\xbb\xbf{}", "BOM"),
        (b"{}" + b" " * 99, "bytes"),
    ):
        with pytest.raises(ValueError, match=reason):
            parse_small_json(text, 99 if reason == "bytes" else 1 << 20)
    assert parse_small_json(b"[" * MAX_NESTING + b"]" * MAX_NESTING, 1 << 20) is not None
    assert parse_small_json(b'{"time_step_limit": [0.0, Infinity], "\xc3\xa9": "\\ud83d\\ude00"}', 99) == {
        "time_step_limit": [0.0, float("inf")],
        "é": "\U0001f600",
    }


def test_small_files_are_not_read_beyond_their_limits() -> None:
    store = checkpoint({FILE: [("a.weight", "BF16", (16, 128))]})
    store.sizes["config.json"] = 1 << 40
    with pytest.raises(CheckpointError, match=r"config\.json has 1099511627776 bytes; at most 4194304"):
        read_source(store)
    asked: list[int] = []

    class Sizes(HeadersOnly):
        def get(self, name: str, max_bytes: int = 1 << 40) -> bytes | None:
            asked.append(max_bytes)
            return super().get(name)

    manifest = Sizes(start={MANIFEST: b'{"version":1,"files":{},"plan":"p","request":{}}'})
    assert read_manifest(manifest) is not None
    assert asked == [16 << 20]


def test_names_of_tensors_have_a_limit() -> None:
    entry = b'{"dtype":"U8","shape":[],"data_offsets":[0,1]}'
    parse_header(b'{"' + b"a" * MAX_NAME_CHARACTERS + b'":' + entry + b"}")
    with pytest.raises(SafetensorsError, match="4097 characters; at most 4096"):
        parse_header(b'{"' + b"a" * (MAX_NAME_CHARACTERS + 1) + b'":' + entry + b"}")


STRINGS = [
    "a" * 300, "é" * 200, "\U0001f600" * 100, "a\\b\"c\n\x01" * 60, "aé\U0001f600\\" * 40, "\u07ff\uffff" * 90,
]  # fmt: skip


@pytest.mark.parametrize("window", range(32, 64))
def test_long_strings_are_read_as_json_reads_them(window: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scanner, "_WINDOW", window)
    for value in STRINGS:
        for shift in range(4):
            for ascii_only in (False, True):
                text = json.dumps({"__metadata__": {"x" * shift + "k": value}}, ensure_ascii=ascii_only).encode()
                assert parse_header(text).metadata == {"x" * shift + "k": value}
                skipped = f'{{"x":{json.dumps(value, ensure_ascii=ascii_only)},"weight_map":{{"a":"b"}}}}'.encode()
                assert parse_index(skipped) == {"a": "b"}
    for wrong in (b"\xc3", b"\xff", b"\\ud83d", b"\\x", b"\n", b"\\u00", b"\\ude00\\ud83d"):
        for length in range(20, 90):
            with pytest.raises(SafetensorsError):
                parse_header(b'{"__metadata__":{"k":"' + b"a" * length + wrong + b'"}}')
