"""The profile `onednn`: traps of Quantize and Dequantize, and requantize, which is one after the other."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from requant.convert.requantize import plan_requantize
from tests.interop import traps
from tests.interop.comparison import Comparison
from tests.interop.conformance import systems
from tests.interop.conformance.subject import profile
from tests.interop.onednn.cases import NAMES, around
from tests.interop.onednn.library import ENVIRONMENT, Onednn
from tests.interop.quantized_case import Case
from tests.interop.seed_of_the_day import generator

pytestmark = [
    pytest.mark.interop,
    pytest.mark.skipif(not ENVIRONMENT.exists(), reason=f"there is no {ENVIRONMENT}"),
]


@pytest.fixture(scope="module")
def onednn() -> Iterator[Onednn]:
    with Onednn("AVX2") as library:
        yield library


@pytest.mark.parametrize(("source", "target"), [("i8", "i8"), ("i8", "u8"), ("u8", "i8"), ("u8", "u8")])
def test_requantize(onednn: Onednn, source: str, target: str) -> None:
    """Every stored number, with scales around 1, where the library leaves them out, and at the ends of f32."""
    rng = generator(9)
    row = profile("onednn", "requantize")
    comparison = Comparison(f"oneDNN requantize {source} to {target}", systems.ONEDNN, row, isa="x86-64 with AVX2")
    chosen = [*traps.scales("f32", rng), *(float(each) for each in around(1.0, 12)), 0.0237, 0.5]
    names = {"i8": NAMES["i8"], "u8": NAMES["ui8"]}
    for scale_in in chosen:
        scale_out = float(rng.choice(chosen))
        z_in, z_out = int(rng.choice(traps.zero_points(source))), int(rng.choice(traps.zero_points(target)))
        given = Case((271,), source, "f32", np.array(scale_in), np.array(z_in))
        wanted = Case((271,), target, "f32", np.array(scale_out), np.array(z_out))
        stored = given.stored_data(rng)
        plan = plan_requantize(given.tensor, wanted.tensor, "onednn")
        ours = np.empty(stored.size, plan.output_dtype)
        plan.run(stored, ours)
        real = onednn.run("Dequantize", [(names[source], stored)], "f32", qtype="per_tensor", scales=[scale_in],
                          zps=[z_in])  # fmt: skip
        theirs = onednn.run("Quantize", [("f32", real)], names[target], qtype="per_tensor", scales=[scale_out],
                            zps=[z_out])  # fmt: skip
        comparison.add((scale_in, z_in, scale_out, z_out), stored, ours, theirs)
    comparison.finish(15_000)


@pytest.mark.parametrize("storage", ["i8", "u8"])
def test_traps(onednn: Onednn, storage: str) -> None:
    rng = generator(10)
    kind = NAMES[storage.replace("u", "ui")]
    title, isa = f"oneDNN {{}} of traps, {storage}", "x86-64 with AVX2"
    comparison = Comparison(title.format("quantize"), systems.ONEDNN, profile("onednn", "quantize"), isa=isa)
    for case, source in traps.reals(storage, "f32", rng, granularities=()):
        given = {"qtype": "per_tensor", "scales": [float(case.scales)], "zps": [int(case.zero_points)]}
        theirs = onednn.run("Quantize", [("f32", source)], kind, **given)
        comparison.add(case, source, case.quantized(source, "onednn"), theirs)
    comparison.finish(10_000)
    comparison = Comparison(title.format("dequantize"), systems.ONEDNN, profile("onednn", "dequantize"), isa=isa)
    for case, source in traps.stored(storage, "f32", rng, granularities=()):
        given = {"qtype": "per_tensor", "scales": [float(case.scales)], "zps": [int(case.zero_points)]}
        theirs = onednn.run("Dequantize", [(kind, source)], "f32", **given)
        comparison.add(case, source, case.dequantized(source, "onednn"), theirs)
    comparison.finish(10_000)
