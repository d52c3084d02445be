"""Whole checkpoints converted, in this process."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from requant.checkpoint.given_scales import OF_INPUTS, OF_KV_CACHE, scales_from
from requant.checkpoint.plan.model import Direction, NotFinite, Repack, Request, SchemeFor
from requant.checkpoint.plan.planner import plan_conversion
from requant.checkpoint.run.run import RunReport, run_plan
from requant.checkpoint.run.work import Progress
from requant.checkpoint.schemes import scheme_named
from requant.checkpoint.selection import ALL, DEFAULT_IGNORE
from requant.checkpoint.storage.local import LocalStore
from requant.checkpoint.storage.location import open_store, snapshot
from requant.checkpoint.storage.store import Store
from requant.errors import ParameterError, excerpt
from requant.errors.names import entry_named

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
    input_scales: GivenScales | None = None,
    kv_scales: GivenScales | None = None,
    threads: int | None = None,
    progress: Callable[[Progress], None] | None = None,
) -> RunReport:
    """Quantize the linear weights of a model, and write it as vLLM and transformers load it.

    The weights may be quantized already: they are dequantized and quantized piece by piece.

    source: the directory of the model, a model in Hugging Face's cache (`models--*`), or a URL.
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
    return _converted(source, destination, request, threads, progress)


def dequantize_checkpoint(
    source: Location,
    destination: Location,
    *,
    dtype: str | None = None,
    certify: bool = False,
    threads: int | None = None,
    progress: Callable[[Progress], None] | None = None,
) -> RunReport:
    """Convert a quantized model back to floats.

    dtype: BF16, F16 or F32. Default: what config.json says, else BF16. The other arguments and the errors are those of
    `quantize_checkpoint`.
    """
    request = conversion_request(Direction.DEQUANTIZE, dtype=dtype, certify=certify)
    return _converted(source, destination, request, threads, progress)


def repack_checkpoint(
    source: Location,
    destination: Location,
    scheme: str | None = None,
    *,
    dtype: str | None = None,
    allow_rounding: bool = False,
    threads: int | None = None,
    progress: Callable[[Progress], None] | None = None,
) -> RunReport:
    """Move the codes and scales of a quantized model to another format, exactly or not at all.

    Each number that the source holds is compared with the one that is written.

    scheme: the format to move to, such as `W4A16`; None for floats of `dtype`.
    dtype: BF16, F16 or F32: without a scheme of the weights, with one of scales that are not of a fixed dtype. Default:
    that of the source's scales, else of config.json.
    allow_rounding: store the nearest numbers where the other format cannot hold the same ones. `verdicts` of the report
    say of which weights, and by how much.

    The other arguments are those of `quantize_checkpoint`. Raise CheckpointError with the first number that cannot be
    held; otherwise as `quantize_checkpoint`.
    """
    direction = Direction.DEQUANTIZE if scheme is None else Direction.QUANTIZE
    repack = Repack.ROUNDED if allow_rounding else Repack.EXACT
    request = conversion_request(direction, scheme=scheme, dtype=dtype, repack=repack)
    return _converted(source, destination, request, threads, progress)


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
        certify=certify or repack is not Repack.NO,
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


def open_source(location: Location) -> Store:
    """Return the store of a model: a directory, a model in Hugging Face's cache, or a URL."""
    store = open_store(location)
    return snapshot(store) if isinstance(store, LocalStore) else store


def _converted(
    source: Location,
    destination: Location,
    request: Request,
    threads: int | None,
    progress: Callable[[Progress], None] | None,
) -> RunReport:
    opened = open_source(source)
    plan = plan_conversion(opened, request)
    return run_plan(plan, opened, open_store(destination), threads=threads, progress=progress)
