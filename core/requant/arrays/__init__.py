"""The operations on numpy arrays, in this process."""
