"""Headers of safetensors files, well-formed and hostile, each with what the library (0.8) does with it."""

from __future__ import annotations

import json
from typing import NamedTuple


class HeaderCase(NamedTuple):
    """`file`: all bytes. `library`: whether safetensors takes it. `ours`: what our message says, None if we take it."""

    name: str
    file: bytes
    library: bool
    ours: str | None


def file_of(header: bytes | str, data: int = 0) -> bytes:
    """Return a file with this header and so many zero bytes of data."""
    text = header if isinstance(header, bytes) else header.encode()
    return len(text).to_bytes(8, "little") + text + bytes(data)


def tensor(dtype: str = "U8", shape: str = "[4]", offsets: str = "[0,4]", more: str = "") -> str:
    """Return the JSON of a tensor's entry."""
    return f'{{"dtype":"{dtype}","shape":{shape},"data_offsets":{offsets}{more}}}'


def _one(entry: str, data: int = 4) -> bytes:
    return file_of(f'{{"a":{entry}}}', data)


_A = f'"a":{tensor()}'
_TWO_33 = 2**33
_OBJECTS = '{"":' * 1000 + "1" + "}" * 1000

REFUSED = (
    # The file around the header.
    HeaderCase("no bytes", b"", False, "0 bytes"),
    HeaderCase("seven bytes", bytes(7), False, "7 bytes"),
    HeaderCase("empty header", file_of(""), False, "expected '{'"),
    HeaderCase("length beyond the file", (100).to_bytes(8, "little") + b"{}", False, "ends beyond the file"),
    HeaderCase("length of 2^64 - 1", (2**64 - 1).to_bytes(8, "little") + b"{}", False, "at most 100000000"),
    HeaderCase("length above 100 MB", (100_000_001).to_bytes(8, "little") + b"{}", False, "at most 100000000"),
    HeaderCase("bytes behind the last tensor", file_of(f"{{{_A}}}", 5), False, "the file has"),
    HeaderCase("truncated", file_of(f"{{{_A}}}", 3), False, "the file has"),
    HeaderCase("data without a tensor", file_of("{}", 1), False, "the file has"),
    # The text.
    HeaderCase("not UTF-8", file_of(b'{"\xff":' + tensor().encode() + b"}", 4), False, "not UTF-8"),
    HeaderCase("overlong UTF-8", file_of(b'{"\xc0\xaf":' + tensor().encode() + b"}", 4), False, "not UTF-8"),
    HeaderCase("a surrogate in UTF-8", file_of(b'{"\xed\xa0\x80":' + tensor().encode() + b"}", 4), False, "not UTF-8"),
    HeaderCase("byte order mark", file_of("\ufeff{}"), False, "expected '{'"),
    HeaderCase("array", file_of("[]"), False, "expected '{'"),
    HeaderCase("null", file_of("null"), False, "expected '{'"),
    HeaderCase("string", file_of('"a"'), False, "expected '{'"),
    HeaderCase("cut short", file_of(f"{{{_A}", 4), False, "the header ends"),
    HeaderCase("NUL behind the object", file_of("{}\0"), False, "only whitespace"),
    HeaderCase("a second object", file_of("{}{}"), False, "only whitespace"),
    HeaderCase("text behind the object", file_of(f"{{{_A}}} x", 4), False, "only whitespace"),
    HeaderCase("a comma behind the last", file_of(f"{{{_A},}}", 4), False, "the name of a tensor"),
    HeaderCase("no comma", file_of(f'{{{_A} "b":{tensor(offsets="[4,8]")}}}', 8), False, "','"),
    HeaderCase("no colon", file_of(f'{{"a" {tensor()}}}', 4), False, "':'"),
    HeaderCase("single quotes", file_of("{'a':1}"), False, "the name of a tensor"),
    HeaderCase("comment", file_of("{/**/}"), False, "the name of a tensor"),
    HeaderCase("raw control character", file_of(f'{{"a\tb":{tensor()}}}', 4), False, "without control characters"),
    HeaderCase("raw NUL in a name", file_of(f'{{"a\0":{tensor()}}}', 4), False, "without control characters"),
    HeaderCase("unknown escape", file_of(f'{{"\\x61":{tensor()}}}', 4), False, "without control characters"),
    HeaderCase("lone high surrogate", file_of(f'{{"\\ud800":{tensor()}}}', 4), False, "an unpaired surrogate"),
    HeaderCase("lone low surrogate", file_of(f'{{"\\udc00":{tensor()}}}', 4), False, "an unpaired surrogate"),
    HeaderCase("surrogates in reverse", file_of(f'{{"\\udc00\\ud800":{tensor()}}}', 4), False, "an unpaired surrogate"),
    HeaderCase("nested 1,000 deep", _one(tensor(more=f',"x":{"[" * 1000}{"]" * 1000}')), False, "nested at most"),
    HeaderCase("nested 200,000 deep", file_of('{"a":' + "[" * 200_000), False, "expected '{'"),
    HeaderCase(
        "objects nested", _one(tensor(more=',"x":' + '{"":' * 1000 + "1" + "}" * 1000)), False, "nested at most"
    ),
    HeaderCase("deep and cut short", file_of('{"a":{"x":' + '{"":' * 200_000), False, "nested at most"),
    # Numbers.
    HeaderCase("leading zero", _one(tensor(shape="[04]")), False, "an integer"),
    HeaderCase("float", _one(tensor(shape="[4.0]")), False, "an integer"),
    HeaderCase("exponent", _one(tensor(shape="[4e0]")), False, "an integer"),
    HeaderCase("float offset", _one(tensor(offsets="[0,4.0]")), False, "an integer"),
    HeaderCase("negative", _one(tensor(shape="[-4]")), False, "an integer"),
    HeaderCase("minus zero", _one(tensor(shape="[-0]", offsets="[0,0]"), 0), False, "an integer"),
    HeaderCase("plus", _one(tensor(shape="[+4]")), False, "an integer"),
    HeaderCase("2^64", _one(tensor(shape=f"[{2**64}]")), False, "an integer"),
    HeaderCase("5,000 digits", _one(tensor(shape=f"[{'1' * 5000}]")), False, "an integer"),
    HeaderCase("NaN", _one(tensor(shape="[NaN]")), False, "an integer"),
    HeaderCase("boolean", _one(tensor(shape="[true]")), False, "an integer"),
    HeaderCase("number in a string", _one(tensor(shape='["4"]')), False, "an integer"),
    # The fields.
    HeaderCase("entry is a list", _one("[]"), False, "the fields of a tensor"),
    HeaderCase("entry is null", _one("null"), False, "the fields of a tensor"),
    HeaderCase("no fields", _one("{}"), False, "dtype and shape and data_offsets missing"),
    HeaderCase("no dtype", _one('{"shape":[4],"data_offsets":[0,4]}'), False, "dtype missing"),
    HeaderCase("no shape", _one('{"dtype":"U8","data_offsets":[0,4]}'), False, "shape missing"),
    HeaderCase("no offsets", _one('{"dtype":"U8","shape":[4]}'), False, "data_offsets missing"),
    HeaderCase("null shape", _one(tensor(shape="null")), False, "'['"),
    HeaderCase("unknown dtype", _one(tensor("F128")), False, "'F128' is unknown"),
    HeaderCase("lower-case dtype", _one(tensor("u8")), False, "'u8' is unknown"),
    HeaderCase("dtype is a number", _one('{"dtype":8,"shape":[4],"data_offsets":[0,4]}'), False, "dtype"),
    HeaderCase("dtype twice", _one(tensor(more=',"dtype":"U8"')), False, "a second 'dtype'"),
    HeaderCase("shape twice", _one(tensor(more=',"shape":[4]')), False, "a second 'shape'"),
    HeaderCase("offsets twice", _one(tensor(more=',"data_offsets":[0,4]')), False, "a second 'data_offsets'"),
    HeaderCase("one offset", _one(tensor(offsets="[0]")), False, "a pair"),
    HeaderCase("no offset", _one(tensor(offsets="[]")), False, "a pair"),
    HeaderCase("three offsets", _one(tensor(offsets="[0,4,4]")), False, "at most 2"),
    HeaderCase("end before begin", _one(tensor(shape="[0]", offsets="[4,0]")), False, "with begin <= end"),
    # The places.
    HeaderCase("a gap at the start", _one(tensor(offsets="[1,5]"), 5), False, "neither gaps nor overlaps"),
    HeaderCase("a gap", file_of(f'{{{_A},"b":{tensor(offsets="[5,9]")}}}', 9), False, "neither gaps nor overlaps"),
    HeaderCase("overlap", file_of(f'{{{_A},"b":{tensor(offsets="[3,7]")}}}', 7), False, "neither gaps nor overlaps"),
    HeaderCase("two in one place", file_of(f'{{{_A},"b":{tensor()}}}', 4), False, "neither gaps nor overlaps"),
    HeaderCase("too few bytes", _one(tensor(shape="[5]")), False, "takes 5"),
    HeaderCase("too many bytes", _one(tensor(shape="[3]")), False, "takes 3"),
    HeaderCase("a scalar of 4 bytes", _one(tensor(shape="[]")), False, "takes 1"),
    HeaderCase("odd F4", _one(tensor("F4", "[3]", "[0,2]"), 2), False, "not a whole number of bytes"),
    HeaderCase("F6 of 2", _one(tensor("F6_E2M3", "[2]", "[0,2]"), 2), False, "not a whole number of bytes"),
    HeaderCase("2^33 x 2^33 x 0", _one(tensor(shape=f"[{_TWO_33},{_TWO_33},0]", offsets="[0,0]"), 0), False, "2^64"),
    HeaderCase("2^64 elements", _one(tensor(shape=f"[{_TWO_33},{2**31}]", offsets="[0,0]"), 0), False, "2^64"),
    HeaderCase("2^64 bits", _one(tensor("F32", shape=f"[{2**59}]", offsets="[0,0]"), 0), False, "2^64"),
    # Metadata.
    HeaderCase("metadata twice", file_of('{"__metadata__":{},"__metadata__":{}}'), False, "a second '__metadata__'"),
    HeaderCase("metadata is a list", file_of('{"__metadata__":[]}'), False, "'{'"),
    HeaderCase("metadata of a number", file_of('{"__metadata__":{"a":1}}'), False, "a value of __metadata__"),
    HeaderCase("metadata of null", file_of('{"__metadata__":{"a":null}}'), False, "a value of __metadata__"),
    HeaderCase("metadata nested", file_of('{"__metadata__":{"a":{}}}'), False, "a value of __metadata__"),
    # What the library takes.
    HeaderCase("the same name twice", file_of(f"{{{_A},{_A}}}", 4), True, "a second 'a'"),
    HeaderCase("the same name escaped", file_of(f'{{{_A},"\\u0061":{tensor()}}}', 4), True, "a second 'a'"),
    HeaderCase("a metadata key twice", file_of('{"__metadata__":{"a":"1","a":"2"}}'), True, "a second 'a'"),
    HeaderCase("white space first", file_of(" {}"), True, "expected '{'"),
    HeaderCase("65 dimensions", _one(tensor(shape=json.dumps([4] + [1] * 64))), True, "at most 64"),
)

