"""The `quantization_config` of formats other than compressed-tensors: writing and reading.

Each module has the schemes of one `quant_method`, with the member `quantization_config` that its loaders expect, and
reads that member of other checkpoints.
"""
