"""Quantize to a type that leaves its scales open: in every protocol the bits of two calls, one after the other.

The first finds the parameters (`/v1/parameters/tensor`, or `range` for a calibrated type), the second quantizes to the
type that it returns. What they refuse, the one call refuses with the same code.
"""

from __future__ import annotations

import base64
import io
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import ml_dtypes
import numpy as np
import pytest
from numpy.typing import NDArray

import requant
from requant.calibration.methods import CALIBRATION_METHODS
from requant.command.main import main
from tests.support import oip_wire
from tests.support.cases import EXHAUSTIVE, check_each, sample

Array = NDArray[Any]

STORAGES = ("i8", "u8", "i4", "u4", "i16", "u16", "i8<-127:127>")
SCHEMES = ("onnxruntime", "torch_observer", "litert", "mlir", "tf_fake_quant", "torch")
EXPRESSED = {"f32": np.float32, "f16": np.float16, "f64": np.float64}
PROFILES = ("stablehlo", "onnx", "litert", "torch_decomposed")
GRANULARITIES: tuple[dict[str, Any], ...] = (
    {},
    {"axis": 0},
    {"axis": 1},
    {"block_sizes": [1, 3]},
    {"block_sizes": [4, 2]},
)
OPTIONS: dict[str, dict[str, Any]] = {
    "percentile": {"percentile": 99.5},
    "mse": {"candidates": 7, "profile": "onnx"},
    "entropy": {"bins": 200, "quantized_bins": 16},
}


