"""The result of a verification, and the effect of quantization on each weight: the range of its scales, saturated
codes, and the error.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from math import isfinite
from typing import Any

import numpy as np

from requant.checkpoint.plan.model import DequantizeStep, Plan, QuantizedSource, QuantizeStep, Request, WeightSource
from requant.checkpoint.run.stored_weight import Files, QuantizedWeight, row_ranges, weight_of
from requant.checkpoint.run.work import ProgressCallback, in_threads
from requant.checkpoint.storage.store import Store
from requant.checkpoint.verify.verification import Verification, verify
from requant.comparison.comparison import ErrorReport, ErrorSums
from requant.comparison.real_values import real_values
from requant.errors import VerificationError
from requant.errors.cancellation import check_cancelled
from requant.kernels.statistics.error_sums import BLOCK
from requant.mlir.parser import parse_type
from requant.mlir.types import TensorType


@dataclass(frozen=True, slots=True)
class WeightError:
    """One quantized weight [out, in] beside what it was.

    `scale_minimum`, `scale_maximum`: of its scales, by magnitude; None for a weight without any that is finite.
    `saturated`: how many codes are the lowest or the highest that there is. `error`: of the dequantized weight against
    the source, in binary64.
    """

    module: str
    shape: tuple[int, int]
    dtype: str
    bits: float
    scale_minimum: float | None
    scale_maximum: float | None
    saturated: int
    error: ErrorReport


def weight_errors(
    conversion: Plan,
    source: Store,
    dequantization: Plan,
    store: Store,
    *,
    threads: int | None = None,
    done: Callable[[WeightError], None] | None = None,
) -> tuple[WeightError, ...]:
    """Compare all quantized weights at `store` with the source, in the order of the source's files.

    `conversion`: the plan that made them, `dequantization`: that which gives them back. `done` is called after each
    weight. Raises VerificationError for a weight that is not there, SourceChangedError, StorageError.
    """
    before = Files.of(source, conversion.sources)
    after = Files.of(store, dequantization.sources)
    stored = {step.module: step.source for step in dequantization.steps if isinstance(step, DequantizeStep)}

    def measure(step: QuantizeStep) -> WeightError:
        check_cancelled()
        if step.module not in stored:
            raise VerificationError("the module has no quantized weight", tensor=step.module)
        measured = _measure(step.source, before, stored[step.module], after)
        if done is not None:
            done(measured)
        return measured

    steps = (step for step in conversion.steps if isinstance(step, QuantizeStep))
    return tuple(in_threads(measure, steps, threads))


def _measure(source: WeightSource, before: Files, stored: QuantizedSource, after: Files) -> WeightError:
    plain, quantized = weight_of(before, source), QuantizedWeight(after, stored)
    out, columns = plain.shape
    if quantized.shape != plain.shape:
        raise VerificationError(
            f"has shape {list(quantized.shape)}; expected {list(plain.shape)}", tensor=stored.module
        )
    # Each row begins a block of the sums, so that the report does not depend on the pieces.
    width = -(-columns // BLOCK) * BLOCK
    reals = real_values(_F32, "the weight")
    sums = ErrorSums(reals, reals, out * width, padding=out * (width - columns))
    saturated, low, high = 0, np.inf, 0.0
    for begin, end in row_ranges(plain, quantized):
        a, b = np.zeros((2, end - begin, width), np.float32)
        a[:, :columns] = plain.f32(begin, end)
        b[:, :columns] = quantized.f32(begin, end)
        sums.add(a.reshape(-1), b.reshape(-1), begin * width)
        codes = quantized.codes(begin, end)
        saturated += int(np.count_nonzero(codes.codes == codes.lowest))
        saturated += int(np.count_nonzero(codes.codes == codes.highest))
        sizes = np.abs(codes.scales[np.isfinite(codes.scales)])
        if sizes.size:
            low, high = min(low, float(sizes.min())), max(high, float(sizes.max()))
    bits = stored.byte_count * 8 / (out * columns)
    known = isfinite(low)
    return WeightError(
        stored.module,
        plain.shape,
        source.dtype,
        bits,
        low if known else None,
        high if known else None,
        saturated,
        sums.report(),
    )


def _f32() -> TensorType:
    tensor = parse_type("tensor<1xf32>")
    assert isinstance(tensor, TensorType)
    return tensor


_F32 = _f32()


_COUNTS = ("tensors", "tensors_compared", "bytes_compared", "files_hashed", "sample", "seed")


@dataclass(frozen=True, slots=True)
class CheckpointReport:
    """A checkpoint, what it was verified against, and what was found. `request`: what it was made by, as members of
    JSON; None where that is not known. `weights`: empty without a source.
    """

    checkpoint: str
    source: str | None
    request: Mapping[str, Any] | None
    verification: Verification
    weights: tuple[WeightError, ...] = ()

    def members(self) -> dict[str, Any]:
        """Return the report as the members of a JSON object. Numbers that do not exist are null."""
        result = self.verification
        return {
            "checkpoint": self.checkpoint,
            "source": self.source,
            "request": self.request,
            "faults": [asdict(fault) for fault in result.faults],
            "warnings": [asdict(fault) for fault in result.warnings],
            **{name: getattr(result, name) for name in _COUNTS},
            "weights": [asdict(weight) for weight in self.weights],
        }


def checkpoint_report(
    store: Store,
    source: Store | None = None,
    *,
    request: Request | None = None,
    sample: float = 1.0,
    seed: int = 0,
    hashes: bool = True,
    weights: bool = False,
    threads: int | None = None,
    progress: ProgressCallback | None = None,
) -> CheckpointReport:
    """Verify a checkpoint (`requant.checkpoint.verify.verification.verify`) and report on it.

    `weights`: measure the error of each weight too, which needs the source of a quantized checkpoint.

    Raises CheckpointError where the source cannot be planned, or the weights cannot be measured; ParameterError,
    StorageError, SourceChangedError. Faults of the checkpoint are part of the report.
    """
    result = verify(
        store, source, request=request, sample=sample, seed=seed, hashes=hashes, threads=threads, progress=progress
    )
    measured: tuple[WeightError, ...] = ()
    if weights and source is not None and result.conversion is not None and result.dequantization is not None:
        measured = weight_errors(result.conversion, source, result.dequantization, store, threads=threads)
    made_by = None if result.conversion is None else result.conversion.request.members
    return CheckpointReport(store.url, None if source is None else source.url, made_by, result, measured)
