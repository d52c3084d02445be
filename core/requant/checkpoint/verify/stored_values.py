"""Stored values of quantized weights that no quantizer of the layout writes, found in one pass.

| stored | fault |
| --- | --- |
| scales in BF16, F16, F32 | NaN, infinite, negative (not with GPTQ's symmetric codes), 0 of a code that is not 0 |
| scales in E4M3 (NVFP4) | NaN, negative, 0 of a code that is not 0 |
| scales in E8M0 (MX formats, UE8M0) | 255: the NaN, or infinite, or 2^128, by the loader; 0 is 2^-127 |
| `weight_global_scale`, `weight_scale_2`, `pre_quant_scale` | NaN, infinite, negative, 0 |
| FP8 codes | NaN, and of E5M2 infinite |
| integers of fewer than 8 bits in bytes, and their zero points | beyond the bits |
| FP6 codes in bytes | bits beyond the six |
| the bits of a packed row that hold no code | not 0; for NF4 not 7, the code of 0 |
| zero points of GPTQ with symmetric codes | not half of the range, which loaders take for them without looking |
| `g_idx` | a group that there is not |
| NF4's `quant_map` | not finite, not ascending |
| LLM.int8's codes, `weight_format` | -128; not 0, the order of rows |
| scales of activations | NaN, infinite, negative, 0 |
| all codes of a weight | stand for 0 |

compressed-tensors, GPTQ and AWQ write no scale of 0 for zeros, but an epsilon; NF4 and LLM.int8 write 0, and so do
other programs in NVFP4. Such a scale is no fault where its codes stand for 0. Packed codes of all bits are not read,
except for scales of 0 and until one is found that is not 0.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from math import isfinite, prod
from typing import NamedTuple

import numpy as np

from requant.checkpoint.plan.dequantization import ACTIVATIONS
from requant.checkpoint.plan.model import DequantizeStep, Plan, QuantizedSource, SourceRange
from requant.checkpoint.plan.refusals import parameter_of
from requant.checkpoint.plan.source import Source
from requant.checkpoint.run.stored_weight import Files, QuantizedWeight, row_ranges
from requant.checkpoint.run.work import in_threads
from requant.checkpoint.safetensors.header import DTYPES
from requant.checkpoint.storage.store import Store
from requant.checkpoint.verify.structure import Fault
from requant.checkpoint.weights import llm_int8, nf4, quark, torchao
from requant.checkpoint.weights.awq import Awq
from requant.checkpoint.weights.block_scaled import MxWeight, Nvfp4Weight
from requant.checkpoint.weights.compressed_tensors import FloatQuantized, IntQuantized, PackQuantized
from requant.checkpoint.weights.fine_grained_fp8 import FineGrainedFp8
from requant.checkpoint.weights.floats import EPSILON, Array, values
from requant.checkpoint.weights.gptq import Gptq
from requant.checkpoint.weights.llm_int8 import LlmInt8
from requant.checkpoint.weights.model_optimizer import (
    SCALE_2,
    SMOOTHING,
    FloatGroups,
    Int4RowPairs,
    ModelOptimizerWeight,
)
from requant.checkpoint.weights.mxfp4 import GPT_OSS, Mxfp4, Mxfp4Experts
from requant.checkpoint.weights.nf4 import Nf4, is_written_state
from requant.checkpoint.weights.packing import packed, padded
from requant.errors import CheckpointError
from requant.errors.cancellation import check_cancelled

Wrong = Iterator[tuple[str, Array]]
Check = Callable[[Array, int], Wrong]
"""Yields what elements of a piece of a stored tensor are, and which. The piece begins at a flat index of the tensor."""

_WORD = 32
_ZERO = "0"
_ONES: Mapping[str, float] = {"BF16": 0x3F80, "F16": 0x3C00, "F32": 1.0, "F8_E4M3": 0x38}
"""The bits of 1, or its value, as `DTYPES[dtype].array` holds it."""
_E8M0_NAN = 255
_E5M2_LARGEST = 0x7B
_SIX_BITS = 1 << 6
_FIRST_BYTES = 64 << 10


def check_stored_values(
    plan: Plan, source: Source, store: Store, *, threads: int | None = None
) -> tuple[tuple[Fault, ...], tuple[Fault, ...]]:
    """Return the faults of the stored values of a quantized checkpoint, and what is unusual without being one.

    `plan`: the one that dequantizes it. Raises StorageError, SourceChangedError.
    """
    files = Files.of(store, plan.sources)
    calls = [partial(_check_weight, files, step.source) for step in plan.steps if isinstance(step, DequantizeStep)]
    calls += [
        partial(_check_activation, files, SourceRange.of(name, entry))
        for name, shard in source.shards.items()
        for entry in shard.header.tensors
        if parameter_of(entry.name)[1] in ACTIVATIONS and entry.name.endswith("scale") and entry.dtype in EPSILON
    ]
    results = list(in_threads(lambda call: call(), calls, threads))
    faults = tuple(fault for each in results for fault in each.faults)
    return faults, tuple(fault for each in results for fault in each.unusual)


@dataclass(slots=True)
class _Findings:
    faults: list[Fault] = field(default_factory=list)
    unusual: list[Fault] = field(default_factory=list)


def _check_activation(files: Files, source: SourceRange) -> _Findings:
    return _Findings([_fault(source, each) for each in _violations(files, source, _scales(source.dtype))])


def _check_weight(files: Files, source: QuantizedSource) -> _Findings:
    findings, weight = _Findings(), QuantizedWeight(files, source)
    scales = next((suffix for suffix in _SCALES if suffix in source.stored), None)
    codes = next(iter(source.stored.values()))
    zero_scales = None
    # A fault is named by its place in the tensor, not in the matrix that it is read as.
    shapes = {}
    if isinstance(source.format, Mxfp4Experts):
        shapes = {each.suffix: each.shape for each in source.format.stored(source.dtype, source.shape)}
    for suffix, checks in _checks(source).items():
        for check in checks:
            for each in _violations(files, source.stored[suffix], check):
                if each.what == _ZERO and suffix == scales:
                    zero_scales = each
                else:
                    stored = source.stored[suffix]
                    findings.faults.append(_fault(replace(stored, shape=shapes.get(suffix, stored.shape)), each))
    try:
        if zero_scales is not None and scales is not None:
            lost = _codes_without_scale(weight, scales)
            if lost is not None:
                detail = f"{_fault(source.stored[scales], zero_scales).detail}; their codes are not all 0, and are lost"
                findings.faults.append(Fault(detail, codes.file, source.stored[scales].tensor, lost))
            elif not isinstance(source.format, Nf4 | LlmInt8):
                findings.unusual.append(_fault(source.stored[scales], zero_scales))
        if not findings.faults and _is_zero(weight, codes):
            findings.faults.append(Fault("all codes stand for 0: the whole weight is 0", codes.file, codes.tensor))
    except CheckpointError as error:
        if not findings.faults:
            findings.faults.append(Fault(error.detail, codes.file, error.tensor or codes.tensor))
    return findings


class _Violation(NamedTuple):
    """`what`: the elements are. `first`: flat index of the first."""

    what: str
    elements: int
    first: int


def _fault(source: SourceRange, violation: _Violation) -> Fault:
    total = prod(source.shape)
    index = tuple(int(each) for each in np.unravel_index(violation.first, source.shape)) if source.shape else ()
    which = f"{violation.elements} of {total} values are" if total > 1 else "the value is"
    where = f", the first at {list(index)}" if total > 1 else ""
    return Fault(f"{which} {violation.what}{where}", source.file, source.tensor, index)


def _violations(files: Files, source: SourceRange, check: Check) -> list[_Violation]:
    """Return what is wrong in a stored tensor, reading it once in pieces."""
    dtype = np.dtype(DTYPES[source.dtype].array)
    size = max(files.store.read_size // dtype.itemsize, 1) * dtype.itemsize
    violations: dict[str, _Violation] = {}
    for at in range(source.begin, source.end, size):
        check_cancelled()
        begin = (at - source.begin) // dtype.itemsize
        piece = files.read(source.file, at, min(at + size, source.end)).view(dtype)
        for what, wrong in check(piece, begin):
            places = np.flatnonzero(wrong)
            if places.size:
                before = violations.get(what, _Violation(what, 0, begin + int(places[0])))
                violations[what] = before._replace(elements=before.elements + places.size)
    return list(violations.values())


_SCALES = ("weight_scale", "weight_scale_inv", "scale", "scales", nf4.ABSMAX, torchao.SCALE, llm_int8.SCALE)


def _checks(source: QuantizedSource) -> dict[str, tuple[Check, ...]]:
    """Return the checks of stored tensors, by suffix."""
    stored, (out, columns), form = source.stored, source.shape, source.format
    match form:
        case IntQuantized():
            within = (_integers(form.bits),) if form.bits < 8 else ()
            codes: dict[str, tuple[Check, ...]] = {
                suffix: within for suffix in ("weight", "weight_zero_point") if suffix in stored
            }
            return {"weight_scale": (_scales(stored["weight_scale"].dtype),), **codes}
        case PackQuantized():
            checks: dict[str, tuple[Check, ...]] = {"weight_scale": (_scales(stored["weight_scale"].dtype),)}
            if form.loose:
                return checks
            if used := columns * form.bits % _WORD:
                checks["weight_packed"] = (_row_ends(stored["weight_packed"].shape[1], used),)
            if "weight_zero_point" in stored and (used := out * form.bits % _WORD):
                words, each = stored["weight_zero_point"].shape
                checks["weight_zero_point"] = (_last_row((words - 1) * each, used),)
            return checks
        case FloatQuantized():
            return {"weight": (_e4m3_codes,), "weight_scale": (_scales(stored["weight_scale"].dtype),)}
        case Nvfp4Weight():
            return {"weight_scale": (_e4m3_scales,), "weight_global_scale": (_scales("F32"),)}
        case MxWeight():
            return {"weight_scale": (_e8m0_scales,), **({"weight": (_e4m3_codes,)} if form.bits == 8 else {})}
        case FineGrainedFp8():
            dtype = stored[form.scale].dtype
            return {"weight": (_e4m3_codes,), form.scale: (_scales("F32") if dtype == "F32" else _e8m0_scales,)}
        case Mxfp4():
            return {form.layout.scales: (_e8m0_scales,)}
        case Mxfp4Experts():
            return {GPT_OSS.scales: (_finite_e8m0_scales,)}
        case Gptq():
            return _gptq_checks(form, stored, out)
        case Awq():
            return {"scales": (_scales(stored["scales"].dtype),)}
        case Nf4():
            return _nf4_checks(form, out * columns)
        case LlmInt8():
            order = {llm_int8.ORDER: (_in_rows,)} if form.states_order else {}
            return {llm_int8.SCALE: (_scales("F32"),), "weight": (_lowest_integers,), **order}
        case ModelOptimizerWeight():
            smoothing = {} if form.smoothing is None else {SMOOTHING: (_scales(form.smoothing),)}
            return {**_checks(replace(source, format=form.layout)), **smoothing}
        case FloatGroups():
            codes = {"weight": (_e4m3_codes,)} if form.bits == 8 else {}
            if not form.has_second_scale:
                return {"weight_scale": (_e8m0_scales,), **codes}
            return {"weight_scale": (_e4m3_scales,), SCALE_2: (_scales("F32"),)}
        case Int4RowPairs():
            return {"weight_scale": (_scales(stored["weight_scale"].dtype),)}
        case torchao.TorchAoWeight():
            return _torchao_checks(form, stored)
        case quark.QuarkWeight():
            return _quark_checks(form, stored)
    raise TypeError(form)


def _gptq_checks(form: Gptq, stored: Mapping[str, SourceRange], out: int) -> dict[str, tuple[Check, ...]]:
    groups, words = stored["qzeros"].shape
    zero_points: tuple[Check, ...] = ()
    used = out * form.bits % _WORD
    if used:
        zero_points += (_row_ends(words, used),)
    if form.symmetric:
        stated = (1 << (form.bits - 1)) - (2 - form.version)
        codes = np.full((1, padded(out, form.bits)), stated, np.uint8)
        expected = packed(codes, form.bits, out)[0].view(np.uint32)
        if used:
            expected[-1] &= np.uint32((1 << used) - 1)
        zero_points += (_equal_to(expected, "other zero points than those of symmetric codes", used),)
    scales = _scales(stored["scales"].dtype, signed=form.symmetric)
    of_groups = {"g_idx": (_below(groups),)} if "g_idx" in stored else {}
    return {"scales": (scales,), "qzeros": zero_points, **of_groups}


def _nf4_checks(form: Nf4, count: int) -> dict[str, tuple[Check, ...]]:
    checks: dict[str, tuple[Check, ...]] = {nf4.QUANTILES: (_finite, _ascending), nf4.STATE: (_state,)}
    if count % 2:
        checks[nf4.WEIGHT] = (_last_half(count // 2),)
    if form.nested:
        # Equal scales have a nested one of 0.
        return {**checks, nf4.NESTED_ABSMAX: (_finite,), nf4.NESTED_VALUES: (_finite, _ascending)}
    return {**checks, nf4.ABSMAX: (_scales("F32"),)}


def _torchao_checks(form: torchao.TorchAoWeight, stored: Mapping[str, SourceRange]) -> dict[str, tuple[Check, ...]]:
    scales, codes = stored[torchao.SCALE].dtype, stored[torchao.QDATA].dtype
    of_codes: dict[str, tuple[Check, ...]] = {"F8_E4M3": (_e4m3_codes,), "F8_E5M2": (_e5m2_codes,)}
    of_scales = {"F8_E8M0": _e8m0_scales, "F8_E4M3": _filled_up if form.swizzled else _e4m3_scales}
    checks: dict[str, tuple[Check, ...]] = {
        torchao.QDATA: of_codes.get(codes, ()),
        torchao.SCALE: (of_scales[scales] if scales in of_scales else _scales(scales),),
    }
    match form:
        case torchao.Int8TensorWeight() if form.bits < 8:
            within = {each: (_integers(form.bits),) for each in (torchao.QDATA, torchao.ZERO_POINT) if each in stored}
            return checks | within
        case torchao.MxTensorWeight() if form.element.startswith("fp6"):
            return checks | {torchao.QDATA: (_six_bits,)}
        case torchao.Nvfp4TensorWeight() if form.has_tensor_scale:
            return checks | {torchao.TENSOR_SCALE: (_scales("F32"),)}
    return checks


def _quark_checks(form: quark.QuarkWeight, stored: Mapping[str, SourceRange]) -> dict[str, tuple[Check, ...]]:
    by_dtype: dict[str, Check] = {"U8": _e8m0_scales, "F8_E4M3": _e4m3_scales}
    scales = stored[quark.SCALE].dtype
    of_codes = {"F8_E4M3": (_e4m3_codes,), "F8_E5M2": (_e5m2_codes,)}.get(stored[quark.WEIGHT].dtype, ())
    second = {quark.SECOND_SCALE: (_scales("F32"),)} if quark.SECOND_SCALE in stored else {}
    return {quark.WEIGHT: of_codes, quark.SCALE: (by_dtype.get(scales) or _scales(scales),), **second}


def _filled_up(piece: Array, begin: int) -> Wrong:
    """Check scales of which those are 0 that fill up a tile."""
    return (each for each in _e4m3_scales(piece, begin) if each[0] != _ZERO)


def _scales(dtype: str, *, signed: bool = False) -> Check:
    def check(piece: Array, begin: int) -> Wrong:
        numbers = values(piece, dtype)
        if signed:
            numbers = np.abs(numbers)
        # A NaN makes both extremes one.
        low, high = float(numbers.min()), float(numbers.max())
        if low > 0 and isfinite(high):
            return
        yield "NaN", np.isnan(numbers)
        yield "infinite", np.isinf(numbers)
        yield "negative", (numbers < 0) & np.isfinite(numbers)
        yield _ZERO, numbers == 0

    return check


def _e4m3_scales(piece: Array, begin: int) -> Wrong:
    if int(piece.min()) > 0 and int(piece.max()) < 0x7F:
        return
    magnitudes = piece & np.uint8(0x7F)
    yield "NaN", magnitudes == 0x7F
    yield "negative", (piece > 0x80) & (magnitudes != 0x7F)
    yield _ZERO, magnitudes == 0


def _e8m0_scales(piece: Array, begin: int) -> Wrong:
    if int(piece.max()) == _E8M0_NAN:
        yield "NaN", piece == _E8M0_NAN


def _finite_e8m0_scales(piece: Array, begin: int) -> Wrong:
    if int(piece.max()) == _E8M0_NAN:
        yield "255, which is 2^128 to the loaders of gpt-oss and NaN to all others", piece == _E8M0_NAN


def _e4m3_codes(piece: Array, begin: int) -> Wrong:
    magnitudes = piece & np.uint8(0x7F)
    if int(magnitudes.max()) == 0x7F:
        yield "NaN", magnitudes == 0x7F


def _e5m2_codes(piece: Array, begin: int) -> Wrong:
    magnitudes = piece & np.uint8(0x7F)
    if int(magnitudes.max()) > _E5M2_LARGEST:
        yield "infinite", magnitudes == _E5M2_LARGEST + 1
        yield "NaN", magnitudes > _E5M2_LARGEST + 1


def _six_bits(piece: Array, begin: int) -> Wrong:
    if int(piece.max()) >= _SIX_BITS:
        yield "bytes with bits beyond the code", piece >= _SIX_BITS


def _integers(bits: int) -> Check:
    highest = (1 << (bits - 1)) - 1

    def check(piece: Array, begin: int) -> Wrong:
        if int(piece.min()) < -highest - 1 or int(piece.max()) > highest:
            yield f"outside of [{-highest - 1}, {highest}]", (piece < -highest - 1) | (piece > highest)

    return check


def _lowest_integers(piece: Array, begin: int) -> Wrong:
    if int(piece.min()) == -128:
        yield "-128", piece == -128


def _in_rows(piece: Array, begin: int) -> Wrong:
    yield "an order of codes for tensor cores", piece != llm_int8.ROWS


def _below(count: int) -> Check:
    def check(piece: Array, begin: int) -> Wrong:
        if int(piece.min()) < 0 or int(piece.max()) >= count:
            yield f"outside of the {count} groups", (piece < 0) | (piece >= count)

    return check


def _row_ends(columns: int, used: int) -> Check:
    """Check that the last word of each row holds only `used` bits."""

    def check(piece: Array, begin: int) -> Wrong:
        wrong = np.zeros(piece.size, np.bool_)
        last = slice((columns - 1 - begin) % columns, None, columns)
        wrong[last] = piece[last].view(np.uint32) >> np.uint32(used) != 0
        if wrong.any():
            yield "words with bits beyond the codes of the row", wrong

    return check


def _last_row(first: int, used: int) -> Check:
    """Check that the words from a flat index on hold only `used` bits."""

    def check(piece: Array, begin: int) -> Wrong:
        wrong = piece.view(np.uint32) >> np.uint32(used) != 0
        wrong[: max(first - begin, 0)] = False
        if wrong.any():
            yield "words with bits beyond the codes of the column", wrong

    return check


def _equal_to(expected: Array, what: str, used: int) -> Check:
    """Check rows of words. `used`: bits of the last word of a row, 0 for all."""

    def check(piece: Array, begin: int) -> Wrong:
        columns = (begin + np.arange(piece.size)) % expected.size
        words = piece.view(np.uint32)
        if used:
            words = np.where(columns == expected.size - 1, words & np.uint32((1 << used) - 1), words)
        yield what, words != expected[columns]

    return check


def _finite(piece: Array, begin: int) -> Wrong:
    yield "not finite", ~np.isfinite(piece)


def _ascending(piece: Array, begin: int) -> Wrong:
    with np.errstate(invalid="ignore"):
        yield "not above the one before", np.append(False, piece[1:] <= piece[:-1])


def _last_half(last: int) -> Check:
    """Check that the half of the byte at a flat index that holds no code holds that of 0."""

    def check(piece: Array, begin: int) -> Wrong:
        at = last - begin
        if 0 <= at < piece.size and int(piece[at]) & 15 != nf4.ZERO:
            yield "bytes with bits beyond the codes", np.arange(piece.size) == at

    return check


def _state(piece: Array, begin: int) -> Wrong:
    if not is_written_state(piece.tobytes()):
        yield "bytes of a quant_state with other members than bitsandbytes writes", np.ones(piece.size, np.bool_)


def _codes_without_scale(weight: QuantizedWeight, suffix: str) -> tuple[int, ...] | None:
    """Return the place in the weight of the first code that is not 0 where the scale is; None without one."""
    for begin, end in row_ranges(weight):
        stored = weight.rows(begin, end)
        scales, dtype = stored.parts[suffix], stored.dtypes[suffix]
        zero = (
            (scales & np.uint8(0x7F)) == 0 if dtype == "F8_E4M3" else values(np.ascontiguousarray(scales), dtype) == 0
        )
        if not zero.any():
            continue
        ones = {**stored.parts, suffix: np.where(zero, scales.dtype.type(_ONES[dtype]), scales)}
        with_ones = weight.format.dequantize(replace(stored, parts=ones), "F32")
        as_stored = weight.format.dequantize(stored, "F32")
        lost = (with_ones != 0) & (as_stored == 0)
        if lost.any():
            row, column = np.unravel_index(int(np.argmax(lost)), lost.shape)
            return begin + int(row), int(column)
    return None


def _is_zero(weight: QuantizedWeight, codes: SourceRange) -> bool:
    """Return whether all of a weight is 0. It is read no further than that it is not."""
    if isinstance(weight.format, Gptq | Awq):
        # Rows are columns of the file: one piece of them is all of it. Equal codes are equal bytes.
        first = weight.files.read(codes.file, codes.begin, min(codes.begin + _FIRST_BYTES, codes.end))
        if (first != first[0]).any():
            return False
    for begin, end in row_ranges(weight):
        check_cancelled()
        if weight.f32(begin, end).any():
            return False
    return True
