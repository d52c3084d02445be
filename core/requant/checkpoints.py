"""Whole checkpoints converted, in this process."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from requant.checkpoint.given_scales import OF_INPUTS, OF_KV_CACHE
from requant.checkpoint.plan.model import Direction, NotFinite, Repack, Request, SchemeFor
from requant.checkpoint.plan.planner import plan_conversion
from requant.checkpoint.plan.scale_files import scales_from
from requant.checkpoint.plan.source import files_of
from requant.checkpoint.run.run import RunReport, run_plan
from requant.checkpoint.run.work import Progress
from requant.checkpoint.schemes import scheme_named
from requant.checkpoint.selection import ALL, DEFAULT_IGNORE
from requant.checkpoint.storage.local import LocalStore
from requant.checkpoint.storage.location import open_folder, open_store, snapshot
from requant.checkpoint.storage.store import Store
from requant.errors import CheckpointError, ParameterError, excerpt
from requant.errors.names import entry_named

if TYPE_CHECKING:
    from requant.checkpoint.gguf.repack import GgufTarget

_NOT_FINITE = {str(each): each for each in NotFinite}

Location = str | os.PathLike[str]
Schemes = str | Sequence[tuple[str, Sequence[str]]]
"""The name of a scheme, or several, each with the modules that it is for."""
GivenScales = Mapping[str, float] | Location
"""Scales of activations by name, or where they are."""


def quantize_checkpoint(
    source: Location,
    destination: Location,
    scheme: Schemes,
    *,
    profile: str | None = None,
    ignore: Sequence[str] = DEFAULT_IGNORE,
    targets: Sequence[str] = (ALL,),
    not_finite: str = NotFinite.REFUSE,
    dtype: str | None = None,
    certify: bool = False,
    like: Location | None = None,
    input_scales: GivenScales | None = None,
    kv_scales: GivenScales | None = None,
    threads: int | None = None,
    progress: Callable[[Progress], None] | None = None,
) -> RunReport:
    """Quantize the linear weights of a model, and write it as vLLM and transformers load it.

    The weights may be quantized already: they are dequantized and quantized piece by piece.

    source: the directory of the model, a model in Hugging Face's cache (`models--*`), or a URL; or a GGUF file.
    destination: the directory or URL to write. Complete files of a run that did not finish are kept.
    scheme: `W8A8`, `W4A16`, `FP8_DYNAMIC` and so on (docs/checkpoints.md). Or several of compressed-tensors, each with
    its targets: [("NVFP4A16", ["re:.*experts.*"]), ("FP8_BLOCK", ["Linear"])]. A module has the first that is for it.
    profile: the library whose bits are reproduced. Default: the scheme's first, such as `compressed-tensors-cpu`.
    ignore, targets: lists of names of modules, or of `re:` and a regular expression. Default: all linear modules,
    except embeddings, output layers, expert routers, norms, convolutions, and vision and audio towers, for which
    `default` stands in `ignore`. With another list, such as [], exactly its entries are left out, as in llm-compressor.
    not_finite: `refuse` or `convert` a weight that has a NaN or an infinity.
    dtype: BF16, F16 or F32, to which weights of a quantized model are dequantized before. Default: what config.json
    says, else BF16.
    certify: compare each number of the source with the one that is written, and state in the manifest which tensors are
    exact, widened or rounded; so do `verdicts` of the report.
    like: for a GGUF file, the directory of the same model as Hugging Face's libraries store it: names, config.json,
    tokenizer and other files are taken from there, and its weights are not read.
    input_scales: scales of activations that were found with data, for `FP8` and `NVFP4`: a mapping from the name of a
    module, or of its tensor, to a number; the path or URL of a JSON file with such an object; or safetensors, a file or
    a directory, with tensors of one element. `X.input_scale` of FP8 is largest magnitude / 448, `X.input_global_scale`
    of NVFP4 is 448 * 6 / largest magnitude.
    kv_scales: likewise `X.k_scale` and `X.v_scale` of attention modules X, largest magnitude / 448, for any scheme of
    compressed-tensors: keys and values are then kept in FP8.
    threads: default: the CPUs that this process may use.
    progress: called after each piece of the work, by one thread at a time.

    Raise UnknownNameError for an unknown scheme or profile, ParameterError for a wrong pattern, and CheckpointError,
    naming file and tensor, for what cannot be converted, read or written. What the plan warns of is in `warnings` of
    the report.
    """
    request = conversion_request(
        Direction.QUANTIZE,
        scheme=scheme,
        profile=profile,
        ignore=ignore,
        targets=targets,
        not_finite=not_finite,
        dtype=dtype,
        certify=certify,
        input_scales=input_scales,
        kv_scales=kv_scales,
    )
    return _converted(source, destination, request, threads, progress, like)


def dequantize_checkpoint(
    source: Location,
    destination: Location,
    *,
    dtype: str | None = None,
    certify: bool = False,
    like: Location | None = None,
    threads: int | None = None,
    progress: Callable[[Progress], None] | None = None,
) -> RunReport:
    """Convert a quantized model back to floats.

    dtype: BF16, F16 or F32. Default: what config.json says, else BF16. The other arguments and the errors are those of
    `quantize_checkpoint`.
    """
    request = conversion_request(Direction.DEQUANTIZE, dtype=dtype, certify=certify)
    return _converted(source, destination, request, threads, progress, like)


def repack_checkpoint(
    source: Location,
    destination: Location,
    scheme: str | None = None,
    *,
    dtype: str | None = None,
    allow_rounding: bool = False,
    like: Location | None = None,
    threads: int | None = None,
    progress: Callable[[Progress], None] | None = None,
) -> RunReport:
    """Move the codes and scales of a quantized model to another format, exactly or not at all.

    Each number that the source holds is compared with the one that is written.

    destination: the directory or URL to write, or a GGUF file (`.gguf`).
    scheme: the format to move to, such as `W4A16`; None for floats of `dtype`. For a GGUF file `Q8_0`, `Q4_0`, `Q4_1`,
    `Q5_0`, `Q5_1`, `MXFP4` or `NVFP4`.
    dtype: BF16, F16 or F32: without a scheme of the weights, with one of scales that are not of a fixed dtype. Default:
    that of the source's scales, else of config.json.
    allow_rounding: store the nearest numbers where the other format cannot hold the same ones. `verdicts` of the report
    say of which weights, and by how much.
    like: as in `quantize_checkpoint`; where the destination is a GGUF file, the file of the same model in F32, F16 or
    BF16 that llama.cpp's convert_hf_to_gguf.py made: its keys, names and order of tensors, and the types of those that
    are not quantized.

    The other arguments are those of `quantize_checkpoint`. Raise CheckpointError with the first number that cannot be
    held; otherwise as `quantize_checkpoint`.
    """
    repack = Repack.ROUNDED if allow_rounding else Repack.EXACT
    if is_gguf(destination):
        from requant.checkpoint.gguf.repack import repack_to_gguf

        target = gguf_target(destination, scheme, like)
        return repack_to_gguf(
            open_source(source), target, allow_rounding=allow_rounding, threads=threads, progress=progress
        )
    direction = Direction.DEQUANTIZE if scheme is None else Direction.QUANTIZE
    request = conversion_request(direction, scheme=scheme, dtype=dtype, repack=repack)
    return _converted(source, destination, request, threads, progress, like)


def conversion_request(
    direction: Direction,
    *,
    scheme: Schemes | None = None,
    profile: str | None = None,
    ignore: Sequence[str] = DEFAULT_IGNORE,
    targets: Sequence[str] = (ALL,),
    not_finite: str = NotFinite.REFUSE,
    dtype: str | None = None,
    repack: Repack = Repack.NO,
    certify: bool = False,
    input_scales: GivenScales | None = None,
    kv_scales: GivenScales | None = None,
) -> Request:
    """Return the request with these options. Raise UnknownNameError for a name that does not exist, ParameterError."""
    schemes = _schemes(scheme, _patterns("targets", targets))
    if profile is None:
        profile = scheme_named(schemes[0].scheme).profiles[0] if schemes else ""
    return Request(
        direction=direction,
        schemes=schemes,
        profile=profile,
        ignore=_patterns("ignore", ignore if direction is Direction.QUANTIZE and repack is Repack.NO else ()),
        not_finite=entry_named(_NOT_FINITE, not_finite, "policy for non-finite weights"),
        dtype=dtype,
        repack=repack,
        certify=certify,
        input_scales=() if input_scales is None else scales_from(input_scales, OF_INPUTS),
        kv_scales=() if kv_scales is None else scales_from(kv_scales, OF_KV_CACHE),
    )


def _schemes(scheme: Schemes | None, targets: tuple[str, ...]) -> tuple[SchemeFor, ...]:
    """Return the schemes with their targets. Raise ParameterError for what are none."""
    if scheme is None:
        return ()
    if isinstance(scheme, str):
        return (SchemeFor(scheme, targets),)
    if targets != (ALL,):
        raise ParameterError("targets are those of one scheme; of several, state them with each in scheme")
    listed: Any = scheme
    schemes = []
    for each in listed if isinstance(listed, list | tuple) else (listed,):
        if not isinstance(each, list | tuple) or len(each) != len(SchemeFor._fields) or not isinstance(each[0], str):
            raise ParameterError(
                f"scheme has the entry {excerpt(repr(each))}; expected a name with targets, such as "
                "('NVFP4A16', ['re:.*experts.*'])"
            )
        schemes.append(SchemeFor(each[0], _patterns(f"the targets of {excerpt(each[0])}", each[1])))
    if not schemes:
        raise ParameterError("scheme is an empty list; expected a name, or names with targets")
    return tuple(schemes)


def _patterns(name: str, given: Sequence[str]) -> tuple[str, ...]:
    """Raise ParameterError for what is no list of texts. A single text would be taken for a list of its letters."""
    if isinstance(given, str) or not isinstance(given, Iterable):
        raise ParameterError(f"{name} is {excerpt(repr(given))}; expected a list of names, such as ['lm_head']")
    patterns = tuple(given)
    for each in patterns:
        if not isinstance(each, str):
            raise ParameterError(f"{name} has the entry {excerpt(repr(each))}; expected names as str")
    return patterns


def is_gguf(location: Location) -> bool:
    """Return whether a location is that of a GGUF file, by its name, and no directory."""
    text = os.fspath(location)
    return text.lower().endswith(".gguf") and not os.path.isdir(os.path.expanduser(text))


def gguf_target(destination: Location, scheme: str | None, like: Location | None) -> GgufTarget:
    """Return the GGUF file to write. Raise ParameterError where `scheme` or `like` are missing or `like` is none."""
    from requant.checkpoint.gguf.repack import GgufTarget

    if scheme is None or like is None or not is_gguf(like):
        raise ParameterError(
            "codes and scales are moved to a GGUF file of a type (scheme, --scheme Q8_0) like that of the same model "
            "in floats, which llama.cpp's convert_hf_to_gguf.py makes (like, --like model.gguf)"
        )
    folder, name = open_folder(os.fspath(destination))
    return GgufTarget(folder, name, scheme, *open_folder(os.fspath(like)))


def open_source(location: Location, like: Location | None = None) -> Store:
    """Return the store of a model: a directory, a model in Hugging Face's cache, or a URL; or a GGUF file, with the
    directory of the same model. Raise ParameterError for a file without that, and a directory with it; CheckpointError
    for a local directory that does not exist or has no files.
    """
    if is_gguf(location):
        if like is None:
            raise ParameterError(
                f"{excerpt(os.fspath(location))} is a GGUF file: give the directory of the same model with config.json "
                "and tokenizer too (like, --like)"
            )
        from requant.checkpoint.gguf.model_store import GgufModel

        return GgufModel(*open_folder(os.fspath(location)), open_source(like))
    if like is not None:
        raise ParameterError("like is for GGUF files; the source and the destination are none")
    store = open_store(location)
    if isinstance(store, LocalStore):
        store = snapshot(store)
        # What is not there is said before kernels are compiled.
        try:
            files_of(store)
        except CheckpointError as error:
            raise CheckpointError(f"{error.detail}{_how_to_download(os.fspath(location))}") from None
    return store


_REPOSITORY = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*", re.ASCII)


def _how_to_download(location: str) -> str:
    """Return a hint for what has the form of a name on Hugging Face and is no directory."""
    if not _REPOSITORY.fullmatch(location) or os.path.exists(location):
        return ""
    return (
        f". If it is a model on Hugging Face, download it first: hf download {location} --local-dir "
        f"{location.partition('/')[2]}"
    )


def open_both(a: Location, b: Location, like: Location | None = None) -> tuple[Store, Store]:
    """Return the stores of two models to compare. `like`: as in `open_source`; for a GGUF file beside a directory
    that is the other one, unless it is given.
    """
    first, second = (
        open_source(each, (other if like is None else like) if is_gguf(each) else None)
        for each, other in ((a, b), (b, a))
    )
    return first, second


def _converted(
    source: Location,
    destination: Location,
    request: Request,
    threads: int | None,
    progress: Callable[[Progress], None] | None,
    like: Location | None,
) -> RunReport:
    opened = open_source(source, like)
    plan = plan_conversion(opened, request)
    return run_plan(plan, opened, open_store(destination), threads=threads, progress=progress)
