"""The plan for a checkpoint, from its headers alone: tasks, headers of the outputs, sizes, refusals."""
