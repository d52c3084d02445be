"""The request for a conversion, and its plan: what each output file is made of, and the files that are written last."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, NamedTuple

from requant.checkpoint.given_scales import Scales, in_order
from requant.checkpoint.safetensors.header import Header, TensorEntry
from requant.checkpoint.safetensors.writer import head_bytes
from requant.checkpoint.selection import ALL
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


class SchemeFor(NamedTuple):
    """A scheme by its name, and the modules that it is for.

    `targets`: module names, or `re:` and a regular expression, as compressed-tensors reads them.
    """

    scheme: str
    targets: tuple[str, ...] = (ALL,)


@dataclass(frozen=True, slots=True)
class Request:
    """The request for a conversion. It and the source's headers determine the plan.

    `schemes`: usually one; of several, a module has the first whose targets it matches; none to dequantize. `ignore`:
    of what no scheme is for, as targets are stated. The entry `default` stands for what is usually left as it is
    (`requant.checkpoint.selection`); the request of a plan has the entries that it meant there.
    `dtype`: of dequantized weights, BF16, F16 or F32, also of those that are then quantized (None: what the source's
    config.json says, else BF16); with `repack`, of scales (None: that of the source's scales).
    `repack`: with a direction of DEQUANTIZE, whether the numbers may be rounded to `dtype`.
    `certify`: whether the numbers of both sides are compared, and the manifest says what became of each tensor; always
    with `repack`.
    `input_scales`, `kv_scales`: scales of activations that were found with data, as `requant.checkpoint.given_scales`
    names them; of an input also by the module's name alone. The request of a plan has the names of tensors.
    """

    direction: Direction
    schemes: tuple[SchemeFor, ...]
    profile: str
    ignore: tuple[str, ...] = ()
    not_finite: NotFinite = NotFinite.REFUSE
    dtype: str | None = None
    repack: Repack = Repack.NO
    certify: bool = False
    input_scales: Scales = ()
    kv_scales: Scales = ()

    def __post_init__(self) -> None:
        if self.repack is not Repack.NO:
            object.__setattr__(self, "certify", True)

    @property
    def targets(self) -> tuple[str, ...]:
        """The targets of all schemes."""
        return tuple(entry for each in self.schemes for entry in each.targets or (ALL,))

    @property
    def members(self) -> dict[str, Any]:
        """The request as members of JSON, without what is as in requests of earlier versions.

        One scheme is stated as `scheme` and `targets`, several as `schemes`, a list of objects with these two.
        """
        if len(self.schemes) > 1:
            stated: dict[str, Any] = {"schemes": [each._asdict() for each in self.schemes]}
            targets: dict[str, Any] = {}
        else:
            scheme, of_scheme = self.schemes[0] if self.schemes else (None, (ALL,))
            stated, targets = {"scheme": scheme}, {"targets": of_scheme}
        later = {
            "repack": self.repack,
            "certify": self.certify,
            "input_scales": dict(self.input_scales),
            "kv_scales": dict(self.kv_scales),
        }
        return {
            "direction": self.direction,
            **stated,
            "profile": self.profile,
            "ignore": self.ignore,
            **targets,
            "not_finite": self.not_finite,
            "dtype": self.dtype,
            **{name: value for name, value in later.items() if value != _LATER[name]},
        }


_LATER: Mapping[str, Any] = {"repack": Repack.NO, "certify": False, "input_scales": {}, "kv_scales": {}}
"""The members that later versions added, with what they are where they are not stated."""


@dataclass(frozen=True, slots=True)
class SourceRange:
    """A tensor, or what one expert has of a tensor, in a file of the source: bytes [begin, end) of the file."""

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
    def is_plain(self) -> bool:
        """Whether it is not quantized."""
        return True

    @property
    def tensor_shape(self) -> tuple[int, ...]:
        """The shape of the tensor that it becomes without quantization."""
        return self.shape

    @property
    def byte_count(self) -> int:
        """How many bytes it has."""
        return self.end - self.begin


@dataclass(frozen=True, slots=True)
class QuantizedSource:
    """A weight that the source stores quantized. As a matrix, it is dequantized: of `dtype` and `shape` [out, in].

    `stored`: the tensors of `module` that hold it, by suffix.
    """

    module: str
    stored: Mapping[str, SourceRange] = field(hash=False)
    format: WeightFormat
    dtype: str
    shape: tuple[int, int]

    @property
    def tensor(self) -> str:
        """The name of the weight, had it not been quantized."""
        return self.format.tensor_name(self.module)

    @property
    def is_plain(self) -> bool:
        """Whether it is not quantized, but lies otherwise in the source."""
        return self.format.is_plain

    @property
    def tensor_shape(self) -> tuple[int, ...]:
        """The shape of that tensor."""
        return self.format.tensor_shape(self.shape)

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


@dataclass(frozen=True, slots=True)
class CopyStep:
    """A tensor whose bytes are copied under the name `output`."""

    source: SourceRange
    output: str


@dataclass(frozen=True, slots=True)
class QuantizeStep:
    """The weight of `module` becomes `module.suffix` for each stored tensor of `format`."""

    module: str
    source: WeightSource
    format: WeightFormat
    shares_scale_with: tuple[WeightSource, ...] = ()
    """The other weights of its fused set, whose extremes count too."""


@dataclass(frozen=True, slots=True)
class DequantizeStep:
    """A quantized weight becomes the tensor `output` of its dtype and shape."""

    source: QuantizedSource
    output: str

    @property
    def module(self) -> str:
        """The module whose weight it is."""
        return self.source.module


@dataclass(frozen=True, slots=True)
class GivenStep:
    """The tensor `output`, which is not made of the source: its bytes are `data`."""

    output: str
    dtype: str
    shape: tuple[int, ...]
    data: bytes


Step = CopyStep | QuantizeStep | DequantizeStep | GivenStep


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
    `settings`: other small files that are written with them, by name.
    """

    request: Request
    digest: str
    sources: tuple[StoredFile, ...]
    tasks: tuple[Task, ...]
    carried: tuple[StoredFile, ...]
    index: bytes | None
    config: bytes
    warnings: tuple[str, ...] = ()
    settings: Mapping[str, bytes] = field(default_factory=dict)

    @property
    def steps(self) -> Iterator[Step]:
        """The steps of all tasks."""
        return (step for task in self.tasks for step in task.steps)


def request_of(members: Mapping[str, Any]) -> Request:
    """Return the request that has these `members`.

    Raises KeyError, TypeError or ValueError for anything else.
    """
    members = {**_LATER, **members}
    if not isinstance(members["certify"], bool):
        raise TypeError("certify")
    request = Request(
        direction=Direction(members["direction"]),
        schemes=schemes_of(_listed_schemes(members)),
        profile=text(members["profile"]),
        ignore=_texts(members["ignore"]),
        not_finite=NotFinite(members["not_finite"]),
        dtype=None if members["dtype"] is None else text(members["dtype"]),
        repack=Repack(members["repack"]),
        certify=members["certify"],
        input_scales=_scales(members["input_scales"]),
        kv_scales=_scales(members["kv_scales"]),
    )
    if {*request.members, *_LATER} != members.keys():
        raise KeyError("request")
    return request


def _scales(value: object) -> Scales:
    if not isinstance(value, dict):
        raise TypeError(value)
    for name, number in value.items():
        if not isinstance(name, str) or isinstance(number, bool) or not isinstance(number, int | float):
            raise TypeError(name)
    return in_order(value)


def _listed_schemes(members: Mapping[str, Any]) -> object:
    if "schemes" in members:
        return members["schemes"]
    return [] if members["scheme"] is None else [{name: members[name] for name in SchemeFor._fields}]


def schemes_of(listed: object) -> tuple[SchemeFor, ...]:
    """Return the schemes that a JSON list of objects with `scheme` and `targets` states.

    Raises KeyError or TypeError for anything else.
    """
    if not isinstance(listed, list):
        raise TypeError(listed)
    schemes = []
    for each in listed:
        if not isinstance(each, dict) or each.keys() != set(SchemeFor._fields):
            raise KeyError("schemes")
        schemes.append(SchemeFor(text(each["scheme"]), _texts(each["targets"])))
    return tuple(schemes)


def text(value: object) -> str:
    """Return a string. Raises TypeError for anything else."""
    if not isinstance(value, str):
        raise TypeError(value)
    return value


def _texts(value: object) -> tuple[str, ...]:
    if not isinstance(value, list | tuple):
        raise TypeError(value)
    return tuple(map(text, value))
