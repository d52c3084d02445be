"""Scales and zero points that are found in data as the first half of a quantization."""
