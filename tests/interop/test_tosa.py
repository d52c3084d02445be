"""RESCALE against TOSA's reference model: all bits over a seeded grid, refusals, and what is unpredictable.

INEXACT_ROUND is the one mode in which the model checks no REQUIRE. A f32 product that int32 does not hold then becomes
-2^31 there, whatever its sign: C++ does not define that conversion. Here each failed REQUIRE is refused in every mode.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from requant.errors import ParameterError, PreconditionError, RequantError
from tests.interop.comparison import Comparison
from tests.interop.conformance import systems
from tests.interop.conformance.subject import Subject, operator, profile
from tests.interop.conformance.subject import scheme as scheme_row
from tests.oracles.tosa import OUTPUTS, ROUNDINGS, WIDTHS, Rescale, errors_if
from tests.support.rescale_case import DTYPES, numbers, plan, run, stored

pytest.importorskip("tosa_serializer")
pytest.importorskip("tosa_reference_model")

from tests.interop.tosa_model import Verdict, rescale

pytestmark = [pytest.mark.interop, pytest.mark.usefixtures("no_debugger")]

Array = NDArray[Any]

MODES = [(True, mode) for mode in ROUNDINGS] + [(False, "SINGLE_ROUND"), (False, "INEXACT_ROUND")]
DRAWS = 48
ROWS = 400


def tell(text: str, capfd: pytest.CaptureFixture[str]) -> None:
    """Say it in place of what the model has said of each error."""
    capfd.readouterr()
    sys.stdout.write(f"TOSA reference model RESCALE: {text}\n")


def any_of(rng: np.random.Generator, *choices: int) -> int:
    return int(rng.choice(np.array(choices, np.int64)))


def zero_point(element: str, unsigned: bool, bounds: tuple[int, int], rng: np.random.Generator) -> int:
    """One of the zero points that TOSA allows."""
    if element == "i8":
        return any_of(rng, *bounds, 0, int(rng.integers(bounds[0], bounds[1] + 1)))
    return any_of(rng, 0, 32768) if unsigned else 0


def drawn(base: Rescale, rng: np.random.Generator) -> Rescale:
    """The case with channels, multipliers, shifts and zero points of its own."""
    channels = base.shape[-1] if base.per_channel else 1
    bits = 31 if base.scale32 else 15
    edges = (0, 1, (1 << (bits - 1)) - 1, 1 << (bits - 1), (1 << bits) - 1)
    usual = (1 << (bits - 1), 1 << bits)
    return replace(
        base,
        multiplier=tuple(
            any_of(rng, *edges, *(int(m) for m in rng.integers(*usual, 8)), int(rng.integers(0, 1 << bits)))
            for _ in range(channels)
        ),
        shift=tuple(
            any_of(rng, 2, 3, 31, 32, 62, *(int(s) for s in rng.integers(2, 63, 8)), *range(bits - 1, bits + 16, 2))
            for _ in range(channels)
        ),
        input_zp=zero_point(base.in_t, base.input_unsigned, base.input_bounds, rng),
        output_zp=zero_point(base.out_t, base.output_unsigned, base.output_bounds, rng),
    )


def multipliers_and_shifts(case: Rescale) -> tuple[Array, Array]:
    """The multiplier and shift of each element of a row."""
    return np.array(case.multiplier, np.int64), np.array(case.shift, np.int64)


def input_numbers(case: Rescale, rows: int, rng: np.random.Generator) -> Array:
    """Rows of input numbers: at and beside ties of the last rounding, and the bounds of REQUIRE and type; others."""
    low, high = case.input_bounds
    m, shift = multipliers_and_shifts(case)
    size = (rows, case.shape[-1] if case.per_channel else 1)
    odd = 2 * rng.integers(-(1 << 17), 1 << 17, size) + 1
    # In f64: near enough to a tie for the neighbours to hit it, and no overflow.
    ties = odd * np.exp2(shift - 1.0) / np.maximum(m, 1)
    beside = rng.integers(-1, 2, size)
    chosen = rng.integers(0, 5, size)
    v = np.select(
        [chosen < 2, chosen == 2, chosen == 3],
        [
            np.clip(ties, -(2.0**48), 2.0**48).astype(np.int64) + beside,
            np.where(odd > 0, 1, -1) * (np.int64(1) << np.minimum(shift - 1, 48)) + beside,
            np.where(odd > 0, low, high) - case.input_zp + beside,
        ],
        rng.integers(low, high + 1, size) >> rng.integers(0, WIDTHS[case.in_t], size),
    )
    clipped: Array = np.clip(v + case.input_zp, low, high)
    return clipped


def predictable(case: Rescale, x: Array) -> Array:
    """Where all REQUIREs of elements hold."""
    m, shift = multipliers_and_shifts(case)
    v: Array = x - case.input_zp
    half = np.int64(1) << (shift - 1)
    if case.rounding_mode == "INEXACT_ROUND":
        y = np.rint(v.astype(np.float32) * m.astype(np.float32) * np.exp2(-shift.astype(np.float32))).astype(np.float64)
    elif case.scale32:
        y = np.zeros(v.shape)
    else:
        y = ((v * m + half) >> shift).astype(np.float64)
    inside = (y >= -(2.0**31)) & (y < 2.0**31) & (y + case.output_zp >= -(2.0**31)) & (y + case.output_zp < 2.0**31)
    bounded: Array = inside & ((v >= -half) & (v < half) | (not case.scale32))
    return bounded


def signs(in_t: str, out_t: str) -> list[tuple[bool, bool]]:
    """Which sides may be unsigned."""
    narrow = {in_t, out_t} <= {"i8", "i16"}
    return [(False, False), (True, False), (False, True)] if narrow else [(False, False)]


def grid(in_t: str, out_t: str) -> Iterator[Rescale]:
    """Every attribute of a pair of types, without multipliers."""
    for (unsigned_in, unsigned_out), (scale32, mode), per_channel in product(signs(in_t, out_t), MODES, (False, True)):
        if scale32 and in_t == "i48":
            continue
        yield Rescale(
            in_t=in_t,
            out_t=out_t,
            shape=(ROWS, 7) if per_channel else (5 * ROWS,),
            multiplier=(),
            shift=(),
            scale32=scale32,
            rounding_mode=mode,
            per_channel=per_channel,
            input_unsigned=unsigned_in,
            output_unsigned=unsigned_out,
        )


SCHEMES = {
    ("SINGLE_ROUND", True): "tosa",
    ("DOUBLE_ROUND", True): "tosa_double_round",
    ("INEXACT_ROUND", True): "tosa_inexact_round",
    ("SINGLE_ROUND", False): "tosa_scale16",
    ("INEXACT_ROUND", False): "tosa_scale16_inexact_round",
}


def subjects_of(mode: str, scale32: bool) -> list[Subject]:
    """What a graph's rounding_mode and scale32 are by our names."""
    name = SCHEMES[mode, scale32]
    profiles = [profile(name, "requantize")] if name in ("tosa", "tosa_double_round") else []
    return [operator("tosa.RESCALE"), scheme_row(name), *profiles]


