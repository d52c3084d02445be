"""Whole checkpoints: time, memory and bytes, beside the libraries that write the same files."""
