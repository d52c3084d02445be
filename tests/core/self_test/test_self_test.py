"""Every known answer from the exact oracle, and that a wrong one is found."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numba import typeof, types
from numpy.typing import NDArray

import requant.kernels.jit.warmup  # noqa: F401  # for all kernels
from requant.errors import SelfTestError
from requant.kernels.contract.accumulate import (
    MULTIPLY_BYTES,
    PACK_COLUMNS_OF_BYTES,
    PACK_ROWS_OF_BYTES,
)
from requant.kernels.convert.byte_table import HAS_TABLES, look_up
from requant.kernels.convert.quantize.native import QUANTIZE
from requant.kernels.jit.jit import Kernel, _registry
from requant.kernels.jit.processor import HAS_FMA
from requant.plan.plan import unpack
from requant.profiles import PROFILES, Operation
from requant.schemes import SCHEMES as SCHEME_NAMES
from requant.self_test import self_test
from requant.self_test.digest import digest
from requant.self_test.known_calls import KNOWN_CALLS, KnownCall
from requant.self_test.known_conversions import ELEMENTS, KNOWN_ANSWERS, KnownAnswer, inputs
from requant.self_test.known_gguf import KNOWN_GGUF
from requant.self_test.known_sums import KNOWN_SUMS, KnownSums
from requant.self_test.known_weights import KNOWN_SCALES, KNOWN_WEIGHT_LAYOUTS, KNOWN_WEIGHTS
from tests.oracles import casts as cast_oracle
from tests.oracles import profiles as profile_oracle
from tests.oracles import quantiles as quantile_oracle
from tests.oracles import rounded_casts as rounded_cast_oracle
from tests.oracles import schemes as scheme_oracle
from tests.oracles import small_floats as small_float_oracle
from tests.oracles.rounded_casts import RULES
from tests.support.cases import sample_each

I8 = profile_oracle.target("i8")


def storage_of(element: str) -> tuple[str, str]:
    """The storage and the expressed type of a type text."""
    storage, _, expressed = element.removeprefix("!quant.uniform<").partition(", ")[0].partition(":")
    return storage, expressed.partition(":")[0]


def parameters(element: str, index: int = 0) -> tuple[float, int]:
    """The scale and zero point of an element of the tensor, of a type text."""
    listed = element.removesuffix(">").partition(", ")[2].strip("{}").split(", ")
    scale, _, zero_point = listed[index % len(listed)].partition(":")
    return float(scale), int(zero_point or 0)


def values_of(known: KnownAnswer) -> list[float]:
    """The real numbers that are quantized, exactly."""
    given = inputs(known.plan())
    if known.input_element == "bf16":
        given = (given.astype(np.uint32) << 16).view(np.float32)
    return [float(x) for x in given]


def quantized(known: KnownAnswer) -> NDArray[Any]:
    to = known.output_element
    if known.profile == "quantile":
        expressed = known.input_element
        nearest = quantile_oracle.quantizer(quantile_oracle.Table(QUANTILES, expressed), expressed, 16.0, 0)
        return np.array([nearest(x).value for x in values_of(known)], np.uint8)
    if known.profile in RULES:
        width = rounded_cast_oracle.FORMATS[to].width
        return np.array(list(rounded_casts(known)), np.uint16 if width == 16 else np.uint8)
    if not to.startswith("!"):
        codes = [cast_oracle.cast(known.profile, known.input_element, to, x).code for x in values_of(known)]
        return np.array(codes, np.uint8)
    storage, expressed = storage_of(to)
    if storage.startswith("f8"):
        # 0.5 is exact, and so is each quotient.
        codes = [cast_oracle.cast(known.profile, expressed, storage, x / 0.5).code for x in values_of(known)]
        return np.array(codes, np.uint8)
    target = profile_oracle.target(storage, expressed, "per_axis" if "{" in to else "per_tensor")
    quantize = profile_oracle.QUANTIZE[known.profile]
    stored = [quantize(x, *parameters(to, index), target) for index, x in enumerate(values_of(known))]
    return np.array([each.value for each in stored if each is not None], f"int{storage[1:]}")


def rounded_casts(known: KnownAnswer) -> Iterator[int]:
    """The codes, those of stochastic rounding with the seed 0."""
    for index, x in enumerate(values_of(known)):
        random = (rounded_cast_oracle.DRAWN, rounded_cast_oracle.drawn(0, index))
        code = rounded_cast_oracle.cast(
            known.profile, known.output_element, x, rounding=known.rounding, random=random
        ).code
        assert code is not None
        yield code


def dequantized(known: KnownAnswer) -> NDArray[Any]:
    given, expressed = inputs(known.plan()).tolist(), known.output_element
    dtype = {"f16": np.float16, "f32": np.float32, "f64": np.float64}[expressed]
    if known.profile == "quantile":
        table = quantile_oracle.Table(QUANTILES, expressed)
        return np.array([quantile_oracle.dequantize(table, expressed, 16.0, 0, q) for q in given], dtype)
    storage, _ = storage_of(known.input_element)
    if storage.startswith("f8"):
        codes = [small_float_oracle.value_of(storage, q & 0x7F) for q in given]
        signs = [-1.0 if q >> 7 else 1.0 for q in given]
        reals = [float("nan") if isinstance(c, str) else float(abs(c)) for c in codes]
        return np.array([np.copysign(x, s) * 0.5 for x, s in zip(reals, signs, strict=True)], dtype)
    target = profile_oracle.target(storage, expressed)
    scale, zero_point = parameters(known.input_element)
    return np.array([profile_oracle.dequantize(known.profile, q, scale, zero_point, target) for q in given], dtype)


QUANTILES = (-1.0, -0.25, 0.25, 1.5)
SCHEMES = {
    "litert_xnnpack": "xnnpack_fp32",
    "onnx": "onnxruntime",
    "onnx_1_32": "onnxruntime",
    "torch": "fbgemm",
    "torch_2_14": "fbgemm",
}


def rescaled(known: KnownAnswer, q: int) -> int:
    """The requantization of one stored number."""
    (source, z_in), (target, z_out) = parameters(known.input_element), parameters(known.output_element)
    storage, _ = storage_of(known.input_element)
    bounds = profile_oracle.target(storage_of(known.output_element)[0])
    if known.profile in ("onednn", "torch_decomposed"):
        real = profile_oracle.dequantize(known.profile, q, source, z_in, profile_oracle.target(storage))
        stored = profile_oracle.QUANTIZE[known.profile](real, target, z_out, I8)
        assert stored is not None
        return stored.value
    converts = known.profile == "litert_xnnpack" and storage == "i8"
    scheme = known.scheme or ("xnnpack_cvt8" if converts else SCHEMES.get(known.profile, known.profile))
    factor = scheme_oracle.factor(scheme, source, None, target)
    derived = scheme_oracle.derive(scheme, factor)
    assert derived is not None
    m, shift, _ = derived
    found = scheme_oracle.requantized(scheme, q, z_in, m, shift, z_out, (bounds.lo, bounds.hi), factor)
    assert found is not None
    return found


# One at least of each profile, operation and scheme.
CHECKED = sample_each(KNOWN_ANSWERS, lambda known: (known.profile, known.operation, known.scheme, known.rounding), 1)


@pytest.mark.sample(5)
@pytest.mark.parametrize(
    "known",
    CHECKED,
    ids=lambda k: f"{k.operation}-{k.profile}-{k.scheme or k.rounding}-{k.input_element}-{k.output_element}",
)
def test_the_oracle_gives_each_known_answer(known: KnownAnswer) -> None:
    expected = answer(known)
    assert expected.size == ELEMENTS
    assert digest([expected]) == known.digest


def answer(known: KnownAnswer) -> NDArray[Any]:
    if known.operation is Operation.QUANTIZE:
        return quantized(known)
    if known.operation is Operation.DEQUANTIZE:
        return dequantized(known)
    storage, _ = storage_of(known.output_element)
    dtype = f"{'u' * (storage[0] == 'u')}int{storage[1:]}"
    return np.array([rescaled(known, q) for q in inputs(known.plan()).tolist()], dtype)


def test_every_system_has_a_known_answer() -> None:
    # LiteRT with single rounding differs in requantize only, and there it has its own.
    answered = {known.profile for known in KNOWN_ANSWERS}
    assert len(answered) == 21
    assert {PROFILES[name].source for name in answered} == {profile.source for profile in PROFILES.values()}


def test_every_scheme_has_a_known_answer() -> None:
    answered = {known.scheme or known.profile for known in KNOWN_ANSWERS if known.operation is Operation.REQUANTIZE}
    assert {scheme for scheme in SCHEME_NAMES if scheme not in answered} == {"xnnpack_cvt8"}


@pytest.mark.parametrize("known", KNOWN_SUMS, ids=lambda k: f"{k.lhs}-{k.rhs}-{k.accumulator}-{k.weights}")
def test_numpy_gives_the_known_sums(known: KnownSums) -> None:
    assert digest([sums(known)]) == known.digest


def sums(known: KnownSums) -> NDArray[Any]:
    """In int64, which holds them all; int32 is that modulo 2^32."""
    lhs, rhs = (each.astype(np.int64) for each in known.factors())
    a, b = lhs - 3, rhs + 5
    if known.weights is not None:
        padded = np.pad(a, ((0, 0), (1, 1), (1, 1), (0, 0)))
        outputs, _, _, depth = known.weights
        expected = np.zeros((*lhs.shape[:3], outputs), np.int64)
        for output in range(outputs):
            first = output // (outputs * depth // lhs.shape[3]) * depth
            for i in range(3):
                for j in range(3):
                    seen = padded[:, i : i + 9, j : j + 11, first : first + depth]
                    expected[..., output] += seen @ b[output, i, j]
    else:
        expected = a @ b
    return expected.astype("<i4" if known.accumulator == "i32" else "<i8")


def test_wrong_sums_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(self_test, "KNOWN_SUMS", (replace(KNOWN_SUMS[0], digest="0" * 16),))
    with pytest.raises(SelfTestError, match="products of int8 by int8 in i32 gave"):
        self_test.run_self_test()


def test_it_passes_here() -> None:
    self_test.run_self_test()


def test_a_wrong_bit_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = replace(KNOWN_ANSWERS[3], digest="0" * 16)
    monkeypatch.setattr(self_test, "KNOWN_ANSWERS", (*KNOWN_ANSWERS[:3], wrong, *KNOWN_ANSWERS[4:]))
    with pytest.raises(
        SelfTestError, match=rf"quantize of f32 .* under {wrong.profile} gave {KNOWN_ANSWERS[3].digest}"
    ):
        self_test.run_self_test()


def test_a_known_call_that_fails_is_a_wrong_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Packed bytes with bits after the last code are refused, whoever set them: then, too, kernels are recompiled."""

    def refused() -> list[NDArray[Any]]:
        return [unpack(np.array([0x80], np.uint8), 7, 1, np.dtype(np.int8))]

    monkeypatch.setattr(self_test, "KNOWN_CALLS", (KnownCall("packed i7", refused, "0" * 16),))
    with pytest.raises(SelfTestError, match="packed i7 failed: the last 1 bits"):
        self_test.run_self_test()


