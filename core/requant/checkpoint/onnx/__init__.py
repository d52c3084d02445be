"""ONNX models: the weights of MatMul and Gemm quantized in blocks, as by onnxruntime's quantizer.

The graph is small and held in memory; the weights are read, converted and written in pieces.
"""