@pytest.mark.parametrize("out_t", OUTPUTS)
@pytest.mark.parametrize("in_t", WIDTHS)
def test_every_bit(in_t: str, out_t: str) -> None:
    rng = np.random.default_rng(list(WIDTHS).index(in_t) * 3 + OUTPUTS.index(out_t))
    comparisons = {
        (mode, scale32): Comparison(
            f"TOSA reference model RESCALE {in_t} to {out_t}", systems.TOSA, *subjects_of(mode, scale32)
        )
        for mode, scale32 in SCHEMES
    }
    for base in grid(in_t, out_t):
        for _ in range(DRAWS):
            case = drawn(base, rng)
            x = input_numbers(case, case.shape[0], rng)
            # What is unpredictable becomes the zero point, which never is.
            x = np.where(predictable(case, x), x, case.input_zp)
            if in_t == "i8" and not base.scale32 and not case.per_channel:
                every = np.arange(case.input_bounds[0], case.input_bounds[1] + 1).reshape(-1, 1)
                x[:256] = every
            source = stored(x.reshape(case.shape), in_t)
            verdict, theirs = rescale(case, source)
            assert verdict is Verdict.VALID, (case, verdict)
            assert theirs is not None
            comparisons[case.rounding_mode, case.scale32].add(case, source.ravel(), run(case, source), theirs)
    for comparison in comparisons.values():
        comparison.finish(0)
    assert sum(comparison.elements for comparison in comparisons.values()) >= 4 * DRAWS * 5 * ROWS


def refusal(case: Rescale, source: Array) -> str | None:
    """The code with which core refuses a case, if it does."""
    try:
        run(case, source)
    except RequantError as error:
        return error.code
    return None


