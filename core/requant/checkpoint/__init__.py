"""Whole models: files are streamed, quantized or dequantized, and written in the form that other programs load.

    headers -> plan  -> task            -> rows   -> weight format -> files
               (pure)   (one output file)  (read)    (arithmetic)     (written in place, committed last)

The plan follows from the source's headers alone, so it can be printed, repeated on another machine and compared. Each
task makes one output file from ranges of the source and depends on no other task.
"""
