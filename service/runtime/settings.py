"""Every setting of the service: environment variables with the prefix `REQUANT_`, or flags of `python -m service`."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator
from pydantic_core import PydanticCustomError
from pydantic_settings import BaseSettings, CliApp, NoDecode, SettingsConfigDict

from service.runtime.cgroup import Cgroups

# The models of `schemas` stop reading a list here, whatever a setting allows below it.
MOST_ENTRIES = 65_536

# The bounds of settings are far from any that could be meant: they are for misprints, infinity, and the wrong unit.
_MOST_BYTES = 1 << 50
_MOST_SECONDS = 86_400

_PREFIX = "REQUANT_"
# Read by others than `Settings`: the entry point, and the tests.
_OTHER_VARIABLES = ("REQUANT_BAKED_KERNELS", "REQUANT_EXHAUSTIVE")
# Kubernetes names a Service's address in variables of every pod, unless the pod says enableServiceLinks: false.
_SERVICE_LINK = "_SERVICE_HOST"
_LINKED = "Kubernetes sets it for a Service of that name unless the pod has enableServiceLinks: false"
_ORIGIN = re.compile(r"\*|null|[a-z][a-z0-9+.-]*://[^/?#\s]+")


def available_cpus(cgroups: Cgroups | None = None) -> int:
    """Return how many CPUs this process may use: the smaller of its affinity and its cgroup quota, at least 1.

    `os.cpu_count()` is the machine's number, which in a container is often far more than the quota.
    """
    cpus = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    quota = (cgroups or Cgroups()).cpus()
    return max(1, cpus if quota is None else min(cpus, math.ceil(quota)))


def available_memory(cgroups: Cgroups | None = None) -> int:
    """Return how many bytes of memory this process may use: the machine's, or its cgroup's limit if that is less."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    limit = (cgroups or Cgroups()).memory()
    return memory if limit is None else min(memory, limit)


def _size(default: int, description: str) -> Any:
    """A limit on bytes or entries. JSON readers of other languages need to be told that it may pass 2^31."""
    return Field(default=default, ge=64, le=_MOST_BYTES, description=description, json_schema_extra={"format": "int64"})


def _count(default: int, most: int, description: str) -> Any:
    """A limit that stays small."""
    return Field(default=default, ge=1, le=most, description=description, json_schema_extra={"format": "int32"})


def _bytes(default: int, description: str) -> Any:
    """An amount of memory."""
    return Field(default=default, ge=0, le=_MOST_BYTES, description=description)


def _seconds(default: float, description: str) -> Any:
    """A time, perhaps none."""
    return Field(default=default, ge=0, le=_MOST_SECONDS, allow_inf_nan=False, description=description)


def _timeout(default: float, description: str) -> Any:
    """A time that has to be some."""
    return Field(default=default, gt=0, le=_MOST_SECONDS, allow_inf_nan=False, description=description)


def _as_reply(schema: dict[str, Any]) -> None:
    """Describe the limits as what a reply shows: all of them, whatever their defaults, and perhaps more one day."""
    schema["required"] = list(schema["properties"])
    for field in schema["properties"].values():
        del field["default"]
    schema["additionalProperties"] = True


