"""Vectors: how inputs are found, the reasons for them, and the files that have them."""