Specialisation = tuple[Kernel, int]

# What is flipped in a wrong element: of floats, the first bit behind the point, for what is rounded to f16 later.
BIT = {"<f4": 1 << 22, "<f8": 1 << 51}


def unreachable() -> set[Specialisation]:
    """What no request can reach on this CPU."""
    kernels = [] if HAS_TABLES else [look_up]
    if MULTIPLY_BYTES is None:
        kernels += [PACK_ROWS_OF_BYTES, PACK_COLUMNS_OF_BYTES]
    if not HAS_FMA:
        # What takes the place of a division needs it.
        kernels += [kernel for form, kernel in QUANTIZE.items() if form.multiplied]
    return {(kernel, 0) for kernel in kernels}


def specialisation(kernel: Kernel, arguments: tuple[Any, ...]) -> Specialisation:
    """Which of a kernel's signatures is called: the one whose first array has the dtype of the argument."""
    if len(kernel._signatures) == 1:
        return kernel, 0
    (index,) = (
        index
        for index, signature in enumerate(kernel._signatures)
        if signature.args[0].dtype == typeof(arguments[0]).dtype  # type: ignore[no-untyped-call]
    )
    return kernel, index


@contextmanager
def calls_pass_through(pass_on: Callable[[Kernel, Callable[..., Any], tuple[Any, ...]], Any]) -> Iterator[None]:
    """Let a function make all calls of kernels."""
    for kernel in _registry:
        kernel.compile()
    before = {kernel: kernel._call for kernel in _registry}
    try:
        for kernel, call in before.items():
            kernel._call = lambda *arguments, kernel=kernel, call=call: pass_on(kernel, call, arguments)
        yield
    finally:
        for kernel, call in before.items():
            kernel._call = call