class Limits(BaseModel):
    """The limits that a client can run into, as `/v1/info` shows them."""

    model_config = ConfigDict(frozen=True, json_schema_extra=_as_reply)

    max_binary_bytes: int = _size(64 << 20, "Largest body of a binary request, in bytes.")
    max_json_bytes: int = _size(8 << 20, "Largest body of a JSON request, in bytes.")
    max_json_tokens: int = _size(
        660_000,
        "Most quotes, commas and opening brackets in a JSON request, brackets counted twice, those inside of short "
        "strings too; and most backslashes. A list of 65536 multipliers has 525000.",
    )
    max_values: int = _count(4096, MOST_ENTRIES, "Most elements of a tensor given as `values`.")
    max_type_bytes: int = _size(1 << 20, "Longest type text in a JSON body, in bytes.")
    max_query_type_bytes: int = _size(4096, "Longest type text in a query, in bytes.")
    max_factors: int = _size(4096, "Most factors in one request for multipliers.")
    max_products: int = _size(
        1 << 33,
        "Most multiplications in one request for a product. Those of narrow shapes are slower and count more; padding "
        "is not multiplied and does not count.",
    )
    max_sums: int = _size(1 << 24, "Most elements of the output of an integer operation.")
    max_traced: int = _count(MOST_ENTRIES, MOST_ENTRIES, "Most elements of an output whose stages are traced.")
    max_head_bytes: int = _size(32 << 10, "Longest path, query and header fields of a request, in bytes in all.")
    max_header_fields: int = _count(100, 10_000, "Most header fields of a request.")
    max_rank: int = _count(32, 64, "Highest rank of a tensor.")
    max_module_bytes: int = _size(128 << 10, "Longest text of a module, in bytes.")
    max_module_operations: int = _size(2500, "Most operations of a module.")
    max_module_constants: int = _size(1 << 20, "Most elements of a module's constants, in all.")
    max_passes: int = _count(16, 256, "Most passes in one request.")
    max_evaluation_bytes: int = _size(64 << 20, "Most memory for the values of an evaluated module, in bytes.")
    max_evaluation_products: int = _size(
        1 << 28, "Most multiplications and additions in the products and sums of an evaluated module."
    )
    max_compute_seconds: int = _count(
        10, 3600, "Most seconds of CPU for the work on one request. Waiting and transfer are not counted."
    )


class Settings(Limits, BaseSettings):
    """Where to listen, how much to use, and the limits. `REQUANT_PORT=8080` and `--port 8080` say the same."""

    model_config = SettingsConfigDict(
        frozen=True,
        env_prefix=_PREFIX,
        extra="forbid",
        cli_prog_name="python -m service",
        cli_kebab_case=True,
    )

    host: str = Field(default="127.0.0.1", min_length=1, description="Address to listen on.")
    port: int = Field(default=8080, ge=1, le=65535, description="Port to listen on.")
    threads: int = Field(
        default_factory=available_cpus, ge=1, le=1024, description="Threads that compute. Default: the CPUs available."
    )
    inline_bytes: int = _bytes(64 << 10, "Tensors up to this many bytes are computed without a change of thread.")
    memory_bytes: int = Field(
        default_factory=lambda: available_memory() // 2,
        ge=1 << 20,
        description="Memory that all requests together may hold, in bytes. Default: half of what there is.",
    )
    max_queued: int = Field(
        default=256,
        ge=1,
        le=1 << 20,
        description="Most requests that wait for a thread of one kind; further ones get 503.",
    )
    max_waiting: int = Field(
        default=64, ge=0, le=1 << 20, description="Most requests that wait for memory of it to come free."
    )
    waiting_seconds: float = _seconds(0.25, "How long one waits before it is refused with 503.")
    head_seconds: float = _timeout(10.0, "How long a request's head may take, from its connection or its first byte.")
    body_seconds: float = _timeout(30.0, "How long a request's body may take, and one second more for each MiB of it.")
    plan_cache_bytes: int = _bytes(16 << 20, "Memory for plans that may be asked for again, in bytes.")
    keep_alive_seconds: int = Field(
        default=75,
        ge=1,
        le=_MOST_SECONDS,
        description="How long an idle connection stays open. Longer than a proxy's in front.",
    )
    drain_seconds: float = _seconds(
        5.0, "How long requests are still taken after SIGTERM, not ready any more, until no balancer sends any."
    )
    shutdown_seconds: int = Field(
        default=25, ge=0, le=_MOST_SECONDS, description="How long requests may take to end after that."
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        default="info", description="Least severe level that is logged."
    )
    log_format: Literal["text", "json"] = Field(default="text", description="How a line of the log is written.")
    access_log: bool = Field(default=False, description="Whether each request is logged, but for those of probes.")
    tokens_file: Path | None = Field(
        default=None,
        description="A file of bearer tokens, one to a line. With it, every request but a probe's has one. It is read "
        "again on SIGHUP.",
    )
    cors_origins: Annotated[list[str], NoDecode] = Field(
        default=[], description="The origins whose pages may call the service, with commas between; * for all."
    )
    telemetry: bool = Field(
        default=False, description="Whether each request has a span of OpenTelemetry. Needs the extra `telemetry`."
    )
    metrics: bool = Field(default=True, description="Whether there is /metrics.")
    docs: bool = Field(default=True, description="Whether there are /docs and /openapi.json.")

    @field_validator("cors_origins", mode="before")
    @classmethod
    def _origins(cls, given: Any) -> Any:
        """Read a list with commas between."""
        if isinstance(given, str):
            return [origin.strip() for origin in given.split(",") if origin.strip()]
        return given

    @field_validator("cors_origins")
    @classmethod
    def _are_origins(cls, given: list[str]) -> list[str]:
        """Refuse what no browser sends as an origin, such as a host alone or a URL with a path."""
        for origin in given:
            if not _ORIGIN.fullmatch(origin.lower()):
                raise PydanticCustomError(
                    "origin", "an origin is * or of the form https://host or https://host:port, without a path"
                )
        return given

    @field_validator("memory_bytes")
    @classmethod
    def _is_there(cls, given: int) -> int:
        """Refuse a budget that the process could not use without being killed for it."""
        if given > (there_is := available_memory()):
            raise PydanticCustomError("memory", "there are {there_is} bytes of memory", {"there_is": there_is})
        return given

    @field_validator("tokens_file")
    @classmethod
    def _is_named(cls, given: Path | None) -> Path | None:
        """Refuse an empty path: a variable that is set to nothing must not leave the service open."""
        if given == Path():
            raise PydanticCustomError("path", "a path is needed")
        return given


