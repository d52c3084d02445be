"""The files of a checkpoint's directory: safetensors files, their index, config.json, and files that are copied."""
