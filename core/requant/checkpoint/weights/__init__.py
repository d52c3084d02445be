"""The ways in which checkpoints store a quantized weight, each with its arithmetic."""
