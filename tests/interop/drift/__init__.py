"""The watch on systems that move: live comparisons with their newest releases, and what changed since when."""
