"""The request for a conversion, and its plan: what each output file is made of, and the files that are written last."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, fields
from enum import StrEnum
from typing import Any

from requant.checkpoint.safetensors.header import Header, TensorEntry
from requant.checkpoint.safetensors.writer import head_bytes
from requant.checkpoint.storage.store import StoredFile
from requant.checkpoint.weights.weight_format import WeightFormat


class Direction(StrEnum):
    """The direction of a conversion."""

    QUANTIZE = "quantize"
    DEQUANTIZE = "dequantize"


class NotFinite(StrEnum):
    """How to handle a weight with a NaN or an infinity."""

    REFUSE = "refuse"
    CONVERT = "convert"
    """As the library does."""


class Repack(StrEnum):
    """Whether codes and scales are moved to another format, in place of weights being dequantized and quantized."""

    NO = "no"
    EXACT = "exact"
    """Where the other format holds the same numbers; else the conversion fails."""
    ROUNDED = "rounded"
    """To the nearest numbers that it holds with these scales."""


@dataclass(frozen=True, slots=True)
class Request:
    """The request for a conversion. It and the source's headers determine the plan.

    `ignore` and `targets`: module names, or `re:` and a regular expression, as compressed-tensors reads them. The entry
    `default` of `ignore` stands for what is usually left as it is (`requant.checkpoint.selection`); the
    request of a plan has the entries that it meant there.
    `dtype`: of dequantized weights, BF16, F16 or F32, also of those that are then quantized to `scheme` (None: what the
    source's config.json says, else BF16); with `repack`, of scales (None: that of the source's scales).
    `repack`: with a direction of DEQUANTIZE, whether the numbers may be rounded to `dtype`.
    `certify`: whether the numbers of both sides are compared, and the manifest says what became of each tensor.
    """

    direction: Direction
    scheme: str | None
    profile: str
    ignore: tuple[str, ...] = ()
    targets: tuple[str, ...] = ("Linear",)
    not_finite: NotFinite = NotFinite.REFUSE
    dtype: str | None = None
    repack: Repack = Repack.NO
    certify: bool = False

    @property
    def members(self) -> dict[str, Any]:
        """The request as members of JSON, without what is as in requests of earlier versions."""
        return {name: value for name, value in asdict(self).items() if name not in _LATER or value != _LATER[name]}


_LATER = {"repack": Repack.NO, "certify": False}
"""The members that later versions added, with what they are where they are not stated."""


@dataclass(frozen=True, slots=True)
class SourceRange:
    """A tensor, or one matrix of a tensor of rank 3, in a file of the source: bytes [begin, end) of the file."""

    file: str
    tensor: str
    dtype: str
    shape: tuple[int, ...]
    begin: int
    end: int

    @classmethod
    def of(cls, file: str, entry: TensorEntry) -> SourceRange:
        """Return the whole of a tensor of a file."""
        return cls(file, entry.name, entry.dtype, entry.shape, entry.begin, entry.end)

    @property
    def byte_count(self) -> int:
        """How many bytes it has."""
        return self.end - self.begin


@dataclass(frozen=True, slots=True)
class QuantizedSource:
    """A weight that the source stores quantized. As a matrix, it is dequantized: of `dtype` and `shape` [out, in].

    `stored`: the tensors of `module` that hold it, by suffix. `parameter`: of the module, where it is no weight.
    `is_vector`: whether the tensor has one axis; its `shape` is [n, 1] then.
    """

    module: str
    stored: Mapping[str, SourceRange] = field(hash=False)
    format: WeightFormat
    dtype: str
    shape: tuple[int, int]
    parameter: str = "weight"
    is_vector: bool = False

    @property
    def tensor(self) -> str:
        """The name of the weight, had it not been quantized."""
        return f"{self.module}.{self.parameter}"

    @property
    def file(self) -> str:
        """The file of the first of its tensors, which has the codes."""
        return next(iter(self.stored.values())).file

    @property
    def byte_count(self) -> int:
        """How many bytes its tensors have."""
        return sum(each.byte_count for each in self.stored.values())


WeightSource = SourceRange | QuantizedSource
"""A weight of the source: as it is, or quantized."""


def shape_of(source: WeightSource) -> tuple[int, ...]:
    """Return the shape of a tensor as it is without quantization."""
    return source.shape[:1] if isinstance(source, QuantizedSource) and source.is_vector else source.shape


def is_plain(source: WeightSource) -> bool:
    """Return whether the source has a tensor in floats, or integers, and not quantized."""
    return isinstance(source, SourceRange) or source.format.is_plain


@dataclass(frozen=True, slots=True)
class CopyStep:
    """A tensor whose bytes are copied under the name `output`."""

    source: SourceRange
    output: str


@dataclass(frozen=True, slots=True)
class QuantizeStep:
    """The weight of `module` becomes `module.suffix` for each stored tensor of `format`. `parameter`: of the module,
    where it is no weight."""

    module: str
    source: WeightSource
    format: WeightFormat
    shares_scale_with: tuple[WeightSource, ...] = ()
    """The other weights of its fused set, whose extremes count too."""
    parameter: str = "weight"


@dataclass(frozen=True, slots=True)
class DequantizeStep:
    """A quantized weight becomes the tensor `output` of its dtype and shape."""

    source: QuantizedSource
    output: str

    @property
    def module(self) -> str:
        """The module whose weight it is."""
        return self.source.module


Step = CopyStep | QuantizeStep | DequantizeStep


@dataclass(frozen=True, slots=True)
class Task:
    """One output file. `header` says where every tensor goes."""

    output: str
    header: Header
    steps: tuple[Step, ...]

    @property
    def head(self) -> bytes:
        """The bytes of the header, padding included."""
        return head_bytes(self.header)


@dataclass(frozen=True, slots=True)
class Plan:
    """The plan of a conversion. `digest` is the SHA-256, in hex, of the request, the versions and the source's headers.

    `carried`: files of the source that are copied as they are. `index` and `config`: the texts of
    `model.safetensors.index.json` (None for a single file without one) and `config.json`, which are written last.
    """

    request: Request
    digest: str
    sources: tuple[StoredFile, ...]
    tasks: tuple[Task, ...]
    carried: tuple[StoredFile, ...]
    index: bytes | None
    config: bytes
    warnings: tuple[str, ...] = ()

    @property
    def steps(self) -> Iterator[Step]:
        """The steps of all tasks."""
        return (step for task in self.tasks for step in task.steps)


def request_of(members: Mapping[str, Any]) -> Request:
    """Return the request that has these `members`.

    Raises KeyError, TypeError or ValueError for anything else.
    """
    members = {**_LATER, **members}
    if set(members) != {each.name for each in fields(Request)}:
        raise KeyError("request")
    if not isinstance(members["certify"], bool):
        raise TypeError("certify")
    return Request(
        direction=Direction(members["direction"]),
        scheme=None if members["scheme"] is None else text(members["scheme"]),
        profile=text(members["profile"]),
        ignore=_texts(members["ignore"]),
        targets=_texts(members["targets"]),
        not_finite=NotFinite(members["not_finite"]),
        dtype=None if members["dtype"] is None else text(members["dtype"]),
        repack=Repack(members["repack"]),
        certify=members["certify"],
    )


def text(value: object) -> str:
    """Return a string. Raises TypeError for anything else."""
    if not isinstance(value, str):
        raise TypeError(value)
    return value


def _texts(value: object) -> tuple[str, ...]:
    if not isinstance(value, list | tuple):
        raise TypeError(value)
    return tuple(map(text, value))