def invalid_grid() -> Iterator[Rescale]:
    """Every combination of types, flags and ranks, with a zero point on neither side or on one."""
    flags = (False, True)
    zeros = ((0, 0), (5, 0), (0, 5), (32768, 0), (0, 32768))
    for in_t, out_t, scale32, mode, per_channel, unsigned_in, unsigned_out, (zero_in, zero_out), shape in product(
        WIDTHS, OUTPUTS, flags, ROUNDINGS, flags, flags, flags, zeros, ((), (2,))
    ):
        if any(zero > 255 and t == "i8" for zero, t in ((zero_in, in_t), (zero_out, out_t))):
            continue
        count = shape[-1] if per_channel and shape else 1
        case = Rescale(
            in_t=in_t,
            out_t=out_t,
            shape=shape,
            multiplier=(1 << 14,) * count,
            shift=(14,) * count,
            scale32=scale32,
            rounding_mode=mode,
            per_channel=per_channel,
            input_unsigned=unsigned_in,
            output_unsigned=unsigned_out,
        )
        # A signed i16 has no 32768: the same bits are -32768 there.
        yield replace(
            case,
            input_zp=numbers(stored([zero_in], in_t), in_t, unsigned=unsigned_in)[0],
            output_zp=numbers(stored([zero_out], out_t), out_t, unsigned=unsigned_out)[0],
        )


def test_it_refuses_what_the_model_refuses(capfd: pytest.CaptureFixture[str]) -> None:
    """The model finds an ERROR_IF exactly where we do, and where the specification says.

    Of the graphs for which the same conditions hold, a few: each that is refused takes the model a fifth of a second.
    """
    graphs = defaultdict(list)
    for case in invalid_grid():
        graphs[tuple(errors_if(case))].append(case)
    rng = np.random.default_rng(45)
    counted = {True: 0, False: 0}
    for conditions, same in graphs.items():
        picked = rng.choice(len(same), min(3, len(same)), replace=False).tolist() if conditions else range(len(same))
        for case in (same[index] for index in picked):
            source = np.full(case.shape, stored([case.input_zp], case.in_t), DTYPES[case.in_t])
            verdict, _ = rescale(case, source)
            assert verdict is (Verdict.INVALID if conditions else Verdict.VALID), (case, verdict)
            code = refusal(case, source)
            assert code == ("unsupported" if conditions else None), (case, code)
            counted[bool(conditions)] += 1
    tell(
        f"{counted[True]} graphs of {len(graphs) - 1} sets of conditions refused by both, {counted[False]} by neither",
        capfd,
    )
    assert len(graphs) == 100
    assert counted[False] == 549


@pytest.mark.parametrize(
    ("shape", "multipliers", "shifts", "per_channel"),
    [
        ((2, 3), 2, 2, True), ((2, 3), 1, 1, True), ((2, 3), 3, 2, True), ((2, 3), 2, 3, True),
        ((2, 3), 3, 3, False), ((2, 3), 6, 1, False), ((2, 3), 1, 3, False), ((), 2, 2, False),
        ((0,), 1, 1, False), ((0, 3), 3, 3, True), ((3, 0), 1, 1, False),
    ],
)  # fmt: skip
def test_it_refuses_shapes_that_the_model_refuses(
    shape: tuple[int, ...], multipliers: int, shifts: int, per_channel: bool, capfd: pytest.CaptureFixture[str]
) -> None:
    case = Rescale(
        in_t="i8",
        out_t="i8",
        shape=shape,
        multiplier=(1 << 30,) * multipliers,
        shift=(30,) * shifts,
        per_channel=per_channel,
    )
    source = np.zeros(shape, np.int8)
    assert rescale(case, source) == (Verdict.INVALID, None)
    assert refusal(case, source) == "type_does_not_fit"
    capfd.readouterr()


I32 = Rescale(in_t="i32", out_t="i32", shape=(4,), multiplier=(1 << 30,), shift=(30,))
I8 = replace(I32, in_t="i8", out_t="i8")
SIXTEEN = replace(I32, multiplier=(32767,), shift=(14,), scale32=False)


