"""Storage of checkpoints: a directory, or a prefix in an object store."""
