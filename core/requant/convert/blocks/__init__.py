"""Formats that keep a shared scale beside each block of elements of the last axis."""
