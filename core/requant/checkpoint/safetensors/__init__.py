"""The safetensors format: dtypes, headers, the order in which the library writes tensors."""
