"""Histograms and percentiles: numpy's own counts, plain lists, several tensors, any pieces, any layout."""

from __future__ import annotations

import math
from itertools import pairwise
from math import prod
from time import thread_time
from typing import Any

import numpy as np
import pytest

from requant.calibration.finished_type import PerAxis
from requant.calibration.methods import CALIBRATION_METHODS, CalibratedRanges
from requant.errors import LimitError, ParameterError, PreconditionError
from requant.kernels.statistics.histogram import EQUAL_EDGES, HISTOGRAM, HISTOGRAM_BETWEEN, bin_of_share
from tests.core.calibration.methods.observation import Array, find, samples, target
from tests.oracles import calibration as oracle
from tests.support.cases import EXHAUSTIVE

LANES = ("<f4", "<f8")


def count(values: Array, first: Any, last: Any, bins: int) -> Array:
    counts = np.zeros(bins, np.int64)
    ends = (np.array([end], values.dtype) for end in (first, last))
    HISTOGRAM[values.dtype.str](values, np.array([0, values.size]), *ends, np.array([bins]), bins, counts)
    return counts


@pytest.mark.sample(1)
@pytest.mark.parametrize("lanes", LANES)
def test_counts_are_numpys(lanes: str) -> None:
    """Also of numbers on the edges, beyond the ends, and of ranges whose edges hardly differ."""
    rng = np.random.default_rng(1)
    compared = 0
    for _ in range(2000):
        bins = int(rng.integers(1, 90))
        values = samples(rng, int(rng.integers(1, 200)), 10.0 ** rng.integers(-40, 30)).astype(lanes)
        first, last = np.sort(rng.choice(values, 2))
        edges = np.linspace(first, last, bins + 1, dtype=lanes)
        if not (edges[:-1] < edges[1:]).all():
            continue
        values = np.concatenate([values, edges, np.nextafter(edges, -np.inf), np.nextafter(edges, np.inf)])
        found = count(values, first, last, bins)
        assert found.tolist() == np.histogram(values, bins, range=(first, last))[0].tolist()
        assert found.tolist() == oracle.count_between(values, oracle.equal_edges(first, last, bins))
        compared += 1
    assert compared > 1000


@pytest.mark.parametrize("lanes", LANES)
def test_any_pieces_give_the_same(lanes: str) -> None:
    rng = np.random.default_rng(2)
    values = samples(rng, 9000).astype(lanes)
    edges = np.linspace(-1.0, 1.0, 8)
    results = []
    for pieces in (1, 2, 5):
        cuts = [0, *sorted(rng.integers(0, values.size + 1, pieces - 1).tolist()), values.size]
        equal, between = np.zeros(7, np.int64), np.zeros(7, np.int64)
        for begin, end in rng.permutation(list(pairwise(cuts))).tolist():
            part = values[begin:end]
            equal += count(part, -2.0, 1.5, 7)
            HISTOGRAM_BETWEEN[lanes](part, np.array([0, part.size]), edges, np.array([7]), 7, between)
        results.append((equal.tolist(), between.tolist()))
    assert results[0] == results[1] == results[2]
    assert results[0][1] == np.histogram(values, edges)[0].tolist()


def test_rows_are_counted_apart() -> None:
    rng = np.random.default_rng(3)
    rows = [samples(rng, size) for size in (3, 2000, 1, 700)]
    offsets = np.concatenate([[0], np.cumsum([row.size for row in rows])])
    bins, stride = np.array([5, 9, 1, 7]), 11
    firsts, lasts = np.array([-3, -1, -2, 0], np.float32), np.array([3, 2, 2, 1], np.float32)
    counts = np.zeros(4 * stride, np.int64)
    HISTOGRAM["<f4"](np.concatenate(rows), offsets, firsts, lasts, bins, stride, counts)
    for index, row in enumerate(rows):
        expected = np.histogram(row, bins[index], range=(firsts[index], lasts[index]))[0]
        assert counts[index * stride : index * stride + bins[index]].tolist() == expected.tolist()
        assert not counts[index * stride + bins[index] : (index + 1) * stride].any()


def percentile_or_none(tensors: list[Array], **options: Any) -> CalibratedRanges | None:
    """What is found, or None where numpy would refuse the edges, or the histogram would grow without end."""
    try:
        return find("percentile", tensors, **options)
    except (PreconditionError, LimitError):
        return None


