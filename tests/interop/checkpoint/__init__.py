"""Whole checkpoints beside the libraries that write and load them. They run where torch is (Makefile)."""
