"""The report as one HTML file with plots, without external resources or scripts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from html import escape
from math import floor, log10

from requant.checkpoint.plan.dry_run import schemes_text
from requant.checkpoint.verify.report import CheckpointReport, WeightError
from requant.checkpoint.verify.structure import Fault

MAX_ROWS = 2000
"""The most weights in the table: those with the lowest ratio of signal to noise."""

_WIDTH, _HEIGHT, _LEFT, _BOTTOM = 960, 260, 64, 24
_COLORS = ("#0b6e99", "#b3541e", "#3d7a3d", "#7a4b94", "#8a6d00", "#a23b57", "#3b5fa2", "#555555")
_STYLE = """
:root { color-scheme: light dark; font: 15px/1.45 system-ui, sans-serif; }
body { margin: 2rem auto; max-width: 64rem; padding: 0 1rem; }
h1 { font-size: 1.4rem; } h2 { font-size: 1.1rem; margin-top: 2rem; }
svg { width: 100%; height: auto; } svg text { font-size: 11px; fill: currentColor; }
.axis { stroke: currentColor; stroke-opacity: .25; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .2rem 1rem; }
dd { margin: 0; overflow-wrap: anywhere; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th, td { padding: .2rem .5rem; text-align: right; border-bottom: 1px solid #8884; }
th:first-child, td:first-child { text-align: left; overflow-wrap: anywhere; font-weight: normal; }
.fault { color: #b3261e; } .legend span { margin-right: 1rem; } .legend i { display: inline-block; width: .7em;
height: .7em; margin-right: .35em; border-radius: 50%; }
"""


def report_page(report: CheckpointReport) -> str:
    """Return the text of an HTML page about a report."""
    parts = [
        "<!doctype html>",
        '<html lang="en"><head><meta charset="utf-8"><title>Checkpoint report</title>',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">",
        f"<style>{_STYLE}</style></head><body>",
        "<h1>Checkpoint report</h1>",
        _summary(report),
        _faults(report),
    ]
    weights = report.weights
    if weights:
        kinds = _kinds(weights)
        parts += [
            "<h2>Signal-to-quantization-noise ratio, dB</h2>",
            "<p>One dot per weight, in file order. Higher is better.</p>",
            _legend(kinds),
            _plot(weights, kinds, _ratio, "dB", logarithmic=False),
            "<h2>Scales</h2>",
            "<p>The smallest and the largest scale of each weight. A long line means that its rows, groups or blocks "
            "have very different ranges.</p>",
            _plot(weights, kinds, _scales, "scale", logarithmic=True),
            "<h2>Weights</h2>",
            _table(weights),
        ]
    return "\n".join([*parts, "</body></html>", ""])


def _summary(report: CheckpointReport) -> str:
    verification = report.verification
    rows: list[tuple[str, str]] = [("Checkpoint", report.checkpoint)]
    if report.source is not None:
        rows.append(("Source", report.source))
    if report.verification.conversion is not None:
        request = report.verification.conversion.request
        scheme = schemes_text(request) if request.schemes else "none (dequantized)"
        rows += [("Scheme", scheme), ("Profile", request.profile)]
        if request.ignore:
            rows.append(("Ignored", ", ".join(request.ignore)))
    compared = f"{verification.tensors_compared} of {verification.tensors}, {verification.bytes_compared} bytes"
    if verification.sample < 1:
        compared += f" (a sample of {verification.sample:.3g} of the tensors, seed {verification.seed})"
    rows += [
        ("Tensors compared with the source", compared if report.source is not None else "none"),
        ("Files whose SHA-256 was checked", str(verification.files_hashed)),
    ]
    if report.weights:
        elements = sum(each.shape[0] * each.shape[1] for each in report.weights)
        bits = sum(each.bits * each.shape[0] * each.shape[1] for each in report.weights) / elements
        rows.append(("Quantized weights", f"{len(report.weights)}, {elements} elements, {bits:.3f} bits each"))
    return "<dl>" + "".join(f"<dt>{escape(name)}</dt><dd>{escape(value)}</dd>" for name, value in rows) + "</dl>"


def _faults(report: CheckpointReport) -> str:
    faults, warnings = report.verification.faults, report.verification.warnings
    text = "<p>No errors found.</p>"
    if faults:
        text = f'<div class="fault"><p>{len(faults)} faults:</p>{_listed(faults)}</div>'
    return text + (f"<div><p>{len(warnings)} warnings:</p>{_listed(warnings)}</div>" if warnings else "")


def _listed(faults: Sequence[Fault]) -> str:
    lines = (
        f"<li>{escape(', '.join([*(name for name in (each.file, each.tensor) if name), each.detail]))}</li>"
        for each in faults[:MAX_ROWS]
    )
    return f"<ul>{''.join(lines)}</ul>"


def _kinds(weights: Sequence[WeightError]) -> dict[str, str]:
    """Return a color for the last part of each module's name; the eighth for all beyond."""
    names = list(dict.fromkeys(_kind(each) for each in weights))
    return {name: _COLORS[min(at, len(_COLORS) - 1)] for at, name in enumerate(names)}


def _kind(weight: WeightError) -> str:
    return weight.module.rpartition(".")[2]


def _legend(kinds: dict[str, str]) -> str:
    shown = list(kinds.items())[: len(_COLORS) - 1]
    if len(kinds) > len(shown):
        shown.append(("others", _COLORS[-1]))
    items = (f'<span><i style="background:{color}"></i>{escape(name)}</span>' for name, color in shown)
    return f'<p class="legend">{"".join(items)}</p>'


def _ratio(weight: WeightError) -> tuple[float, float] | None:
    ratio = weight.error.sqnr_db
    return None if ratio is None else (ratio, ratio)


def _scales(weight: WeightError) -> tuple[float, float] | None:
    low, high = weight.scale_minimum, weight.scale_maximum
    return None if low is None or high is None else (low, high)


def _plot(
    weights: Sequence[WeightError],
    kinds: dict[str, str],
    span: Callable[[WeightError], tuple[float, float] | None],
    unit: str,
    *,
    logarithmic: bool,
) -> str:
    """Return an SVG with a dot, or a line from low to high, for each weight."""
    spans = [(at, each, span(each)) for at, each in enumerate(weights)]
    drawn = [(at, each, pair) for at, each, pair in spans if pair is not None and (pair[0] > 0 or not logarithmic)]
    if not drawn:
        return "<p>No data.</p>"

    def scaled(value: float) -> float:
        return log10(value) if logarithmic else value

    ticks = _ticks(min(scaled(pair[0]) for _, _, pair in drawn), max(scaled(pair[1]) for _, _, pair in drawn))
    low, high = ticks[0], ticks[-1]

    def x(at: int) -> float:
        return _LEFT + (at + 0.5) / len(weights) * (_WIDTH - _LEFT - 8)

    def y(value: float) -> float:
        return 8 + (high - scaled(value)) / (high - low) * (_HEIGHT - _BOTTOM - 8)

    marks = []
    for tick in ticks:
        at = 8 + (high - tick) / (high - low) * (_HEIGHT - _BOTTOM - 8)
        label = f"{10**tick:.2g}" if logarithmic else f"{tick:g}"
        marks.append(
            f'<line class="axis" x1="{_LEFT}" x2="{_WIDTH - 8}" y1="{at:.1f}" y2="{at:.1f}"/>'
            f'<text x="{_LEFT - 6}" y="{at + 4:.1f}" text-anchor="end">{label}</text>'
        )
    for at, each, (bottom, top) in drawn:
        color = kinds[_kind(each)]
        text = f"{bottom:.6g}" if bottom == top else f"{bottom:.6g} to {top:.6g}"
        title = f"<title>{escape(each.module)}: {text} {unit}</title>"
        if bottom == top:
            marks.append(f'<circle cx="{x(at):.1f}" cy="{y(top):.1f}" r="3" fill="{color}">{title}</circle>')
        else:
            marks.append(
                f'<line x1="{x(at):.1f}" x2="{x(at):.1f}" y1="{y(bottom):.1f}" y2="{y(top):.1f}" '
                f'stroke="{color}" stroke-width="3" stroke-linecap="round">{title}</line>'
            )
    return f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="{unit} of each weight">{"".join(marks)}</svg>'


def _ticks(low: float, high: float) -> list[float]:
    """Return four to eleven round numbers, the first not above `low` and the last not below `high`."""
    span = max(high - low, 1e-6)
    unit = 10 ** floor(log10(span))
    step = next(unit * factor for factor in (0.2, 0.5, 1, 2) if span / (unit * factor) <= 8)
    first = floor(low / step)
    count = max(2, -floor(-(high - first * step) / step) + 1)
    return [round((first + at) * step, 12) for at in range(count)]


def _table(weights: Sequence[WeightError]) -> str:
    ordered = sorted(weights, key=lambda each: (each.error.sqnr_db is not None, each.error.sqnr_db or 0.0, each.module))
    shown = ordered[:MAX_ROWS]
    note = "" if len(shown) == len(ordered) else f"<p>The {len(shown)} with the lowest ratio, of {len(ordered)}.</p>"
    names = ("Weight", "Shape", "Bits", "Scale", "Saturated", "Mean error", "Largest error", "SQNR, dB")
    return "\n".join(
        [
            note,
            "<table><thead><tr>" + "".join(f'<th scope="col">{name}</th>' for name in names) + "</tr></thead><tbody>",
            *(_row(_cells(each)) for each in shown),
            "</tbody></table>",
        ]
    )


def _cells(each: WeightError) -> Iterable[str]:
    out, columns = each.shape
    yield each.module
    yield f"{out} × {columns}"
    yield f"{each.bits:.3f}"
    yield "" if each.scale_minimum is None else f"{each.scale_minimum:.3g} to {each.scale_maximum:.3g}"
    yield f"{each.saturated / (out * columns):.3%}"
    for value in (each.error.mean_absolute_error, each.error.max_absolute_error):
        yield "" if value is None else f"{value:.3g}"
    yield "" if each.error.sqnr_db is None else f"{each.error.sqnr_db:.2f}"


def _row(cells: Iterable[str]) -> str:
    first, *others = cells
    return (
        f'<tr><th scope="row">{escape(first)}</th>' + "".join(f"<td>{escape(each)}</td>" for each in others) + "</tr>"
    )
