"""The result of a verification as JSON, for each weight if requested."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from requant.checkpoint.plan.model import Request
from requant.checkpoint.run.work import ProgressCallback
from requant.checkpoint.storage.store import Store
from requant.checkpoint.verify.verification import Verification, verify
from requant.checkpoint.verify.weight_error import WeightError, weight_errors


@dataclass(frozen=True, slots=True)
class CheckpointReport:
    """A checkpoint, what it was verified against, and what was found. `weights`: empty without a source."""

    checkpoint: str
    source: str | None
    request: Request | None
    verification: Verification
    weights: tuple[WeightError, ...] = ()

    def members(self) -> dict[str, Any]:
        """Return the report as the members of a JSON object. Numbers that do not exist are null."""
        found = self.verification
        return {
            "checkpoint": self.checkpoint,
            "source": self.source,
            "request": None if self.request is None else asdict(self.request),
            "faults": [asdict(fault) for fault in found.faults],
            "warnings": [asdict(fault) for fault in found.warnings],
            "tensors": found.tensors,
            "tensors_compared": found.tensors_compared,
            "bytes_compared": found.bytes_compared,
            "files_hashed": found.files_hashed,
            "sample": found.sample,
            "seed": found.seed,
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
    found = verify(
        store,
        source,
        request=request,
        sample=sample,
        seed=seed,
        hashes=hashes,
        threads=threads,
        progress=progress,
    )
    measured: tuple[WeightError, ...] = ()
    if weights and source is not None and found.conversion is not None and found.dequantization is not None:
        measured = weight_errors(found.conversion, source, found.dequantization, store, threads=threads)
    made_by = None if found.conversion is None else found.conversion.request
    return CheckpointReport(store.url, None if source is None else source.url, made_by, found, measured)
