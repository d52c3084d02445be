"""Dumps of real systems for the blind test: what each computed, apart from which rule of ours stands for it."""
