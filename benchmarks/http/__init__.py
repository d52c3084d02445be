"""Exchanges over HTTP: our service beside others that do the same, or less."""
