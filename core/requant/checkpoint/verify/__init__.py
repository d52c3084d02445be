"""Verification of a converted checkpoint against its source, its quantization error, and differences of checkpoints."""
