"""The generated code is that of the .proto."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import ROOT

SOURCES = ROOT / "service"
PROTO = "requant_service/oip/grpc/inference.proto"


def test_generated_code_is_current(tmp_path: Path) -> None:
    protoc = pytest.importorskip("grpc_tools.protoc")
    assert protoc.main(["protoc", f"-I{SOURCES}", f"--python_out={tmp_path}", f"--pyi_out={tmp_path}", PROTO]) == 0
    for name in ("inference_pb2.py", "inference_pb2.pyi"):
        written = tmp_path / PROTO.replace("inference.proto", name)
        assert written.read_text() == (SOURCES / PROTO).with_name(name).read_text(), f"{name}: run `make proto`"


def test_descriptions_are_current(tmp_path: Path) -> None:
    protoc = pytest.importorskip("grpc_tools.protoc")
    written, folder = tmp_path / "set", "requant_service/oip/grpc"
    files = [f"{folder}/health.proto", f"{folder}/reflection.proto"]
    assert protoc.main(["protoc", f"-I{SOURCES}", f"--descriptor_set_out={written}", *files]) == 0
    assert written.read_bytes() == (SOURCES / folder / "grpc_services.binpb").read_bytes(), "run `make proto`"
