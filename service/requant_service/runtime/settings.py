"""Every setting of the service: environment variables with the prefix `REQUANT_`, or flags of `requant serve`."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, field_validator
from pydantic_core import PydanticCustomError
from pydantic_settings import BaseSettings, CliApp, NoDecode, SettingsConfigDict

from requant_service.runtime.cgroup import available_cpus, available_memory

# The models of `schemas` stop reading a list here, whatever a setting allows below it.
MAX_ENTRIES = 65_536

MIN_BYTES_PER_SECOND = 1 << 20
"""The rate at which a body has to arrive and a response has to leave, beside the seconds that each may take."""

# Far beyond any sensible value: these bounds catch typing errors, infinity, and the wrong unit.
_MAX_BYTES = 1 << 50
_MAX_SECONDS = 86_400

_PREFIX = "REQUANT_"
# Read by others than `Settings`: the entry point, and the tests.
_OTHER_VARIABLES = ("REQUANT_BAKED_KERNELS", "REQUANT_EXHAUSTIVE")
# Kubernetes names a Service's address in variables of every pod, unless the pod says enableServiceLinks: false.
_SERVICE_LINK = "_SERVICE_HOST"
_LINKED = "Kubernetes sets it for a Service of that name unless the pod has enableServiceLinks: false"
_HOST = re.compile(r"\*|[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\]")
_ORIGIN = re.compile(r"\*|null|[a-z][a-z0-9+.-]*://[^/?#\s]+")


def _size(default: int, description: str) -> Any:
    """A limit on bytes or entries. The schema states its format, since it may exceed 2^31."""
    return Field(default=default, ge=64, le=_MAX_BYTES, description=description, json_schema_extra={"format": "int64"})


def _count(default: int, highest: int, description: str) -> Any:
    """A limit that stays small."""
    return Field(default=default, ge=1, le=highest, description=description, json_schema_extra={"format": "int32"})


def _bytes(default: int, description: str) -> Any:
    """An amount of memory."""
    return Field(default=default, ge=0, le=_MAX_BYTES, description=description)


def _seconds(default: float, description: str) -> Any:
    """A time, possibly zero."""
    return Field(default=default, ge=0, le=_MAX_SECONDS, allow_inf_nan=False, description=description)


def _timeout(default: float, description: str) -> Any:
    """A time greater than zero."""
    return Field(default=default, gt=0, le=_MAX_SECONDS, allow_inf_nan=False, description=description)


# What a further worker takes in the end, with what it caches, and how much of the memory all of them may take.
_WORKER_BYTES = 64 << 20
_WORKERS_SHARE = 4


def _worker_count(value: Any) -> Any:
    """Return the number of workers that `auto` means here."""
    if value != "auto":
        return value
    return max(1, min(available_cpus(), available_memory() // _WORKERS_SHARE // _WORKER_BYTES))


def _as_reply(schema: dict[str, Any]) -> None:
    """Describe the limits as what a reply shows: all of them, whatever their defaults, and perhaps more one day."""
    schema["required"] = list(schema["properties"])
    for field in schema["properties"].values():
        del field["default"]
    schema["additionalProperties"] = True


class SettingError(ValueError):
    """What a setting names cannot be used. `setting`: its name as a field of `Settings`."""

    def __init__(self, setting: str, reason: object) -> None:
        super().__init__(str(reason))
        self.setting = setting


class Limits(BaseModel):
    """Limits on requests, as shown by `/v1/info`."""

    model_config = ConfigDict(frozen=True, json_schema_extra=_as_reply)

    max_binary_bytes: int = _size(64 << 20, "Maximum body size of a binary request, in bytes.")
    max_json_bytes: int = _size(8 << 20, "Maximum body size of a JSON request, in bytes.")
    max_json_tokens: int = _size(
        660_000,
        "Maximum number of quotes, commas and opening brackets in a JSON request, and of backslashes. Brackets "
        "count twice; characters inside short strings count too. A list of 65536 multipliers has 525000.",
    )
    max_values: int = _count(4096, MAX_ENTRIES, "Maximum number of elements of a tensor sent or returned as `values`.")
    max_type_bytes: int = _size(1 << 20, "Maximum length of a type text in a JSON body, in bytes.")
    max_query_type_bytes: int = _size(4096, "Maximum length of a type text in a query, in bytes.")
    max_factors: int = _size(4096, "Maximum number of factors in a multiplier request.")
    max_products: int = _size(
        1 << 33,
        "Maximum cost of a matmul or convolution, in multiplications. Narrow shapes are slower per multiplication "
        "and cost more; padding costs nothing.",
    )
    max_sums: int = _size(1 << 24, "Maximum number of output elements of an integer operation.")
    max_traced: int = _count(MAX_ENTRIES, MAX_ENTRIES, "Maximum number of output elements of a traced operation.")
    max_head_bytes: int = _size(32 << 10, "Maximum total size of request line and header fields, in bytes.")
    max_header_fields: int = _count(100, 10_000, "Maximum number of header fields of a request.")
    max_rank: int = _count(32, 64, "Maximum rank of a tensor.")
    max_shared_memory_regions: int = _count(64, 512, "Maximum number of registered shared memory regions.")
    max_module_bytes: int = _size(128 << 10, "Maximum length of a module, in bytes.")
    max_module_operations: int = _size(2500, "Maximum number of operations of a module.")
    max_module_constants: int = _size(1 << 20, "Maximum total number of elements of a module's constants.")
    max_passes: int = _count(16, 256, "Maximum number of passes in a request.")
    max_evaluation_bytes: int = _size(64 << 20, "Maximum memory for the values of an evaluated module, in bytes.")
    max_evaluation_products: int = _size(
        1 << 28, "Maximum number of multiplications and additions in an evaluated module."
    )
    max_compute_seconds: int = _count(
        10, 3600, "Maximum CPU time for one request, in seconds. Waiting and transfer do not count."
    )


class Settings(Limits, BaseSettings):
    """Addresses, resources and limits. `REQUANT_PORT=8080` and `--port 8080` are equivalent."""

    model_config = SettingsConfigDict(
        frozen=True,
        env_prefix=_PREFIX,
        extra="forbid",
        cli_kebab_case=True,
    )

    host: str = Field(default="127.0.0.1", min_length=1, description="Address to listen on.")
    port: int = Field(default=8080, ge=1, le=65535, description="Port to listen on.")
    uds: Path | None = Field(
        default=None,
        description="Unix socket to listen on in place of the port. Its mode is 660. A stale socket is replaced; any "
        "other file is an error.",
    )
    tls_certificate: Path | None = Field(
        default=None,
        description="File of the TLS certificate and its chain, as PEM. If set, HTTP and gRPC accept only TLS 1.2 "
        "and 1.3. Reloaded on SIGHUP.",
    )
    tls_key: Path | None = Field(
        default=None, description="File of the certificate's private key, as PEM and not encrypted. Reloaded on SIGHUP."
    )
    metrics_port: int | None = Field(
        default=None,
        ge=1,
        le=65535,
        description="Port for /metrics and probes: plain HTTP without tokens. /metrics is then not on the main port.",
    )
    grpc_port: int | None = Field(
        default=None,
        ge=1,
        le=65535,
        description="Port for gRPC (Open Inference Protocol). Default: no gRPC.",
    )
    workers: Annotated[int, BeforeValidator(_worker_count)] = Field(
        default=1,
        ge=1,
        le=256,
        description="Number of worker processes (Linux). auto: the available CPUs, as far as the memory allows.",
    )
    threads: int = Field(
        default_factory=available_cpus,
        ge=1,
        le=1024,
        description="Number of executor threads of each worker. Default: the available CPUs.",
    )
    inline_bytes: int = _bytes(64 << 10, "Tensors of up to this many bytes are computed on the event loop.")
    memory_bytes: int = Field(
        default_factory=lambda: available_memory() // 2,
        ge=1 << 20,
        description="Memory budget shared by all requests, in bytes. Default: half of the available memory.",
    )
    max_queued: int = Field(
        default=256,
        ge=1,
        le=1 << 20,
        description="Queue length per executor; further requests get 503.",
    )
    max_waiting: int = Field(
        default=64, ge=0, le=1 << 20, description="Maximum number of requests that wait for memory."
    )
    waiting_seconds: float = _seconds(0.25, "How long a request waits for memory before it gets 503, in seconds.")
    head_seconds: float = _timeout(
        10.0, "Read timeout for the request head, in seconds, from the connection or the first byte."
    )
    body_seconds: float = _timeout(30.0, "Read timeout for the request body, in seconds, plus one second per MiB.")
    shared_memory: bool = Field(
        default=False,
        description="Let clients of the Open Inference Protocol register system shared memory. They can then read "
        "and overwrite every object in /dev/shm that this process can access.",
    )
    checkpoint_roots: Annotated[list[str], NoDecode] = Field(
        default=[],
        description="Directories and URL prefixes of object stores, comma-separated, below which checkpoint jobs may "
        "read and write. Default: none, which disables checkpoint jobs.",
    )
    checkpoint_jobs: int = Field(
        default=1, ge=1, le=64, description="Number of checkpoint jobs that run at the same time; further ones get 503."
    )
    checkpoint_threads: int = Field(
        default_factory=lambda: max(1, available_cpus() // 2),
        ge=1,
        le=1024,
        description="Number of threads of a checkpoint job, and of a comparison. Default: half of the available CPUs.",
    )
    equivalence_jobs: int = Field(
        default=1,
        ge=1,
        le=64,
        description="Number of comparisons of two rules that run in the background at the same time; further ones get "
        "503.",
    )
    plan_cache_bytes: int = _bytes(16 << 20, "Size of the plan cache, in bytes.")
    keep_alive_seconds: int = Field(
        default=75,
        ge=1,
        le=_MAX_SECONDS,
        description="Keep-alive timeout of idle connections, in seconds. Set it higher than that of a proxy in front.",
    )
    drain_seconds: float = _seconds(
        5.0,
        "Drain period after SIGTERM, in seconds: readiness fails, but requests are still served until load "
        "balancers have noticed.",
    )
    shutdown_seconds: int = Field(
        default=25,
        ge=0,
        le=_MAX_SECONDS,
        description="How long running requests may take to finish after the drain period, in seconds.",
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field(default="info", description="Log level.")
    log_format: Literal["text", "json"] = Field(default="text", description="Log format.")
    access_log: bool = Field(default=False, description="Log every request except probes.")
    tokens_file: Path | None = Field(
        default=None,
        description="File of bearer tokens, one per line. If set, every request except probes and the playground's "
        "files needs one. Reloaded on SIGHUP.",
    )
    cors_origins: Annotated[list[str], NoDecode] = Field(
        default=[], description="Allowed CORS origins, comma-separated; * allows all."
    )
    allowed_hosts: Annotated[list[str], NoDecode] = Field(
        default=[],
        description="Host names and addresses that clients may use for this service, without ports, comma-separated; * "
        "allows all. Default: all; on a loopback address localhost, 127.0.0.1, [::1] and that address.",
    )
    telemetry: bool = Field(
        default=False, description="Create an OpenTelemetry span per request. Needs the extra `telemetry`."
    )
    metrics: bool = Field(default=True, description="Serve /metrics.")
    docs: bool = Field(default=True, description="Serve /docs and /openapi.json.")
    playground: bool = Field(
        default=True, description="Serve the playground at /. Its static files need no token, its requests do."
    )
    docs_public: bool = Field(default=False, description="Serve /docs and /openapi.json without a token.")

    @field_validator("cors_origins", "allowed_hosts", "checkpoint_roots", mode="before")
    @classmethod
    def _separated(cls, value: Any) -> Any:
        """Read a list with commas between."""
        if isinstance(value, str):
            return [entry.strip() for entry in value.split(",") if entry.strip()]
        return value

    @field_validator("cors_origins")
    @classmethod
    def _are_origins(cls, origins: list[str]) -> list[str]:
        """Refuse what no browser sends as an origin, such as a host alone or a URL with a path."""
        for origin in origins:
            if not _ORIGIN.fullmatch(origin.lower()):
                raise PydanticCustomError(
                    "origin", "an origin is * or of the form https://host or https://host:port, without a path"
                )
        return origins

    @field_validator("allowed_hosts")
    @classmethod
    def _are_hosts(cls, hosts: list[str]) -> list[str]:
        """Refuse what no client sends as a host, such as a URL or a name with a port."""
        for host in hosts:
            if not _HOST.fullmatch(host):
                raise PydanticCustomError(
                    "host", "a host is *, a name or an address in brackets if IPv6, without a port"
                )
        return hosts

    @field_validator("shared_memory")
    @classmethod
    def _is_linux(cls, enabled: bool) -> bool:
        """Refuse shared memory where its objects are no files."""
        if enabled and sys.platform != "linux":
            raise PydanticCustomError("platform", "system shared memory needs Linux")
        return enabled

    @field_validator("memory_bytes")
    @classmethod
    def _is_there(cls, value: int) -> int:
        """Refuse a budget that the process could not use without being killed for it."""
        if value > (there_is := available_memory()):
            raise PydanticCustomError("memory", "there are {there_is} bytes of memory", {"there_is": there_is})
        return value

    @field_validator("tokens_file", "uds", "tls_certificate", "tls_key")
    @classmethod
    def _is_named(cls, path: Path | None) -> Path | None:
        """Refuse an empty path: a variable that is set to nothing must not leave the service open."""
        if path == Path():
            raise PydanticCustomError("path", "a path is needed")
        return path


def read_settings(arguments: Sequence[str], environment: Mapping[str, str], program: str = "requant serve") -> Settings:
    """Return the settings that flags and `os.environ` give. Raise ValueError that names each wrong one, one to a line.

    `program`: what messages call the command.

    A misspelt setting is refused, since its default may be a service without authentication. Other variables of the
    environment are ignored, but those that begin with `REQUANT_` are meant for this service.
    """
    Settings.model_config["cli_prog_name"] = program
    faults = [*_misspelt_variables(environment), *_misspelt_flags(arguments)]
    if faults:
        raise ValueError("\n".join(faults))
    try:
        settings = CliApp.run(Settings, cli_args=list(arguments))
    except ValidationError as error:
        faults = [_fault(item, arguments, environment) for item in error.errors(include_url=False)]
        raise ValueError("\n".join(faults)) from None
    if faults := [f"{given_name(name, arguments)}: {reason}" for name, reason in _contradictions(settings)]:
        raise ValueError("\n".join(faults))
    return settings


def given_name(setting: str, arguments: Sequence[str]) -> str:
    """Return the flag or the variable by which a setting is given."""
    flag = _flag(setting)
    return flag if any(argument.partition("=")[0] == flag for argument in arguments) else _variable(setting)


def _contradictions(settings: Settings) -> Iterator[tuple[str, str]]:
    """Yield each setting that does not go with another, and why."""
    if settings.tls_certificate is not None and settings.tls_key is None:
        yield "tls_certificate", "TLS needs tls_key too"
    if settings.tls_key is not None and settings.tls_certificate is None:
        yield "tls_key", "TLS needs tls_certificate too"
    if settings.uds is not None and settings.tls_certificate is not None:
        yield "uds", "TLS is not supported on a Unix socket; unset uds, or tls_certificate and tls_key"
    taken = {} if settings.uds is not None else {settings.port: "the main port"}
    for name in ("metrics_port", "grpc_port"):
        port: int | None = getattr(settings, name)
        if port in taken:
            yield name, f"{port} is {taken[port]}"
        elif port is not None:
            taken[port] = name


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
    return f"unknown {kind}; did you mean {nearest}? `{Settings.model_config['cli_prog_name']} --help` lists all"


def _fault(item: Any, arguments: Sequence[str], environment: Mapping[str, str]) -> str:
    """Say what is wrong with a setting, under the name by which it was given."""
    name = given_name(str(item["loc"][0]), arguments)
    linked = environment.get(name, "").startswith(("tcp://", "udp://"))
    return f"{name}: {item['msg']}" + (f"; {_LINKED}" if linked else "")
