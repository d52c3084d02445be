"""Profile `riscv` against vfncvt, vfncvt.rod and vfncvtbf16 in QEMU: from f64 to f32, f32 to f16, f32 to bf16."""

from __future__ import annotations

import pytest

from requant.profiles import Rounding
from tests.interop.casts.cast_data import narrowed as ours
from tests.interop.casts.cast_data import real_data
from tests.interop.comparison import Comparison
from tests.interop.conformance import systems
from tests.interop.conformance.subject import profile
from tests.interop.riscv.machine import FRM, narrowed, needs_machine, vfncvt
from tests.support.cases import EXHAUSTIVE

pytestmark = [pytest.mark.interop, needs_machine]

MODES = {
    Rounding.NEAREST_EVEN: 0,
    Rounding.TOWARD_ZERO: 1,
    Rounding.FLOOR: 2,
    Rounding.CEILING: 3,
    Rounding.NEAREST_AWAY: 4,
    Rounding.ODD: None,
}
"""By rounding, frm; vfncvt.rod needs none."""
FORMS = {"f64 f32": 0x14, "f32 f16": 0x14, "f32 bf16": 0x1D}
ROUND_TO_ODD = 0x15


@pytest.mark.parametrize("rounding", MODES)
@pytest.mark.parametrize("conversion", FORMS)
def test_narrow(conversion: str, rounding: Rounding) -> None:
    source, target = conversion.split()
    mode = MODES[rounding]
    if mode is None and target == "bf16":
        # There is no such instruction.
        return
    form = ROUND_TO_ODD if mode is None else FORMS[conversion]
    comparison = Comparison(f"RISC-V {conversion} {rounding}", systems.QEMU, profile("riscv", "cast"))
    for data in real_data(source, "f16" if target == "f32" else target):
        if data.size < 100 and not EXHAUSTIVE:
            # A process for each is slow.
            continue
        theirs = narrowed(data, vfncvt(form), (FRM, mode or 0))
        comparison.add(target, data, ours(data, source, target, "riscv", rounding=rounding), theirs)
    comparison.finish(1_000_000)
