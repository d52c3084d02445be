"""Each described operation as a function and as a subcommand: what its JSON route answers, to the bit."""

from __future__ import annotations

import json
from base64 import b64decode
from collections.abc import Callable, Iterator
from inspect import signature
from operator import attrgetter
from pathlib import Path
from typing import Any

import httpx
import ml_dtypes
import numpy as np
import pytest
from numpy.typing import NDArray

import requant
from requant import operation_reference
from requant.command.main import main
from requant.description import Elements, Operation
from requant.function_stubs import STUBS, stubs
from requant.functions import DESCRIBED, FUNCTIONS, gives_tensors, has_report, public_name
from requant.mlir.types import TensorType
from requant.operations.conversions import CONVERSIONS
from requant.operations.vectors import VECTORS
from requant.operators.element_names import container
from requant.operators.registry import OPERATORS
from requant_service.json_api.catalog.operators import route_path
from requant_service.operations.described import decimal_texts
from tests.faces.test_models import REQUESTS


def requests() -> Iterator[tuple[str, dict[str, Any]]]:
    names = {each.path or each.name: each.name for each in DESCRIBED.values()}
    for operation in DESCRIBED.values():
        yield operation.name, dict(operation.example)
    for path, body in REQUESTS:
        name = names.get(path.removeprefix("/v1/"))
        # Functions take the options that are described; in JSON a conversion may also derive its scales.
        if name is not None and "packing" not in body and not body.keys() & {"calibration", "multipliers", "error"}:
            yield name, body


CALLS = list(requests())


def array(tensor: dict[str, Any]) -> NDArray[Any]:
    """The stored numbers of a JSON tensor, small floats as their bits."""
    type_ = requant.parse_type(tensor["type"])
    assert isinstance(type_, TensorType)
    dtype = container(type_.element)
    assert dtype is not None
    assert type_.shape is not None
    flat = np.frombuffer(b64decode(tensor["data"]), dtype) if "data" in tensor else np.array(tensor["values"], dtype)
    return flat.reshape([size or 0 for size in type_.shape])


def element_type(tensor: dict[str, Any]) -> str:
    type_ = requant.parse_type(tensor["type"])
    assert isinstance(type_, TensorType)
    return requant.print_type(type_.element)


def flat(value: Any) -> list[Any]:
    return np.asarray(value).reshape(-1).tolist()


def listed(value: Any) -> Any:
    return flat(value) if isinstance(value, np.ndarray) else value


def expected(client: httpx.Client, operation: Operation, body: dict[str, Any]) -> dict[str, Any]:
    """The JSON route's reply: every tensor by its name, and what else it has in one object, as functions give it."""
    reply = client.post(f"/v1/{operation.path or operation.name}", json=body)
    assert reply.status_code == 200, reply.text
    answer = reply.json()
    trace = answer.pop("trace", {})
    stages = {stage: each["values"] for stage, each in trace.items() if "values" in each}
    tensors = {each.name: array(answer.pop(each.name)) for each in operation.outputs if each.name in answer}
    described = {each.name for each in operation.reply}
    report = answer.pop("report", {}) | {name: value for name, value in answer.items() if name in described}
    return {"report": report, "tensors": tensors, "stages": stages, "records": trace.get("multipliers")}


