"""Weights as compressed-tensors stores them: vLLM, SGLang and transformers load these.

Formulas and layouts are those of https://github.com/vllm-project/compressed-tensors, version 0.20.0, each checked
against its output.
"""