@pytest.mark.parametrize("magnitudes", [False, True])
def test_percentiles(*, magnitudes: bool) -> None:
    """One tensor or several, which grow the histogram, against lists."""
    rng = np.random.default_rng(4)
    compared = 0
    for _ in range(600 if EXHAUSTIVE else 150):
        scale = 10.0 ** rng.integers(-30, 30)
        size = int(rng.integers(1, 80))
        tensors = [samples(rng, size, scale * rng.choice([0.5, 1.0, 2.0])) for _ in range(rng.integers(1, 5))]
        bins, share = int(rng.choice([1, 7, 20, 64, 300])), float(rng.choice([0, 50, 90, 99, 99.999, 100]))
        found = percentile_or_none(tensors, bins=bins, percentile=share, magnitudes=magnitudes)
        if found is None:
            continue
        with np.errstate(all="ignore"):
            expected = oracle.percentile(tensors, share, bins, magnitudes=magnitudes)
        assert (found.minimums.tolist(), found.maximums.tolist()) == ([expected[0]], [expected[1]])
        compared += 1
    assert compared > (350 if EXHAUSTIVE else 80)


@pytest.mark.parametrize("lanes", ["<f2", "<f8"])
def test_percentiles_of_other_elements(lanes: str) -> None:
    """f16 is widened to f32, f64 is computed in f64."""
    rng = np.random.default_rng(5)
    for _ in range(50):
        tensors = [samples(rng, 60).astype(lanes) for _ in range(2)]
        wide = [tensor.astype("<f4" if lanes == "<f2" else lanes) for tensor in tensors]
        for magnitudes in (False, True):
            found = percentile_or_none(tensors, bins=50, percentile=90.0, magnitudes=magnitudes)
            if found is not None:
                expected = oracle.percentile(wide, 90.0, 50, magnitudes=magnitudes)
                assert (found.minimums.tolist(), found.maximums.tolist()) == ([expected[0]], [expected[1]])


@pytest.mark.parametrize(
    ("shape", "blocks"), [((6, 50), (1, 50)), ((50, 6), (50, 1)), ((9, 70), (4, 32)), ((5, 6, 7), (2, 3, 7))]
)
def test_each_parameter_has_a_histogram_of_its_own(shape: tuple[int, ...], blocks: tuple[int, ...]) -> None:
    rng = np.random.default_rng(6)
    # As if each block were a tensor by itself; of very different sizes, so that they grow differently.
    scales = np.exp(rng.normal(size=prod(shape))).astype(np.float32)
    tensors = [rng.normal(size=prod(shape)).astype(np.float32) * scales for _ in range(3)]
    for magnitudes in (False, True):
        found = find(
            "percentile",
            [tensor.reshape(shape) for tensor in tensors],
            blocks=blocks,
            bins=16,
            percentile=80.0,
            magnitudes=magnitudes,
        )
        for index, group in enumerate(oracle.members(shape, blocks)):
            expected = oracle.percentile([tensor[group] for tensor in tensors], 80.0, 16, magnitudes=magnitudes)
            assert (found.minimums[index], found.maximums[index]) == expected


def test_many_rows_are_done_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(7)
    tensor = rng.normal(size=(300, 20)).astype(np.float32)
    whole = find("percentile", [tensor], blocks=(1, 20), bins=30, percentile=75.0)
    monkeypatch.setattr("requant.calibration.methods.histograms._MAX_COUNTS", 1000)
    parts = find("percentile", [tensor], blocks=(1, 20), bins=30, percentile=75.0)
    assert whole.minimums.tolist() == parts.minimums.tolist()
    assert whole.maximums.tolist() == parts.maximums.tolist()


def test_nan_is_left_out_and_counted() -> None:
    rng = np.random.default_rng(8)
    tensors = [samples(rng, 200).reshape(10, 20) for _ in range(2)]
    holes = [tensor.copy() for tensor in tensors]
    for tensor in holes:
        tensor[rng.random(tensor.shape) < 0.3] = np.nan
    missing = sum(int(np.isnan(tensor).sum()) for tensor in holes)
    for blocks in ((10, 20), (1, 20), (3, 20)):
        found = find("percentile", holes, blocks=blocks, bins=10, percentile=80.0)
        assert found.left_out == missing
        for index, group in enumerate(oracle.members((10, 20), blocks)):
            kept = [t.ravel()[group][~np.isnan(t.ravel()[group])] for t in holes]
            expected = oracle.percentile(kept, 80.0, 10, magnitudes=False)
            assert (found.minimums[index], found.maximums[index]) == expected
    # The first tensor for magnitudes has to be without, as for numpy's histogram.
    with pytest.raises(PreconditionError, match="NaN; this method does not allow it"):
        find("percentile", holes, magnitudes=True)
    found = find("percentile", [tensors[0], holes[1]], bins=10, percentile=80.0, magnitudes=True)
    assert found.left_out == np.isnan(holes[1]).sum()


