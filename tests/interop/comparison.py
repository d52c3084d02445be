"""Compares the bits of a real system with Requant's: all must be equal; the counts are printed and recorded."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tests.interop.conformance.records import record
from tests.interop.conformance.subject import Subject
from tests.interop.conformance.systems import System

Array = NDArray[Any]


class Comparison:
    """Compares arrays bit by bit, and counts. Differences are collected, so that a failure shows all of them.

    `system` and `subjects` are the rows of docs/conformance.md that the count belongs to, if it is a real system; `isa`
    is the instruction set that it was told to use, if it is not the machine's.
    """

    def __init__(self, title: str, system: System | None = None, *subjects: Subject, isa: str | None = None) -> None:
        self.title = title
        self.conversions = self.elements = 0
        self.excluded: Counter[str] = Counter()
        self.differences: list[str] = []
        self._system, self._subjects, self._isa = system, subjects, isa
        self._different = 0
        self._witness: dict[str, Any] | None = None

    def add(
        self,
        what: object,
        source: Array,
        ours: Array,
        theirs: Array,
        except_where: Mapping[str, Array] | None = None,
    ) -> None:
        """Compare one conversion of `source`.

        Elements that differ by a deliberate divergence are counted apart. `except_where` has a mask of where it may
        show, by its name in tests/interop/conformance/divergences.py.
        """
        assert ours.dtype == theirs.dtype, (what, ours.dtype, theirs.dtype)
        assert ours.shape == theirs.shape == source.shape, (what, ours.shape, theirs.shape)
        bits = np.dtype(f"u{ours.dtype.itemsize}")
        our_bits, their_bits = ours.ravel().view(bits), theirs.ravel().view(bits)
        differ = our_bits != their_bits
        excluded = 0
        masks = dict(except_where or {})
        if ours.dtype.kind == "f":
            # The sign and payload of a NaN that arithmetic made are the processor's.
            masks["nan_bits"] = np.isnan(ours) & np.isnan(theirs)
        for divergence, mask in masks.items():
            deliberate = differ & mask.ravel()
            differ &= ~deliberate
            if count := int(np.count_nonzero(deliberate)):
                self.excluded[divergence] += count
                excluded += count
        wrong = np.flatnonzero(differ)
        self.conversions += 1
        self.elements += ours.size - excluded
        self._different += wrong.size
        if wrong.size:
            flat = source.ravel()
            shown = [(int(i), flat[i], ours.ravel()[i], theirs.ravel()[i]) for i in wrong[:4]]
            self.differences.append(f"{what}: {wrong.size} of {ours.size}, (index, input, ours, theirs): {shown}")
            if self._witness is None:
                index, *values = shown[0]
                self._witness = dict(zip(("input", "ours", "theirs"), map(str, values), strict=True))
                self._witness |= {"what": str(what), "index": index}
                if self._subjects:
                    self._witness |= _call_of(what, self._subjects[0], source, theirs, wrong)

    def leave_out(self, divergence: str, elements: int = 0) -> None:
        """Record that inputs of a deliberate divergence are not compared."""
        self.excluded[divergence] += elements

    def finish(self, at_least: int) -> None:
        """Print and record the count. Fail if anything differed or if fewer than `at_least` elements were compared."""
        sys.stdout.write(
            f"{self.title}: {self.elements:,} elements of {self.conversions} conversions compared, "
            f"{self.excluded.total():,} excluded\n"
        )
        if self._system is not None:
            record(
                self._system, self._subjects, self.elements, self._different, self.excluded, self._isa, self._witness
            )
        assert not self.differences, f"{len(self.differences)} conversions differ\n" + "\n".join(self.differences[:20])
        assert self.elements >= at_least, f"only {self.elements:,} elements were compared"


def _call_of(what: object, subject: Subject, source: Array, theirs: Array, wrong: Array) -> dict[str, Any]:
    """The call that shows what differs, of a conversion with parameters."""
    # Not where clients are tested: their environment has no library.
    from tests.interop.quantized_case import Case

    return {"call": what.call(subject.operation, source, theirs, wrong)} if isinstance(what, Case) else {}
