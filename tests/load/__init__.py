"""The service under load: `python -m tests.load` (see `__main__`)."""