def test_what_has_no_histogram_is_refused() -> None:
    values = np.array([1.0, -2.0, 0.5], np.float32)
    with pytest.raises(PreconditionError, match="infinite") as caught:
        find("percentile", [values, np.array([1, np.inf, -np.inf], np.float32)])
    assert (caught.value.index, caught.value.pointer) == (1, "/inputs/1")
    with pytest.raises(PreconditionError, match="every element of range 1 is NaN"):
        find("percentile", [np.array([[1, 2], [np.nan, np.nan]], np.float32)], blocks=(1, 2))
    # numpy: too many bins for the range; and -3e38 to 3e38 has no width in f32.
    with pytest.raises(PreconditionError, match="range 0 has no histogram"):
        find("percentile", [np.array([1e-45, -1e-45], np.float32)])
    with pytest.raises(PreconditionError, match="range 1 has no histogram"):
        find("percentile", [np.array([[1, 2], [3e38, -3e38]], np.float32)], blocks=(1, 2))
    # One huge magnitude: m - 0.5 to m + 0.5 is no range.
    with pytest.raises(PreconditionError, match="no histogram"):
        find("percentile", [np.array([1e9, 1e9], np.float32)], magnitudes=True)
    for magnitudes in (False, True):
        with pytest.raises(LimitError, match="range 0 would grow to more than 65536 bins"):
            find("percentile", [values, values * np.float32(1e9)], magnitudes=magnitudes)


@pytest.mark.parametrize(("method", "high"), [("percentile", 1 - 2 / 2048), ("entropy", 1.0)])
def test_one_number_has_a_scale(method: str, high: float) -> None:
    """Its percentile is the lower edge of its bin, below the number itself; the parameters are of a range with 0."""
    wanted = target("u8", "onnxruntime", PerAxis(0, 2))
    options: dict[str, Any] = {"bins": 2048} if method == "percentile" else {}
    found = find(method, [np.array([[1, 1], [-1, -1]], np.float32)], wanted, (1, 2), **options)
    assert (found.minimums.tolist(), found.maximums.tolist()) == ([1, -1], [high, -1])
    parameters = CALIBRATION_METHODS[method].parameters(found, wanted)
    assert parameters.scales.tolist() == [np.float32(high / 255), np.float32(1 / 255)]
    assert parameters.zero_points.tolist() == [0, 255]


@pytest.mark.parametrize("share", [-1e-9, 100.1, math.nan, math.inf])
def test_percentile_is_one(share: float) -> None:
    with pytest.raises(ParameterError, match="from 0 to 100") as caught:
        find("percentile", [np.ones(2, np.float32)], percentile=share)
    assert caught.value.pointer == "/percentile"


@pytest.mark.parametrize("bins", [0, -1, 8193, 10**30])
def test_bins_are_bounded(bins: int) -> None:
    for method in ("percentile", "entropy", "entropy_model_optimizer", "torch_histogram"):
        with pytest.raises(ParameterError, match="bins must be from") as caught:
            find(method, [np.ones(2, np.float32)], bins=bins)
        assert caught.value.pointer == "/bins"


@pytest.mark.sample(1)
@pytest.mark.parametrize("magnitudes", [False, True])
def test_the_work_of_all_tensors_is_limited(magnitudes: bool) -> None:
    """Many tensors of many rows, each bin of which is made or moved with each tensor; and rows that grow in turn."""
    rng = np.random.default_rng(11)
    tensors = [(1 + step / 200) * rng.standard_normal((1000, 20)).astype(np.float32) for step in range(200)]
    begun = thread_time()
    with pytest.raises(LimitError, match="bins of all ranges in all tensors"):
        find("percentile", tensors, blocks=(1, 20), magnitudes=magnitudes, bins=2048)
    assert thread_time() - begun < 10


@pytest.mark.parametrize("lanes", LANES)
def test_edges_and_shares_are_numpys(lanes: str) -> None:
    """Rows of different lengths side by side, empty bins, and shares that are met exactly, at once, or never."""
    rng = np.random.default_rng(12)
    for _ in range(300):
        bins = rng.integers(1, 40, 5)
        firsts = rng.standard_normal(5).astype(lanes)
        lasts = firsts + np.abs(rng.standard_normal(5)).astype(lanes) + np.dtype(lanes).type(0.1)
        stride = int(bins.max()) + 1
        edges = np.empty((5, stride), lanes)
        assert EQUAL_EDGES[lanes](firsts, lasts, bins, stride, edges.reshape(-1)) == 5
        for row, count_ in enumerate(bins.tolist()):
            assert edges[row, : count_ + 1].tolist() == oracle.equal_edges(firsts[row], lasts[row], count_)
            assert np.isinf(edges[row, count_ + 1 :]).all()
        counts = rng.integers(0, 4, (5, stride)) * rng.integers(0, 2, (5, stride))
        counts[:, rng.integers(stride)] += 1
        cumulative = np.cumsum(counts / counts.sum(axis=1, keepdims=True), axis=1)
        for share in (0.0, 0.5, float(rng.choice(cumulative.ravel())), 1.0, 1.5):
            found = np.empty(5, np.int64)
            bin_of_share(counts.reshape(-1), stride, share, found)
            assert found.tolist() == (cumulative < share).sum(axis=1).tolist()
    lasts[3] = firsts[3]
    assert EQUAL_EDGES[lanes](firsts, lasts, bins, stride, edges.reshape(-1)) == 3