@dataclass(frozen=True)
class Case:
    """One quantization: a seed and what it draws."""

    seed: int
    name: str = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "name", f"case {self.seed}")

    @property
    def calibration(self) -> dict[str, Any]:
        """What is asked of the calibration, by the names of JSON."""
        rng = np.random.default_rng([self.seed, 1])
        method = list(CALIBRATION_METHODS)[self.seed % len(CALIBRATION_METHODS)]
        asked: dict[str, Any] = {"method": method, **(OPTIONS.get(method, {}) if rng.random() < 0.7 else {})}
        asked |= GRANULARITIES[self.seed % len(GRANULARITIES)]
        if rng.random() < 0.3:
            asked["symmetric"] = True
        if rng.random() < 0.3 and "block_sizes" not in asked:
            asked["scheme"] = str(rng.choice(SCHEMES))
        return asked

    @property
    def storage(self) -> str:
        return STORAGES[self.seed // 5 % len(STORAGES)]

    @property
    def expressed(self) -> str:
        return list(EXPRESSED)[max(self.seed % 6 - 3, 0)]

    @property
    def profile(self) -> str:
        return "onnx" if "block_sizes" in self.calibration else PROFILES[self.seed // 2 % len(PROFILES)]

    @property
    def x(self) -> Array:
        rng = np.random.default_rng([self.seed, 5])
        data = rng.normal(rng.normal(), rng.choice([0.01, 1.0, 100.0]), (4, 6))
        if rng.random() < 0.1:
            data[1, 2] = rng.choice([np.nan, np.inf])
        return data.astype(EXPRESSED[self.expressed])

    @property
    def open_type(self) -> str:
        return f"!quant.any<{self.storage}:{self.expressed}>"


@dataclass(frozen=True)
class Found:
    """What one or two calls have found: the codes, the type of them, and the parameters; or a code of an error."""

    codes: bytes = b""
    type: str = ""
    scales: tuple[float, ...] = ()
    zero_points: tuple[int, ...] = ()
    error: str = ""


def tensor(x: Array, expressed: str) -> dict[str, Any]:
    return {"type": f"tensor<4x6x{expressed}>", "data": base64.b64encode(x.tobytes()).decode()}


def granularity(asked: dict[str, Any]) -> dict[str, str]:
    named = {"axis": "per_axis", "block_sizes": "sub_channel"}
    return next(({"granularity": kind} for name, kind in named.items() if name in asked), {})


def in_two_calls(client: httpx.Client, case: Case) -> Found:
    input_, asked = tensor(case.x, case.expressed), case.calibration
    body = {"input": input_, "storage": case.storage, "expressed": case.expressed, **granularity(asked), **asked}
    parameters = client.post("/v1/parameters/tensor", json=body)
    if parameters.status_code != 200:
        return Found(error=parameters.json()["code"])
    found = parameters.json()
    if "type" not in found:
        return Found(error="precondition_failed")
    reply = client.post("/v1/quantize", json={"input": input_, "output_type": found["type"], "profile": case.profile})
    if reply.status_code != 200:
        return Found(error=reply.json()["code"])
    output = reply.json()["output"]
    codes = base64.b64decode(output["data"])
    return Found(codes, output["type"], tuple(found["scales"]), tuple(found["zero_points"]))


def in_json(client: httpx.Client, case: Case) -> Found:
    body = {"input": tensor(case.x, case.expressed), "output_type": case.open_type, "profile": case.profile}
    reply = client.post("/v1/quantize", json={**body, "calibration": case.calibration})
    if reply.status_code != 200:
        return Found(error=reply.json()["code"])
    output, found = reply.json()["output"], reply.json()["parameters"]
    assert found["type"] in output["type"]
    codes = base64.b64decode(output["data"])
    return Found(codes, output["type"], tuple(found["scales"]), tuple(found["zero_points"]))


def as_texts(case: Case) -> dict[str, str]:
    asked = dict(case.calibration)
    if "profile" in asked:
        asked["calibration_profile"] = asked.pop("profile")
    if "block_sizes" in asked:
        asked["block_sizes"] = ",".join(map(str, asked["block_sizes"]))
    texts = {name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in asked.items()}
    return {"output_type": case.open_type, "profile": case.profile, **texts}


def npy(x: Array) -> bytes:
    file = io.BytesIO()
    np.save(file, x)
    return file.getvalue()


def of_arrays(y: Array, type_: str, scale: Array, zero_point: Array, case: Case) -> Found:
    """What arrays say."""
    assert y.shape == case.x.shape
    assert scale.shape == zero_point.shape
    return Found(y.tobytes(), type_, tuple(scale.ravel().tolist()), tuple(zero_point.ravel().tolist()))


def in_npz(client: httpx.Client, case: Case) -> Found:
    query = {**as_texts(case), "output": "npz"}
    reply = client.post("/v1/npy/quantize", params=query, content=npy(case.x))
    return of_npz(reply, case)


def of_npz(reply: httpx.Response, case: Case) -> Found:
    if reply.status_code != 200:
        return Found(error=reply.json()["code"])
    with np.load(io.BytesIO(reply.content), allow_pickle=False) as found:
        return of_arrays(found["y"], str(found["type"]), found["scale"], found["zero_point"], case)


def in_npy(client: httpx.Client, case: Case) -> Found:
    reply = client.post("/v1/npy/quantize", params=as_texts(case), content=npy(case.x))
    if reply.status_code != 200:
        return Found(error=reply.json()["code"])
    return Found(np.load(io.BytesIO(reply.content)).tobytes(), reply.headers["requant-type"])


def in_v2(client: httpx.Client, case: Case) -> Found:
    parameters: dict[str, Any] = {**as_texts(case), "binary_data_output": True}
    parameters |= {
        name: case.calibration[name]
        for name in ("axis", "symmetric", "bins", "percentile", "candidates")
        if name in case.calibration
    }
    parameters |= {name: int(parameters[name]) for name in ("quantized_bins",) if name in parameters}
    body, headers = oip_wire.body_of([oip_wire.Input("x", case.x)], parameters=parameters)
    reply = client.post("/v2/models/quantize/infer", content=body, headers=headers)
    if reply.status_code != 200:
        return Found(error=reply.json()["code"])
    read = oip_wire.read(reply)
    y, scale, zero_point = (read.outputs[name] for name in ("y", "scale", "zero_point"))
    return of_arrays(y, read.head["parameters"]["output_type"], scale, zero_point, case)


def in_form(client: httpx.Client, case: Case) -> Found:
    fields = {name: (None, text) for name, text in as_texts(case).items()}
    reply = client.post("/v1/multipart/quantize", files={**fields, "x": npy(case.x), "output": (None, "npz")})
    return of_npz(reply, case)


@pytest.mark.exhaustive
def test_one_call_gives_the_bits_of_two(client: httpx.Client) -> None:
    derived: list[Case] = []

    def check(case: Case) -> None:
        expected = in_two_calls(client, case)
        assert in_json(client, case) == expected
        for face in (in_npz, in_form, in_v2):
            assert face(client, case) == expected, face.__name__
        in_file = in_npy(client, case)
        assert (in_file.codes, in_file.type, in_file.error) == (expected.codes, expected.type, expected.error)
        if not expected.error:
            derived.append(case)

    cases = [Case(seed) for seed in range(200 if EXHAUSTIVE else 45)]
    check_each(cases, check)
    # Enough of them are no refusals, whatever is drawn.
    assert len(derived) > len(cases) // 2
    assert {case.calibration["method"] for case in derived} == set(CALIBRATION_METHODS)
    assert {case.expressed for case in derived} == set(EXPRESSED)
    assert {case.storage for case in derived} == set(STORAGES)


STATED: dict[str, dict[str, Any]] = {
    "per_tensor": {},
    "per_axis": {"axis": 0},
    "sub_channel": {"block_sizes": [1, 4]},
}


@pytest.mark.parametrize("granularity", STATED)
@pytest.mark.parametrize("method", sample([*CALIBRATION_METHODS], 3))
@pytest.mark.parametrize("expressed", [*EXPRESSED, "bf16"])
def test_the_stated_parameters_give_the_same_codes(
    client: httpx.Client, expressed: str, method: str, granularity: str
) -> None:
    """Whoever quantizes with the scales and zero points of a reply, and not with its type."""
    x = np.random.default_rng(7).normal(0, 0.01, (4, 8))
    real = x.astype(ml_dtypes.bfloat16 if expressed == "bf16" else EXPRESSED[expressed])
    given = {"type": f"tensor<4x8x{expressed}>", "data": base64.b64encode(real.tobytes()).decode()}
    asked = {"method": method, **OPTIONS.get(method, {}), **STATED[granularity]}
    body = {"input": given, "output_type": f"!quant.any<i8:{expressed}>", "profile": "stablehlo", "calibration": asked}
    if granularity == "sub_channel":
        body["profile"] = "onnx" if expressed != "f64" else "mlir"
    one_call = client.post("/v1/quantize", json=body)
    if one_call.status_code != 200:
        # TOSA's model optimizer has no blocks, and MLIR no result for what saturates.
        assert one_call.json()["code"] in ("unsupported", "precondition_failed")
        return
    output = one_call.json()["output"]
    shape = {"per_tensor": (), "per_axis": (4,), "sub_channel": (4, 2)}[granularity]
    texts = {key: ",".join(map(str, np.ravel(value))) for key, value in STATED[granularity].items()}
    named = {} if granularity == "per_tensor" else {"granularity": granularity}
    tensors = {"input": given, "storage": "i8", "expressed": expressed, **named, **asked}
    measured = client.post("/v1/parameters/tensor", json=tensors).json()
    stated = {"parameters": measured, "quantize": one_call.json()["parameters"]}
    same = {name: measured[name] for name in ("minimums", "maximums", "scheme", "storage")}
    ranges = {**same, "expressed": expressed, **STATED[granularity]}
    if granularity == "sub_channel":
        ranges["shape"] = [4, 8]
    of_ranges = client.post("/v1/parameters/range", json=ranges)
    if of_ranges.status_code == 200:
        stated["range"] = of_ranges.json()
    stated["python"] = _in_python(real, expressed, asked) if expressed != "bf16" else measured
    for name, found in stated.items():
        scale, zero_point = (np.array(found[key]).reshape(shape) for key in ("scales", "zero_points"))
        again = {"input": given, "profile": body["profile"]}
        if granularity == "sub_channel":
            # Each block as a row, of a type that rounds no scale: onnxruntime divides f16 in f32.
            wide = "f64" if expressed == "f64" else "f32"
            rows = base64.b64encode(real.astype(EXPRESSED[wide]).tobytes()).decode()
            again["input"] = {"type": f"tensor<8x4x{wide}>", "data": rows}
            by_row = {"axis": "0"}
            again["output_type"] = type_of(found["storage"], scale.ravel(), zero_point.ravel(), by_row, wide)
        else:
            again["output_type"] = type_of(found["storage"], scale, zero_point, texts, expressed)
        assert client.post("/v1/quantize", json=again).json()["output"]["data"] == output["data"], name


def _in_python(x: Array, expressed: str, asked: dict[str, Any]) -> dict[str, Any]:
    options: Any = {name: tuple(value) if isinstance(value, list) else value for name, value in asked.items()}
    found = requant.parameters(x, "i8", expressed=expressed, **options)
    return {"storage": found.storage, "scales": found.scales, "zero_points": found.zero_points}


SCALED: tuple[tuple[dict[str, str], tuple[int, ...]], ...] = (
    ({}, ()),
    ({}, (1,)),
    ({"axis": "0"}, (4,)),
    ({"axis": "1"}, (6,)),
    ({"block_sizes": "1,3"}, (4, 2)),
    ({"block_sizes": "4,4"}, (1, 2)),
)


def type_of(storage: str, scale: Array, zero_point: Array, options: dict[str, str], expressed: str = "f32") -> str:
    """The type text that scales and zero points stand for, written here once more. Of blocks, for 4 rows of 8."""
    pairs = [f"{float(s)!r}:{int(z)}" for s, z in zip(scale.ravel(), zero_point.ravel(), strict=True)]
    if not options:
        return f"!quant.uniform<{storage}:{expressed}, {pairs[0]}>"
    if "axis" in options:
        return f"!quant.uniform<{storage}:{expressed}:{options['axis']}, {{{', '.join(pairs)}}}>"
    columns = scale.shape[1]
    rows = [", ".join(pairs[at : at + columns]) for at in range(0, len(pairs), columns)]
    sizes = [int(size) for size in options["block_sizes"].split(",")]
    blocks = ", ".join(f"{axis}:{size}" for axis, size in enumerate(sizes) if size < (4, 8)[axis])
    return f"!quant.uniform<{storage}:{expressed}:{{{blocks}}}, {{{', '.join(f'{{{row}}}' for row in rows)}}}>"


@pytest.mark.parametrize(("options", "shape"), SCALED)
@pytest.mark.parametrize("storage", ["i8", "u4"])
def test_scales_beside_the_tensor_are_those_of_a_type(
    client: httpx.Client, storage: str, options: dict[str, str], shape: tuple[int, ...]
) -> None:
    rng = np.random.default_rng(len(shape))
    size = (4, 6) if "block_sizes" not in options else (4, 8) if options["block_sizes"] == "4,4" else (4, 6)
    x = rng.normal(size=size).astype(np.float32)
    scale = rng.uniform(0.01, 0.5, shape).astype(np.float32)
    zero_point = rng.integers(0, 16, shape).astype(np.uint8 if storage == "u4" else np.int8)
    texts = {name: (None, text) for name, text in {"profile": "onnx", **options}.items()}
    files: dict[str, Any] = {
        "scale": npy(scale),
        "zero_point": npy(zero_point),
        **texts,
        "storage_type": (None, storage),
    }
    expected = client.post(
        "/v1/npy/quantize",
        params={"output_type": type_of(storage, scale, zero_point, options), "profile": "onnx"},
        content=npy(x),
    )
    assert expected.status_code == 200, expected.text
    found = client.post("/v1/multipart/quantize", files={"x": npy(x), **files})
    assert found.status_code == 200, found.text
    assert (found.content, found.headers["requant-type"]) == (expected.content, expected.headers["requant-type"])
    codes = np.load(io.BytesIO(found.content))

    # The dequantized tensor, by the same arrays.
    found = client.post("/v1/multipart/dequantize", files={**files, "x": npy(codes)})
    assert found.status_code == 200, found.text
    input_type = expected.headers["requant-type"]
    back = client.post("/v1/npy/dequantize", params={"input_type": input_type, "profile": "onnx"}, content=npy(codes))
    assert found.content == back.content
    assert np.load(io.BytesIO(found.content)).dtype == np.float32


def test_what_a_query_cannot_hold_fits_in_a_form(client: httpx.Client) -> None:
    rng = np.random.default_rng(7)
    x, scale = rng.normal(size=(384, 5)).astype(np.float32), rng.uniform(0.01, 0.1, 384).astype(np.float32)
    text = type_of("i8", scale, np.zeros(384, np.int8), {"axis": "0"})
    refused = client.post("/v1/npy/quantize", params={"output_type": text}, content=npy(x))
    assert refused.status_code == 413
    assert "/v1/multipart/quantize" in refused.json()["detail"]
    in_type = client.post("/v1/multipart/quantize", files={"output_type": (None, text), "x": npy(x)})
    files: dict[str, Any] = {"x": npy(x), "scale": npy(scale), "axis": (None, "0"), "storage_type": (None, "i8")}
    in_arrays = client.post("/v1/multipart/quantize", files=files)
    assert in_type.status_code == in_arrays.status_code == 200
    assert in_type.content == in_arrays.content
    # And of scales that are found there are as many.
    query = {"output_type": "!quant.any<i8:f32>", "axis": "0"}
    refused = client.post("/v1/npy/quantize", params=query, content=npy(x))
    assert (refused.status_code, refused.json()["errors"][0]["pointer"]) == (413, "/output")
    with np.load(
        io.BytesIO(client.post("/v1/npy/quantize", params={**query, "output": "npz"}, content=npy(x)).content)
    ) as z:
        assert z["scale"].shape == z["zero_point"].shape == (384,)


def test_multipliers_beside_the_tensor(client: httpx.Client) -> None:
    x = np.arange(-12, 12, dtype=np.int32).reshape(4, 6) * 1000
    types = {"input_type": "!quant.uniform<i32:f32, 0.5>", "output_type": "!quant.uniform<i8:f32, 0.5>"}
    multiplier, shift = np.array([1 << 30] * 6, np.int64), np.arange(-9, -3, dtype=np.int32)
    pairs = ",".join(f"{m}:{s}" for m, s in zip(multiplier, shift, strict=True))
    expected = client.post("/v1/npy/requantize", params={**types, "multipliers": pairs, "axis": "1"}, content=npy(x))
    assert expected.status_code == 200, expected.text
    files: dict[str, Any] = {name: (None, text) for name, text in {**types, "axis": "1"}.items()}
    files |= {"x": npy(x), "multiplier": npy(multiplier), "shift": npy(shift)}
    found = client.post("/v1/multipart/requantize", files=files)
    assert found.status_code == 200, found.text
    assert found.content == expected.content


def test_functions_and_subcommands_derive_scales_as_json_does(
    client: httpx.Client, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    x = np.array([0.5, -1.0, 0.25, 3.0], np.float32)
    calibration = {"method": "min_max", "scheme": "litert", "narrow": True}
    body = {
        "input": {"type": "tensor<4xf32>", "values": x.tolist()},
        "output_type": "!quant.any<i8:f32>",
        "calibration": calibration,
        "error": True,
    }
    reply = client.post("/v1/explain/quantize", json=body).json()
    output, report = requant.explain_quantize(
        x, "!quant.any<i8:f32>", calibration=calibration, error=True, return_report=True
    )
    assert output.tolist() == reply["output"]["values"]
    assert report["output_type"] == reply["output"]["type"]
    assert report["parameters"] == reply["parameters"]
    assert report["error"] == reply["report"]["error"]
    np.save(tmp_path / "x.npy", x)
    flags = ["--output-type", "!quant.any<i8:f32>", "--calibration", json.dumps(calibration), "--error"]
    assert main(["quantize", str(tmp_path / "x.npy"), *flags]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed["values"] == reply["output"]["values"]
    assert printed["parameters"] == reply["parameters"]
    assert printed["error"] == reply["report"]["error"]


def test_functions_take_multipliers_as_json_does(client: httpx.Client) -> None:
    body = {
        "input": {"type": "tensor<2xi32>", "values": [100, -20]},
        "output_type": "i8",
        "scheme": "gemmlowp",
        "multipliers": [{"multiplier": 1 << 30, "shift": 3}],
    }
    reply = client.post("/v1/explain/requantize", json=body).json()
    q = np.array([100, -20], np.int32)
    output, report = requant.explain_requantize(
        q, "i8", multipliers=[1 << 30], shifts=[3], scheme="gemmlowp", return_report=True
    )
    assert output.tolist() == reply["output"]["values"]
    assert report["multipliers"] == reply["multipliers"]
    with pytest.raises(requant.RequantError, match="come together"):
        requant.explain_requantize(q, "i8", multipliers=[1 << 30], scheme="gemmlowp")
