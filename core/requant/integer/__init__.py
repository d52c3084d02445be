"""Integer operations: sums of products of stored integers, and the output stage that makes stored integers of them.

An accumulation (`matmul`, `conv2d`) says what is summed; it knows shapes and zero points, and no scales. A plan adds
bias and output stage, by the rules of a profile.
"""
