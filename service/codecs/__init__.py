"""Bytes on the wire <-> numpy arrays."""
