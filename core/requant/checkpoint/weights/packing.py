"""Codes of 1 to 8 bits in words of 32: element i of a row takes bits [i * b, (i + 1) * b), the lowest bit first.

A row begins with a word and ends with zeros up to a whole one. Loose words have gaps: no code lies across two.
"""

from __future__ import annotations

from math import gcd

import numpy as np

from requant.checkpoint.weights.floats import Array
from requant.kernels.checkpoint.words import transpose_words
from requant.kernels.convert.packing import PACK, UNPACK
from requant.kernels.jit.jit import Kernel

_WORD = 32


def words(count: int, bits: int) -> int:
    """Return how many words so many codes take."""
    return -(-count * bits // _WORD)


def whole(bits: int) -> int:
    """Return how many codes take whole words, without a code across two."""
    return _WORD // gcd(_WORD, bits)


def padded(count: int, bits: int) -> int:
    """Return `count` as a multiple of `whole`."""
    return -(-count // whole(bits)) * whole(bits)


def packed(codes: Array, bits: int, count: int) -> Array:
    """Return the words, as int32, of rows of `count` codes: bytes below 2^bits, [rows, `padded`], C-contiguous."""
    if bits == 8:
        return codes.view("<i4")
    target = np.empty((codes.shape[0], codes.shape[1] * bits // 8), np.uint8)
    PACK[1](codes.reshape(-1), target.reshape(-1), bits)
    # Rows of widths that do not divide 32 were packed with words that they do not have.
    return np.ascontiguousarray(target.view("<i4")[:, : words(count, bits)])


def unpacked(stored: Array, bits: int, count: int) -> Array:
    """Return the codes of rows of `words`, as bytes: [rows, at least `count`]."""
    if bits == 8:
        return np.ascontiguousarray(stored).view(np.uint8)
    length = padded(count, bits)
    if stored.shape[1] * _WORD == length * bits:
        source = np.ascontiguousarray(stored)
    else:
        source = np.zeros((stored.shape[0], length * bits // _WORD), "<i4")
        source[:, : stored.shape[1]] = stored
    codes = np.empty((stored.shape[0], length), np.uint8)
    UNPACK[1](source.view(np.uint8).reshape(-1), codes.reshape(-1), bits, np.uint64(0))
    return codes


def loose_codes(bits: int) -> int:
    """Return how many codes a word has where none lies across two."""
    return _WORD // bits


def loose_words(count: int, bits: int) -> int:
    """Return how many such words so many codes take."""
    return -(-count // loose_codes(bits))


def loosely_unpacked(stored: Array, bits: int) -> Array:
    """Return the codes of such words, whose highest bits have none, as bytes: [rows, codes of whole words]."""
    shifts = np.arange(loose_codes(bits), dtype=np.uint32) * np.uint32(bits)
    words_by_row = np.ascontiguousarray(stored).view(np.uint32)[..., None]
    codes = (words_by_row >> shifts & np.uint32((1 << bits) - 1)).astype(np.uint8)
    return codes.reshape(stored.shape[0], -1)


def packing_kernels(bits: int) -> tuple[Kernel, ...]:
    """Return the kernels of `packed` and `packed_bytes`."""
    return () if bits == 8 else (PACK[1],)


def unpacking_kernels(bits: int) -> tuple[Kernel, ...]:
    """Return the kernels of `unpacked` and `unpacked_bytes`."""
    return () if bits == 8 else (UNPACK[1],)


def packed_bytes(codes: Array, bits: int) -> Array:
    """Return rows of codes whose bits are whole bytes, densely packed: [rows, columns * bits / 8]."""
    target = np.empty((codes.shape[0], codes.shape[1] * bits // 8), np.uint8)
    PACK[1](codes.reshape(-1), target.reshape(-1), bits)
    return target


def unpacked_bytes(stored: Array, bits: int) -> Array:
    """Return the codes of rows of densely packed bytes, one to a byte: [rows, 8 / bits * bytes of a row]."""
    codes = np.empty((stored.shape[0], 8 * stored.shape[1] // bits), np.uint8)
    UNPACK[1](np.ascontiguousarray(stored).reshape(-1), codes.reshape(-1), bits, np.uint64(0))
    return codes


def transposed_words(stored: Array) -> Array:
    """Return the transpose of a matrix of words, C-contiguous."""
    source = np.ascontiguousarray(stored)
    target = np.empty(source.shape[::-1], source.dtype)
    transpose_words(source.reshape(-1).view(np.uint32), *source.shape, target.reshape(-1).view(np.uint32))
    return target