def runs() -> list[Callable[[], str]]:
    """Each known answer by itself."""
    return [
        *(call.actual for call in (*KNOWN_CALLS, *KNOWN_WEIGHTS, *KNOWN_WEIGHT_LAYOUTS, *KNOWN_SCALES, *KNOWN_GGUF)),
        *(known.actual for known in KNOWN_SUMS),
        *(known.actual for known in KNOWN_ANSWERS),
    ]


def reached() -> dict[Specialisation, list[Callable[[], str]]]:
    """The known answers that each specialisation has a part in."""
    found: dict[Specialisation, list[Callable[[], str]]] = defaultdict(list)
    for run in runs():

        def note(kernel: Kernel, call: Callable[..., Any], arguments: tuple[Any, ...], run: Any = run) -> Any:
            if run not in found[specialisation(kernel, arguments)]:
                found[specialisation(kernel, arguments)].append(run)
            return call(*arguments)

        with calls_pass_through(note):
            run()
    return found


def shown(which: Specialisation) -> str:
    kernel, index = which
    return f"{kernel._function.__module__}.{kernel._function.__qualname__}{kernel._signatures[index].args[0]}"


def test_every_specialisation_of_every_kernel_is_run() -> None:
    # Other tests have kernels of their own.
    kernels = [each for each in _registry if each._dispatcher.py_func.__module__.startswith("requant.kernels.")]
    all_of_them = {(kernel, index) for kernel in kernels for index in range(len(kernel._signatures))}
    assert len(all_of_them) > 100
    missing = all_of_them - set(reached()) - unreachable()
    assert not sorted(map(shown, missing))


