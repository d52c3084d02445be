"""Conversions that run in the background and record their progress at the destination, where any process can read
it."""
