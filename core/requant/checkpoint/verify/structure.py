"""Checks of a checkpoint without its source: index, headers, config.json and manifest against each other."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from requant.checkpoint.name_patterns import check_linear
from requant.checkpoint.plan.model import CopyStep, DequantizeStep, Direction, Plan, Request, request_of
from requant.checkpoint.plan.model_files import quantization_of
from requant.checkpoint.plan.planner import plan_of
from requant.checkpoint.plan.source import MANIFEST, Source, read_source
from requant.checkpoint.quantization_config.compressed_tensors import METHOD, targets_and_ignore
from requant.checkpoint.run.destination import (
    CERTIFICATE,
    CONFIG,
    INDEX,
    SEAL,
    Manifest,
    read_manifest,
    sealed,
)
from requant.checkpoint.selection import Selection
from requant.checkpoint.storage.store import Store
from requant.errors import CheckpointError, DestinationError, ParameterError, StorageError, excerpt


@dataclass(frozen=True, slots=True)
class Fault:
    """Something that is wrong, and where. `index`: of the first element of the stored tensor, along its axes."""

    detail: str
    file: str | None = None
    tensor: str | None = None
    index: tuple[int, ...] | None = None


_MEMBERS = {"version", "plan", "request", "files"}


def _manifest_faults(store: Store, manifest: Manifest, source: Source | None) -> list[Fault]:
    """Return the faults of a manifest that can be read. `source`: the checkpoint beside it, if that can be read."""
    faults = changes_of(store.get(MANIFEST))
    try:
        certified = request_of(manifest.request).certify
        if certified and manifest.certificate is None and CONFIG in manifest.files:
            faults.append("it has no certificate, although the request in it asks for one")
    except (KeyError, TypeError, ValueError):
        faults.append("the request in it cannot be read")
    if source is not None:
        beside = {*source.shards, CONFIG, *(file.name for file in source.files if file.name == INDEX)}
        faults += [f"it does not name '{excerpt(name)}'" for name in sorted(beside - manifest.files.keys())]
    return [Fault(each, MANIFEST) for each in faults]


def changes_of(text: bytes | None) -> list[str]:
    """Return what says that the text of a manifest that can be read is not the one that was written."""
    data = text or b"{}"
    parsed = json.loads(data)
    members = {name: value for name, value in parsed.items() if name != SEAL}
    if members.keys() - {CERTIFICATE} != _MEMBERS or not _is_as_written(data, members, stated=SEAL in parsed):
        return ["it was changed: it has other members, or another SHA-256, than Requant wrote"]
    return []


def _is_as_written(data: bytes, members: Mapping[str, Any], *, stated: bool) -> bool:
    """Return whether the text is that of its members. Manifests of earlier versions do not state their SHA-256."""
    try:
        return not stated or sealed(members) == data
    except (ValueError, RecursionError):
        return False


@dataclass(frozen=True, slots=True)
class Structure:
    """What a checkpoint holds. `source`, `dequantization`: None where they could not be made, and a fault says why.

    `dequantization`: the plan that gives its weights back; it exists for quantized checkpoints only.
    """

    faults: tuple[Fault, ...]
    source: Source | None
    dequantization: Plan | None
    manifest: Manifest | None
    files_hashed: int


def check_structure(store: Store, *, hashes: bool) -> Structure:
    """Check that a checkpoint is complete.

    Every file that the index names is there, index and headers agree both ways, no quantized module lacks a tensor or
    has one of another shape or dtype, no weight that config.json calls quantized is stored as it was, each file of
    the manifest is there with its size, and the manifest is as it was written. `hashes`: and each file has its
    SHA-256. Raises StorageError.
    """
    faults: list[Fault] = []
    manifest = _manifest(store, faults)
    source = plan = None
    try:
        source = read_source(store)
        plan = _dequantization(source, faults)
    except StorageError:
        raise
    except CheckpointError as error:
        faults.append(Fault(error.detail, error.file, error.tensor))
    hashed = 0
    if manifest is not None:
        wrong, hashed = changed_files(store, manifest, hashes=hashes)
        faults += [*wrong, *_manifest_faults(store, manifest, source)]
    return Structure(tuple(faults), source, plan, manifest, hashed)


def changed_files(store: Store, manifest: Manifest, *, hashes: bool) -> tuple[list[Fault], int]:
    """Return the faults of the files that a manifest names, and how many were hashed. Raises StorageError."""
    files = {file.name: file for file in store.files()}
    faults, hashed = [], 0
    for name, finished in manifest.files.items():
        if name not in files:
            faults.append(Fault(f"the file is missing; {MANIFEST} names it", name))
        elif files[name].size != finished.size:
            faults.append(Fault(f"has {files[name].size} bytes; {MANIFEST} says {finished.size}", name))
        elif hashes:
            hashed += 1
            if store.sha256(files[name]) != finished.sha256:
                faults.append(Fault(f"its SHA-256 differs from {MANIFEST}: the file was changed", name))
    return faults, hashed


def _manifest(store: Store, faults: list[Fault]) -> Manifest | None:
    try:
        return read_manifest(store)
    except DestinationError as error:
        faults.append(Fault(error.detail, MANIFEST))
        return None


def _dequantization(source: Source, faults: list[Fault]) -> Plan | None:
    """Return the plan that dequantizes: planning it looks at all tensors of all quantized modules."""
    members = quantization_of(source)
    if members is None:
        return None
    plan = plan_of(source, Request(Direction.DEQUANTIZE, (), ""))
    if members.get("quant_method") == METHOD:
        faults += _left_out(plan, members)
    return plan


def _left_out(plan: Plan, members: Mapping[str, Any]) -> Iterator[Fault]:
    """Yield the weights that config.json calls quantized, and that are stored as they were.

    `Linear` among the targets does not say which modules are linear. Those are that have the last name of one that is
    quantized: not embeddings, which other tools leave as they are without a word. Nothing is said where a regular
    expression could take forever, such as one with a look-around.
    """
    targets, ignored = targets_and_ignore(members)
    try:
        selection = Selection(targets, ignored)
    except ParameterError as error:
        raise CheckpointError(f"quantization_config: {error.detail}", file="config.json") from None
    try:
        check_linear((*targets, *ignored))
    except ParameterError:
        return
    steps = list(plan.steps)
    linear = {_last_name(step.output) for step in steps if isinstance(step, DequantizeStep)}
    for step in steps:
        if not isinstance(step, CopyStep) or len(step.source.shape) != 2 or _last_name(step.output) not in linear:
            continue
        if selection.skip_reason(step.output) is None:
            yield Fault(
                "the weight is not quantized, but `ignore` and `targets` of config.json do not exclude it",
                step.source.file,
                step.output,
            )


def _last_name(weight: str) -> str:
    """Return the last part of the name of a weight's module: `up_proj` of `model.layers.1.mlp.up_proj.weight`."""
    return weight.removesuffix(".weight").rpartition(".")[2]
