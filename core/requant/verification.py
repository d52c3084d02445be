"""Whole checkpoints checked and compared, in this process."""

from __future__ import annotations

from collections.abc import Callable

from requant.checkpoint.run.work import Progress
from requant.checkpoint.verify.difference import CheckpointDifference, diff
from requant.checkpoint.verify.report import CheckpointReport, checkpoint_report
from requant.checkpoints import Location, open_both, open_source


def verify_checkpoint(
    checkpoint: Location,
    source: Location | None = None,
    *,
    sample: float = 1.0,
    seed: int = 0,
    hashes: bool = True,
    weights: bool = False,
    like: Location | None = None,
    threads: int | None = None,
    progress: Callable[[Progress], None] | None = None,
) -> CheckpointReport:
    """Check that a converted model is complete, and with its source that every byte is what the conversion gives.

    Without a source: every file that the index names is there, index and headers agree, no quantized module lacks a
    tensor, no scale is NaN, infinite, negative or 0, no code out of its range, and no weight all 0. What is wrong is in
    `verification.faults` of the report, what is unusual in `verification.warnings`.

    sample: compare this share of the tensors with the source, from above 0 to 1; `seed` chooses them.
    hashes: compare the files with the SHA-256 of the manifest.
    weights: measure the error of each weight too.
    like: for a source that is a GGUF file, the directory of the same model (`quantize_checkpoint`).

    Raise CheckpointError where the source is no checkpoint, or cannot be read.
    """
    return checkpoint_report(
        open_source(checkpoint),
        None if source is None else open_source(source, like),
        sample=sample,
        seed=seed,
        hashes=hashes,
        weights=weights,
        threads=threads,
        progress=progress,
    )


def diff_checkpoints(
    a: Location, b: Location, *, numbers: bool = False, like: Location | None = None, threads: int | None = None
) -> CheckpointDifference:
    """Return where two models differ, tensor by tensor: codes in steps, floats in ulps.

    Quantized weights are compared code by code if both models store them in the same format, and by their values
    otherwise. With `numbers`, what is compared are the numbers that are stored, exactly: the products of codes and
    scales. `like`: for GGUF files, the directory of the same model; default: the other model. Raise CheckpointError for
    what is no checkpoint, or cannot be read.
    """
    return diff(*open_both(a, b, like), numbers=numbers, threads=threads)
