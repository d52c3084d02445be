"""One plan, run by several processes: each plans again, makes its share of the outputs, and the last one finishes."""
