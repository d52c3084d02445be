"""Triton Inference Server with a Python model of the same arithmetic."""
