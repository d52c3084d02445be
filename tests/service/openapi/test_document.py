"""The OpenAPI document keeps the rules that make good clients."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from requant import VERSION
from requant.operators.registry import OPERATORS
from requant_service.app import create_app
from requant_service.http.openapi_operation import REQUEST_MODELS
from requant_service.json_api.schemas.operators import class_name, operation_id
from requant_service.middleware.request_lifecycle import PROBES
from requant_service.openapi import __main__ as openapi
from requant_service.operations.calibration.options import CALIBRATION_OPTIONS
from requant_service.runtime.settings import Settings

ROOT = Path(__file__).parents[3]
_SYSTEMS = {operator.system for operator in OPERATORS.values()}
OPERATION_IDS = {
    "explainQuantize", "explainDequantize", "explainRequantize", "vectors",
    "quantize", "dequantize", "requantize", "quantizeNpy", "dequantizeNpy", "requantizeNpy", "compare",
    "quantizeBlocks", "dequantizeBlocks", "deriveMultiplier", "parseType", "getHealth", "getInfo", "listProfiles",
    "getProfile", "getProblem", "listProblems", "deriveFromRange", "deriveBias",
    "fakeQuantize", "tosaRescale", "listSchemes",
    "getScheme", "deriveFromTensor", "translateType", "matmul", "conv2d", "add", "lower", "evaluate", "identify",
    "callVectors",
    "oipGetServer", "oipGetLive", "oipGetReady", "oipListModels", "oipIndexModels",
    "startCheckpointJob", "getCheckpointJob", "cancelCheckpointJob",
    "equivalence", "startEquivalenceJob", "getEquivalenceJob", "cancelEquivalenceJob",
    "oipListSharedMemory", "oipGetSharedMemory", "oipRegisterSharedMemory", "oipUnregisterSharedMemory",
    "oipUnregisterAllSharedMemory", "oipListCudaSharedMemory", "oipUnregisterAllCudaSharedMemory",
    "oipGetModel", "oipGetModelVersion", "oipGetModelReady", "oipGetModelVersionReady", "oipInfer", "oipInferVersion",
    "quantizeForm", "dequantizeForm", "requantizeForm",
    "listOperators", "getOperator", *map(operation_id, OPERATORS.values()),
}  # fmt: skip


@pytest.fixture(scope="module")
def document() -> dict[str, Any]:
    return create_app(Settings()).openapi()


def response(document: dict[str, Any], operation: dict[str, Any], status: str) -> dict[str, Any]:
    """A response as it is, or as the component that it refers to."""
    found: dict[str, Any] = operation["responses"][status]
    return document["components"]["responses"][found["$ref"].rpartition("/")[2]] if "$ref" in found else found


def operations(document: dict[str, Any]) -> list[dict[str, Any]]:
    return [operation for path in document["paths"].values() for operation in path.values()]


def schemas_within(node: Any) -> Iterator[dict[str, Any]]:
    if isinstance(node, dict):
        yield node
        for value in node.values():
            yield from schemas_within(value)
    elif isinstance(node, list):
        for value in node:
            yield from schemas_within(value)


def test_operations_have_stable_ids(document: dict[str, Any]) -> None:
    assert {operation["operationId"] for operation in operations(document)} == OPERATION_IDS


def test_no_schema_is_named_after_a_module(document: dict[str, Any]) -> None:
    """As pydantic names two models that have the same name."""
    assert [name for name in document["components"]["schemas"] if "__" in name] == []


def test_every_reference_leads_somewhere(document: dict[str, Any]) -> None:
    for node in schemas_within(document):
        if "$ref" in node:
            root, components, kind, name = node["$ref"].split("/")
            assert (root, components) == ("#", "components")
            assert name in document["components"][kind]


def test_one_media_type_per_request_and_reply(document: dict[str, Any]) -> None:
    for operation in operations(document):
        done = next(each for each in ("200", "202") if each in operation["responses"])
        media_types = sorted(operation["responses"][done]["content"])
        # Vectors are a file where the body asks for one. Generated clients take the first.
        files = ["application/octet-stream", "text/plain", "text/x-c"] if operation["operationId"] == "vectors" else []
        assert media_types[1:] == files
        if "requestBody" in operation:
            assert len(operation["requestBody"]["content"]) == 1


def test_problems_are_documented(document: dict[str, Any]) -> None:
    for operation in operations(document):
        if "requestBody" in operation:
            beside = {"404"} if operation["operationId"].startswith("oipInfer") else set()
            beside |= {"202", "409"} if operation["operationId"] == "startCheckpointJob" else set()
            done = "202" if operation["operationId"] == "startEquivalenceJob" else "200"
            assert set(operation["responses"]) == {
                *(done, "400", "401", "403", "413", "415", "421", "422", "503", "504"),
                *beside,
            }
            assert "Retry-After" in response(document, operation, "503")["headers"]
        for status in operation["responses"]:
            if status[0] != "2" and operation["operationId"] != "getHealth":
                assert operation["responses"][status].keys() == {"$ref"}
                assert set(response(document, operation, status)["content"]) == {"application/problem+json"}


def test_tokens_are_documented_where_they_may_be_asked_for(document: dict[str, Any]) -> None:
    assert document["security"] == [{}, {"bearer": []}]
    scheme = document["components"]["securitySchemes"]["bearer"]
    assert (scheme["type"], scheme["scheme"]) == ("http", "bearer")
    for operation in operations(document):
        is_probe = operation["operationId"] in ("getHealth", "oipGetLive", "oipGetReady")
        assert operation.get("security") == ([] if is_probe else None)
        assert ("401" in operation["responses"]) is not is_probe
        if not is_probe:
            assert "WWW-Authenticate" in response(document, operation, "401")["headers"]


def test_what_pages_of_other_sites_get_is_documented(document: dict[str, Any]) -> None:
    for path, item in document["paths"].items():
        for method, operation in item.items():
            assert ("403" in operation["responses"]) is (method != "get")
            assert ("421" in operation["responses"]) is (path not in PROBES)


def test_binary_bodies_are_binary_text(document: dict[str, Any]) -> None:
    for operation in operations(document):
        if operation["tags"] == ["npy"]:
            for body in (operation["requestBody"], operation["responses"]["200"]):
                schema = body["content"]["application/octet-stream"]["schema"]
                assert (schema["type"], schema["format"]) == ("string", "binary")
            assert {"Requant-Type", "Requant-Profile", "Requant-Saturated"} < set(
                operation["responses"]["200"]["headers"]
            )


def test_required_query_parameters_are_marked(document: dict[str, Any]) -> None:
    required = {"quantize": {"output_type"}, "dequantize": {"input_type"}, "requantize": {"output_type"}}
    for name, expected in required.items():
        parameters = document["paths"][f"/v1/npy/{name}"]["post"]["parameters"]
        names = {"input_type", "output_type", "profile", "packing", "tensor"}
        calibrating = {option.name for option in CALIBRATION_OPTIONS} | {"output"}
        names |= {"rounding", "nan", "seed", "random_bits", "saturate"} | calibrating if name == "quantize" else set()
        names |= {"scheme", "multipliers", "axis"} if name == "requantize" else set()
        assert {parameter["name"] for parameter in parameters} == names
        assert {parameter["name"] for parameter in parameters if parameter["required"]} == expected


def test_operations_are_grouped_and_have_titles(document: dict[str, Any]) -> None:
    """Every tag is described and in one group; titles are unique in a group, and those of operators their names."""
    tags = [tag["name"] for tag in document["tags"]]
    assert tags == [name for group in document["x-tagGroups"] for name in group["tags"]]
    titles = [(operation["tags"][0], operation["summary"]) for operation in operations(document)]
    assert {tag for tag, _ in titles} == set(tags)
    assert len(titles) == len(set(titles))
    assert {title for tag, title in titles if tag in _SYSTEMS} == {
        *OPERATORS,
        "tosa.RESCALE with parameters as numbers",
    }


def test_schemas_have_no_titles_made_of_identifiers(document: dict[str, Any]) -> None:
    for node in schemas_within([document["components"]["schemas"], document["paths"]]):
        if "title" in node and isinstance(node["title"], str) and "$schema" not in node:
            assert " " in node["title"] or "type" not in node


def test_no_unions_no_nulls_and_named_enums(document: dict[str, Any]) -> None:
    components = document["components"]["schemas"]
    for node in schemas_within(components):
        assert not {"anyOf", "oneOf", "allOf", "prefixItems", "const"} & node.keys()
        assert node.get("type") != "null"
    for name, component in components.items():
        for node in schemas_within(component.get("properties", {})):
            assert not isinstance(node.get("enum"), list), name


def test_requests_are_closed_and_replies_are_open(document: dict[str, Any]) -> None:
    closed = {"QuantizeRequest", "DequantizeRequest", "RequantizeRequest", "MultiplierRequest", "ParseTypeRequest"}
    closed |= {"Tensor", "MultiplierPair", "CompareRequest", "QuantizeBlocksRequest", "DequantizeBlocksRequest"}
    closed |= {"RangeRequest", "BiasRequest", "FakeQuantizeRequest", "RescaleRequest", "ScaleTriple"}
    closed |= {"MatmulRequest", "Conv2dRequest", "AddRequest", "QuantizeCalibration"}
    closed |= {"InferenceRequest", "InferenceInput", "InferenceRequestedOutput", "TensorParametersRequest"}
    closed |= {"SharedMemoryRegistration", "CheckpointRequest", "VectorsRequest"}
    closed |= {"LowerRequest", "EvaluateRequest", "TranslateRequest", "IdentifyRequest", "ObservedCall"}
    closed |= {"CallVectorsRequest", "OperationCall"}
    closed |= {"EquivalenceRequest", "EquivalenceRule", "SchemeOfModules"}
    closed |= {f"{system}Parameters" for system in ("Onnx", "Onednn", "Litert", "Torch", "Tosa")}
    closed |= {
        f"{class_name(each)}{part}" for each in OPERATORS.values() for part in ("Request", "Inputs", "Attributes")
    }
    for name, component in document["components"]["schemas"].items():
        if component["type"] == "object":
            assert component["additionalProperties"] is (name not in closed), name


def test_no_member_of_a_request_has_a_default(document: dict[str, Any]) -> None:
    """openapi-typescript makes such members required. Those with one say so in words."""
    bodies = [
        content["schema"]
        for item in document["paths"].values()
        for operation in item.values()
        for content in operation.get("requestBody", {}).get("content", {}).values()
    ]
    assert len(bodies) > len(OPERATORS)
    for schema in [*bodies, *document["components"]["schemas"].values()]:
        for name, field in schema.get("properties", {}).items():
            assert "default" not in field, (name, field)
    components = document["components"]["schemas"]
    for model in REQUEST_MODELS:
        for name, described in model.model_fields.items():
            if described.default and not described.is_required():
                field = components[model.__name__]["properties"][described.alias or name]
                assert "Default: " in field["description"], (model.__name__, name)


def test_the_default_profile_is_stated(document: dict[str, Any]) -> None:
    components = document["components"]["schemas"]
    for name, profile in {"Quantize": "stablehlo", "Dequantize": "stablehlo", "Requantize": "litert"}.items():
        assert components[f"{name}Request"]["properties"]["profile"]["description"] == f"Default: {profile}."
        parameters = document["paths"][f"/v1/npy/{name.lower()}"]["post"]["parameters"]
        stated = next(parameter for parameter in parameters if parameter["name"] == "profile")
        assert stated["schema"]["default"] == profile
        assert profile in components["ProfileName"]["enum"]


@pytest.mark.exhaustive
def test_the_document_is_written_sorted_and_checked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    committed = tmp_path / "openapi" / "openapi.json"
    monkeypatch.setattr(openapi, "COMMITTED", committed)
    monkeypatch.setattr("sys.argv", ["openapi", "--check"])
    with pytest.raises(SystemExit):
        openapi.main()
    monkeypatch.setattr("sys.argv", ["openapi"])
    openapi.main()
    text = committed.read_text()
    assert json.dumps(json.loads(text), indent=2, sort_keys=True, ensure_ascii=False) + "\n" == text
    monkeypatch.setattr("sys.argv", ["openapi", "--check"])
    openapi.main()


def test_the_version_is_the_projects() -> None:
    assert tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"] == VERSION