ACCEPTED = (
    HeaderCase("no tensor", file_of("{}"), True, None),
    HeaderCase("a tensor", file_of(f"{{{_A}}}", 4), True, None),
    HeaderCase("white space at the end", file_of(f"{{{_A}}} \t\r\n ", 4), True, None),
    HeaderCase(
        "white space within",
        file_of('{ "a" : { "dtype" : "U8" ,\n"shape":[ 4 ] , "data_offsets":[ 0 , 4 ]\t} }', 4),
        True,
        None,
    ),
    HeaderCase("fields in another order", _one('{"data_offsets":[0,4],"shape":[4],"dtype":"U8"}'), True, None),
    HeaderCase("an escaped field", _one('{"d\\u0074ype":"U8","shape":[4],"data_offsets":[0,4]}'), True, None),
    HeaderCase("unknown fields", _one(tensor(more=',"x":{"y":[1,-2.5e3,null,true,{}]},"z":"","w":[]')), True, None),
    HeaderCase(
        "unknown fields with white space", _one(tensor(more=', "x" : { "y" : [ 1 , [ ] , { } ] } ')), True, None
    ),
    HeaderCase("a scalar", _one(tensor(shape="[]", offsets="[0,1]"), 1), True, None),
    HeaderCase("empty", _one(tensor(shape="[3,0]", offsets="[0,0]"), 0), True, None),
    HeaderCase("0 x 2^33 x 2^33", _one(tensor(shape=f"[0,{_TWO_33},{_TWO_33}]", offsets="[0,0]"), 0), True, None),
    HeaderCase("64 dimensions", _one(tensor(shape=json.dumps([4] + [1] * 63))), True, None),
    HeaderCase("F4", _one(tensor("F4", "[4]", "[0,2]"), 2), True, None),
    HeaderCase("F6", _one(tensor("F6_E3M2", "[4]", "[0,3]"), 3), True, None),
    HeaderCase(
        "places in another order",
        file_of(f'{{"a":{tensor(offsets="[4,8]")},"b":{tensor(offsets="[0,4]")}}}', 8),
        True,
        None,
    ),
    HeaderCase(
        "an empty one between",
        file_of(f'{{"b":{tensor(offsets="[4,8]")},"e":{tensor(shape="[0]", offsets="[4,4]")},{_A}}}', 8),
        True,
        None,
    ),
    HeaderCase("an empty name", file_of(f'{{"":{tensor()}}}', 4), True, None),
    HeaderCase("a path", file_of(f'{{"../../etc/passwd":{tensor()}}}', 4), True, None),
    HeaderCase("NUL in a name", file_of(f'{{"a\\u0000b":{tensor()}}}', 4), True, None),
    HeaderCase("a surrogate pair", file_of(f'{{"\\ud83d\\ude00":{tensor()}}}', 4), True, None),
    HeaderCase("other scripts", file_of(f'{{"überzählig 重み":{tensor()}}}', 4), True, None),
    HeaderCase("metadata", file_of('{"__metadata__":{"format":"pt","":"\\n"}}'), True, None),
    HeaderCase("metadata last", file_of(f'{{{_A},"__metadata__":{{"format":"pt"}}}}', 4), True, None),
    HeaderCase("metadata is null", file_of(f'{{"__metadata__":null,{_A}}}', 4), True, None),
)
