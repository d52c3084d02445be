"""Messages cut by our own hands, compared with what protobuf's parser reads of them."""

from __future__ import annotations

import random

import pytest
from google.protobuf.message import DecodeError

from requant.errors import LimitError
from requant_service.oip.grpc import inference_pb2 as pb
from requant_service.oip.grpc.wire_format import request_parts
from tests.support.cases import examples


def parsed(message: bytes) -> pb.ModelInferRequest | None:
    try:
        found: pb.ModelInferRequest = pb.ModelInferRequest.FromString(message)
        return found
    except DecodeError:
        return None


def is_text(given: bytes | None) -> bool:
    try:
        (given or b"").decode()
    except UnicodeDecodeError:
        return False
    return True


def check(message: bytes) -> bool:
    """Whether a message is cut; if so, the parts are what protobuf reads, or it reads neither."""
    parts, whole = request_parts(message), parsed(message)
    if parts is None:
        return False
    head = parsed(parts.head)
    assert (whole is not None) == (head is not None and is_text(parts.id)), message.hex()
    if whole is None or head is None:
        return True
    assert [bytes(each) for each in parts.raw] == list(whole.raw_input_contents), message.hex()
    assert (parts.id or b"").decode() == whole.id, message.hex()
    del whole.raw_input_contents[:]
    whole.id = ""
    # Of a map with a repeated key either order is the same message.
    assert head == whole, message.hex()
    return True


def varint(number: int, padding: int = 0) -> bytes:
    found = bytearray()
    while number >= 0x80:
        found.append(number & 0x7F | 0x80)
        number >>= 7
    found.append(number | (0x80 if padding else 0))
    found += b"\x80" * (padding - 1) + b"\0" * bool(padding)
    return bytes(found)


def usual(rng: random.Random) -> bytes:
    request = pb.ModelInferRequest(model_name="quantize"[: rng.randrange(9)], id="é7"[: rng.randrange(3)])
    for name in rng.sample(["output_type", "profile", "axis"], rng.randrange(4)):
        request.parameters[name].string_param = "x" * rng.choice([0, 1, 127, 128, 300])
    for index in range(rng.randrange(3)):
        tensor = request.inputs.add(name=f"x{index}", datatype="FP32", shape=[rng.randrange(1 << 40)])
        if rng.random() < 0.3:
            tensor.contents.fp32_contents.extend([1.0] * rng.randrange(3))
        request.raw_input_contents.append(rng.randbytes(rng.choice([0, 1, 4, 127, 128, 20_000])))
    if rng.random() < 0.3:
        request.outputs.add(name="y")
    return bytes(request.SerializeToString())


def odd_field(rng: random.Random) -> bytes:
    """A field that no client writes: of another wire type, unknown, a group, or written longer than needed."""
    number = rng.choice([1, 2, 3, 4, 5, 6, 7, 8, 15, 16, 2047, (1 << 29) - 1, 1 << 29, 0])
    wire_type = rng.randrange(8)
    tag = varint(number << 3 | wire_type, rng.choice([0, 0, 0, 1, 2]))
    padding = rng.choice([0, 0, 0, 1, 3, 6])
    if wire_type == 2:
        value = rng.choice([b"", b"abc", b"\xff", usual(rng)[:50]])
        return tag + varint(len(value) + rng.choice([0, 0, 0, 1, 1 << 31, 1 << 35]), padding) + value
    return tag + {0: varint(rng.getrandbits(rng.choice([1, 7, 32, 64, 70])), padding), 1: rng.randbytes(8)}.get(
        wire_type, rng.randbytes(rng.choice([0, 4, 4, 4]))
    )


def mutated(message: bytes, rng: random.Random) -> bytes:
    found = bytearray(message)
    for _ in range(rng.randrange(1, 4)):
        at = rng.randrange(len(found) + 1)
        match rng.randrange(5):
            case 0:
                found[at:at] = odd_field(rng)
            case 1:
                found += odd_field(rng)
            case 2:
                del found[at : at + rng.choice([1, 2, 9, 10_000])]
            case 3:
                found[at:at] = usual(rng)
            case _:
                if at < len(found):
                    found[at] = rng.choice([0, 0x7F, 0x80, 0xFF, found[at] ^ 1 << rng.randrange(8)])
    return bytes(found)


def test_usual_messages_are_cut() -> None:
    rng = random.Random(1)
    for _ in range(300):
        message = usual(rng)
        assert check(message), message.hex()
    assert request_parts(b"") == (b"", None, [])


def test_tensors_are_not_copied() -> None:
    message = pb.ModelInferRequest(id="a", raw_input_contents=[b"1234", b""]).SerializeToString()
    parts = request_parts(message)
    assert parts is not None
    assert [each.obj for each in parts.raw] == [message] * 2
    assert (parts.head, parts.id) == (b"", b"a")


@pytest.mark.sample(1)
@pytest.mark.parametrize("seed", range(4))
def test_mutated_messages_mean_what_protobuf_reads(seed: int) -> None:
    rng = random.Random(seed)
    cut = sum(check(mutated(usual(rng), rng)) for _ in range(examples(20_000)))
    assert cut > 100


def test_repeated_fields_merge_as_protobuf_does() -> None:
    first = pb.ModelInferRequest(model_name="a", raw_input_contents=[b"1"])
    second = pb.ModelInferRequest(model_name="b", id="b", raw_input_contents=[b"2"])
    first.inputs.add(name="x").contents.fp32_contents.append(1)
    message = first.SerializeToString() + second.SerializeToString()
    assert check(message)
    parts = request_parts(message)
    assert parts is not None
    assert parts.id == b"b"
    assert len(parts.raw) == 2


def test_an_id_that_is_overridden_has_to_be_a_text_too() -> None:
    assert request_parts(b"\x1a\x01\xff\x1a\x01a") is None


@pytest.mark.parametrize("field", [b"\x3a\x00", b"\x2a\x00", b"\xa2\x06\x00"])
def test_many_fields_are_refused(field: bytes) -> None:
    assert request_parts(field * 1024) is not None
    with pytest.raises(LimitError, match="more than 1024 fields"):
        request_parts(field * 4_000_000)
