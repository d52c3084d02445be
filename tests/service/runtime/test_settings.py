"""Settings: the environment, the command line, and what of them is refused."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from pydantic import ValidationError
from pydantic_settings import CliApp

from requant_service.runtime.cgroup import available_memory
from requant_service.runtime.settings import Settings, read_settings
from tests.conftest import ROOT
from tests.support.cases import sample


def test_defaults_are_those_of_the_design() -> None:
    settings = Settings()
    assert (settings.host, settings.port) == ("127.0.0.1", 8080)
    assert settings.max_binary_bytes == 64 * 1024 * 1024
    assert settings.max_json_bytes == 8 * 1024 * 1024
    assert settings.max_values == 4096
    assert settings.max_query_type_bytes == 4096
    assert settings.max_type_bytes == 1024 * 1024
    assert settings.max_rank == 32
    assert settings.threads >= 1


def test_the_environment_and_the_command_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REQUANT_PORT", "1234")
    monkeypatch.setenv("REQUANT_MAX_VALUES", "7")
    assert Settings().port == 1234
    settings = CliApp.run(Settings, cli_args=["--port", "4321", "--max-json-bytes", "1000"])
    assert (settings.port, settings.max_values, settings.max_json_bytes) == (4321, 7, 1000)


@pytest.mark.parametrize("name", ["PORT", "THREADS", "MAX_RANK", "MAX_BINARY_BYTES"])
def test_values_out_of_range_are_refused(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(f"REQUANT_{name}", "-1")
    with pytest.raises(ValidationError):
        Settings()


def wrong(arguments: list[str], monkeypatch: pytest.MonkeyPatch, **variables: str) -> str:
    """What is said of settings that are refused."""
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(ValueError, match=r": ") as caught:
        read_settings(arguments, os.environ)
    return str(caught.value)


NUMBERS = [name for name, field in Settings.model_fields.items() if field.annotation in (int, float)]


def test_there_are_settings_that_are_numbers() -> None:
    assert {"threads", "memory_bytes", "waiting_seconds", "max_rank", "shutdown_seconds"} <= set(NUMBERS)


_NO_NUMBERS = ["inf", "-inf", "Infinity", "nan", "1e400", "-1", "-0.5", "1e30", "9" * 30, "", " ", "x"]


@pytest.mark.parametrize(("name", "text"), sample([(name, text) for name in NUMBERS for text in _NO_NUMBERS], 25))
def test_numbers_that_cannot_be_meant_are_refused(name: str, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    variable, flag = f"REQUANT_{name.upper()}", f"--{name.replace('_', '-')}"
    assert wrong([f"{flag}={text}"], monkeypatch).startswith(f"{flag}: ")
    assert wrong([], monkeypatch, **{variable: text}).startswith(f"{variable}: ")


@pytest.mark.parametrize("name", NUMBERS)
def test_every_default_is_within_its_bounds(name: str) -> None:
    value = getattr(Settings(), name)
    assert getattr(read_settings([f"--{name.replace('_', '-')}={value}"], {}), name) == value


@pytest.mark.parametrize(
    ("name", "nearest"),
    [
        ("REQUANT_TOKEN_FILE", "REQUANT_TOKENS_FILE"),
        ("REQUANT_TOKENSFILE", "REQUANT_TOKENS_FILE"),
        ("requant_token_file", "REQUANT_TOKENS_FILE"),
        ("REQUANT_CORS_ORIGIN", "REQUANT_CORS_ORIGINS"),
        ("REQUANT_MAX_BINARY_BYTE", "REQUANT_MAX_BINARY_BYTES"),
        ("REQUANT_", "REQUANT_UDS"),
        ("REQUANT_HTTP_PORT", "REQUANT_PORT"),
        ("REQUANT_BAKED_KERNEL", "REQUANT_BAKED_KERNELS"),
    ],
)
def test_a_misspelt_variable_is_refused_with_the_nearest(
    name: str, nearest: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = wrong([], monkeypatch, **{name: "x"})
    assert said.startswith(f"{name}: unknown variable")
    assert f" {nearest}? " in said


def test_a_misspelt_flag_is_refused_with_the_nearest(monkeypatch: pytest.MonkeyPatch) -> None:
    for arguments in (["--token-file", "x"], ["--token-file=x"], ["--tokens_file", "x"]):
        assert " --tokens-file? " in wrong(arguments, monkeypatch)


def test_the_variables_of_the_project_and_of_others_are_known(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("REQUANT_BAKED_KERNELS", "REQUANT_EXHAUSTIVE", "REQUANTIZE", "MY_REQUANT_TOKEN"):
        monkeypatch.setenv(name, "1")
    assert read_settings([], os.environ) == Settings()


def test_the_addresses_of_kubernetes_services_are_no_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    links = {"SERVICE_HOST": "10.0.0.1", "SERVICE_PORT": "80", "SERVICE_PORT_HTTP": "80"}
    links |= {"PORT_80_TCP": "tcp://10.0.0.1:80", "PORT_80_TCP_PROTO": "tcp", "PORT_80_TCP_ADDR": "10.0.0.1"}
    for service in ("REQUANT", "REQUANT_PREDICTOR"):
        for name, value in links.items():
            monkeypatch.setenv(f"{service}_{name}", value)
    monkeypatch.setenv("REQUANT_PREDICTOR_PORT", "tcp://10.0.0.1:80")
    assert read_settings([], os.environ) == Settings()
    # This one is a setting too.
    assert "enableServiceLinks" in wrong([], monkeypatch, REQUANT_PORT="tcp://10.0.0.1:80")


@pytest.mark.parametrize("origin", ["example.com", "https://example.com/", "https://example.com/a", "https://", "//a"])
def test_what_is_no_origin_is_refused(origin: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "an origin is" in wrong([], monkeypatch, REQUANT_CORS_ORIGINS=f"https://a.example,{origin}")


def test_origins() -> None:
    given = "https://a.example, http://localhost:3000,null,*"
    assert read_settings(["--cors-origins", given], {}).cors_origins == [each.strip() for each in given.split(",")]


EMPTY = ["HOST", "TOKENS_FILE", "UDS", "TLS_CERTIFICATE", "TLS_KEY", "METRICS_PORT"]


@pytest.mark.parametrize(("variable", "value"), [(variable, "") for variable in EMPTY])
def test_a_variable_that_is_set_to_nothing_is_refused(
    variable: str, value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert wrong([], monkeypatch, **{f"REQUANT_{variable}": value}).startswith(f"REQUANT_{variable}: ")


@pytest.mark.parametrize(
    ("arguments", "variables", "says"),
    [
        (["--tls-certificate", "a"], {}, "--tls-certificate: TLS needs tls_key too"),
        ([], {"REQUANT_TLS_KEY": "a"}, "REQUANT_TLS_KEY: TLS needs tls_certificate too"),
        (["--tls-key=a", "--uds=b"], {"REQUANT_TLS_CERTIFICATE": "c"}, "--uds: TLS is not supported on a Unix socket"),
        (["--port=9090"], {"REQUANT_METRICS_PORT": "9090"}, "REQUANT_METRICS_PORT: 9090 is the main port"),
        (["--metrics-port=9090", "--grpc-port=9090"], {}, "--grpc-port: 9090 is metrics_port"),
    ],
)
def test_settings_that_contradict_each_other(
    arguments: list[str], variables: dict[str, str], says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert wrong(arguments, monkeypatch, **variables).startswith(says)


def test_a_unix_socket_leaves_the_port_to_metrics() -> None:
    assert read_settings(["--uds=a", "--metrics-port=8080"], {}).metrics_port == 8080


def test_a_budget_of_more_memory_than_there_is_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    there_is = available_memory()
    assert read_settings([f"--memory-bytes={there_is}"], {}).memory_bytes == there_is
    assert f"{there_is} bytes" in wrong([f"--memory-bytes={there_is + 1}"], monkeypatch)


@pytest.mark.exhaustive
def test_wrong_settings_end_the_start_with_one_line_each() -> None:
    """In a process of its own: while kernels are still being loaded, the start ends its process by force."""
    for arguments, named in (
        (["--port", "x", "--threads", "0"], ["--port", "--threads"]),
        (["--tls-certificate", "/dev/null", "--tls-key", "/dev/null"], ["--tls-certificate"]),
    ):
        command = [sys.executable, "-m", "requant", "serve", *arguments]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
        assert done.returncode == 2
        assert [line.partition(": ")[0] for line in done.stderr.splitlines()] == named
