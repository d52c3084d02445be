"""Settings: the environment, the command line, and how many CPUs there are."""

from __future__ import annotations

import gc
from pathlib import Path

import pytest
from pydantic import ValidationError
from pydantic_settings import CliApp

from service.__main__ import main
from service.settings import Settings, available_cpus


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


@pytest.mark.parametrize(
    ("text", "expected"), [("50000 100000", 1), ("100000 100000", 1), ("garbage", None), ("max 100000", None)]
)
def test_the_cgroup_quota_counts(tmp_path: Path, text: str, expected: int | None) -> None:
    quota = tmp_path / "cpu.max"
    quota.write_text(text)
    assert available_cpus(quota) == (expected or available_cpus(tmp_path / "absent"))


def test_a_wrong_setting_ends_the_start_with_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["service", "--port", "x"])
    with pytest.raises(SystemExit) as caught:
        main()
    gc.enable()  # which it would do when the service is ready
    assert str(caught.value.code).startswith("port: ")
    assert "\n" not in str(caught.value.code)
