"""Runs a plan: reads the source in pieces of rows, converts them in threads, writes and commits the outputs."""
