"""Moves the codes and scales of a quantized checkpoint into a GGUF file.

What a GGUF file has beside numbers comes from one that llama.cpp's convert_hf_to_gguf.py made of the same model: its
keys, the names and the order of its tensors, and the types of those that are not quantized. All numbers are those of
the checkpoint, but for tensors that the converter makes of config.json.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from math import prod
from typing import Any

from requant.checkpoint.gguf.header import GgufHeader, TensorInfo, aligned, header_bytes, read_header
from requant.checkpoint.gguf.names import MADE_BY_CONVERTER, Names, Place
from requant.checkpoint.gguf.plan import output_header, output_keys
from requant.checkpoint.gguf.tensor_types import FILE_TYPES, FLOATS, TENSOR_TYPES, TensorType
from requant.checkpoint.gguf.weights import FloatRows, GgufWeight, type_named
from requant.checkpoint.plan.dequantization import SourceTensor
from requant.checkpoint.plan.model import (
    CopyStep,
    Direction,
    NotFinite,
    QuantizeStep,
    Repack,
    Request,
    SchemeFor,
    SourceRange,
    Step,
)
from requant.checkpoint.plan.planner import content_of
from requant.checkpoint.plan.refusals import Refusals, abbreviate
from requant.checkpoint.plan.source import read_source
from requant.checkpoint.run.file_plan import CertifiedPlan, run_certified_plan, verdicts_of_file
from requant.checkpoint.run.outputs import SourceReader, Stages
from requant.checkpoint.run.run import RunReport, settings_files
from requant.checkpoint.run.steps import Steps, bytes_to_read, group_by_shared_scale, kernels_of_steps
from requant.checkpoint.run.stored_weight import StoredMatrix
from requant.checkpoint.run.verdicts import Verdict, Verdicts
from requant.checkpoint.run.work import Piece, ProgressCallback
from requant.checkpoint.safetensors.header import Header
from requant.checkpoint.storage.store import FileWriter, Store, StoredFile, file_named, read_range
from requant.errors import CheckpointError, excerpt
from requant.kernels.jit.jit import Kernel

_FILE_TYPES = FILE_TYPES | {"NVFP4": 39}
_LARGEST_MADE = 1 << 20
_THE_SAME_MODEL = "give the file that convert_hf_to_gguf.py makes of the same model"


@dataclass(frozen=True, slots=True)
class GgufTarget:
    """The file to write, `name` in `folder`, of a type; and the file of the same model, `like` in `like_folder`."""

    folder: Store
    name: str
    type: str
    like_folder: Store
    like: str


@dataclass(frozen=True, slots=True)
class RepackPlan(CertifiedPlan):
    """The plan for a file.

    `tensors`: those of the output. `places`: where the steps write, by the names of their tensors. `filled`: what else
    is written behind the header, by offset: the zeros between tensors, and those that the converter made. `sources`:
    the files that are read. `like`: the file that the converter made, and its folder.
    """

    output: str
    type: TensorType
    head: bytes
    size: int
    tensors: tuple[TensorInfo, ...]
    steps: tuple[Step, ...]
    places: Mapping[str, StoredMatrix]
    filled: tuple[tuple[int, bytes], ...]
    sources: tuple[StoredFile, ...]
    request: Request
    like: tuple[Store, StoredFile]
    warnings: tuple[str, ...]

    @property
    def profile(self) -> None:
        return None

    @property
    def members(self) -> dict[str, Any]:
        return self.request.members

    @property
    def header(self) -> Header:
        begin = len(self.head)
        return output_header([(info, begin + info.offset) for info in self.tensors], self.size)

    def read_files(self, source: Store) -> dict[str, tuple[Store, StoredFile]]:
        of_source = {file.name: (source, file) for file in (*self.sources, *settings_files(source))}
        return of_source | {f"like/{self.like[1].name}": self.like}

    @property
    def sizes(self) -> dict[str, int]:
        return {self.output: self.size}

    @property
    def bytes_to_read(self) -> int:
        return sum(bytes_to_read(steps) for steps in group_by_shared_scale(self.steps))

    @property
    def kernels(self) -> tuple[Kernel, ...]:
        """The kernels that a run calls."""
        return kernels_of_steps(self.steps, self.request)

    def as_json(self) -> dict[str, Any]:
        return {
            "output": self.output,
            "output_bytes": self.size,
            "type": self.type.name,
            "tensors": [
                {"name": info.name, "shape": list(reversed(info.dimensions)), "to": info.type.name}
                for info in self.tensors
            ],
            "warnings": list(self.warnings),
        }

    def lines(self) -> Iterable[str]:
        moved = sum(info.type is self.type for info in self.tensors)
        yield f"{self.output}: {self.size:,} bytes, {len(self.tensors)} tensors, {moved} of them {self.type.name}"
        for info in self.tensors:
            shape = "x".join(map(str, reversed(info.dimensions)))
            yield f"  {info.name} [{shape}] {info.type.name}"


def plan_repack_to_gguf(source: Store, target: GgufTarget, *, allow_rounding: bool = False) -> RepackPlan:
    """Return the plan for moving the checkpoint at `source` into a GGUF file. Reads only headers, and what a converter
    made.

    Raises CheckpointError, with all reasons, for a type to which nothing is moved, a checkpoint that is not quantized,
    an architecture whose names are not known, tensors of other names or shapes than in the GGUF file of the same model,
    and weights whose rows are not whole blocks; what `read_header` and `plan_conversion` raise.
    """
    type_ = type_named(target.type)
    repack = Repack.ROUNDED if allow_rounding else Repack.EXACT
    request = Request(
        Direction.QUANTIZE,
        (SchemeFor(type_.name),),
        "",
        not_finite=NotFinite.CONVERT,
        dtype="F32",
        repack=repack,
        certify=True,
    )
    checkpoint = read_source(source)
    content = content_of(checkpoint, request)
    file = file_named(target.like_folder, target.like)
    header = read_header(target.like_folder, file)
    names = Names.of(header.keys, content.config, file.name)
    placed = _placed(header, names, {each.name: each for each in content.tensors}, type_, file.name)
    infos: list[TensorInfo] = []
    end = 0
    for each in placed:
        infos.append(replace(each.info, offset=end))
        end = aligned(end + each.info.size, header.alignment)
    head = header_bytes(output_keys(header.keys, _FILE_TYPES[type_.name]), infos, header.alignment)
    steps: list[Step] = []
    places: dict[str, StoredMatrix] = {}
    filled: list[tuple[int, bytes]] = []
    for each, info in zip(placed, infos, strict=True):
        begin = len(head) + info.offset
        steps += each.steps
        each.place(begin, places)
        if each.copied is not None:
            size = each.copied.size
            if size > _LARGEST_MADE:
                detail = f"'{excerpt(info.name)}' has {size} bytes; expected at most {_LARGEST_MADE}: {_THE_SAME_MODEL}"
                raise CheckpointError(detail, file=file.name, tensor=info.name)
            at = header.data + each.copied.offset
            filled.append((begin, read_range(target.like_folder, file, at, size).tobytes()))
        padding = aligned(info.size, header.alignment) - info.size
        if padding:
            filled.append((begin + info.size, bytes(padding)))
    return RepackPlan(
        target.name,
        type_,
        head,
        len(head) + end,
        tuple(infos),
        tuple(steps),
        places,
        tuple(filled),
        tuple(shard.file for shard in checkpoint.shards.values()),
        request,
        (target.like_folder, file),
        content.warnings,
    )


@dataclass(frozen=True, slots=True)
class _Placed:
    """A tensor of the output, the steps that write it, and how they see it: the name, dtype and shape of each part,
    in their order. `copied`: the tensor of the other file whose bytes it has.
    """

    info: TensorInfo
    steps: tuple[Step, ...] = ()
    parts: tuple[tuple[str, str, tuple[int, ...]], ...] = ()
    copied: TensorInfo | None = None

    def place(self, begin: int, places: dict[str, StoredMatrix]) -> None:
        """Note where the parts lie. `begin`: where the tensor does, in bytes from the start of the file."""
        size = self.info.size // max(len(self.parts), 1)
        for number, (name, dtype, shape) in enumerate(self.parts):
            places[name] = StoredMatrix(dtype, shape, begin + number * size)


def _placed(
    header: GgufHeader, names: Names, tensors: dict[str, SourceTensor], type_: TensorType, file: str
) -> list[_Placed]:
    refusals, placed = Refusals(), list[_Placed]()
    for info in header.tensors:
        if info.name in MADE_BY_CONVERTER:
            placed.append(_Placed(info, copied=info))
            continue
        try:
            places = names.places(info)
            found = [tensors.pop(place.name, None) for place in places]
            lacking = [place.name for place, each in zip(places, found, strict=True) if each is None]
            if lacking:
                raise CheckpointError(f"the checkpoint has no {abbreviate(lacking)}", file=file, tensor=info.name)
            placed += _converted(info, places, [each for each in found if each is not None], type_, file)
        except CheckpointError as error:
            refusals.add_error(error, _THE_SAME_MODEL, file=error.file or file, tensor=error.tensor or info.name)
    left = [name for name in tensors if not name.endswith(".rotary_emb.inv_freq")]
    if left and not refusals.count:
        refusals.add(f"{file} lacks tensors of the checkpoint: {abbreviate(left)}", _THE_SAME_MODEL, file=file)
    refusals.raise_any()
    return placed


def _converted(
    info: TensorInfo, places: list[Place], tensors: list[SourceTensor], type_: TensorType, file: str
) -> Iterator[_Placed]:
    """Yield a tensor and what lies beside it in the output."""
    expected = tuple(reversed(info.dimensions))
    if places[0].index is not None:
        expected = expected[1:]
    for each in tensors:
        if each.source.tensor_shape != expected:
            raise CheckpointError(
                f"{each.name} has the shape {list(each.source.tensor_shape)}; in {file} it has {list(expected)}",
                file=each.source.file,
                tensor=each.name,
            )
    plain = {each.source.is_plain for each in tensors}
    if len(plain) > 1:
        raise CheckpointError(
            f"only some of the experts in '{excerpt(info.name)}' are quantized, and GGUF has one type for all",
            file=file,
            tensor=info.name,
        )
    if plain == {True}:
        yield _floats(info, places, tensors, file)
        return
    is_scaled = type_.name == "NVFP4"
    steps: list[Step] = []
    parts: dict[str, list[tuple[str, str, tuple[int, ...]]]] = {"weight": [], "scale": []}
    for place, each in zip(places, tensors, strict=True):
        form = GgufWeight(type_, place.head, is_scaled)
        steps.append(QuantizeStep(place.module, each.source, form))
        for stored in form.stored("F32", (expected[0], expected[1])):
            parts[stored.suffix].append((f"{place.module}.{stored.suffix}", stored.dtype, stored.shape))
    yield _Placed(replace(info, type=type_), tuple(steps), tuple(parts["weight"]))
    if is_scaled:
        name = f"{info.name.removesuffix('.weight')}.scale"
        yield _Placed(TensorInfo(name, (len(places),), TENSOR_TYPES["F32"], 0), (), tuple(parts["scale"]))


def _floats(info: TensorInfo, places: list[Place], tensors: list[SourceTensor], file: str) -> _Placed:
    to = info.type.name
    if to not in FLOATS:
        raise CheckpointError(
            f"'{excerpt(info.name)}' is {to} in {file}, and its weight is not quantized in the checkpoint",
            file=file,
            tensor=info.name,
        )
    steps: list[Step] = []
    parts = []
    for place, each in zip(places, tensors, strict=True):
        source = each.source
        assert isinstance(source, SourceRange)
        if source.dtype not in FLOATS:
            raise CheckpointError(f"is {source.dtype}; expected floats", file=source.file, tensor=each.name)
        if source.dtype == to and place.head == 1 and not place.added:
            steps.append(CopyStep(source, place.name))
            parts.append((place.name, to, source.shape))
            continue
        matrix = (source.shape[0], prod(source.shape[1:]))
        form = FloatRows(to, place.head, place.parameter, added=place.added)
        steps.append(QuantizeStep(place.module, replace(source, shape=matrix), form))
        parts.append((place.name, to, matrix))
    return _Placed(info, tuple(steps), tuple(parts))


def repack_to_gguf(
    source: Store,
    target: GgufTarget,
    *,
    allow_rounding: bool = False,
    threads: int | None = None,
    progress: ProgressCallback | None = None,
) -> RunReport:
    """Move the codes and scales of the checkpoint at `source` into a GGUF file. `verdicts` of the report are those of
    the checkpoint's tensors.

    Raises what `plan_repack_to_gguf` and `run_file_plan` raise, and CheckpointError with the first number that the type
    does not hold, unless rounding is allowed. No file is left then.
    """
    plan = plan_repack_to_gguf(source, target, allow_rounding=allow_rounding)
    return run_repack(plan, source, target.folder, threads=threads, progress=progress)


def run_repack(
    plan: RepackPlan,
    source: Store,
    destination: Store,
    *,
    threads: int | None = None,
    progress: ProgressCallback | None = None,
) -> RunReport:
    """Run a plan. Raises as `repack_to_gguf`."""
    report = run_certified_plan(plan, source, destination, stages_of_repack, threads=threads, progress=progress)
    return replace(report, warnings=plan.warnings)


def verdicts_of_repack(
    plan: RepackPlan, source: Store, *, threads: int | None = None, progress: ProgressCallback | None = None
) -> Mapping[str, Verdict]:
    """Return the verdicts of a plan, by running it without writing. What it would refuse is rounded."""
    rehearsed = replace(plan, request=replace(plan.request, repack=Repack.ROUNDED))
    return verdicts_of_file(rehearsed, source, stages_of_repack, threads=threads, progress=progress)


def stages_of_repack(
    verdicts: Verdicts | None, plan: RepackPlan, _: str, reader: SourceReader, writer: FileWriter
) -> list[Stages]:
    """Return the work on the file, as `requant.checkpoint.run.file_plan` runs it."""
    files = {file.name: file for file in plan.sources}
    steps = Steps(
        reader.store, reader.counter, reader.read_size, files, plan.request, None, verdicts, buffers=reader.buffers
    )

    def write(begin: int, data: bytes) -> None:
        writer.write(begin, data)
        reader.counter.add(written=len(data))

    fixed = (Piece(len(data), partial(write, begin, data)) for begin, data in ((0, plan.head), *plan.filled))
    return [iter([fixed]), *(steps.stages(each, plan.places, writer) for each in group_by_shared_scale(plan.steps))]