def arguments_of(operation: Operation, body: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    """The tensors, the types beside them, and what else is in a request."""
    tensors: dict[str, Any] = {}
    types = {}
    for each in operation.tensors:
        if each.several and each.several in body:
            tensors[each.name] = [as_floats(tensor) for tensor in body[each.several]]
        elif each.name in body:
            tensors[each.name] = as_floats(body[each.name]) if each.elements in FLOATS else array(body[each.name])
            if not each.elements.tell_their_type:
                types[each.type_option] = element_type(body[each.name])
    names = [*(each.name for each in operation.numbers), *(each.name for each in operation.options)]
    rest = {name: body[name] for name in names if name in body}
    if operation.calls is not None:
        rest["calls"] = [call_of(operation.calls.operations[each["operation"]], each) for each in body["calls"]]
    for records in operation.record_inputs:
        for member in records.members:
            listed = [each[member.name] for each in body.get(records.name, []) if member.name in each]
            rest |= {member.numbers.name: listed} if listed else {}
    return tensors, types, rest


def call_of(called: Operation, call: dict[str, Any]) -> dict[str, Any]:
    """A call in a request, with the arguments of the function."""
    tensors, types, rest = arguments_of(called, call["arguments"])
    return {**call, "arguments": tensors | types | rest}


FLOATS = (Elements.REALS, Elements.SHORT_REALS, Elements.SINGLES)


def as_floats(tensor: dict[str, Any]) -> NDArray[Any]:
    """Real numbers in their own dtype, so that no type has to stand beside them."""
    element = element_type(tensor)
    dtype = np.dtype(ml_dtypes.bfloat16 if element == "bf16" else element.replace("f", "float"))
    if "data" in tensor:
        return array(tensor).view(dtype)
    flat = np.array(tensor["values"], np.float64).astype(dtype).reshape(-1)
    return flat.reshape(array(tensor | {"values": [0] * flat.size}).shape)


def undescribed(operation: Operation, report: dict[str, Any]) -> dict[str, Any]:
    """What JSON has of a report too: other faces state types beside it, and what JSON shows anyway."""
    left_out = {each.name for each in operation.members if not each.in_json}
    left_out |= {f"{each.name}_type" for each in operation.outputs}
    members = {each.name: each for each in operation.members}
    kept = {name: listed(value) for name, value in report.items() if name not in left_out}
    return {name: decimal_texts(members[name], value) if name in members else value for name, value in kept.items()}


def test_all_operations_are_called() -> None:
    assert {name for name, _ in CALLS} == set(DESCRIBED) == set(FUNCTIONS)


@pytest.mark.sample(4)
@pytest.mark.parametrize("index", range(len(CALLS)), ids=lambda index: f"{CALLS[index][0]}-{index}")
def test_a_function_and_a_subcommand_answer_as_the_route(
    client: httpx.Client, index: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    name, body = CALLS[index]
    operation = DESCRIBED[name]
    route = expected(client, operation, body)
    tensors, types, rest = arguments_of(operation, body)
    function = getattr(requant, name)

    if gives_tensors(operation):
        again = {"return_report": True} if has_report(operation) else {}
        result = function(**tensors, **types, **rest, **again)
        *outputs, report = result if again else (result, {})
        outputs = outputs if isinstance(outputs[0], np.ndarray) else [*outputs[0]]
        produced = dict(zip(route["tensors"], outputs, strict=True))
    else:
        report = function(**tensors, **types, **rest)
        produced = {each: report.pop(each) for each in route["tensors"]}
    check_same({each: bits(value) for each, value in produced.items()}, route["tensors"])
    trace = report.pop("trace", {})
    assert trace.pop("multipliers", None) == route["records"]
    assert {stage: flat(value) for stage, value in trace.items()} == route["stages"]
    assert undescribed(operation, report) == route["report"]
    if name == "equivalence":
        return  # its command has words of its own: tests/core/command/test_equivalence.py

    arguments = []
    if operation.calls is not None:
        (file := tmp_path / "calls.json").write_text(json.dumps(body))
        assert main([name, str(file), "--json"]) == 0
        assert json.loads(capsys.readouterr().out) == route["report"]
        return
    for each in operation.tensors:
        given = tensors.get(each.name, [])
        for number, one in enumerate(given if isinstance(given, list) else [given]):
            np.save(path := tmp_path / f"{each.name}{number}.npy", bits(one))
            arguments += [f"--{each.name}", str(path)] if each.optional else [str(path)]
    for option, value in (types | rest).items():
        flag = f"--{option.replace('_', '-')}"
        if isinstance(value, bool):
            arguments.append(flag if value else flag.replace("--", "--no-"))
        elif operation.has_option(option) and operation.option(option).document:
            (document := tmp_path / option).write_text(value)
            arguments.append(str(document))
        else:
            value = json.dumps(value) if isinstance(value, dict) else value
            arguments += [f"{flag}={value}"] if not isinstance(value, list) else [flag, *map(str, value)]
    if any(each.dtype.name == "bfloat16" for each in tensors.values() if isinstance(each, np.ndarray)):
        return
    for suffix in (".npz", ".safetensors"):
        file = tmp_path / f"result{suffix}"
        assert main([name, *arguments, *(["-o", str(file)] if route["tensors"] else [])]) == 0
        said = json.loads(capsys.readouterr().out)
        assert said.pop("trace", {}).get("multipliers") == route["records"]
        assert undescribed(operation, said) == route["report"]
        if suffix == ".npz" and route["tensors"]:
            with np.load(file) as loaded:
                written = {key: flat(loaded[key]) for key in loaded.files}
            assert written == {each: flat(value) for each, value in route["tensors"].items()} | route["stages"]
    if name in ("matmul", "add"):
        # A result can be the next one's input.
        again_added = [f"{file}:output", f"{file}:output", "--output-type", "!quant.uniform<i8:f32, 1.0>"]
        assert main(["add", *again_added]) in (0, 1)
        capsys.readouterr()


@pytest.mark.parametrize("name", OPERATORS)
def test_an_operator_answers_as_its_route(
    client: httpx.Client, name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    operator, body = OPERATORS[name], OPERATORS[name].example
    reply = client.post(route_path(operator), json=body)
    assert reply.status_code == 200, reply.text
    expected = {output: array(each) for output, each in reply.json()["outputs"].items()}

    tensors: dict[str, Any] = body["inputs"]
    arrays = {each: array(tensor) for each, tensor in tensors.items()}
    types = {f"{each}_type": element_type(tensor) for each, tensor in tensors.items()}
    options = {each: body[each] for each in ("opset", "implementation") if each in body} | body.get("attributes", {})
    result = attrgetter(public_name(name))(requant)(**arrays, **types, **options)
    results = result if isinstance(result, tuple) else (result,)
    given = {each.name: bits(value) for each, value in zip(operator.outputs, results, strict=True)}
    check_same(given, expected)

    arguments = [name]
    for operand in operator.inputs:
        if operand.name in arrays:
            np.save(path := tmp_path / f"{operand.name}.npy", bits(arrays[operand.name]))
            arguments += [f"--{operand.name.replace('_', '-')}"] * operand.optional + [str(path)]
    for option, value in (types | options).items():
        flag = f"--{option.replace('_', '-')}"
        if isinstance(value, bool):
            arguments.append(flag if value else flag.replace("--", "--no-"))
        else:
            arguments += [flag, *map(str, value if isinstance(value, list) else [value])]
    assert main([*arguments, "-o", str(tmp_path / "result.npz")]) == 0
    capsys.readouterr()
    with np.load(tmp_path / "result.npz") as loaded:
        check_same(dict(loaded), expected)


def check_same(given: dict[str, NDArray[Any]], expected: dict[str, NDArray[Any]]) -> None:
    assert given.keys() == expected.keys()
    for name, each in expected.items():
        assert np.array_equal(given[name], each, equal_nan=each.dtype.kind == "f"), name
        assert given[name].dtype == each.dtype


def bits(value: NDArray[Any]) -> NDArray[Any]:
    """An array as `.npy` has it: floats that numpy has no dtype for as their bits."""
    return value if value.dtype.isbuiltin == 1 else value.view(f"u{value.dtype.itemsize}")


def test_the_stubs_are_current() -> None:
    assert STUBS.read_text() == stubs(), "run python -m requant.function_stubs, and ruff format"


def test_the_reference_of_the_operations_is_current() -> None:
    page = Path(__file__, "../../../docs/operations.md").resolve().read_text(encoding="utf-8")
    assert page == operation_reference.page(), "run python -m requant.operation_reference"


X = np.array([[1, 2], [3, 4]], np.int8)


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        ({"lhs_tpe": "i8"}, TypeError, "did you mean lhs_type"),
        ({"accumulator": "i33"}, requant.RequantError, "available: i32, i64"),
        ({"trace": "yes"}, requant.RequantError, "expected a bool"),
        ({"profile": "tflite"}, requant.RequantError, "did you mean litert"),
        ({"bias_type": "i32"}, requant.RequantError, "there is bias_type, but no bias"),
        ({"lhs_type": "tensor<2xi8>"}, requant.RequantError, "the tensor that it is put on 2x2"),
    ],
)
def test_what_is_wrong_is_named(change: dict[str, Any], error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        requant.matmul(X, X, "i32", **change)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_none_is_no_value_of_what_is_required(name: str) -> None:
    body = next(body for operation, body in CALLS if operation == name)
    tensors, types, rest = arguments_of(DESCRIBED[name], body)
    for each in signature(FUNCTIONS[name]).parameters.values():
        if each.default is each.empty:
            with pytest.raises(requant.RequantError):
                FUNCTIONS[name](**(tensors | types | rest | {each.name: None}))


def test_a_factor_is_a_number_or_its_text(capsys: pytest.CaptureFixture[str]) -> None:
    factors: list[str | float] = [0.0123, "0x1.8p-5", float(np.float32(0.1)), 3]
    found = requant.derive_multiplier("litert", factors=factors)
    assert [each["factor"] for each in found["results"]] == ["0.0123", "0.046875", "0.10000000149011612", "3.0"]
    assert requant.derive_multiplier("litert", factors=np.array([0.0123])) == found | {"results": found["results"][:1]}
    assert main(["derive_multiplier", "--scheme", "litert", "--factors", "0.0123", "0x1.8p-5"]) == 0
    assert json.loads(capsys.readouterr().out)["results"] == found["results"][:2]


def test_one_scale_is_that_of_every_factor() -> None:
    one = requant.derive_multiplier("fbgemm", input_scales=0.5, weight_scales=[0.1, 0.2], output_scales=[0.25])
    each = requant.derive_multiplier(
        "fbgemm", input_scales=[0.5, 0.5], weight_scales=["0.1", "0x1.999999999999ap-3"], output_scales=[0.25, 0.25]
    )
    assert one == each
    assert len(one["results"]) == 2


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({}, "exactly one of factors and the scales is required"),
        ({"factors": [1], "weight_scales": [1]}, "exactly one of factors and the scales is required"),
        ({"input_scales": [1]}, "which are input_scales, output_scales, weight_scales"),
        ({"input_scales": [1, 2], "output_scales": [1, 2, 3]}, "there are 2 scales, and 3 of another input"),
        ({"input_scales": [1, 2], "output_scales": [1, 0]}, "a scale is above 0; this one is 0.0"),
        ({"factors": ["0.5", "half"]}, "'half' is not a number"),
        ({"factors": [True]}, "factors takes numbers, not booleans"),
        ({"factors": [np.ones((2, 1)), np.ones((2, 2))]}, "lists of several lengths"),
        ({"factors": [[1], [1, 2]]}, "factors takes numbers, or their texts"),
    ],
)
def test_factors_are_checked(given: dict[str, Any], words: str) -> None:
    with pytest.raises(requant.RequantError, match=words):
        requant.derive_multiplier("litert", **given)


