"""Words of 32 bits: their transposition, and AWQ's, which hold the codes of eight rows."""

from __future__ import annotations

import numpy as np

from requant.kernels.jit.jit import kernel
from requant.kernels.jit.processor import prefer_wide_vectors
from requant.kernels.jit.signature import I64, U8, U32, In, Out

# Rows and columns at a time: a line of the cache.
_TILE = 16


@kernel()
def transpose_words(source: In[U32], rows: I64, columns: I64, target: Out[U32]) -> None:
    """target [columns, rows] = the transpose of source [rows, columns]."""
    prefer_wide_vectors()
    for top in range(0, rows, _TILE):
        bottom = min(top + _TILE, rows)
        for left in range(0, columns, _TILE):
            right = min(left + _TILE, columns)
            for column in range(left, right):
                for row in range(top, bottom):
                    target[column * rows + row] = source[row * columns + column]


@kernel()
def pack_eight_rows(codes: In[U8], columns: I64, words: Out[U32]) -> None:
    """words [rows / 8, columns] of codes [rows, columns] below 16: row (0, 2, 4, 6, 1, 3, 5, 7)[i] of eight has the
    bits [4i, 4i + 4)."""
    prefer_wide_vectors()
    for at in range(0, words.size, columns):
        target = words[at : at + columns]
        first = codes[8 * at :]
        for column in range(columns):
            even = np.uint32(first[column]) | np.uint32(first[2 * columns + column]) << np.uint32(4)
            even |= np.uint32(first[4 * columns + column]) << np.uint32(8)
            even |= np.uint32(first[6 * columns + column]) << np.uint32(12)
            odd = np.uint32(first[columns + column]) | np.uint32(first[3 * columns + column]) << np.uint32(4)
            odd |= np.uint32(first[5 * columns + column]) << np.uint32(8)
            odd |= np.uint32(first[7 * columns + column]) << np.uint32(12)
            target[column] = even | odd << np.uint32(16)


@kernel()
def unpack_eight_rows(words: In[U32], columns: I64, codes: Out[U8]) -> None:
    """The codes of `pack_eight_rows` again."""
    prefer_wide_vectors()
    for at in range(0, words.size, columns):
        source = words[at : at + columns]
        for i in range(8):
            # Half byte i is of row 2i, and from the fifth on of row 2i - 7.
            row = 2 * i if i < 4 else 2 * i - 7
            begin = 8 * at + row * columns
            target = codes[begin : begin + columns]
            for column in range(columns):
                target[column] = (source[column] >> np.uint32(4 * i)) & np.uint32(15)