def read_settings(arguments: Sequence[str], environment: Mapping[str, str]) -> Settings:
    """Return the settings that flags and `os.environ` give. Raise ValueError that names each wrong one, one to a line.

    A misspelt setting is refused, since its default may be a service without authentication. The rest of the
    environment is anybody's, but what begins with `REQUANT_` is meant for this service.
    """
    faults = [*_misspelt_variables(environment), *_misspelt_flags(arguments)]
    if faults:
        raise ValueError("\n".join(faults))
    try:
        return CliApp.run(Settings, cli_args=list(arguments))
    except ValidationError as error:
        faults = [_fault(item, arguments, environment) for item in error.errors(include_url=False)]
        raise ValueError("\n".join(faults)) from None


def _variable(name: str) -> str:
    return _PREFIX + name.upper()


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _misspelt_variables(environment: Mapping[str, str]) -> Iterator[str]:
    known = [*map(_variable, Settings.model_fields), *_OTHER_VARIABLES]
    links = [name.removesuffix(_SERVICE_LINK) for name in environment if name.endswith(_SERVICE_LINK)]
    linked = tuple(f"{name}_{what}" for name in links for what in ("SERVICE_", "PORT"))
    for name in sorted(environment):
        # As pydantic-settings does, in any case.
        if name.upper().startswith(_PREFIX) and name.upper() not in known and not name.startswith(linked):
            yield f"{name}: {_not_known('variable', name.upper(), known)}"


def _misspelt_flags(arguments: Sequence[str]) -> Iterator[str]:
    known = [*map(_flag, Settings.model_fields), "--help"]
    for argument in arguments:
        name = argument.partition("=")[0]
        if name.startswith("--") and name not in known:
            yield f"{name}: {_not_known('flag', name, known)}"


def _not_known(kind: str, name: str, known: Sequence[str]) -> str:
    nearest = get_close_matches(name, known, 1, 0.0)[0]
    return f"there is no such {kind}; the nearest is {nearest}. `python -m service --help` lists all"


def _fault(item: Any, arguments: Sequence[str], environment: Mapping[str, str]) -> str:
    """Say what is wrong with a setting, under the name by which it was given."""
    name = str(item["loc"][0])
    flag, variable = _flag(name), _variable(name)
    if any(argument.partition("=")[0] == flag for argument in arguments):
        return f"{flag}: {item['msg']}"
    linked = environment.get(variable, "").startswith(("tcp://", "udp://"))
    return f"{variable}: {item['msg']}" + (f"; {_LINKED}" if linked else "")