LITERT = {"type": "INT8", "scale": [0.5]}


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({}, "exactly one of type, onnx, onednn, litert, torch, tosa is required"),
        ({"type": "!quant.uniform<i8:f32, 0.5>", "litert": LITERT}, "exactly one of type"),
        ({"type": "!quant.uniform<i8:f32, 0.5>", "shape": [2]}, "the shape is part of the type"),
        ({"type": "!quant.uniform<i8:f32, 0.5>", "systems": ["onnx", "onnx"]}, "one of them twice"),
        ({"litert": LITERT, "systems": ["onx"]}, "did you mean onnx"),
        ({"litert": LITERT, "systems": "onnx"}, "systems takes a list of texts"),
        ({"litert": [LITERT]}, "litert is a list; expected a mapping"),
        ({"litert": LITERT | {"scal": [1]}}, "not a member of litert .did you mean scale"),
        ({"litert": {"zero_point": [0]}}, "litert has no type and no scale"),
        ({"litert": LITERT | {"scale": ["a"]}}, "litert.scale takes numbers"),
        ({"litert": LITERT | {"zero_point": [0.5]}}, "litert.zero_point takes whole numbers"),
        ({"litert": LITERT | {"quantized_dimension": 64}}, "litert.quantized_dimension takes numbers from 0 to 63"),
        ({"litert": LITERT | {"type": 8}}, "litert.type is a int; expected a str"),
        ({"litert": LITERT | {"type": "INT9"}}, "type is one of INT8"),
        ({"tosa": {"input": "x"}}, "expected a type"),
    ],
)
def test_operands_are_checked(given: dict[str, Any], words: str) -> None:
    with pytest.raises(requant.RequantError, match=words):
        requant.translate_type(**given)


