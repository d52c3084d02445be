"""Conversions in one process: ours beside other libraries on the same data, and beside a copy of the same traffic.

Each group of rows runs in a process of its own (`python -m benchmarks.kernels GROUP`), so that one group's threads and
memory do not disturb the next one's.
"""
