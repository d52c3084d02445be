"""Digests of what every conversion gives, made on one machine and compared with those of another.

`python -m tests.digests --write FILE` runs every case and writes a digest of each. `python -m tests.digests --compare
FILE FILE...` compares such files. `make digests` does both for the levels of x86-64, `make arm64` for those of aarch64.
"""