def test_operands_that_are_answered_can_be_sent_back(capsys: pytest.CaptureFixture[str]) -> None:
    text = "tensor<2x3x!quant.uniform<u8:f32:1, {5.000000e-01:3,1.000000e-01,2.500000e-01:255}>>"
    [torch] = requant.translate_type(type=requant.parse_type(text), systems=["torch"])["translations"]
    back = requant.translate_type(torch=torch["torch"], shape=[2, 3], systems=())
    assert back == {"type": text, "source": "torch", "rounded": [], "rounded_count": 0, "translations": []}
    assert all(type(name) is str for name in torch)
    assert (
        main(["translate_type", "--torch", json.dumps(torch["torch"]), "--shape", "2", "3", "--systems", "torch"]) == 0
    )
    assert json.loads(capsys.readouterr().out) == back | {"translations": [torch]}


@pytest.mark.parametrize("text", ["", "{", "[]", "5", "[" * 100_000])
def test_a_group_on_the_command_line_is_a_json_object(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["translate_type", "--onnx", text])
    assert ended.value.code == 2
    assert "argument --onnx: expected a JSON object" in capsys.readouterr().err


def test_files_of_vectors_are_those_of_the_route(
    client: httpx.Client, tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    arguments: dict[str, Any] = {"operation": "tosa.RESCALE", "input_type": "i32", "output_type": "i8", "count": 16}
    flags = [f"--{name.replace('_', '-')}={value}" for name, value in arguments.items()]
    for form in VECTORS.files:
        reply = client.post("/v1/vectors", json=arguments | {"format": form})
        function = requant.vectors(**arguments | {"format": form})
        assert function == (reply.content if form == "npz" else reply.text)
        assert main(["vectors", *flags, "--format", form]) == 0
        assert capfdbinary.readouterr().out == reply.content
        assert main(["vectors", *flags, "--format", form, "-o", str(tmp_path / form)]) == 0
        assert (tmp_path / form).read_bytes() == reply.content
    assert main(["vectors", *flags, "--format", "npz", "-o", str(tmp_path / "no" / "file")]) == 1
    assert b"cannot be written" in capfdbinary.readouterr().err


def test_multipliers_come_as_pairs_too() -> None:
    def made(**multipliers: Any) -> Any:
        reply: Any = requant.vectors("tosa.RESCALE", "i32", output_type="i8", **multipliers)
        return reply["vectors"]

    apart = made(multipliers=[1 << 30, 3 << 29], shifts=[34, 35])
    assert made(multipliers=[(1 << 30, 34), [3 << 29, 35]]) == apart
    assert made(multipliers=[{"multiplier": 1 << 30, "shift": 34}, {"multiplier": 3 << 29, "shift": 35}]) == apart
    assert made(multipliers=[(1 << 30, 35), (3 << 29, 35)]) != apart


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"multipliers": [1 << 30]}, "multipliers and shifts come together"),
        ({"multipliers": [(1 << 30,)]}, "multipliers and shifts come together"),
        ({"multipliers": [(1 << 30, 34, 0)]}, "multipliers and shifts come together"),
        ({"multipliers": [{"multiplier": 1 << 30}]}, "shifts takes whole numbers of 64 bits"),
        ({"multipliers": [1 << 30], "shifts": [34, 34]}, "multipliers and shifts come together"),
        ({"multipliers": [0.5], "shifts": [34]}, "multipliers takes whole numbers of 64 bits"),
        ({"rounding": "half_even"}, "tosa.RESCALE has no rounding; did you mean rounding_mode\\?"),
        ({"output_type": "i9 9"}, "expected nothing after the type"),
        ({"output_type": None}, "output_type: required"),
        ({"count": 7}, "count takes numbers from 8 to 2048"),
    ],
)
def test_what_vectors_are_of_is_checked(change: dict[str, Any], words: str) -> None:
    with pytest.raises(requant.RequantError, match=words):
        requant.vectors("tosa.RESCALE", "i32", **({"output_type": "i8"} | change))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"strides": [1]}, "expected 2"),
        ({"strides": [[1], [1, 2]]}, "whole numbers"),
        ({"strides": [0, 1]}, "from 1 to"),
        ({"strides": [1.5, 1]}, "whole numbers"),
        ({"groups": True}, "whole numbers"),
    ],
)
def test_numbers_are_checked(options: dict[str, Any], words: str) -> None:
    image = np.ones((1, 2, 2, 1), np.int8)
    with pytest.raises(requant.RequantError, match=words):
        requant.conv2d(image, image, "i32", **options)


