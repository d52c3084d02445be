"""Whether two rules give the same for every input: decided, counted, and certified for others to check.

A rule is a conversion of single numbers by one set of parameters: a requantization, a quantization, a dequantization, a
cast. `rules` makes them from what plans take; `decision` compares two, by thresholds where both are monotone
(`formulas`, `staircases`), by computing every input elsewhere (`sweep`).
"""
