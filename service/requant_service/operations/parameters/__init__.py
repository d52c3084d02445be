"""Scales, zero points and multipliers that requests state, as numbers and as tensors."""