def outputs(kernel: Kernel, index: int) -> list[int]:
    """The places of the arguments that a specialisation writes to."""
    arguments = kernel._signatures[index].args
    return [place for place, each in enumerate(arguments) if isinstance(each, types.Array) and each.mutable]


def one_wrong_element(which: Specialisation, output: int, picks: np.random.Generator) -> Callable[..., Any]:
    """Make calls, and give one element that they changed of that output another bit.

    Counts are left as they are: those of conversions are not among the answers.
    """

    def call_wrongly(kernel: Kernel, call: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
        if specialisation(kernel, arguments) != which:
            return call(*arguments)
        array = arguments[outputs(*which)[output]]
        before = array.copy()
        result = call(*arguments)
        bits = array.view(f"u{array.itemsize}")
        changed = np.flatnonzero(bits != before.view(bits.dtype))
        if output == 0 or array.size > 16:
            # Memory that was not initialized may have held the same before.
            bits[picks.choice(changed if changed.size else bits.size)] ^= BIT.get(array.dtype.str, 1)
        return result

    return call_wrongly


def test_one_wrong_element_of_any_specialisation_is_found() -> None:
    picks = np.random.default_rng(1)
    found = 0
    for which, parts in reached().items():
        right = [run() for run in parts]
        for output in range(len(outputs(*which))):
            wrong = []
            with calls_pass_through(one_wrong_element(which, output, picks)):
                for run in parts:
                    try:
                        wrong.append(run())
                    except Exception as error:  # as good as a wrong digest
                        wrong.append(str(error))
            assert wrong != right or output > 0, shown(which)
            found += wrong != right
    assert found > 110
