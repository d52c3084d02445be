"""`python -m benchmarks.http.report`: all that is measured over HTTP, as Markdown."""

from __future__ import annotations

from benchmarks.http.exchanges import SIZES, exchange_rows, exchanges, goal_rows, running
from benchmarks.http.layers import LAYER_HEADER, layer_rows
from benchmarks.http.neighbours import memory_and_start, pauses_of_the_loop, small_beside_giant
from benchmarks.http.server import contenders
from benchmarks.section import Section, table
from requant.kernels.jit.warmup import compile_kernels


def report() -> Section:
    """Measure, and return the section."""
    with running(contenders()) as servers:
        found = exchanges(servers)
        beside = small_beside_giant(servers[0])
    pauses = pauses_of_the_loop()
    tables = {
        "Ratios of p50, one client": (["f32 to i8 per tensor, body of", *SIZES], goal_rows(found)),
        "A 1 KB request beside others": (["beside", "p50 (ms)", "p99 (ms)", "longest (ms)", "p99 / p99 alone"], beside),
        "How late the event loop is": (["beside", "latest beat in 2 s, median (ms)", "longest (ms)"], pauses),
        "Where a small request's time goes": (LAYER_HEADER, layer_rows()),
        "Start and memory": (
            ["server", "first reply after (s)", "idle (MB)", "more at the peak of 64 MB (MB)", "output (MB)"],
            memory_and_start(),
        ),
        "Exchanges": (
            ["body", "clients", "server", "p50 (ms)", "p99 (ms)", "bodies a second"],
            exchange_rows(found),
        ),
    }
    parts = [f"### {title}\n\n{table(header, rows)}" for title, (header, rows) in tables.items()]
    data = {title: [dict(zip(header, row, strict=True)) for row in rows] for title, (header, rows) in tables.items()}
    return Section("HTTP", "\n".join(parts), data)


if __name__ == "__main__":
    compile_kernels()
    print(report().markdown)