@pytest.mark.parametrize(
    ("arguments", "status", "words"),
    [
        (["nope.npy", "x.npy"], 1, "cannot be read: No such file"),
        (["x.txt", "x.npy"], 1, "is no .npy or .npz file"),
        (["two.npz", "x.npy"], 2, "has 2 tensors; name one, two.npz:NAME"),
        (["two.npz:c", "x.npy"], 2, "no tensor of two.npz is named 'c'"),
        (["x.npy", "x.npy", "-o", "y.txt"], 2, "has to end in .npy, .npz or .safetensors"),
        (["x.npy", "x.npy", "-o", "no/y.npy"], 1, "cannot be written"),
    ],
)
def test_files_that_are_wrong_are_named(
    arguments: list[str],
    status: int,
    words: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    np.save("x.npy", X)
    np.savez("two.npz", a=X, b=X)
    Path("x.txt").write_text("1 2")
    assert main(["matmul", *arguments, "--output-type", "i32"]) == status
    assert words in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "status"),
    [
        (["quantize", "x.npy", "--output-type", "!quant.uniform<i8:f32"], 2),
        (["quantize", "x.npy", "--output-type", "!quant.uniform<i8:f32, 0.5>", "--profile", "tflite"], 2),
        (["matmul", "x.npy", "x.npy", "--output-type", "i32", "--bias-type", "i32"], 2),
        (["derive_from_range", "--minimums", "0", "--maximums", "1", "--storage", "i99", "--scheme", "litert"], 2),
        (["derive_from_range", "--minimums", "0", "0", "--maximums", "1", "--storage", "i8", "--scheme", "litert"], 2),
        (["quantize", "x.npy", "--output-type", "!quant.uniform<i8:f32, 0.5>"], 1),
        (["parse_type", "x.txt"], 1),
        (["lower", "x.txt"], 1),
        (["compare", "x.npy", "x.npy"], 0),
        (["compare", "x.npy", "y.npy"], 1),
    ],
)
def test_exit_status(
    arguments: list[str],
    status: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    np.save("x.npy", X)
    np.save("y.npy", X + 1)
    Path("x.txt").write_text("!quant.uniform<i8:f32")
    assert main(arguments) == status
    shown = capsys.readouterr()
    assert (json.loads(shown.out)["equal"] == (status == 0)) if arguments[0] == "compare" else shown.err


def test_negative_numbers_are_no_options(capsys: pytest.CaptureFixture[str]) -> None:
    ranges = ["--minimums", "-1e-3", "-.5", "-1.", "--maximums", "1", "2", "3", "--axis", "0"]
    assert main(["derive_from_range", *ranges, "--storage", "i8", "--scheme", "onnxruntime"]) == 0
    assert len(json.loads(capsys.readouterr().out)["scales"]) == 3
    infinite = ["--minimums", "-inf", "--maximums", "1"]
    assert main(["derive_from_range", *infinite, "--storage", "i8", "--scheme", "onnxruntime"]) == 2
    assert "has an end that is not finite" in capsys.readouterr().err


def test_what_is_printed_is_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    np.save(tmp_path / "x.npy", np.array([1, np.nan, np.inf, -np.inf], np.float32))
    assert main(["quantize", str(tmp_path / "x.npy"), "--output-type", "bf16"]) == 0
    said = json.loads(capsys.readouterr().out, parse_constant=pytest.fail)
    assert said["values"] == [1.0, "NaN", "Infinity", "-Infinity"]


def test_a_tensor_that_is_not_there_is_not_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    scales = ["--input-scale", "0.5", "--weight-scales", "0.5", "--scheme", "litert"]
    for suffix in (".npy", ".npz"):
        file = tmp_path / f"bias{suffix}"
        assert main(["derive_bias", *scales, "-o", str(file)]) == 2
        assert f"none is written to {file.name}" in capsys.readouterr().err
        assert not file.exists()


@pytest.mark.parametrize("conversion", CONVERSIONS.values(), ids=lambda operation: operation.name)
def test_a_conversion_on_files_is_the_function(
    conversion: Operation, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    body = conversion.example
    tensor, options = body["input"], {name: each for name, each in body.items() if name != "input"}
    x = as_floats({**tensor, "values": [0.25, 0.75, -1.5, 7.0]}) if conversion.name == "quantize" else array(tensor)
    types = {} if conversion.name == "quantize" else {"input_type": element_type(tensor)}
    np.save(tmp_path / "x.npy", x)
    flags = [f"--{name.replace('_', '-')}={value}" for name, value in (types | options).items()]
    assert main([conversion.name, str(tmp_path / "x.npy"), *flags, "-o", str(tmp_path / "y.npy")]) == 0
    report = json.loads(capsys.readouterr().out)
    y, expected_report = getattr(requant, conversion.name)(x, **types, **options, return_report=True)
    assert np.array_equal(np.load(tmp_path / "y.npy"), y)
    assert {name: report[name] for name in expected_report._asdict()} == expected_report._asdict()


@pytest.mark.parametrize(
    "call",
    [
        lambda: requant.derive_multiplier("litert", factors=[10**400]),
        lambda: requant.derive_multiplier("litert", factors=[np.complex128(1)]),
        lambda: requant.quantize_blocks(np.ones(32, np.float32), "nvfp4", global_scale=10**400),
        lambda: requant.quantize_blocks(np.ones(32, np.float32), "nvfp4", global_scale=True),
        lambda: requant.derive_from_range([0.0], [1.0], "i8", "torch_observer", epsilon=10**400),
        lambda: requant.derive_from_range(False, [1.0], "i8", "litert"),
        lambda: requant.derive_from_range([0.0], [0.5, True], "i8", "litert"),
        lambda: requant.derive_from_range([0.0], np.array([True]), "i8", "litert"),
        lambda: requant.vectors("requantize", "i32", output_type="i8", multipliers=[1, True], shifts=[1, 1]),
        lambda: requant.vectors("requantize", "i32", output_type="i8", multipliers=[[1, 2], [3]], shifts=[1]),
        lambda: requant.evaluate(b"module {}"),  # type: ignore[arg-type]
        lambda: requant.evaluate("module {}", function=5),  # type: ignore[arg-type]
    ],
)
def test_what_is_no_number_or_text_is_refused(call: Callable[[], Any]) -> None:
    with pytest.raises(requant.RequantError) as refusal:
        call()
    assert refusal.value.code in ("parameter_invalid", "request_invalid")
