"""Kernels of whole checkpoints: rows of a weight to the tensors that store it, and back."""
