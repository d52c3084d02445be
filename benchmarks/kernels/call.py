"""`python -m benchmarks.kernels.call`: where the time of a call on a small tensor goes, its steps each by itself."""

from __future__ import annotations

from functools import partial

import numpy as np

from benchmarks.kernels.conversion import Conversion
from benchmarks.measure import compare
from benchmarks.section import table
from requant.convert.quantize_plans import NativePlan

_SIZE = 1_000


def call_table() -> str:
    """Return the table."""
    conversion = Conversion()
    plan, source = conversion.plan(_SIZE), conversion.source(_SIZE)
    assert isinstance(plan, NativePlan)
    target = np.empty(_SIZE, plan.output_dtype)
    arguments = (0, plan.numbers, plan.factors, plan.zeros)
    seconds = compare(
        {
            "whole": partial(plan.run, source, target),
            "kernel": partial(plan.kernel, source, target, *arguments),
            "nothing": partial(plan.kernel, source[:0], target[:0], *arguments),
            "checks": partial(plan.check_arrays, source, target),
            "report": partial(plan.tallied, 0, 0, 0),
        }
    ).seconds
    steps = {
        "arguments handed to machine code": seconds["nothing"],
        "arithmetic": seconds["kernel"] - seconds["nothing"],
        "checks of both arrays": seconds["checks"],
        "the report": seconds["report"],
    }
    rest = seconds["whole"] - sum(steps.values())
    steps |= {"Python's calls": rest, "whole": seconds["whole"]}
    return table(["step", "µs"], [[name, f"{each * 1e6:.2f}"] for name, each in steps.items()])


if __name__ == "__main__":
    print(call_table(), end="")
