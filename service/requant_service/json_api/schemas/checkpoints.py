"""Requests and replies about checkpoint jobs."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from requant.checkpoint.jobs import JobState
from requant.checkpoint.plan.model import Direction, NotFinite, Repack
from requant.checkpoint.selection import DEFAULT_IGNORE
from requant_service.http.models import ABSENT, Int32, Int64, ReplyModel, RequestModel

_Modules = Annotated[list[Annotated[str, Field(min_length=1, max_length=1024)]], Field(max_length=4096)]
_Place = Annotated[str, Field(min_length=1, max_length=1024)]


class SchemeOfModules(RequestModel):
    """A scheme, and the modules that it is for."""

    scheme: Annotated[str, Field(max_length=256)] = Field(description="As `scheme` of the request.")
    targets: Annotated[_Modules, Field(min_length=1)] = Field(
        description="Names, or `re:` and a regular expression. Linear: all linear modules that have no scheme yet."
    )


class CheckpointRequest(RequestModel):
    """A checkpoint conversion from a source to a destination."""

    source: _Place = Field(description="The checkpoint: an absolute path or a URL below one of the configured roots.")
    destination: _Place = Field(
        default=ABSENT,
        description="Where to write: an absolute path or a URL below one of the configured roots. "
        "Not needed for a dry run.",
    )
    direction: Direction = Field(default=Direction.QUANTIZE, strict=False)
    scheme: Annotated[str, Field(max_length=256)] = Field(
        default=ABSENT,
        description="The format of the quantized weights, such as W4A16 or FP8_DYNAMIC. It or `schemes` is required to "
        "quantize, and only then.",
    )
    schemes: Annotated[list[SchemeOfModules], Field(min_length=1, max_length=64)] = Field(
        default=ABSENT,
        description="Several schemes of compressed-tensors for parts of the model, in place of `scheme` and `targets`. "
        "A module has the first that is for it.",
    )
    profile: Annotated[str, Field(max_length=256)] = Field(
        default=ABSENT,
        description="The library whose bits are reproduced. Default: the scheme's first profile. Only to quantize.",
    )
    ignore: _Modules = Field(
        default=list(DEFAULT_IGNORE),
        description="Modules that are not quantized: names, or `re:` and a regular expression. `default` stands for "
        "embeddings, output layers, expert routers, norms, convolutions, and vision and audio towers, as far as the "
        "other entries do not name them. Only to quantize.",
    )
    targets: _Modules = Field(
        default=["Linear"], description="The modules to quantize. Linear: all linear modules. Only to quantize."
    )
    not_finite: NotFinite = Field(
        default=NotFinite.REFUSE,
        strict=False,
        description="What to do with a weight that has a NaN or an infinity. Only to quantize.",
    )
    dtype: Annotated[str, Field(pattern="^(BF16|F16|F32)$")] = Field(
        default=ABSENT,
        description="The dtype of dequantized weights, also of those that are then quantized in another way. "
        "Default: the one in config.json, else BF16. Not for a checkpoint that is not quantized.",
    )
    repack: Repack = Field(
        default=Repack.NO,
        strict=False,
        description="Whether codes and scales of a quantized checkpoint are moved to another format in place of being "
        "dequantized and quantized: `exact` fails where the other format cannot hold the same numbers, `rounded` "
        "stores the nearest. Without a scheme, in the direction `dequantize`, it is the same for `dtype`.",
    )
    certify: bool = Field(
        default=False,
        description="Compare each number of the source with the one that is written, and state in the manifest which "
        "tensors are exact, widened or rounded, and the SHA-256 of all files. A repack always does.",
    )
    input_scales: _Place = Field(
        default=ABSENT,
        description="Scales of activations that were found with data, which FP8 and NVFP4 need: a JSON object of names "
        "and numbers in a file *.json, a safetensors file, or a directory of such; an absolute path or a URL below one "
        "of the configured roots. Only to quantize.",
    )
    kv_scales: _Place = Field(
        default=ABSENT,
        description="Scales of keys and values, likewise, which are then kept in FP8; with schemes of "
        "compressed-tensors. Only to quantize.",
    )
    dry_run: bool = Field(default=False, description="Return the plan without converting anything.")


class JobProgress(ReplyModel):
    """The progress of a job. Files that an earlier job finished are not counted."""

    bytes_read: Int64
    bytes_to_read: Int64
    bytes_written: Int64
    bytes_to_write: Int64
    outputs_finished: Int32
    outputs: Int32
    bytes_per_second: Int64 = Field(default=ABSENT, description="Read from the source, on average.")


class JobFailure(ReplyModel):
    """Why a job failed."""

    code: str = Field(description="The code of a problem: GET /problems/{code}.")
    detail: str
    file: str = ABSENT
    tensor: str = ABSENT


class CheckpointJob(ReplyModel):
    """A job."""

    id: str
    state: JobState = Field(
        description="`interrupted`: no process is running it any more. To resume a failed, cancelled or interrupted "
        "job, send the request that started it again."
    )
    destination: str
    request: dict[str, Any] = Field(description="The request, as recorded in the manifest at the destination.")
    progress: JobProgress
    error: JobFailure = ABSENT
    warnings: list[str]


class CheckpointPlan(ReplyModel):
    """The plan of a conversion."""

    digest: str = Field(description="SHA-256 of everything that determines the plan: equal digests mean the same work.")
    source: str
    destination: str = ABSENT
    request: dict[str, Any]
    outputs: list[dict[str, Any]] = Field(description="The output files and their sizes.")
    warnings: list[str]