def at_the_bounds() -> Iterator[tuple[Rescale, int, bool]]:
    """A case, the input at index 2, and whether all REQUIREs hold: at each bound, and one beyond it."""
    for shift in (-128, -1, 0, 1, 2, 62, 63, 127):
        yield replace(I8, shift=(shift,)), 0, 2 <= shift <= 62
        yield replace(I8, shift=(shift,), multiplier=(3,), scale32=False), 0, 2 <= shift <= 62
    for m in (-(2**31), -1, 0, 2**31 - 1):
        yield replace(I8, multiplier=(m,)), 0, m >= 0
    for m in (-32768, -1, 0, 32767):
        yield replace(I8, multiplier=(m,), scale32=False), 0, m >= 0
    for mode, shift in product(("SINGLE_ROUND", "DOUBLE_ROUND"), range(2, 32)):
        case = replace(I32, shift=(shift,), rounding_mode=mode)
        bound = 1 << (shift - 1)
        for v in (-bound - 1, -bound, bound - 1, bound):
            yield case, v, -bound <= v < bound
    for zero in (-128, -1, 127):
        for shift in range(2, 9):
            bound = 1 << (shift - 1)
            for v in (-bound - 1, -bound, bound - 1, bound):
                if -128 <= v + zero <= 127:
                    yield replace(I8, shift=(shift,), input_zp=zero), v + zero, -bound <= v < bound
    # The largest input whose scaled value int32 holds, for a few multipliers and shifts, and the same downward.
    for in_t, m, shift in (
        ("i48", 1, 2),
        ("i48", 16384, 14),
        ("i48", 32767, 30),
        ("i32", 32767, 14),
        ("i32", 16385, 14),
    ):
        for out_t, zero in (("i32", 0), ("i16", 0), ("i8", 0), ("i8", 127), ("i8", -128)):
            case = replace(SIXTEEN, in_t=in_t, out_t=out_t, multiplier=(m,), shift=(shift,), output_zp=zero)
            highest = 2**31 - 1 - max(zero, 0)
            lowest = -(2**31) - min(zero, 0)
            # y <= highest iff v*m + half < (highest + 1) * 2^shift.
            half = 1 << (shift - 1)
            top = -((half - ((highest + 1) << shift)) // m) - 1
            bottom = -(-((lowest << shift) - half) // m)
            for v, holds in ((top, True), (top + 1, False), (bottom, True), (bottom - 1, False)):
                if case.input_bounds[0] <= v <= case.input_bounds[1]:
                    yield case, v, holds


def test_unpredictable_is_refused_and_says_where(capfd: pytest.CaptureFixture[str]) -> None:
    checked = {True: 0, False: 0}
    for case, x, holds in at_the_bounds():
        source = stored([case.input_zp, case.input_zp, x, case.input_zp], case.in_t)
        verdict, theirs = rescale(case, source)
        assert verdict is (Verdict.VALID if holds else Verdict.UNPREDICTABLE), (case, x)
        if holds:
            assert theirs is not None
            assert run(case, source).tolist() == theirs.tolist(), (case, x)
        else:
            with pytest.raises(PreconditionError) as caught:
                run(case, source)
            of_the_multiplier = not (case.multiplier[0] >= 0 and 2 <= case.shift[0] <= 62)
            assert caught.value.index == (0 if of_the_multiplier else 2), (case, x)
        checked[holds] += 1
    tell(f"{checked[False]} graphs unpredictable to both, {checked[True]} beside them to neither", capfd)
    assert min(checked.values()) > 150


@pytest.mark.parametrize(
    ("case", "x", "theirs"),
    [
        (replace(I8, shift=(63,)), 0, 0),
        (replace(I8, multiplier=(-1,), shift=(2,)), 100, -25),
        (replace(I32, shift=(10,)), 512, 512 << 20),
        (replace(SIXTEEN, in_t="i48", multiplier=(1 << 14,)), 2**31, -(2**31)),
        (replace(SIXTEEN, multiplier=(1 << 14,)), 2**31 - 64, -(2**31)),
    ],
)
def test_what_only_the_inexact_model_takes(case: Rescale, x: int, theirs: int) -> None:
    inexact = replace(case, rounding_mode="INEXACT_ROUND")
    source = stored([0, 0, x, 0], case.in_t)
    verdict, output = rescale(inexact, source)
    assert verdict is Verdict.VALID
    assert output is not None
    assert output[2] == theirs
    with pytest.raises(PreconditionError):
        run(inexact, source)


@pytest.mark.parametrize(
    "change", [{"multiplier": (2**31,)}, {"multiplier": (2**15,), "scale32": False}, {"shift": (128,)}]
)
def test_numbers_that_the_operands_cannot_hold(change: dict[str, Any]) -> None:
    with pytest.raises(ParameterError):
        plan(replace(I8, **change))
