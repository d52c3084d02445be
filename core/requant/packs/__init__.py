"""Packs of test vectors: what a profile or scheme gives, as files with test benches, and a runner for kernels."""
