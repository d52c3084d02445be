"""Our service beside Triton Inference Server, whose model in Python does the same arithmetic with numba."""
