"""GGUF files: reading, planning, and writing with other tensor types. Source: ggml's gguf.md, version 3."""
