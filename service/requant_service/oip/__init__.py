"""The models of the Open Inference Protocol: the operations, each with its tensors and parameters described once."""
